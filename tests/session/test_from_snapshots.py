"""What the helper's log says, whole or damaged."""

from __future__ import annotations

import json
import pathlib

import pytest

from nncftools import Session
from nncftools.errors import SessionFileError
from nncftools.session.model import Frame, Look, Process, Snapshots, Start, ThreadLook, WatchedProcess
from nncftools.session.snapshots import snapshots_from
from tests.made_up import session

START = Start(monotonic_ns=1_000_000_000)
LINES: list[dict[str, object]] = [
    {"helper": {"pid": 5, "t_ns": 1_000_000_000, "missing": None, "share": 0.01, "least_s": 0.5}},
    {"process": {"number": 0, "pid": 77, "t_ns": 1_100_000_000, "inherited": 0}},
    {"frame": [0, "<module>", "/run.py", 9]},
    {"frame": [1, "load", "/run.py", 4]},
    {"stack": [0, [0, 1]]},
    {"rss": {"process": 0, "t_ns": [1_100_000_000, 1_500_000_000], "rss": [0, 4096]}},
    {"look": {"process": 0, "t_ns": 1_500_000_000, "stacks": {"77": 0}, "faults": {"77": 3}, "ticks": {}, "lost": 1}},
    {"look": {"process": 0, "t_ns": 1_600_000_000, "stacks": {}, "faults": {"78": 2}, "ticks": {"78": 5}, "lost": 0}},
    {"look": {"process": 0, "t_ns": 1_700_000_000, "stacks": {"77": None}, "faults": {}, "ticks": {}, "lost": 0}},
    {"mappings": {"t_ns": 1_500_000_000, "total": 9, "processes": [[0, [["file", "/m", [9, 1, 2, 3, 3, 4]]]]]}},
    {"end": {"cpu_s": 0.25, "looks": 3, "failed": 1}},
]


def read(lines: list[dict[str, object]], *processes: Process, redact: tuple[str, ...] = ()) -> Snapshots:
    """Return what a log with these lines says."""
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    found = snapshots_from(data, START, processes, redact)
    assert found is not None
    return found


def test_all_lines() -> None:
    """Times are seconds since the start; frames, stacks, looks and mappings are there."""
    found = read(LINES, Process(id=3, pid=77, start_s=0.0, end_s=2.0))
    (watched,) = found.processes
    (moment,) = found.mappings

    assert found.frames == [Frame("<module>", "/run.py", 9), Frame("load", "/run.py", 4)]
    assert found.stacks == [[0, 1]]
    assert (watched.process, watched.pid, watched.time_s, watched.rss) == (3, 77, [0.1, 0.5], [0, 4096])
    assert moment.processes[0].process == 3
    assert moment.processes[0].groups[0].clean == 4
    assert (found.cpu_s, found.failed, found.missing) == (0.25, 1, None)


def test_unchanged_stacks() -> None:
    """A stack that a look does not name is that of the look before; null ends it."""
    (watched,) = read(LINES).processes

    assert watched.looks == [
        Look(0.5, [ThreadLook(77, 0, 3)], 1),
        Look(0.6, [ThreadLook(77, 0), ThreadLook(78, None, 2, 0.05)]),
        Look(0.7, []),
    ]


def test_reused_pid() -> None:
    """A process of the session is the one that lived then, not an earlier one with its PID."""
    earlier = Process(id=1, pid=77, start_s=-9.0, end_s=-5.0)

    assert read(LINES, earlier).processes[0].process is None


def test_cut_off() -> None:
    """A log that a kill cut off says what it has; its cost is unknown."""
    data = b"".join(json.dumps(line).encode() + b"\n" for line in LINES[:7])[:-10]
    found = snapshots_from(data, START, [], ())

    assert found is not None
    assert found.cpu_s is None
    assert len(found.processes[0].time_s) == 2


