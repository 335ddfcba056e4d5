"""Which thread of a process made its memory rise."""

from __future__ import annotations

import pytest

from nncftools.analysis.build_up import EITHER, NOT_SEEN
from tests.analysis.made_snapshots import MAIN, Made, by_function, by_kind

POINTS = [(0.0, 0), (0.4, 100)]
WORKER, POOL = 2, 3


@pytest.fixture
def made() -> Made:
    """Return snapshots without a process."""
    return Made()


@pytest.mark.parametrize(
    ("threads", "expected"),
    [
        ({MAIN: ("spin", 1, 0.4), WORKER: ("load", 99, 0.1)}, {"load": 99, "spin": 1}),
        ({MAIN: ("a", 25, 0.1), WORKER: ("b", 75, 0.1)}, {"a": 25, "b": 75}),
        ({MAIN: ("infer", 0, 0.01), POOL: (None, 100, 0.4)}, {"infer": 100}),
        ({MAIN: ("matmul", 30, 0.4), POOL: (None, 35, 0.4), POOL + 1: (None, 35, 0.4)}, {"matmul": 100}),
        ({MAIN: ("spin", 0, 0.4), POOL: (None, 100, 0.4)}, None),
        ({MAIN: ("a", 0, 0.0), WORKER: ("b", 0, 0.0), POOL: (None, 100, 0.4)}, None),
    ],
    ids=["one with the faults", "several", "main waits", "main takes part", "main spins", "one of two"],
)
def test_threads(
    made: Made, threads: dict[int, tuple[str | None, int, float]], expected: dict[str, int] | None
) -> None:
    """A rise belongs to the threads with the page faults; those of native threads to the only Python thread, if known.

    That is the thread that waits, or touches new memory as they do, and not one that computes without new memory.
    """
    made.threads(POINTS, (0.0, threads), (0.4, threads))
    build_up = made.build_up(0.4)

    assert by_function(build_up) == (expected or {})
    assert expected or by_kind(build_up) == {NOT_SEEN: 100}


def test_pool_beside_a_waiting_thread(made: Made) -> None:
    """A Python thread that waits for an event does not call a pool."""
    threads = {MAIN: ("infer", 0, 0.0), WORKER: ("run>wait", 0, 0.0), POOL: (None, 100, 0.4)}
    made.threads(POINTS, (0.0, threads), (0.4, threads))
    waits = made.snapshots.frames[2]
    made.snapshots.frames[2] = type(waits)("wait", "/usr/lib/python3.11/threading.py", 320)

    assert by_function(made.build_up(0.4)) == {"infer": 100}


def test_thread_that_ended(made: Made) -> None:
    """What a thread touched that is gone at the next look belongs to its last stack, or to what it did afterwards."""
    before = {MAIN: ("main", 0, 0.0), WORKER: ("work", 50, 0.1)}
    made.threads(POINTS, (0.0, before), (0.4, {MAIN: ("main", 0, 0.0)}), lost=[0, 80])

    found = made.build_up(0.4)

    assert by_function(found) == {"work": 100}
    assert by_kind(found) == {EITHER: 100}


def test_after_the_last_look(made: Made) -> None:
    """After the last look, the thread that touched memory before may go on."""
    threads = {MAIN: ("main", 0, 0.0), WORKER: ("work", 50, 0.1)}
    made.threads([(0.0, 0), (0.1, 10), (0.5, 100)], (0.0, threads), (0.1, threads))

    assert by_function(made.build_up(0.5)) == {"work": 100}


def test_before_the_first_look(made: Made) -> None:
    """A rise long before the first look was not seen; shortly before it, it may belong to the first stack."""
    made.process([(0.0, 0), (2.0, 100)], (2.0, "a"))

    assert by_kind(made.build_up(2.0)) == {EITHER: 50, NOT_SEEN: 50}


def test_no_faults(made: Made) -> None:
    """Huge pages come with few faults: without any, the only Python thread counts."""
    threads = {MAIN: ("a", 0, 0.1)}
    made.threads(POINTS, (0.0, threads), (0.4, threads))

    assert by_function(made.build_up(0.4)) == {"a": 100}


def test_burst_between_looks(made: Made) -> None:
    """If memory is level at both looks, the rise between them was a burst: the stack that both show is not certain."""
    size = 64 << 20
    made.process([(0.0, 0), (0.15, 0), (0.16, size), (0.4, size)], (0.0, "main>compute"), (0.3, "main>compute"))

    found = made.build_up(0.4)

    assert by_kind(found) == {EITHER: size}
    assert [part.shared for part in found.parts] == [0]


def test_short_threads(made: Made) -> None:
    """What threads took that came and went between two looks belongs to no thread with certainty."""
    threads = {MAIN: ("wait_all", 0, 0.0)}
    made.threads(POINTS, (0.0, threads), (0.4, threads), lost=[0, 80])

    assert by_kind(made.build_up(0.4)) == {EITHER: 100}
