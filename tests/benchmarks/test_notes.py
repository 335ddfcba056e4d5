from __future__ import annotations

import pytest

from benchmarks.truth.random_programs.truth import Truth, envelopes_of, truth_of
from tests.made_up import MIB

_MS = 1_000_000


def _notes(text: str) -> list[str]:
    """Return the notes of a program whose first process has the PID 1.

    Each line has a time in milliseconds, an event and its words. ``3 reads 10 2=40``: process 1 holds 10 MiB and
    process 2 holds 40. ``5 begin A 2``: process 2 begins an operation.
    """
    lines = ["s 0 1 0"]
    for line in text.strip().splitlines():
        time, event, *words = line.split()
        at_ns = round(float(time) * _MS)
        if event == "reads":
            sizes = (word.rpartition("=") for word in words)
            held = (f"{pid or 1} {int(size) * MIB}" for pid, _, size in sizes)
            lines.append(f"r {at_ns} {at_ns + 1000} {' '.join(held)}")
        elif event in {"starts", "ends"}:
            lines.append(f"{'s' if event == 'starts' else 'g'} {at_ns} {' '.join(words)}")
        else:
            name, pid = [*words, "1"][:2]
            lines.append(f"m {at_ns} {at_ns + 50_000} {pid} {pid} {event} {name}")
    return lines


def _held(text: str, *times_ms: float) -> list[tuple[float, float]]:
    """Return the bounds of the sum at some times."""
    envelopes = envelopes_of(_notes(text)).values()
    found = [[one.between(at_ms * _MS, at_ms * _MS) for one in envelopes] for at_ms in times_ms]
    return [_mib((sum(one.low for one in some), sum(one.high for one in some))) for some in found]


def _mib(interval: object) -> tuple[float, float]:
    low, high = interval
    return round(low / MIB, 1), round(high / MIB, 1)


def _load(truth: Truth) -> tuple[object, ...]:
    (found,) = truth.operations
    return _mib(found.start), found.end and _mib(found.end), _mib(found.peak)


_ONE = """
1 reads 10
2 begin Load
3 reads 10
5 reads 10
6 reads 110
6.5 reads 110
6.6 reads 30
7 end Load
8 reads 30
9 ends 1
"""
_BESIDE = """
1 reads 10
2 reads 10
3 begin Load
8 end Load
9 reads 60
"""


def test_one_process() -> None:
    """Start, end and peak of an operation are as read around them, in lines of any order; changes there are bounds."""
    truth = truth_of(_notes(_ONE))

    assert _load(truth) == ((10, 10), (30, 30), (110, 110))
    assert _mib(truth.peak) == (110, 110)
    assert truth.headline.names == {"Load"}
    assert truth_of(reversed(_notes(_ONE))) == truth
    assert _load(truth_of(_notes(_BESIDE))) == ((10, 60), (10, 60), (10, 60))


_CHILD = """
1 reads 10
2 starts 2 1
4 reads 10
5 reads 2=40
9 reads 2=40
12 ends 2
20 reads 10
"""
_UNREAD = """
1 reads 10
2 starts 2 1
4 ends 2
9 reads 10
"""
_BY_PARENT = """
1 reads 10
2 starts 2 1
4 reads 10 2=0
6 reads 10 2=0
8 reads 2=30
9 reads 10
"""


def test_a_child() -> None:
    """A child counts from its start, at most what it held first, until its end, at most what it held last."""
    assert _held(_CHILD, 1.5, 3, 7, 11, 13) == [(10, 10), (10, 50), (50, 50), (10, 50), (10, 10)]
    assert _held(_UNREAD, 1.5, 3, 5) == [(10, 10), (10, 12), (10, 10)]
    assert _held(_BY_PARENT, 5, 7) == [(10, 10), (10, 40)]


_NESTED = """
0.5 reads 10
1 begin A
2 moment B
3 begin C
4 end C
5 moment D
6 end A
7 moment E
9 reads 10
10 ends 1
"""


def test_moments_and_nested_operations() -> None:
    """A moment ends with the next mark of its thread, or with the operation around it; the last one has no end."""
    found = truth_of(_notes(_NESTED)).operations

    assert {one.name: one.end_ns and one.end_ns[0] / _MS for one in found} == {
        "A": 6,
        "B": 3,
        "C": 4,
        "D": 6,
        "E": None,
    }
    assert {one.name: one.inside for one in found} == {"A": None, "B": "A", "C": "A", "D": "A", "E": None}


_LATE_ORPHAN = """
1 reads 10
2 starts 2 1
3 reads 2=10
4 begin A 2
10 reads 10
11 ends 1
21 end A 2
22 begin B 2
23 reads 2=10
24 reads 2=99
25 end B 2
30 ends 2
"""


def test_an_orphan_that_outlives_the_recording() -> None:
    """What an orphan ends later has no known end, and what it begins later may be missing; its peak there is none."""
    truth = truth_of(_notes(_LATE_ORPHAN))

    assert [(one.name, one.end) for one in truth.operations] == [("A", None)]
    assert truth.optional == {"B"}
    assert _mib(truth.peak) == (20, 20)


_RISES = """
1 reads 10
5 begin A
11 reads 10
12 reads 300
13 reads 300
20 end A
25 begin B
31 reads 300
32 reads 320
40 end B
41 reads 320
"""
_OUTSIDE = """
1 reads 10
10 begin A
20 end A
30 reads 10
31 reads 200
40 reads 200
"""
_PLAIN_CHILD = """
1 reads 10
10 begin A
11 begin B
20 starts 2 1
30 reads 2=5
40 reads 2=5
41 reads 2=200
50 reads 2=200
60 ends 2
80 end B
90 end A
95 reads 10
"""
_PARALLEL = """
1 reads 10
10 begin A
20 starts 2 1
30 reads 2=10
32 begin B 2
39 reads 1=10
40 reads 2=10
41 reads 2=200
70 reads 2=200
75 reads 1=10
80 end B 2
85 ends 2
90 end A
95 reads 10
"""
_ORPHAN = """
1 reads 10
10 begin A
20 starts 2 1
21 reads 2=10
21 starts 3 2
22 reads 2=10
23 ends 2
30 reads 3=10
40 reads 3=10
41 reads 3=200
50 reads 3=200
60 ends 3
90 end A
95 reads 10
"""
_CLOSE = """
1 reads 10
10 begin A
11 reads 10
19 reads 10
20 end A
20.2 begin B
21 reads 300
40 end B
41 reads 300
"""


@pytest.mark.parametrize(
    "text, names",
    [
        pytest.param(_RISES, {"B"}, id="more than noise"),
        pytest.param(_RISES.replace("320", "301"), {"A"}, id="within 1 %"),
        pytest.param(_OUTSIDE, {""}, id="outside"),
        pytest.param(_PLAIN_CHILD, {"B"}, id="a child works for the innermost operation of its parent"),
        pytest.param(_PARALLEL, {"B"}, id="the process that took the memory"),
        pytest.param(_PARALLEL.replace("1=", "x").replace("2=", "1=").replace("x", "2="), {"A"}, id="the other one"),
        pytest.param(_ORPHAN, {"A", ""}, id="an orphan works for any open operation, or none"),
        pytest.param(_CLOSE, {"A", "B", ""}, id="mark and peak are closer than they are known"),
    ],
)
def test_headline(text: str, names: set[str]) -> None:
    """The operation that added memory up to the peak is named; in doubt, several are right."""
    assert truth_of(_notes(text)).headline.names == names