@pytest.mark.parametrize(
    "line",
    [
        {"look": {"process": 9, "t_ns": 1, "stacks": {}, "faults": {}, "ticks": {}, "lost": 0}},
        {"look": {"process": 0, "t_ns": 1, "stacks": {"77": 5}, "faults": {}, "ticks": {}, "lost": 0}},
        {"look": 3},
        {"mappings": {"t_ns": 1, "total": 9, "processes": [[0, [["file", "/m", [9]]]]]}},
        {"rss": {"process": 0}},
        {"unknown": 1},
    ],
)
def test_damaged_line(line: dict[str, object]) -> None:
    """A line that makes no sense is left out."""
    assert read([*LINES[:6], line, *LINES[6:]]).processes[0].looks[-1].time_s == 0.7


def test_lost_frame() -> None:
    """After a lost frame nothing more is read, because later stacks may mean another one."""
    found = read([line for line in LINES if line.get("frame", [1])[0] != 0])  # type: ignore[index]

    assert found.frames == []
    assert found.processes[0].looks == []


def test_frames_of_the_hook() -> None:
    """Frames of our own hook are left out."""
    ours = {"frame": [1, "wrapper", "<frozen importlib._bootstrap nncf-tools>", 1]}

    assert read([*LINES[:3], ours, *LINES[4:]]).stacks == [[0]]


def test_secrets() -> None:
    """What --redact hides is hidden in the paths of files."""
    found = read(LINES, redact=("run",))

    assert "run" not in found.frames[0].file


def test_problem() -> None:
    """The first problem says why stacks are missing."""
    refused = {"problem": {"process": 0, "text": "refused"}}

    assert read([*LINES[:2], refused]).missing == "the kernel does not allow to read the stacks of process 77"


def test_no_log() -> None:
    """Without a log, or a clock to read it by, there is nothing."""
    assert snapshots_from(b"", START, [], ()) is None
    assert snapshots_from(b"{}\n", Start(), [], ()) is None


def test_helper_that_ended_early() -> None:
    """A log without its last line says when the helper ended."""
    assert read(LINES[:-1]).missing == "the helper process ended early, at 0.5 s"


def test_no_python() -> None:
    """If nothing that grew runs Python, that is the reason."""
    other = {"problem": {"process": 0, "text": "no_python"}}

    assert read([*LINES[:2], other]).missing == "no program that grew runs Python, process 77 for instance"


def test_before_the_start() -> None:
    """What the helper saw before the recording began is at its start."""
    line = {"rss": {"process": 0, "t_ns": [900_000_000, 1_200_000_000], "rss": [7, 8]}}

    assert read([*LINES[:2], line]).processes[0].time_s == [0.0, 0.2]


WRONG: dict[str, Snapshots] = {
    "a frame": Snapshots(stacks=[[0]]),
    "a frame that is negative": Snapshots(frames=[Frame("f", "/a.py", 1)], stacks=[[-1]]),
    "a stack": Snapshots(processes=[WatchedProcess(pid=1, looks=[Look(0.0, [ThreadLook(1, 0)])])]),
    "points": Snapshots(processes=[WatchedProcess(pid=1, time_s=[0.0], rss=[])]),
    "times": Snapshots(processes=[WatchedProcess(pid=1, time_s=[1.0, 0.5], rss=[1, 1])]),
    "looks": Snapshots(processes=[WatchedProcess(pid=1, looks=[Look(1.0, []), Look(0.5, [])])]),
    "depth": Snapshots(frames=[Frame("f", "/a.py", 1)], stacks=[[0] * 5_000]),
}


@pytest.mark.parametrize("name", WRONG)
def test_impossible_snapshots(name: str, tmp_path: pathlib.Path) -> None:
    """A session whose snapshots make no sense is refused, with the place."""
    path = session({"rss": [1, 2, 3]}, snapshots=WRONG[name]).save(tmp_path / "run.json")

    with pytest.raises(SessionFileError, match=r"at `\$\.snapshots\."):
        Session.load(path)
