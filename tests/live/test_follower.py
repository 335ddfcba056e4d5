from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nncftools.live.figures import time_left
from nncftools.live.follower import Follower, Replay
from nncftools.session.model import Frame, MemoryLimit, Series
from tests.made_up import END, header, journal, marks, mib, process, session

MIB = 2**20
MARK = {"process": {"id": 0, "high_water_mark": 1000 << 20}}
RISE = {"id": 0, "from_s": 0.5, "to_s": 1.0, "high_water_mark": 900 << 20, "others": 100 << 20, "others_around": 0}


def line(value: object) -> bytes:
    """Return a line of a journal."""
    return json.dumps(value).encode() + b"\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a journal without samples."""
    path = tmp_path / "run.journal.jsonl"
    path.write_bytes(journal())
    return path


def append(path: Path, data: bytes) -> None:
    """Append to a file."""
    with path.open("ab") as file:
        file.write(data)


def test_what_is_appended_is_read(path: Path) -> None:
    """Latest value, its time, the peak and the end follow whole lines."""
    with Follower(path) as follower:
        append(path, line([0.5, 300]) + line([1.0, 200]) + b"nonsense\n[1.5,")
        follower.read()
        before = follower.run.latest["rss"], follower.run.latest_s
        append(path, b"250]\n" + line(END))
        follower.read()
    run = follower.run

    assert before == (200, 1.0)
    assert (run.latest["rss"], run.latest_s) == (250, 1.5)
    assert (run.peaks["rss"].value, run.peaks["rss"].at_s) == (300, 0.5)
    assert (run.ended, run.exit and run.exit.code) == (True, 3)


def test_devices(path: Path) -> None:
    """Memory of a device is there from the first reading that is not 0 on, in the sample after each reading."""
    found = []
    with Follower(path) as follower:
        for second, held in enumerate((0, 500, 500)):
            values = {"device_memory@nvidia0": held, "device_used@nvidia0": 900, "device_memory@nvidia1": 0}
            append(path, line({"devices": {"at_s": second + 0.2, "values": values}}) + line([second + 0.5, 300]))
            follower.read()
            found.append(list(follower.run.columns))
    peak = follower.run.peaks["device_memory@nvidia0"]

    assert found == [["rss"], *[["rss", "device_memory@nvidia0", "device_used@nvidia0"]] * 2]
    assert (peak.value, peak.at_s, follower.run.latest["device_memory@nvidia0"]) == (500, 1.5, 500)
    assert follower.run.history.points("rss")[1].tolist() == [300] * 6


def test_processes_that_are_alive(path: Path) -> None:
    """Processes come and go; their sizes are those of the last sample that has them."""
    with Follower(path) as follower:
        append(path, line({"process": {"id": 1, "pid": 7, "parent": 0, "name": "sh"}}) + line([1.0, 5]))
        append(path, line({"each": {"0": 3, "1": 2}}) + line({"process": {"id": 1, "name": "python"}}))
        follower.read()
        together = {lived.name: lived.rss for lived in follower.run.processes.values()}
        append(path, line({"process": {"id": 1, "end_s": 1.5}}))
        follower.read()

    assert together == {"work": 3, "python": 2}
    assert list(follower.run.processes) == [0]


@pytest.mark.parametrize(
    "log_line, journal_line, end_s, current",
    [
        ({"python": "3.12"}, {}, 3.0, []),
        ({"name": "New"}, {}, 3.0, ["New"]),
        ({}, {"exec": {"id": 0, "from_s": 2.0, "to_s": 2.5}}, 2.5, []),
    ],
    ids=["first line of the hook", "first line of the API", "seen by the sampler"],
)
def test_exec(  # noqa: PLR0913 — a case
    path: Path,
    tmp_path: Path,
    *,
    log_line: dict[str, object],
    journal_line: dict[str, object],
    end_s: float,
    current: list[str],
) -> None:
    """What is open in a process ends when it runs another program."""
    log = tmp_path / "run.marks.jsonl"
    where = {"pid": 100, "tid": 100}
    for number, name in enumerate(("Load", "Old"), start=1):
        append(log, line({"name": name, "event": "begin", "op": number, "start_s": 1, "program": 7, **where}))
    with Follower(path) as follower:
        follower.read()
        during = [span.name for span in follower.run.open_operations]
        append(path, line(journal_line) if journal_line else b"")
        append(log, line({**log_line, "t_ns": 3_000_000_005, "program": 8, **where}) if log_line else b"")
        follower.read()

    assert during == ["Load", "Old"]
    assert [span.name for span in follower.run.open_operations] == current
    assert follower.run.outermost_operations[0].end_s == pytest.approx(end_s)
    assert list(follower.run.processes) == [0]


