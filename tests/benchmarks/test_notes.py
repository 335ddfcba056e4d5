from __future__ import annotations

import pytest

from benchmarks.truth.random_programs.truth import Truth, envelopes_of, truth_of
from tests.made_up import MIB

_MS = 1_000_000
_ROOT = ["s 0 1 0"]


def _read(at_ms: float, *sizes_mib: float, pid: int = 1, **others: float) -> str:
    """Return the line of a reading; further processes are p2=size."""
    sizes = {pid: sizes_mib[0], **{int(name[1:]): size for name, size in others.items()}}
    words = [f"{number} {round(size * MIB)}" for number, size in sizes.items()]
    return f"r {round(at_ms * _MS)} {round(at_ms * _MS) + 1000} {' '.join(words)}"


def _mark(at_ms: float, kind: str, name: str, pid: int = 1, tid: int | None = None) -> str:
    return f"m {round(at_ms * _MS)} {round(at_ms * _MS) + 50_000} {pid} {tid or pid} {kind} {name}"


def _held(lines: list[str], *times_ms: float) -> list[tuple[float, float]]:
    """Return the bounds of the sum at some times."""
    envelopes = envelopes_of([*_ROOT, *lines]).values()
    found = [[one.between(at_ms * _MS, at_ms * _MS) for one in envelopes] for at_ms in times_ms]
    return [_mib((sum(one.low for one in some), sum(one.high for one in some))) for some in found]


def _gone(at_ms: float, pid: int) -> str:
    return f"g {round(at_ms * _MS)} {pid}"


def _mib(interval: object) -> tuple[float, float]:
    low, high = interval
    return round(low / MIB, 1), round(high / MIB, 1)


def _of(truth: Truth, name: str) -> tuple[object, ...]:
    (found,) = (one for one in truth.operations if one.name == name)
    return _mib(found.start), found.end and _mib(found.end), _mib(found.peak)


def test_one_process() -> None:
    """Start, end and peak of an operation are what the readings around them say."""
    lines = [_read(1, 10), _mark(2, "begin", "Load 1"), _read(3, 10), _read(5, 10), _read(6, 110), _read(6.5, 110)]
    lines += [_read(6.6, 30), _mark(7, "end", "Load 1"), _read(8, 30)]
    truth = truth_of([*_ROOT, *lines, _gone(9, 1)])

    assert _of(truth, "Load 1") == ((10, 10), (30, 30), (110, 110))
    assert _mib(truth.peak) == (110, 110)
    assert truth.headline.names == {"Load 1"}


def test_a_change_beside_a_mark() -> None:
    """Where a process takes memory while a mark is made, the truth is anything in between."""
    lines = [_read(1, 10), _read(2, 10), _mark(3, "begin", "Load 1"), _mark(8, "end", "Load 1"), _read(9, 60)]

    assert _of(truth_of([*_ROOT, *lines]), "Load 1") == ((10, 60), (10, 60), (10, 60))


def test_the_order_of_lines() -> None:
    """Processes write their notes at any time: the order of the lines does not matter."""
    lines = [
        _read(1, 10),
        _mark(2, "begin", "Load 1"),
        _read(3, 10),
        _read(4, 90),
        _mark(5, "end", "Load 1"),
        _read(6, 90),
    ]

    assert truth_of([*_ROOT, *lines]) == truth_of([*reversed(lines), *_ROOT])


def test_a_child() -> None:
    """A child counts from its start, at most what it held first, until its end, at most what it held last."""
    lines = [
        _read(1, 10),
        "s 2000000 2 1",
        _read(4, 10),
        _read(5, 40, pid=2),
        _read(9, 40, pid=2),
        _gone(12, 2),
        _read(20, 10),
    ]

    assert _held(lines, 1.5, 3, 7, 11, 13) == [(10, 10), (10, 50), (50, 50), (10, 50), (10, 10)]


def test_a_child_that_nobody_read() -> None:
    """A program that ends at once may have held little, only while it was there."""
    lines = [_read(1, 10), "s 2000000 2 1", _gone(4, 2), _read(9, 10)]

    assert _held(lines, 1.5, 3, 5) == [(10, 10), (10, 12), (10, 10)]


def test_readings_of_others() -> None:
    """What another process read of a child counts as its own reading: 0 before its exec."""
    lines = [_read(1, 10), "s 2000000 2 1", _read(4, 10, p2=0), _read(6, 10, p2=0), _read(8, 30, pid=2), _read(9, 10)]

    assert _held(lines, 5, 7) == [(10, 10), (10, 40)]


def test_moments_and_nested_operations() -> None:
    """A moment ends with the next mark of its thread, or with the operation around it; the last one has no end."""
    marks = [(1, "begin", "A 1"), (2, "moment", "B 2"), (3, "begin", "C 3"), (4, "end", "C 3"), (5, "moment", "D 4")]
    marks += [(6, "end", "A 1"), (7, "moment", "E 5")]
    truth = truth_of([*_ROOT, _read(0.5, 10), *(_mark(*mark) for mark in marks), _read(9, 10), _gone(10, 1)])

    ends = {one.name: one.end_ns and one.end_ns[0] / _MS for one in truth.operations}
    assert ends == {"A 1": 6, "B 2": 3, "C 3": 4, "D 4": 6, "E 5": None}
    assert {one.name: one.inside for one in truth.operations} == {
        "A 1": None, "B 2": "A 1", "C 3": "A 1", "D 4": "A 1", "E 5": None
    }  # fmt: skip


