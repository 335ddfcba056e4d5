from __future__ import annotations

import pathlib
import tracemalloc

import pytest

from nncftools.analysis.session import Session
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


def test_samples(tmp_path: pathlib.Path) -> None:
    """MEM lines are RSS in MiB at Unix times; the first is the start."""
    found = imported(tmp_path, MPROF)

    assert list(found.samples.time_s) == [0, 0.5, 1]
    assert list(found.samples["rss"]) == mib(100, 300, 200)
    assert found.start.utc == "2015-02-24T08:55:50.000000+00:00"
    assert found.duration_s == 1
    assert found.warnings == []


def test_a_size_that_cannot_be(tmp_path: pathlib.Path) -> None:
    """A line with more MiB than 2^63 bytes is left out; the peak is the largest of the others."""
    found = imported(tmp_path, MPROF + b"MEM 99999999999999 1424768151.5000\n")

    assert found.peaks["rss"].sampled == mib(300)[0]
    assert [warning.partition(";")[0] for warning in found.warnings] == ["lines left out: 1"]


def test_what_it_does_not_know(tmp_path: pathlib.Path) -> None:
    """Exit, CPU, host, processes and the recorder's cost are unknown."""
    found = imported(tmp_path, MPROF)

    assert (found.exit, found.totals, found.processes, found.host.name, found.host.cpus) == (None, {}, [], "", None)
    assert (found.sampler.interval_s, found.sampler.missed, found.sampler.cpu_s) == (None, None, None)
    assert (found.start.monotonic_ns, found.peaks["rss"].high, found.tool_version) == (None, None, "")


def test_facts_of_the_samples(tmp_path: pathlib.Path) -> None:
    """The interval follows from the times of the samples."""
    facts = imported(tmp_path, MPROF).sampler

    assert (facts.source, facts.taken, facts.achieved_interval_s, facts.longest_gap_s) == ("mprof", 3, 0.5, 0.5)


@pytest.mark.parametrize(
    ("line", "command", "attached_to"),
    [
        ("python 'a b.py' --fast", ["python", "a b.py", "--fast"], None),
        ("python it's.py", ["python it's.py"], None),
        ("4711", [], 4711),
        ("['python', 'x y.py']", ["python", "x y.py"], None),
        ("[ -f x ]", ["[", "-f", "x", "]"], None),
    ],
    ids=["quoted", "quoted wrongly", "attached by PID", "attached by name", "a test"],
)
def test_command(tmp_path: pathlib.Path, line: str, command: list[str], attached_to: int | None) -> None:
    """The command is split where possible; for an attached process, only the PID may be known."""
    found = imported(tmp_path, MPROF.replace(b"python 'a b.py' --fast", line.encode()))

    assert (found.command, found.attached_to) == (command, attached_to)


def test_very_long_list(tmp_path: pathlib.Path) -> None:
    """A list of 400 KB in the place of a command is not parsed as Python: that took 240 MB."""
    listed = b"[" + b"0," * 200_000 + b"]"
    tracemalloc.start()
    try:
        imported(tmp_path, MPROF.replace(b"python 'a b.py' --fast", listed))
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def children(folder: pathlib.Path, text: bytes = CHILDREN) -> Session:
    """Return a log with children."""
    return imported(folder, text)


def test_children_are_added(tmp_path: pathlib.Path) -> None:
    """RSS is MEM and the CHLD lines that follow it."""
    assert list(children(tmp_path).samples["rss"]) == mib(100, 210, 170, 90)


def test_children_are_processes(tmp_path: pathlib.Path) -> None:
    """The command and each child are processes with their own RSS over time; of children, only PIDs are known."""
    command, first, second = children(tmp_path).processes

    assert (command.pid, command.name, command.command) == (None, "python", ["python", "x.py"])
    assert command.series is not None
    assert command.series.rss == mib(100, 100, 100, 90)
    assert (first.pid, first.name, first.peak_rss, first.samples) == (12, "", mib(70)[0], 2)
    assert (first.start_s, first.end_s, second.end_s, command.end_s) == (0.5, 1, 0.5, None)


