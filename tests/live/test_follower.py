from __future__ import annotations

import fcntl
import json
import os
import pathlib

import pytest
from msgspec.structs import replace

from nncftools.errors import SessionFileError
from nncftools.intake import Redaction
from nncftools.journal import reading
from nncftools.live.figures import time_left
from nncftools.live.follower import Follower, Growth, GrowthLog, Replay
from nncftools.session.model import Frame, Mark, MemoryLimit, Rise, Series
from tests.made_up import END, header, journal, mib, process, session


def line(value: object) -> bytes:
    """Return a line of a journal."""
    return json.dumps(value).encode() + b"\n"


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a journal without samples."""
    path = tmp_path / "run.journal.jsonl"
    path.write_bytes(journal())
    return path


def append(path: pathlib.Path, data: bytes) -> None:
    """Append to a file."""
    with path.open("ab") as file:
        file.write(data)


def test_what_is_appended_is_read(path: pathlib.Path) -> None:
    """Latest value, its time and the peak follow what is written."""
    with Follower(path) as follower:
        append(path, line([0.5, 300]) + line([1.0, 200]))
        follower.read()
        before = follower.run.latest["rss"], follower.run.latest_s
        append(path, line([1.5, 250]))
        follower.read()

    assert before == (200, 1.0)
    assert (follower.run.latest["rss"], follower.run.latest_s) == (250, 1.5)
    assert (follower.run.peaks["rss"].value, follower.run.peaks["rss"].at_s) == (300, 0.5)


def test_devices(path: pathlib.Path) -> None:
    """Memory of a device is there from the first reading that is not 0 on, in the sample after each reading."""

    def of_device(at_s: float, held: int) -> bytes:
        values = {"device_memory@nvidia0": held, "device_used@nvidia0": 900, "device_memory@nvidia1": 0}
        return line({"devices": {"at_s": at_s, "values": values}})

    with Follower(path) as follower:
        append(path, line([0.5, 300]) + of_device(0.7, 0) + line([1.0, 200]))
        follower.read()
        unused = list(follower.run.columns)
        append(path, of_device(1.2, 500) + line([1.5, 250]))
        follower.read()
        append(path, line([2.0, 260]))
        follower.read()

    assert unused == ["rss"]
    assert list(follower.run.columns) == ["rss", "device_memory@nvidia0", "device_used@nvidia0"]
    assert follower.run.latest["device_memory@nvidia0"] == 500
    assert follower.run.peaks["device_memory@nvidia0"].at_s == 1.5
    assert follower.run.history.points("rss")[1].tolist() == [300, 300, 200, 200, 250, 250, 260, 260]


def test_half_a_line_waits_for_its_rest(path: pathlib.Path) -> None:
    """A line that is being written is read when it is whole, once."""
    with Follower(path) as follower:
        append(path, line([0.5, 300]) + b"[1.0,")
        follower.read()
        before = follower.run.latest_s
        append(path, b"200]\n")
        follower.read()

    assert (before, follower.run.latest_s) == (0.5, 1.0)
    assert follower.run.history.points("rss")[1].tolist() == [300, 300, 200, 200]


def test_half_a_line_that_is_taken_back(path: pathlib.Path) -> None:
    """What a full disk cut off, and the sampler took back, is forgotten."""
    with Follower(path) as follower:
        append(path, b"[1.0,2")
        follower.read()
        path.write_bytes(journal())
        append(path, line([2.0, 7]))
        follower.read()

    assert follower.run.latest == {"rss": 7}


def test_lines_that_cannot_be_read_are_left_out(path: pathlib.Path) -> None:
    """Damaged lines between whole ones do no harm."""
    with Follower(path) as follower:
        append(path, line([0.5, 1]) + b"[0.6,\n[null,3]\n[0.7,1,2]\n{nonsense\n\xff\n" + line([1.0, 2]))
        follower.read()

    assert follower.run.history.points("rss")[1].tolist() == [1, 1, 2, 2]


def test_processes_that_are_alive(path: pathlib.Path) -> None:
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


def test_marks_beside_it(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Operations are those of the log of marks, as far as it was written."""
    log = tmp_path / "run.marks.jsonl"
    log.write_bytes(line({"name": "Export", "event": "begin", "op": 1, "pid": 100, "tid": 100, "start_s": 1}))
    with Follower(path) as follower:
        follower.read()
        during = [span.name for span in follower.run.open_operations]
        append(log, line({"event": "end", "op": 1, "pid": 100, "tid": 100, "start_s": 3}))
        follower.read()
        after = [span.name for span in follower.run.open_operations]

    assert (during, after) == (["Export"], [])
    assert [(span.name, span.start_s, span.end_s) for span in follower.run.outermost_operations] == [("Export", 1, 3)]


