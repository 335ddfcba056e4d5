"""Which thread of a process made its memory rise."""

from __future__ import annotations

import pytest

from nncftools.analysis.build_up import NOT_SEEN
from nncftools.analysis.code_places import line_text
from nncftools.session.model import Frame, RangeChange
from tests.analysis.made_snapshots import MAIN, Made, by_function, by_kind
from tests.made_up import rows

LEVELS = "0@0 100@0.4"
WORKER = 2
WAITS = Frame("wait", "/usr/lib/python3.11/threading.py", 320)


@pytest.fixture
def made() -> Made:
    """Return snapshots without a process."""
    return Made()


def numbers(text: str) -> dict[str, int]:
    """Return numbers by name from a text such as ``load=99 spin=1``."""
    pairs = (word.split("=") for word in text.split())
    return {name: int(number) for name, number in pairs}


def by_thread(text: str) -> dict[int, int]:
    """Return page faults by thread: 1 is the main one, and 3 and 4 are no threads of Python."""
    return {int(thread): number for thread, number in numbers(text).items()}


@pytest.mark.parametrize(
    "threads, faults, expected",
    rows("""
spin load | 1=1 2=99 | load=99 spin=1
a b | 1=25 2=75 | a=25 b=75
load monitor | 1=99 2=1 | load=99 monitor=1
infer | 3=100 | infer=100
matmul | 1=30 3=35 4=35 | matmul=100
a b | 3=100 |
a |  | a=100
"""),
    ids=[
        *("one with most faults", "several", "a page of another", "pool", "main takes part", "one of two"),
        "huge pages have few faults",
    ],
)
def test_threads(made: Made, threads: str, faults: str, expected: str) -> None:
    """A rise belongs to the threads with the page faults; those of native threads to the only Python thread."""
    stacks = {thread: f"{name}@0" for thread, name in enumerate(threads.split(), start=MAIN)}
    made.threads(LEVELS, stacks, (0.4, by_thread(faults), 0))
    build_up = made.build_up(0.4)
    owners = numbers(expected)

    assert by_function(build_up) == owners
    assert owners or by_kind(build_up) == {NOT_SEEN: 100}
    running = "" if build_up.top is None else build_up.top.stack[-1].function
    assert running == max(owners, key=owners.__getitem__, default="")


@pytest.mark.parametrize("faults, lost, certain", [("1=10 3=90", 0, "infer=100"), ("3=100", 0, ""), ("1=4", 96, "")])
def test_pool_beside_a_waiting_thread(made: Made, faults: str, lost: int, certain: str) -> None:
    """A Python thread that waits for an event does not call a pool; the other one does, for certain if it works."""
    changes = {MAIN: "infer@0", WORKER: "wait@0"}
    made.threads(LEVELS, changes, (0.4, by_thread(faults), lost))
    made.snapshots.frames[1] = WAITS
    found = made.build_up(0.4)

    assert by_function(found) == {"infer": 100}
    assert by_function(found, certain=True) == numbers(certain)


def test_thread_that_ended(made: Made) -> None:
    """What a thread touched that has ended belongs to its last stack."""
    changes = {MAIN: "main@0", WORKER: "work@0 -@0.3"}
    made.threads("0@0 100@0.25 100@0.4", changes, (0.4, {}, 80))

    assert by_function(made.build_up(0.4)) == {"work": 100}


def test_readings_apart(made: Made) -> None:
    """What rose between two readings of RSS is one piece: only what all stacks around it share is certain."""
    levels = "0@0 0@0.2 100@0.3 100@0.4"
    watched = made.process(levels, "main>a@0 main>b@0.25", every_s=0.02)
    watched.apart_s = [0.1] * 4
    parts = made.build_up(0.4).parts

    assert {part.certain for part in parts} == {1}


def test_next_call(made: Made) -> None:
    """If a function was called anew meanwhile, only its caller is certain: something else may have been called, too."""
    levels = "0@0 100@0.5 100@1"
    watched = made.process(levels, "main>computes@0 main>computes@0.5", every_s=1.0)
    watched.windows[0].threads[0].same[1] = 1
    parts = made.build_up(1.0).parts

    assert {(part.stack[-1].function, part.certain) for part in parts} == {("computes", 1)}