def test_whether_mem_held_the_children_is_not_known(tmp_path: pathlib.Path) -> None:
    """A log with children may be one of --include-children, too, and a warning says so."""
    (warning,) = children(tmp_path).warnings

    assert "if mprof also ran with --include-children, MEM includes the children already" in warning


def test_children_that_could_not_be_read(tmp_path: pathlib.Path) -> None:
    """PID 0 is not a process; a warning counts the samples that lack children."""
    found = children(tmp_path, CHILDREN.replace(b"CHLD 13 60.", b"CHLD 0 0."))

    assert [process.pid for process in found.processes] == [None, 12]
    assert found.warnings[-1] == "children (CHLD) without a PID or a sample (MEM): 1; RSS is a lower bound"


def test_a_child_before_the_first_sample(tmp_path: pathlib.Path) -> None:
    """A child without a sample is left out with a warning."""
    found = imported(tmp_path, b"CHLD 12 5.0 1424768149.0\n" + MPROF)

    assert found.warnings == ["children (CHLD) without a PID or a sample (MEM): 1; RSS is a lower bound"]


def test_functions(tmp_path: pathlib.Path) -> None:
    """FUNC lines, which may come first, are operations with their depth, also for blocks with a space in the name."""
    calls = (
        b"FUNC __main__.inner 22.8 1424768150.2000 72.8 1424768150.4000 1\n"
        b"FUNC .my block 22.8 1424768150.1000 22.8 1424768151.2500 0\n"
        b"FUNC old.style 22.8 1424768150.5000 22.8 1424768150.7500\n"
    )
    found = imported(tmp_path, calls + MPROF)

    assert [(mark.name, mark.depth, mark.source) for mark in found.marks] == [
        ("my block", 0, "mprof"),
        ("__main__.inner", 1, "mprof"),
        ("old.style", 0, "mprof"),
    ]
    assert [(round(mark.start_s, 3), round(mark.end_s or 0, 3)) for mark in found.marks] == [
        (0.1, 1.25),
        (0.2, 0.4),
        (0.5, 0.75),
    ]
    assert found.duration_s == 1.25


def test_very_many_functions(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a number of calls, only the longest are kept, and a warning says so."""
    monkeypatch.setattr(logs, "_MAX_CALLS", 2)
    calls = b"".join(b"FUNC m.f%d 1.0 1424768150.1 1.0 1424768150.%d 0\n" % (end, end) for end in (3, 9, 2, 8))
    found = imported(tmp_path, MPROF + calls)

    assert [mark.name for mark in found.marks] == ["m.f8", "m.f9"]
    assert found.warnings == ["at most the 2 longest calls (FUNC) are kept"]


def test_several_recordings(tmp_path: pathlib.Path) -> None:
    """Of several recordings in one file, the last is read, without the calls of the others."""
    first = b"FUNC old 1.0 1424768150.1 1.0 1424768150.2 0\n" + MPROF
    second = MPROF.replace(b"14247681", b"14247682").replace(b"300.", b"250.").replace(b"--fast", b"--slow")
    found = imported(tmp_path, first + second)

    assert (found.command[-1], max(found.samples["rss"]), found.marks) == ("--slow", mib(250)[0], [])
    assert found.warnings == ["the file holds several recordings, one after another: the last recording is shown"]


def test_nothing_but_the_command(tmp_path: pathlib.Path) -> None:
    """A log without samples is refused."""
    with pytest.raises(SessionFileError, match="nothing could be read as a log of mprof: no sample found"):
        imported(tmp_path, b"CMDLINE python x.py\n")


def test_whole_bytes(tmp_path: pathlib.Path) -> None:
    """Six decimals of a MiB are whole bytes."""
    found = imported(tmp_path, MPROF.replace(b"300.000000", b"202.941406"))

    assert found.samples["rss"][1] == 212799488 == found.peaks["rss"].sampled