STACKS = """
{"frame": [0, "main", "/a/b.py", 0]}
{"frame": [1, "load", "/a/b.py", 1]}
{"frame": [2, "run", "/a/b.py", 2]}
{"stack": [0, [0, 1]]}
{"stack": [1, [0, 2]]}
{"stack": [2, [0]]}
"""
WINDOW = '{"window": {"process": %s, "t_ns": [0, %s000000005], "threads": {%s}}}'
"""A window in which threads had stacks, one after the other: process, end in seconds, threads."""
LOAD, RUN = Frame("load", "/a/b.py", 1), Frame("run", "/a/b.py", 2)
ONE, TWO = WINDOW % (0, 5, '"7": [[0, 0]]'), WINDOW % (0, 5, '"7": [[0, 0]], "8": [[0, 1]]')
LATER, OTHER = WINDOW % (0, 7, '"7": [[0, %s]]'), WINDOW % (1, 9, '"8": [[0, 0], [1, 1]]')


@pytest.mark.parametrize(
    "lines, grown",
    [
        ([ONE, OTHER, LATER % 2], (RUN, 9.0)),
        (['{"faults": {"process": 0, "t_ns": 1, "threads": {"7": 1, "8": 3}, "lost": 0}}', TWO], (RUN, 5.0)),
        ([TWO], None),
        ([ONE, '{"window": {"process": 0}}'], (LOAD, 5.0)),
        ([ONE, '{"window": []}'], (LOAD, 5.0)),
        ([ONE, LATER % 99], (LOAD, 5.0)),
        (['{"stack": [3]}\n{"stack": [4, [0, 1]]}', WINDOW % (0, 5, '"7": [[0, 4]]')], None),
    ],
    ids=[
        "newest window",
        "thread that touched most",
        "two threads",
        "damaged window",
        "window that is a list",
        "window with an unknown stack",
        "damaged stack: numbers may mean others",
    ],
)
def test_growth(path: Path, tmp_path: Path, lines: list[str], grown: object) -> None:
    """Where memory grew last is read from the helper's log, as far as it was written."""
    log = tmp_path / "run.snapshots.jsonl"
    text = "\n".join([STACKS.strip(), *lines, ""]).replace(" ", "").encode()
    with Follower(path) as follower:
        log.write_bytes(text[:-9])
        follower.read()
        append(log, text[-9:] + b"\xff\n{\n")
        follower.read()

    assert follower.run.grown == grown


def test_recorder_that_lives(path: Path) -> None:
    """The recorder is alive as long as the lock is held."""
    with Follower(path) as follower, path.open("rb") as sampler:
        before = follower.recorder_lives()
        fcntl.flock(sampler, fcntl.LOCK_EX)

        assert (before, follower.recorder_lives()) == (False, True)


@pytest.mark.parametrize(
    "lines, mib, at_s",
    [
        ([[0.5, 300], {"process": {"id": 1, "pid": 101, "high_water_mark": 310 << 20, "end_s": 0.9}}], 310, 0.45),
        ([[0.5, 300], {"process": {"id": 1, "high_water_mark": 310 << 20, "left_out": True}}], 300, 0.5),
        ([[0.5, 300], {"process": {"id": 0, "high_water_limit": 320 << 20, "end_s": 1.0}}, {"end": {}}], 320, 0.5),
        ([[0.5, 300], {"rise": RISE}, MARK, [1.0, 200]], 1000, 0.75),
        ([MARK, [0.5, 990.1]], 1000, 0.5),
        ([MARK, [0.5, 300]], 1000, None),
        ([[0.5, 1000], [1.0, 1000.001], [1.5, 900]], 1000.001, 0.5),
    ],
    ids=[
        "mark of an ended process",
        "left out",
        "mark of all that the command waited for",
        "rise",
        "mark that a sample explains",
        "mark that nothing explains",
        "plateau that drifts",
    ],
)
def test_peak(path: Path, lines: list[Any], mib: float, at_s: float | None) -> None:
    """High-water marks raise the peak above the samples, whose time counts; a plateau has the time of its begin."""
    with Follower(path) as follower:
        for value in lines:
            append(path, line([value[0], int(value[1] * MIB)] if isinstance(value, list) else value))
        follower.read()
        peak = follower.run.peaks["rss"]

    assert (peak.value, peak.at_s) == (int(mib * MIB), at_s)