def test_loop(made: Made) -> None:
    """What a frame calls that was seen to call again and again with equal variables is likely at most."""
    made.process("0@0 100@1", "main>loop>computes@0")
    made.snapshots.loops.append(1)
    parts = made.build_up(1.0).parts

    assert {(part.stack[-1].function, part.certain) for part in parts} == {("computes", 2)}


def test_recording_without_calls(made: Made) -> None:
    """In a recording from before calls were followed, all is likely at most."""
    watched = made.process("0@0 100@1", "main@0")
    del watched.windows[0].threads[0].same[:]

    assert by_function(made.build_up(1.0)) == {"main": 100}
    assert by_function(made.build_up(1.0), certain=True) == {}


MIB = 1 << 20
FAST = "0@0 0@0.5 100M@0.51 100M@1"
"""Memory stands for half a second, rises at once, and stands again."""


@pytest.mark.parametrize(
    "changes, expected",
    [
        ("main:3@0 main:4>ones@0.505 main:5@0.51", ["main:4", "ones:1"]),
        ("main:3@0 main:9@0.51", ["main:4-8"]),
        ("main:9@0 main:3@0.51", ["main:3-9"]),
        ("main:1>load:3@0 main:1>load:5@0.51", ["main:1", "load:4"]),
        ("main:3@0 main:4>load:5@0.51", ["main:4", "load"]),
        ("main:3>read:5@0 main:4>load:5@0.51", ["main:4", "load"]),
    ],
)
def test_stacks_that_stood(made: Made, changes: str, expected: list[str]) -> None:
    """A stack that stood without growth took nothing; if both stood, it was the lines between them, likely at most."""
    made.process(FAST, changes)
    found = made.build_up(1.0)
    largest = max(found.parts, key=lambda part: part.size)

    assert [f"{frame.function}{line_text(frame)}" for frame in largest.stack] == expected
    assert largest.size > 90 * MIB
    assert largest.still < len(largest.stack)


@pytest.mark.parametrize("later, expected", [("main>load", 100), ("main>convert", 0)])
def test_memory_that_moved(made: Made, later: str, expected: int) -> None:
    """A call that still runs when its memory moves (realloc) keeps it; else another one may have taken the place."""
    watched = made.process("0@0 100M@1 100M@3", f"main>load@0 {later}@1.5")
    pages = 100 * MIB // 4096
    watched.ranges = [
        RangeChange(1.0, [0x7F0000000, pages], []),
        RangeChange(2.0, [0x7E0000000, pages], [0x7F0000000, pages]),
    ]

    assert round(by_function(made.build_up(3.0), certain=True).get("load", 0) / MIB) == pytest.approx(expected, abs=2)


def test_shares_by_speed(made: Made) -> None:
    """A rise between two stacks is shared by how fast memory rose in each."""
    levels = "0@0 90M@1 100M@1.1 110M@2"
    made.process(levels, "fast@0 slow@1.1", every_s=0.1)

    assert by_function(made.build_up(1.1)) == pytest.approx({"fast": 98.9 * MIB, "slow": 1.1 * MIB}, rel=0.2)


def test_waiting_thread_took_nothing(made: Made) -> None:
    """A thread that waits at both readings took nothing, nor did its callers, whatever page faults say."""
    changes = {MAIN: "main>wait@0", WORKER: "work@0"}
    made.threads(LEVELS, changes, (0.4, {MAIN: 90, WORKER: 10}, 0))
    made.snapshots.frames[1] = WAITS
    found = made.build_up(0.4)

    assert by_function(found, certain=True) == {"work": 100}


@pytest.mark.parametrize(
    "faults, expected",
    rows("""
1=30 2=40 | a=50 b=50
1=1 2=40 | b=100
3=40 |
"""),
    ids=["both may have taken all", "one has too few", "neither has one"],
)
def test_faults_of_huge_pages(made: Made, faults: str, expected: str) -> None:
    """Where page faults are too few for the bytes, threads that work share them; who had hardly any took nothing."""
    changes = {MAIN: "a@0", WORKER: "b@0"}
    made.threads("0@0 100M@0.4", changes, (0.4, by_thread(faults), 0))

    assert by_function(made.build_up(0.4)) == {name: size * MIB for name, size in numbers(expected).items()}
