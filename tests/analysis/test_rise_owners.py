"""Which thread of a process made its memory rise."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nncftools.analysis.build_up import NOT_SEEN
from nncftools.session.model import Frame
from tests.analysis.made_snapshots import MAIN, Made, by_function, by_kind

POINTS = [(0.0, 0), (0.4, 100)]
WORKER, POOL = 2, 3
WAITS = Frame("wait", "/usr/lib/python3.11/threading.py", 320)


@pytest.fixture
def made() -> Made:
    """Return snapshots without a process."""
    return Made()


@pytest.mark.parametrize(
    ("threads", "faults", "expected"),
    [
        ({MAIN: "spin", WORKER: "load"}, {MAIN: 1, WORKER: 99}, {"load": 99, "spin": 1}),
        ({MAIN: "a", WORKER: "b"}, {MAIN: 25, WORKER: 75}, {"a": 25, "b": 75}),
        ({MAIN: "load", WORKER: "monitor"}, {MAIN: 99, WORKER: 1}, {"load": 99, "monitor": 1}),
        ({MAIN: "infer"}, {POOL: 100}, {"infer": 100}),
        ({MAIN: "matmul"}, {MAIN: 30, POOL: 35, POOL + 1: 35}, {"matmul": 100}),
        ({MAIN: "a", WORKER: "b"}, {POOL: 100}, {}),
        ({MAIN: "a"}, {}, {"a": 100}),
    ],
    ids=[
        "one with most faults",
        "several",
        "a page of another",
        "pool",
        "main takes part",
        "one of two",
        "huge pages have few faults",
    ],
)
def test_threads(made: Made, threads: dict[int, str], faults: dict[int, int], expected: dict[str, int]) -> None:
    """A rise belongs to the threads with the page faults; those of native threads to the only Python thread."""
    made.threads(POINTS, {thread: [(0.0, text)] for thread, text in threads.items()}, (0.4, faults, 0))
    build_up = made.build_up(0.4)

    assert by_function(build_up) == expected
    assert expected or by_kind(build_up) == {NOT_SEEN: 100}
    running = "" if build_up.top is None else build_up.top.stack[-1].function
    assert running == max(expected, key=expected.__getitem__, default="")


def test_pool_beside_a_waiting_thread(made: Made) -> None:
    """A Python thread that waits for an event does not call a pool; the other one does."""
    changes = {MAIN: [(0.0, "infer")], WORKER: [(0.0, "wait")]}
    made.threads(POINTS, changes, (0.4, {POOL: 100}, 0))
    made.snapshots.frames[1] = WAITS
    found = made.build_up(0.4)

    assert by_function(found) == {"infer": 100}
    assert by_function(found, certain=True) == {"infer": 100}


def test_thread_that_ended(made: Made) -> None:
    """What a thread touched that has ended belongs to its last stack."""
    changes = {MAIN: [(0.0, "main")], WORKER: [(0.0, "work"), (0.3, None)]}
    made.threads([(0.0, 0), (0.25, 100), (0.4, 100)], changes, (0.4, {}, 80))

    assert by_function(made.build_up(0.4)) == {"work": 100}


def test_readings_apart(made: Made) -> None:
    """What rose between two readings of RSS is one piece: only what all stacks around it share is certain."""
    points = [(0.0, 0), (0.2, 0), (0.3, 100), (0.4, 100)]
    watched = made.process(points, (0.0, "main>a"), (0.25, "main>b"), every_s=0.02)
    watched.apart_s = [0.1] * 4
    parts = made.build_up(0.4).parts

    assert {part.certain for part in parts} == {1}


def test_call_that_goes_on(made: Made) -> None:
    """What comes at once between two readings belongs to the functions whose calls went on from one to the other."""
    made.process([(0.0, 0), (1.0, 0), (1.1, 100), (2.0, 100)], (0.0, "main>a"), every_s=1.0)

    assert by_function(made.build_up(2.0), certain=True) == {"a": 100}


def test_next_call(made: Made) -> None:
    """If a function was called anew meanwhile, only its caller is certain: something else may have been called, too."""
    points = [(0.0, 0), (0.5, 100), (1.0, 100)]
    watched = made.process(points, (0.0, "main>computes"), (0.5, "main>computes"), every_s=1.0)
    watched.windows[0].threads[0].same[1] = 1
    parts = made.build_up(1.0).parts

    assert {(part.stack[-1].function, part.certain) for part in parts} == {("computes", 1)}


def test_loop(made: Made) -> None:
    """What a frame calls that was seen to call again and again with equal variables is likely at most."""
    made.process([(0.0, 0), (1.0, 100)], (0.0, "main>loop>computes"))
    made.snapshots.loops.append(1)
    parts = made.build_up(1.0).parts

    assert {(part.stack[-1].function, part.certain) for part in parts} == {("computes", 2)}


def test_recording_without_calls(made: Made) -> None:
    """In a recording from before calls were followed, all is likely at most."""
    watched = made.process([(0.0, 0), (1.0, 100)], (0.0, "main"))
    del watched.windows[0].threads[0].same[:]

    assert by_function(made.build_up(1.0)) == {"main": 100}
    assert by_function(made.build_up(1.0), certain=True) == {}


def test_thread_without_faults(made: Made) -> None:
    """A reading of page faults that lists threads without any says nothing."""
    made.threads(POINTS, {MAIN: [(0.0, "a")]}, (0.4, {MAIN: 0}, 0))

    assert by_function(made.build_up(0.4)) == {"a": 100}


def test_between_two_windows(made: Made) -> None:
    """What rises between two windows is likely at most."""
    watched = made.process([(0.0, 0), (1.0, 100)], (0.0, "main"), every_s=0.01)
    (whole,) = watched.windows
    later = replace(whole.threads[0], time_s=[0.7], same=[0])
    watched.windows = [
        replace(whole, time_s=[at_s for at_s in whole.time_s if at_s <= 0.3]),
        replace(whole, time_s=[at_s for at_s in whole.time_s if at_s >= 0.7], threads=[later]),
    ]
    found = made.build_up(1.0)

    assert by_function(found) == {"main": 100}
    assert by_function(found, certain=True)["main"] == pytest.approx(60, abs=3)