def test_trend_towards_a_limit(tmp_path: Path) -> None:
    """The smallest limit of RSS is the run's; the trend is that of RSS there, and of the machine elsewhere."""
    moments = [step / 2 for step in range(40)]
    samples = b"".join(line([at_s, *mib(100 + 2 * at_s, 1000 + 4 * at_s)]) for at_s in moments)
    limits = b"".join(
        line({"memory_limit": {"kind": kind, "size": size << 20, "set_by": "/cg", "process": 0}})
        for kind, size in (("control group", 500), ("control group", 400), ("RLIMIT_AS", 9))
    )
    first = header(["rss", "system"], command=[], host={"memory": 1500 << 20})
    first["plan"]["pid"] = 100
    first["plan"]["limit"] = {"rss": 700 << 20, "action": "warn"}
    found = []
    for content in (samples, samples + limits):
        (tmp_path / "run.journal.jsonl").write_bytes(journal(first=first) + content)
        with Follower(tmp_path / "run.journal.jsonl") as follower:
            follower.read()
            found.append((follower.run.limit, time_left(follower.run, 100 << 20), follower.run.command))

    assert found == [
        (("--max-memory", 700 << 20, ""), pytest.approx(50), "work"),
        (("control group", 400 << 20, "/cg"), pytest.approx(50), "work"),
    ]


def test_only_what_happened_up_to_a_moment() -> None:
    """Samples, peak and processes are those of the past."""
    run = session(
        {"rss": mib(100, 300, 200)},
        memory_limits=[MemoryLimit(kind="control group", size=400 * MIB, set_by="/cg/memory.max")],
        processes=[process(0), process(1, start_s=0.6, series=Series(time_s=[0.6, 1.0], rss=[5, 7]))],
    )
    replay = Replay(run)
    replay.advance(0.2)
    early = replay.run.latest["rss"], replay.run.peaks["rss"].value, list(replay.run.processes)
    replay.advance(0.7)
    late = replay.run.latest["rss"], replay.run.peaks["rss"].value, replay.run.processes[1].rss
    had_ended = replay.run.ended
    replay.advance(9)

    assert early == (100 * MIB, 100 * MIB, [0])
    assert late == (300 * MIB, 300 * MIB, 5)
    assert (had_ended, replay.run.ended, replay.run.exit and replay.run.exit.code) == (False, True, 0)
    assert replay.run.limit == ("control group", 400 * MIB, "/cg/memory.max")


@pytest.mark.parametrize("samples", [{"time_s": [0.0, 0.5]}, {"rss": []}], ids=["no metric", "no sample"])
def test_replay_of_an_empty_session(samples: dict[str, list[float]]) -> None:
    """A recording without metrics, and one that was cut off at once, can be replayed."""
    replay = Replay(session(samples))
    replay.advance(9)

    assert (replay.run.latest, replay.run.ended) == ({}, True)


def test_peak_of_the_session() -> None:
    """From its moment on, each peak is the one that reports name, also where no sample and no rise says so."""
    of = session({"rss": mib(100, 300, 200), "anon": mib(50, 60, 70)}, marks=marks("Load 0-0.6"))
    level = 300 * MIB + 100_000
    of.peaks["rss"] = replace(of.peaks["rss"], low=level, rose_from_s=0.4, rose_to_s=0.5)
    replay = Replay(of)
    replay.advance(0.45)
    before = replay.run.peaks["rss"]
    replay.advance(9)
    after = replay.run.peaks

    assert (before.value, before.operation) == (100 * MIB, None)
    assert (after["rss"].value, after["rss"].at_s, after["rss"].operation) == (level, 0.45, "Load")
    assert (after["anon"].value, after["anon"].at_s) == (70 * MIB, 1.0)


def test_operations_of_a_replay() -> None:
    """At a moment of an ended run, later operations are not shown, and unfinished operations have no end."""
    run = session()
    run.marks = marks("Export 0.1-0.6, Export/Tracing 0.2-0.4, Saving 0.6")
    replay = Replay(run)
    found = []
    for moment_s in (0.3, 0.7):
        replay.advance(moment_s)
        found.append([(span.name, span.start_s, span.end_s) for span in replay.run.outermost_operations])
        found.append([span.name for span in replay.run.open_operations])

    assert found == [
        [("Export", 0.1, None)],
        ["Export", "Tracing"],
        [("Export", 0.1, 0.6), ("Saving", 0.6, None)],
        ["Saving"],
    ]