def test_an_orphan_that_outlives_the_recording() -> None:
    """What an orphan ends later has no known end, and what it begins later may be missing; its peak there is none."""
    orphan = ["s 2000000 2 1", _read(3, 10, pid=2), _mark(4, "begin", "A 1", 2), _mark(21, "end", "A 1", 2)]
    orphan += [_mark(22, "begin", "B 2", 2), _read(23, 10, pid=2), _read(24, 99, pid=2), _mark(25, "end", "B 2", 2)]
    truth = truth_of([*_ROOT, _read(1, 10), _read(10, 10), _gone(11, 1), *orphan, _gone(30, 2)])

    assert [(one.name, one.end) for one in truth.operations] == [("A 1", None)]
    assert truth.optional == {"B 2"}
    assert _mib(truth.peak) == (20, 20)


def _headline(*lines: str) -> set[str]:
    return set(truth_of([*_ROOT, *lines]).headline.names)


def test_headline_within_noise() -> None:
    """The operation that came within 1 % of the peak is named, not the one that added the rest."""
    first = [_mark(5, "begin", "A 1"), _read(11, 10), _read(12, 300), _read(13, 300), _mark(20, "end", "A 1")]
    second = [_mark(25, "begin", "B 2"), _read(31, 300), _read(32, 301), _mark(40, "end", "B 2"), _read(41, 301)]

    assert _headline(_read(1, 10), *first, *second) == {"A 1"}


def test_headline_beyond_noise() -> None:
    """An operation that adds more than noise is named."""
    first = [_mark(5, "begin", "A 1"), _read(11, 10), _read(12, 300), _read(13, 300), _mark(20, "end", "A 1")]
    second = [_mark(25, "begin", "B 2"), _read(31, 300), _read(32, 320), _mark(40, "end", "B 2"), _read(41, 320)]

    assert _headline(_read(1, 10), *first, *second) == {"B 2"}


def test_headline_outside() -> None:
    """No operation is named when memory reached the peak outside of all."""
    marks = [_mark(10, "begin", "A 1"), _mark(20, "end", "A 1")]

    assert _headline(_read(1, 10), *marks, _read(30, 10), _read(31, 200), _read(40, 200)) == {""}


def test_headline_of_a_plain_child() -> None:
    """A child without operations works for the innermost one of its parent."""
    marks = [_mark(10, "begin", "A 1"), _mark(11, "begin", "B 2"), _mark(80, "end", "B 2"), _mark(90, "end", "A 1")]
    child = ["s 20000000 2 1", _read(30, 5, pid=2), _read(40, 5, pid=2), _read(41, 200, pid=2), _read(50, 200, pid=2)]

    assert _headline(_read(1, 10), *marks, *child, _gone(60, 2), _read(95, 10)) == {"B 2"}


@pytest.mark.parametrize(("taker", "names"), [(1, {"A 1"}), (2, {"B 2"})])
def test_headline_of_parallel_processes(taker: int, names: set[str]) -> None:
    """Of two processes with operations of their own, that of the one that took the memory is named."""
    marks = [
        _mark(10, "begin", "A 1"),
        _mark(90, "end", "A 1"),
        _mark(32, "begin", "B 2", 2),
        _mark(80, "end", "B 2", 2),
    ]
    child = ["s 20000000 2 1", _read(30, 10, pid=2)]
    taken = [_read(40, 10, pid=taker), _read(41, 200, pid=taker), _read(70, 200, pid=taker)]
    still = [_read(at_ms, 10, pid=3 - taker) for at_ms in (39, 75)]

    assert _headline(_read(1, 10), *marks, *child, *taken, *still, _gone(85, 2), _read(95, 10)) == names


def test_headline_of_an_orphan() -> None:
    """An orphan works for nobody: any operation that is open may be named, or none."""
    marks = [_mark(10, "begin", "A 1"), _mark(90, "end", "A 1")]
    middle = ["s 20000000 2 1", _read(21, 10, pid=2), _read(22, 10, pid=2), "s 21000000 3 2", _gone(23, 2)]
    orphan = [_read(30, 10, pid=3), _read(40, 10, pid=3), _read(41, 200, pid=3), _read(50, 200, pid=3), _gone(60, 3)]

    assert _headline(_read(1, 10), *marks, *middle, *orphan, _read(95, 10)) == {"A 1", ""}


def test_headline_in_doubt() -> None:
    """Where the mark and the peak are closer than they are known, both operations are right."""
    first = [_mark(10, "begin", "A 1"), _read(11, 10), _read(19, 10), _mark(20, "end", "A 1")]
    second = [_mark(20.2, "begin", "B 2"), _read(21, 300), _mark(40, "end", "B 2"), _read(41, 300)]

    assert _headline(_read(1, 10), *first, *second) == {"A 1", "B 2", ""}
