"""What operations cost beside children that begin and end with them, by real recordings."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from nncftools.analysis.operation import Operation
from nncftools.analysis.session import Session
from tests.conftest import Run
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


def operations(run: Run, folder: pathlib.Path, program: str, *options: object) -> dict[str, Operation]:
    """Record a program every 50 ms and return its operations by name."""
    script = folder / "work.py"
    script.write_text(_PROGRAM + program)
    words = ("profile", "-q", "--no-plot", "--interval", "0.05", "-o", "out.json.gz", *options, sys.executable, script)
    done = run(*words)
    assert done.returncode == 0, done.stderr
    return {one.name: one for one in session(folder).operations}


def session(folder: pathlib.Path) -> Session:
    """Return the session that was recorded."""
    return Session.load(folder / "out.json.gz")


def change(operation: Operation) -> int:
    """Return by how much RSS grew; fail where that is an estimate."""
    rss = operation.of("rss")
    assert rss.delta is not None
    assert not rss.delta_is_estimate
    return int(rss.delta)


def test_child_just_after_a_mark(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """A child that begins within 10 ms of a mark is not in its figure: the change is 0."""
    found = operations(
        nncf_tools, tmp_path, 'mark_operation("Compile"); subprocess.run(CHILD, check=True)\nmark_operation("After")\n'
    )

    assert abs(change(found["Compile"])) <= _TOLERANCE


@pytest.mark.long
def test_child_in_a_marked_call(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """So it is in calls that the hook marks."""
    text = "import made; made.compiled(CHILD)\n"
    (tmp_path / "made.py").write_text(
        "import subprocess\ndef compiled(words):\n    subprocess.run(words, check=True)\n"
    )
    found = operations(nncf_tools, tmp_path, text, "--mark-call", "made:compiled=Compile")

    assert abs(change(found["Compile"])) <= _TOLERANCE


@pytest.mark.long
def test_child_in_a_profiler(tmp_path: pathlib.Path) -> None:
    """So it is in a program that records itself."""
    text = f"""
with Profiler(0.05) as profiler:
    time.sleep(0.2)
    with profiler.operation("Compile"):
        subprocess.run(CHILD, check=True)
(found,) = profiler.session.operations
rss = found.of("rss")
assert not rss.delta_is_estimate, rss
assert abs(rss.delta) <= {_TOLERANCE}, rss
"""
    script = tmp_path / "work.py"
    script.write_text(_PROGRAM + text)
    subprocess.run([sys.executable, script], check=True, cwd=tmp_path)


@pytest.mark.long
def test_short_operation_that_frees(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """An operation of 1 ms that frees 40 MiB ends without them, and what follows begins so."""
    found = operations(
        nncf_tools,
        tmp_path,
        "held = touch(40); time.sleep(0.2)\n"
        'mark_operation("Free"); held.close()\nmark_operation("After"); time.sleep(0.1)\n',
    )

    assert abs(change(found["Free"]) + 40 * MIB) <= _TOLERANCE
    assert found["After"].rss_start == found["Free"].rss_end
    assert abs(change(found["After"])) <= 2 * MIB


@pytest.mark.long
def test_allocates_at_once(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """What a block allocates at its very beginning is part of its change, and its peak is not below its end."""
    found = operations(nncf_tools, tmp_path, 'with operation("Load"):\n    held = touch(76)\n    time.sleep(0.3)\n')

    assert abs(change(found["Load"]) - 76 * MIB) <= _TOLERANCE


@pytest.mark.long
def test_peak_is_not_below_the_ends(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """The peak of a row is never below its start or end, however short it is."""
    text = (
        'held = []\nfor place in range(40):\n    mark_operation(f"Step {place}"); held.append(touch(1 + place % 5))\n'
    )
    found = operations(nncf_tools, tmp_path, text + "    if place % 7 == 0: held.clear()\n")

    assert len(found) == 41
    for one in found.values():
        ends = [level for level in (one.rss_start, one.rss_end) if level is not None]
        assert len(ends) == 2
        assert one.of("rss").peak is not None
        assert (one.of("rss").peak.likely or 0) >= max(ends)  # type: ignore[union-attr] # not None, as above


def test_freed_just_after_a_mark(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """What is freed right after a mark does not lower the operation before."""
    text = 'mark_operation("Load"); held = touch(200); time.sleep(0.12)\nmark_operation("Free"); held.close()\n'
    found = operations(nncf_tools, tmp_path, text + "time.sleep(0.1)\n")

    assert abs(change(found["Load"]) - 200 * MIB) <= 2 * MIB
    assert (found["Free"].rss_start or 0) - (found["Load"].rss_end or 0) == 0


@pytest.mark.parametrize(
    ("begin", "mark", "end"),
    [
        ("of = Profiler(0.05); of.start()", "of.mark", "of.stop()"),
        pytest.param(
            "of = QEffMemoryProfiler(); of.start_monitoring()",
            "of.mark_operation",
            "of.stop_monitoring()",
            marks=pytest.mark.long,
        ),
    ],
    ids=["Profiler", "QEffMemoryProfiler"],
)
@pytest.mark.long
def test_freed_just_after_a_mark_of_a_profiler(tmp_path: pathlib.Path, begin: str, mark: str, end: str) -> None:
    """So it is in a program that records itself."""
    text = f"""
from nncftools import QEffMemoryProfiler
{begin}
time.sleep(0.2)
{mark}("Load"); held = touch(200)
time.sleep(0.12)
{mark}("Free"); held.close()
time.sleep(0.1)
{end}
by_name = {{one.name: one for one in of.session.operations}}
load, free = by_name["Load"], by_name["Free"]
assert abs(load.delta - (200 << 20)) <= {2 * _TOLERANCE}, load.of("rss")
assert free.rss_start == load.rss_end, free.of("rss")
assert abs(free.delta + (200 << 20)) <= {2 * _TOLERANCE}, free.of("rss")
"""
    script = tmp_path / "work.py"
    script.write_text(_PROGRAM + text)

    subprocess.run([sys.executable, script], check=True, cwd=tmp_path)


@pytest.mark.long
def test_headline(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """The peak belongs to the operation in which memory came near it first, not to the end of the interpreter."""
    text = 'mark_operation("Load"); held = touch(200)\ntime.sleep(0.1)\nmark_operation("Save"); more = touch(1)\n'
    found = operations(nncf_tools, tmp_path, text + "time.sleep(0.05)\nlast = touch(1)\n")
    place = session(tmp_path).peak_place

    assert place is not None
    assert [one.name for one in place.path] == ["Load"]
    assert [name for name, one in found.items() if one.has_peak] == ["Load"]
