"""What operations cost beside children that begin and end with them, by real recordings."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nncftools.analysis.session import Session
from tests.conftest import HANGING_S, command_line
from tests.made_up import MIB

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /proc"),
]

_CHILD = "held = bytearray(100 << 20); held[::4096] = b'x' * len(held[::4096])"
_PROGRAM = f"""
import mmap, os, subprocess, sys, time
import nncftools
from nncftools import Profiler, mark_operation, operation

CHILD = [sys.executable, "-c", {_CHILD!r}]

def touch(size_mib):
    held = mmap.mmap(-1, size_mib << 20)
    held.madvise(mmap.MADV_NOHUGEPAGE)
    for place in range(0, len(held), 4096):
        held[place] = 1
    return held

mark_operation("Warm"); subprocess.run([sys.executable, "-c", ""], check=True)
time.sleep(0.2)
"""
_TOLERANCE = MIB


_OPERATIONS = """
mark_operation("Compile"); subprocess.run(CHILD, check=True)
with operation("Load"):
    held = touch(200)
    time.sleep(0.12)
mark_operation("Free"); held.close()
mark_operation("After"); time.sleep(0.1)
mark_operation("Small"); held = [touch(40)]
mark_operation("Short"); held.pop().close()
mark_operation("Last"); time.sleep(0.1)
for place in range(20):
    mark_operation(f"Step {place}"); held.append(touch(1 + place % 5))
    if place % 7 == 0: held.clear()
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Record a program every 50 ms."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "work.py").write_text(_PROGRAM + _OPERATIONS)
    words = ("profile", "-q", "--no-plot", "--no-stacks", "--interval", "0.05", "-o", "out.json.gz", sys.executable)
    subprocess.run(command_line(*words, "work.py"), check=True, cwd=folder, timeout=HANGING_S)
    return Session.load(folder / "out.json.gz")


@pytest.mark.parametrize(
    "name, mib",
    [("Compile", 0), ("Load", 200), ("Free", -200), ("After", 0), ("Small", 40), ("Short", -40), ("Last", 0)],
)
def test_change(session: Session, name: str, mib: int) -> None:
    """What a child holds that begins within 10 ms of a mark is not in its figure; what is freed at once is."""
    (found,) = [of for of in session.operations if of.name == name]
    rss = found.of("rss")
    assert rss.delta is not None
    assert not rss.delta_is_estimate
    assert abs(rss.delta - mib * MIB) <= _TOLERANCE


def test_ends(session: Session) -> None:
    """An operation begins with what the one before held at its end; the peak is in the first that came near it."""
    free, after = (of for of in session.operations if of.name in {"Free", "After"})

    assert len(session.operations) == 28
    assert free.rss_end == after.rss_start
    assert session.peak_place is not None
    assert [of.name for of in session.peak_place.path] == ["Load"]
    assert [of.name for of in session.operations if of.has_peak] == ["Load"]
