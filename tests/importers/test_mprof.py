from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from nncftools.errors import SessionFileError
from nncftools.importers import logs
from tests.importers.logs import MPROF, imported
from tests.made_up import mib

CHILDREN = b"""CMDLINE python x.py
MEM 100.000000 1424768150.0000
MEM 100.000000 1424768150.5000
CHLD 12 50.000000 1424768150.6000
CHLD 13 60.000000 1424768150.6000
MEM 100.000000 1424768151.0000
CHLD 12 70.000000 1424768151.1000
MEM 90.000000 1424768151.5000
"""


@pytest.mark.parametrize(
    "line, command, attached_to",
    [
        ("python it's.py", ["python it's.py"], None),
        ("4711", [], 4711),
        ("['python', 'x y.py']", ["python", "x y.py"], None),
    ],
    ids=["quoted wrongly", "attached by PID", "attached by name"],
)
def test_command(tmp_path: Path, line: str, command: list[str], attached_to: int | None) -> None:
    """The command is split where possible; for an attached process, only the PID may be known."""
    found = imported(tmp_path, MPROF.replace(b"python 'a b.py' --fast", line.encode()))

    assert (found.command, found.attached_to) == (command, attached_to)


def test_very_long_list(tmp_path: Path) -> None:
    """A list of 80 KB in the place of a command is not parsed as Python: that took 48 MB."""
    listed = b"[" + b"0," * 40_000 + b"]"
    tracemalloc.start()
    try:
        imported(tmp_path, MPROF.replace(b"python 'a b.py' --fast", listed))
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


def test_children_are_added(tmp_path: Path) -> None:
    """RSS is MEM and the CHLD lines that follow it."""
    assert list(imported(tmp_path, CHILDREN).samples["rss"]) == mib(100, 210, 170, 90)


def test_children_that_could_not_be_read(tmp_path: Path) -> None:
    """PID 0 is not a process; a warning counts the samples that lack children."""
    found = imported(tmp_path, CHILDREN.replace(b"CHLD 13 60.", b"CHLD 0 0."))

    assert [process.pid for process in found.processes] == [None, 12]
    assert found.warnings[-1] == "lines of children (CHLD) without a PID or a MEM line: 1; RSS is a lower bound"


def test_functions(tmp_path: Path) -> None:
    """FUNC lines, which may come first, are operations with their depth, also for blocks with a space in the name."""
    calls = (
        b"FUNC __main__.inner 22.8 1424768150.2000 72.8 1424768150.4000 1\n"
        b"FUNC .my block 22.8 1424768150.1000 22.8 1424768151.2500 0\n"
        b"FUNC old.style 22.8 1424768150.5000 22.8 1424768150.7500\n"
    )
    found = imported(tmp_path, calls + MPROF)

    assert [(mark.name, mark.depth, mark.end_s) for mark in found.marks] == [
        ("my block", 0, 1.25),
        ("__main__.inner", 1, pytest.approx(0.4)),
        ("old.style", 0, 0.75),
    ]
    assert found.duration_s == 1.25


def test_very_many_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a number of calls, only the longest are kept, and a warning says so."""
    monkeypatch.setattr(logs, "_MAX_CALLS", 2)
    calls = b"".join(b"FUNC m.f%d 1.0 1424768150.1 1.0 1424768150.%d 0\n" % (end, end) for end in (3, 9, 2, 8))
    found = imported(tmp_path, MPROF + calls)

    assert [mark.name for mark in found.marks] == ["m.f8", "m.f9"]
    assert found.warnings == ["at most the 2 longest calls (FUNC) are kept"]


def test_several_recordings(tmp_path: Path) -> None:
    """Of several recordings in one file, the last is read, without the calls of the others."""
    first = b"FUNC old 1.0 1424768150.1 1.0 1424768150.2 0\n" + MPROF
    second = MPROF.replace(b"14247681", b"14247682").replace(b"300.", b"250.").replace(b"--fast", b"--slow")
    found = imported(tmp_path, first + second)

    assert (found.command[-1], max(found.samples["rss"]), found.marks) == ("--slow", mib(250)[0], [])
    assert found.warnings == ["the file holds several recordings, one after another: the last recording is shown"]


def test_nothing_but_the_command(tmp_path: Path) -> None:
    """A log without samples is refused."""
    with pytest.raises(SessionFileError, match="nothing could be read as a log of mprof: no sample found"):
        imported(tmp_path, b"CMDLINE python x.py\n")
