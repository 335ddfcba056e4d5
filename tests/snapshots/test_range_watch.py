"""Which addresses of a process came and went."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nncftools import Session
from nncftools.analysis.build_up import of_peak
from nncftools.snapshots.tree_watch import find_anonymous_ranges
from tests.conftest import HANGING_S, command_line

MAPS = b"""\
55d0c0000000-55d0c0001000 r--p 00000000 08:01 131 /usr/bin/python3.11
55d0c1000000-55d0c1200000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000100000 rw-p 00000000 00:00 0
7f0000100000-7f0000200000 rw-p 00000000 00:00 0 [anon: large]
7f0000300000-7f0000400000 r--p 00000000 00:00 0
7f0000480000-7f0000490000 rw-s 00000000 00:01 5 /dev/zero (deleted)
7f0000500000-7f0000600000 rw-p 00000000 08:01 77 /data/weights of mine.bin
7f0003f00000-7f0004000000 rw-p 00000000 00:00 0
7f0004000000-7f0004300000 rw-p 00000000 00:00 0
7f0004300000-7f0008000000 ---p 00000000 00:00 0
7f0009000000-7f0009001000 ---p 00000000 00:00 0
7f0009001000-7f0009801000 rw-p 00000000 00:00 0
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0 [stack]
a line that is cut
"""


def test_anonymous_ranges() -> None:
    """Writable memory without a file counts, neighbours as one; stacks, files and read-only memory do not."""
    ranges, heap = find_anonymous_ranges(MAPS)

    assert ranges == [
        (0x7F0000000000, 0x7F0000200000),
        (0x7F0000480000, 0x7F0000490000),
        (0x7F0003F00000, 0x7F0004000000),
    ]
    assert heap == 0x200000 + 0x300000  # the heap, and an arena that another block lies below


PROGRAM = """import time
def make(mib):
    return bytearray(b"x") * (mib << 20)
def load():
    return make(100)
def convert(old):
    new = make(90)
    time.sleep(0.3)
    return new
weights = load()
time.sleep(0.3)
weights = convert(weights)
time.sleep(0.3)
grown = make(120)
time.sleep(0.3)
"""


@pytest.mark.process
def test_rebound_name(tmp_path: Path) -> None:
    """After ``weights = convert(weights)``, the memory is convert's: load's addresses went."""
    (tmp_path / "work.py").write_text(PROGRAM)
    words = command_line("monitor", "-q", "--stacks", "-o", "run.json", "--", sys.executable, "work.py")
    subprocess.run(words, cwd=tmp_path, check=True, timeout=HANGING_S)
    session = Session.load(tmp_path / "run.json")
    found = of_peak(session)
    assert session.snapshots is not None
    assert found is not None
    held = dict.fromkeys(("load", "convert"), 0)
    for part in found.parts:
        for name in held.keys() & {frame.function for frame in part.stack}:
            held[name] += part.size >> 20

    assert session.snapshots.processes[0].ranges
    assert held["load"] < 20
    assert held["convert"] > 60
