"""Which addresses of a process came and went."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

import pytest

from nncftools import Session
from nncftools.analysis.build_up import of_peak
from nncftools.render.build_up import as_markdown, build_up_report
from nncftools.render.summary_json import peak_tree, report
from nncftools.render.view import View
from nncftools.snapshots.tree_watch import find_anonymous_ranges
from nncftools.units import MemoryUnit
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
grown = make(60)
time.sleep(0.6)
"""


@pytest.mark.process
def test_rebound_name(tmp_path: pathlib.Path) -> None:
    """After ``weights = convert(weights)``, the memory is convert's: load's addresses went."""
    (tmp_path / "work.py").write_text(PROGRAM)
    words = command_line("monitor", "-q", "--stacks", "-o", "run.json", "--", sys.executable, "work.py")
    subprocess.run(words, cwd=tmp_path, check=True, timeout=HANGING_S)
    session = Session.load(tmp_path / "run.json")
    sampled = zip(session.samples.time_s, session.samples["rss"], strict=True)
    last_s = max(at_s for at_s, rss in sampled if (rss or 0) > 150 << 20)  # a busy machine is slow to tear it down
    words = command_line("report", "run.json", "--peak", "--at", f"{last_s:g}", "-f", "markdown")
    shown = subprocess.run(words, cwd=tmp_path, check=True, timeout=HANGING_S, capture_output=True, text=True).stdout

    assert session.snapshots is not None
    assert session.snapshots.processes[0].ranges
    sizes = dict.fromkeys(("load", "convert"), 0.0)
    for line in shown.splitlines():
        for name in sizes:
            if name in line and line.count("|") > 3:
                sizes[name] += float(line.split("|")[1])
    assert sizes["load"] < 20, shown
    assert sizes["convert"] > 60, shown


ON_THE_HEAP = """import ctypes, time
def load():
    parts = []
    for _ in range(12):
        parts.append(bytearray(b"x") * (8 << 20)); time.sleep(0.02)
    return parts
def convert(old):
    parts = []
    for part in old:
        parts.append(bytearray(part)); time.sleep(0.02)
    return parts
bytearray(24 << 20)
weights = load()
weights = convert(weights)
ctypes.CDLL(None).malloc_trim(0)
grown = bytearray(b"x") * (140 << 20)
time.sleep(0.3)
"""


@pytest.mark.long
@pytest.mark.process
def test_freed_on_the_heap(tmp_path: pathlib.Path) -> None:
    """Once a block of 24 MiB was freed, blocks of 8 MiB are on the heap: convert may hold what load is said to hold."""
    (tmp_path / "work.py").write_text(ON_THE_HEAP)
    words = command_line("monitor", "--details", "--stacks", "-o", "run.json", "--", sys.executable, "work.py")
    shown = subprocess.run(words, cwd=tmp_path, check=True, timeout=HANGING_S, stderr=subprocess.PIPE, text=True).stderr

    assert re.search(r"~\d+ MiB  work.py(:\d+)? load, or work.py convert, which ran later", shown), shown
    session = Session.load(tmp_path / "run.json")
    tree = as_markdown(build_up_report(session, MemoryUnit.MiB))
    assert re.search(r"load, or work.py convert, which ran later +\|", tree), tree
    rise = of_peak(session)
    assert rise is not None
    assert '"or_later":"work.py convert"' in peak_tree(session, rise, "")
    holders = json.loads(report(session, View(["rss"])))["peak"]["build_up"]["holders"]
    assert {"work.py convert"} < {holder["or_later"] for holder in holders}