def test_exec(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What is open in a process ends when it runs another program."""
    log = tmp_path / "run.marks.jsonl"
    log.write_bytes(line({"name": "Load", "event": "begin", "op": 1, "pid": 100, "tid": 100, "start_s": 1}))
    with Follower(path) as follower:
        follower.read()
        append(path, line({"exec": {"id": 0, "from_s": 2.0, "to_s": 2.5}}))
        follower.read()

    assert [(span.name, span.end_s) for span in follower.run.outermost_operations] == [("Load", 2.5)]
    assert list(follower.run.processes) == [0]


@pytest.mark.parametrize(
    ("first", "current"), [({"python": "3.12"}, []), ({"name": "New"}, ["New"])], ids=["hook", "API"]
)
def test_exec_that_a_line_proves(
    path: pathlib.Path, tmp_path: pathlib.Path, first: dict[str, object], current: list[str]
) -> None:
    """What is open in a process ends when another program writes its first line there."""
    log = tmp_path / "run.marks.jsonl"
    where = {"pid": 100, "tid": 100}
    log.write_bytes(
        line({"name": "Load", "event": "begin", "op": 1, "start_s": 1, "program": 7, **where})
        + line({"name": "Old", "event": "begin", "op": 3, "start_s": 2, "program": 7, **where})
    )
    with Follower(path) as follower:
        follower.read()
        during = [span.name for span in follower.run.open_operations]
        append(log, line({**first, "t_ns": 3_000_000_005, "program": 8, **where}))
        follower.read()
        after = [span.name for span in follower.run.open_operations]

    assert during == ["Load", "Old"]
    assert after == current
    assert follower.run.outermost_operations[0].end_s == pytest.approx(3.0)


def test_growth_beside_it(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Where memory grew is read from the helper's log, as far as it was written."""
    log = tmp_path / "run.snapshots.jsonl"
    with Follower(path) as follower:
        follower.read()
        before = follower.run.grown
        log.write_bytes(line({"frame": [0, "load", "/a/b.py", 1]}) + line({"stack": [0, [0]]}) + b'{"window":')
        follower.read()
        half = follower.run.grown
        append(log, b'{"process":0,"t_ns":[5,2000000005],"threads":{"7":[[5,0]]}}}\n')
        follower.read()

    assert (before, half) == (None, None)
    assert follower.run.grown == (Frame("load", "/a/b.py", 1), 2.0)


def test_end(path: pathlib.Path) -> None:
    """The last line ends the run and gives its exit status."""
    with Follower(path) as follower:
        append(path, line(END))
        follower.read()

    assert follower.run.ended
    assert follower.run.exit is not None
    assert follower.run.exit.code == 3


def test_recorder_that_lives(path: pathlib.Path) -> None:
    """The recorder is alive as long as the lock is held."""
    with Follower(path) as follower, path.open("rb") as sampler:
        fcntl.flock(sampler, fcntl.LOCK_EX)
        locked = follower.recorder_lives()
        fcntl.flock(sampler, fcntl.LOCK_UN)

        assert (locked, follower.recorder_lives()) == (True, False)


def test_recorder_that_has_not_begun(tmp_path: pathlib.Path) -> None:
    """A journal is locked from its first byte: even before the start line, the lock shows if a recorder is alive."""
    path = tmp_path / "run.journal.jsonl"
    descriptor = reading.create(path, replace=False)
    append(path, line(header()))
    with Follower(path) as follower:
        before = follower.recorder_lives()
        os.close(descriptor)

        assert (before, follower.recorder_lives()) == (True, False)


def test_attached_process_names_its_command(tmp_path: pathlib.Path) -> None:
    """If the run attached to a process, the command is that process's own."""
    first = header(command=[])
    first["plan"]["pid"] = 100
    path = tmp_path / "run.journal.jsonl"
    path.write_bytes(journal(first=first))
    with Follower(path) as follower:
        follower.read()

        assert follower.run.command == "work"


@pytest.mark.parametrize("data", [b"", b"{}\n", b"[]\n", b'{"format": "other", "host": {}, "plan": {}}\n'])
def test_what_is_no_journal(tmp_path: pathlib.Path, data: bytes) -> None:
    """Any other file is refused by name."""
    path = tmp_path / "other.jsonl"
    path.write_bytes(data)
    with pytest.raises(SessionFileError, match=r"other\.jsonl: line 1 is not the header"):
        Follower(path)


def test_mark_of_a_process(path: pathlib.Path) -> None:
    """A mark that no rise explains counts as in the session: of a process, and of all that the command waited for."""
    mark, limit = 310 << 20, 320 << 20
    child = {"process": {"id": 1, "pid": 101, "high_water_mark": mark, "end_s": 0.9}}
    command = {"process": {"id": 0, "high_water_limit": limit, "end_s": 1.0}}
    with Follower(path) as follower:
        append(path, line([0.5, 300 << 20]) + line(child))
        follower.read()
        before = follower.run.peaks["rss"].value
        append(path, line(command) + line({"end": {"sampler": {"peak_rss": 12 << 20}}}))
        follower.read()

    assert (before, follower.run.peaks["rss"].value) == (mark, limit)


def test_rise_of_a_high_water_mark(path: pathlib.Path) -> None:
    """A mark above the samples raises the peak, at the middle of the time in which it rose."""
    rise = {"id": 0, "from_s": 0.5, "to_s": 1.0, "high_water_mark": 900 << 20, "others": 100 << 20, "others_around": 0}
    with Follower(path) as follower:
        append(path, line([0.5, 300 << 20]) + line({"rise": rise}) + line([1.0, 200 << 20]))
        follower.read()
        peak = follower.run.peaks["rss"]

    assert (peak.value, peak.at_s) == (1000 << 20, 0.75)


def test_drift(path: pathlib.Path) -> None:
    """On a plateau that drifts, the peak keeps the moment at which memory reached it."""
    with Follower(path) as follower:
        append(path, line([0.5, 1000 << 20]) + line([1.0, (1000 << 20) + 9]) + line([1.5, 900 << 20]))
        follower.read()
        peak = follower.run.peaks["rss"]

    assert (peak.value, peak.at_s) == ((1000 << 20) + 9, 0.5)


def test_limits(path: pathlib.Path) -> None:
    """The smallest limit of a control group is the run's limit; limits on address space are not of RSS."""
    with Follower(path) as follower:
        follower.read()
        before = follower.run.limit
        for size in (500, 400):
            limit = {"kind": "control group", "size": size, "set_by": "/cg/memory.max", "process": 0}
            append(path, line({"memory_limit": limit}))
        append(path, line({"memory_limit": {"kind": "RLIMIT_AS", "size": 9, "set_by": "", "process": 0}}))
        follower.read()

    assert before is None
    assert follower.run.limit == ("control group", 400, "/cg/memory.max")


def test_own_limit(tmp_path: pathlib.Path) -> None:
    """The limit of the recording counts before anything exceeds it."""
    first = header()
    first["plan"]["limit"] = {"rss": 700, "action": "warn"}
    (tmp_path / "run.journal.jsonl").write_bytes(journal(first=first))

    with Follower(tmp_path / "run.journal.jsonl") as follower:
        assert follower.run.limit == ("--max-memory", 700, "")


def test_trend_towards_a_limit(tmp_path: pathlib.Path) -> None:
    """The trend is that of RSS where a control group has a limit, and that of the machine elsewhere."""
    moments = [step / 2 for step in range(40)]
    samples = b"".join(line([at_s, *mib(100 + 2 * at_s, 1000 + 4 * at_s)]) for at_s in moments)
    limit = line({"memory_limit": {"kind": "control group", "size": 400 << 20, "set_by": "", "process": 0}})
    first = header(["rss", "system"], host={"memory": 1500 << 20})
    found = []
    for content in (samples, samples + limit):
        (tmp_path / "run.journal.jsonl").write_bytes(journal(first=first) + content)
        with Follower(tmp_path / "run.journal.jsonl") as follower:
            follower.read()
            found.append(time_left(follower.run, 100 << 20))

    assert found == [pytest.approx(25), pytest.approx(50)]


NAMES = ("main", "load", "run")


def growth_line(key: str, value: object) -> bytes:
    """Return a line of the log."""
    return json.dumps({key: value}, separators=(",", ":")).encode() + b"\n"


def window(to_ns: int, stacks: dict[int, list[int | None]], process: int = 0) -> bytes:
    """Return a line of a window in which threads had these stacks, one after the other."""
    threads = {thread: list(enumerate(of)) for thread, of in stacks.items()}
    of_window = {"t_ns": [0, to_ns], "threads": threads}
    return growth_line("window", {"process": process, **of_window})


def faults(threads: dict[int, int], process: int = 0) -> bytes:
    """Return a line about page faults."""
    return growth_line("faults", {"process": process, "t_ns": 1, "threads": threads, "lost": 0})


FRAMES = b"".join(growth_line("frame", [number, name, "/a/b.py", number]) for number, name in enumerate(NAMES))
STACKS = growth_line("stack", [0, [0, 1]]) + growth_line("stack", [1, [0, 2]]) + growth_line("stack", [2, [0]])


def grown(*lines: bytes) -> Growth | None:
    """Return where memory grew after some lines."""
    log = GrowthLog(Redaction(()))
    for data in lines:
        log.take(data)
    return log.last


def test_newest_window() -> None:
    """Memory grew last where the newest window saw a process at last."""
    found = grown(FRAMES + STACKS, window(5, {7: [1, 0]}), window(9, {8: [0, 1]}, process=1), window(7, {7: [2]}))

    assert found == Growth(Frame("run", "/a/b.py", 2), 9)


def test_thread_that_touched_most() -> None:
    """Of several threads, the one that touched most new memory counts; if none did, nothing is known."""
    threads = {7: [0], 8: [1]}

    assert grown(FRAMES, STACKS, faults({7: 1, 8: 3}), window(5, threads)) == Growth(Frame("run", "/a/b.py", 2), 5)
    assert grown(FRAMES, STACKS, window(5, threads)) is None


@pytest.mark.parametrize(
    "damaged", [b"\xff\n", b"{\n", b'{"window":{"process":0}}\n', b'{"window":[]}\n', window(7, {7: [99]})]
)
def test_damaged_line(damaged: bytes) -> None:
    """A damaged window is left out."""
    assert grown(FRAMES, STACKS, window(5, {7: [0]}), damaged) == Growth(Frame("load", "/a/b.py", 1), 5)


def test_damaged_stack() -> None:
    """After a damaged stack nothing more is named: numbers may mean others."""
    assert grown(FRAMES, b'{"stack":[0,\n', STACKS, window(5, {7: [0]})) is None


MIB = 2**20


def test_only_what_happened_up_to_a_moment() -> None:
    """Samples, peak and processes are those of the past."""
    run = session(
        {"rss": mib(100, 300, 200)},
        processes=[process(0), process(1, start_s=0.6, series=Series(time_s=[0.6, 1.0], rss=[5, 7]))],
    )
    replay = Replay(run)
    replay.advance(0.2)
    early = replay.run.latest["rss"], replay.run.peaks["rss"].value, list(replay.run.processes)
    replay.advance(0.7)
    late = replay.run.latest["rss"], replay.run.peaks["rss"].value, replay.run.processes[1].rss

    assert early == (100 * MIB, 100 * MIB, [0])
    assert late == (300 * MIB, 300 * MIB, 5)
    assert not replay.run.ended


def test_replaying_end() -> None:
    """At the session's end the run has ended as it did."""
    replay = Replay(session())
    replay.advance(9)

    assert replay.run.ended
    assert replay.run.exit is not None
    assert replay.run.exit.code == 0


def test_session_without_metrics() -> None:
    """A recording whose samples have no metric can be replayed."""
    replay = Replay(session({"time_s": [0.0, 0.5]}))
    replay.advance(9)

    assert (replay.run.latest, replay.run.ended) == ({}, True)


def test_session_without_samples() -> None:
    """A recording that was cut off at once can be replayed."""
    replay = Replay(session({"rss": []}))
    replay.advance(0)

    assert replay.run.latest == {}


def test_replaying_rise_of_a_high_water_mark() -> None:
    """A mark above the samples raises the peak when its time has come."""
    rise = Rise(from_s=0.6, to_s=0.8, high_water_mark=900 * MIB)
    replay = Replay(session(processes=[process(rises=[rise])]))
    replay.advance(0.7)
    before = replay.run.peaks["rss"].value
    replay.advance(0.9)

    assert (before, replay.run.peaks["rss"].value) == (300 * MIB, 900 * MIB)
    assert replay.run.peaks["rss"].at_s == pytest.approx(0.7)


def test_peak_of_the_session() -> None:
    """From its moment on, each peak is the one that reports name, also where no sample and no rise says so."""
    of = session(
        {"rss": mib(100, 300, 200), "anon": mib(50, 60, 70)}, marks=[Mark(name="Load", start_s=0.0, end_s=0.6)]
    )
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


def test_limit() -> None:
    """The limits of a session are those of its replay."""
    limit = MemoryLimit(kind="control group", size=400 * MIB, set_by="/cg/memory.max")

    assert Replay(session(memory_limits=[limit])).run.limit == ("control group", 400 * MIB, "/cg/memory.max")


def test_operations_of_a_replay() -> None:
    """At a moment of an ended run, later operations are not shown, and unfinished operations have no end."""
    run = session()
    run.marks = [
        Mark(name="Export", start_s=0.1, end_s=0.6),
        Mark(name="Tracing", start_s=0.2, end_s=0.4, depth=1),
        Mark(name="Saving", start_s=0.6),
    ]
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
