from __future__ import annotations

from typing import Any

from nncftools.render.listing import timeline
from nncftools.session.operation import Operation
from tests.made_up import figures


def operation(name: str, start_s: float, **fields: Any) -> Operation:  # noqa: ANN401 — any field
    """Return an operation of half a second."""
    return Operation(**{"name": name, "start_s": start_s, "end_s": start_s + 0.5, **fields})


def test_outer_levels() -> None:
    """Only operations of the levels that were asked for are shown."""
    of = [operation("a", 0), operation("b", 0, depth=1), operation("c", 0, depth=2), operation("d", 1)]

    assert [shown.name for shown in timeline(of, 1)] == ["a", "d"]
    assert [shown.name for shown in timeline(of, 2)] == ["a", "b", "d"]


def test_many_calls_inside_of_one_operation() -> None:
    """They are one row: number, time together, longest, figures added, peaks not."""
    outer = operation("Weight Compression", 0, end_s=100)
    inner = [
        operation(
            "Compilation",
            1.0 + n,
            depth=1,
            call="f",
            figures=figures(rss=(n, n + 1, n), cpu=(0.25, None), read_bytes=2),
        )
        for n in range(40)
    ]
    other = operation("Saving", 50, depth=1)
    first, together, saving = timeline([outer, *inner, other], 2)

    assert (first, saving) == (outer, other)
    assert (together.start_s, together.end_s, together.count) == (1, 40.5, 40)
    assert (together.total_s, together.longest_s) == (20, 0.5)
    assert (together.read_bytes, together.cpu_s, together.rss_peak, together.delta) == (80, 10, 39, 40)


def test_few_calls_stay_apart() -> None:
    """Up to three calls of one function inside of one operation are shown one by one."""
    of = [operation("a", 0, end_s=9), *(operation("b", 1.0 + n, depth=1) for n in range(3))]

    assert timeline(of, 2) == of


def test_calls_inside_of_two_operations() -> None:
    """Calls are grouped only within their own operation."""
    of = [
        operation("a", 0, end_s=10),
        *(operation("b", 1.0 + n, depth=1) for n in range(4)),
        operation("a", 10, end_s=20),
        *(operation("b", 11.0 + n, depth=1) for n in range(4)),
    ]

    assert [(shown.name, shown.count) for shown in timeline(of, 2)] == [("a", 1), ("b", 4), ("a", 1), ("b", 4)]


def test_outermost_calls_in_a_row() -> None:
    """Many outermost calls of one function with no other between them are one row; a few are not."""
    run = [operation("Generation", float(n), call="g") for n in range(20)]
    after = [operation("Saving", 30), operation("Generation", 31, call="g")]

    assert [(shown.name, shown.count) for shown in timeline([*run, *after], 1)] == [
        ("Generation", 20),
        ("Saving", 1),
        ("Generation", 1),
    ]
    assert len(timeline(run[:12], 1)) == 12


def test_unknown_stays_unknown() -> None:
    """A sum with an unknown figure is unknown; the error of one call is shown for all."""
    run = [
        operation(
            "g", float(n), figures=figures(read_bytes=None if n == 3 else 1), error="KeyError" if n == 5 else None
        )
        for n in range(20)
    ]
    (shown,) = timeline(run, 1)

    assert (shown.read_bytes, shown.error) == (None, "KeyError")


def test_cores_of_calls_in_one_row() -> None:
    """Cores are busy inside of the calls: the time between them does not count."""
    inner = [
        operation("Compilation", 10.0 * n, depth=1, call="f", figures=figures(cpu=(0.5, None))) for n in range(215)
    ]
    _, together = timeline([operation("All", 0, end_s=2200), *inner], 2)

    assert (together.duration_s, together.cpu_average) == (2140.5, 1.0)


def test_row_of_many_holds_the_peak() -> None:
    """A row of many calls holds the peak if one of them does, and may hold it if one of them may."""

    def row(*holding: bool | None) -> bool | None:
        held = [False, False, False, *holding]
        calls = [operation("c", n, depth=1, call="f", has_peak=one) for n, one in enumerate(held)]
        return timeline([operation("All", 0, end_s=99), *calls], 2)[1].has_peak

    assert [row(*holding) for holding in ([None, True], [None], [False])] == [True, None, False]


def test_calls_of_parallel_processes() -> None:
    """Calls are in the row of their own process's operation, although another process's began later."""
    of = [operation("Quantization", start_s, end_s=50, pid=pid) for start_s, pid in ((0, 1), (1, 2))]
    of += [operation("Compilation", 2.0 + n, depth=1, call="f", pid=1 + n % 2) for n in range(10)]

    assert [(row.name, row.pid, row.count) for row in timeline(of, 2)] == [
        ("Quantization", 1, 1),
        ("Compilation", 1, 5),
        ("Quantization", 2, 1),
        ("Compilation", 2, 5),
    ]


def test_order_of_parallel_operations() -> None:
    """What is inside of one of several parallel operations follows that one."""
    first, second = operation("first", 0, end_s=9, op=1), operation("second", 1, end_s=9, op=2)
    inner = [operation(f"in {number}", 1.0 + at, depth=1, inside=number) for at, number in enumerate((1, 2, 1, 2))]

    assert [row.name for row in timeline([first, second, *inner], 2)] == [
        *("first", "in 1", "in 1", "second", "in 2", "in 2")
    ]


def test_sum_of_parallel_calls_is_unknown() -> None:
    """Each of several parallel calls has what all of them spent: the sum of one row is not known."""
    after = [operation("a", float(n), figures=figures(cpu=(0.25, None))) for n in range(20)]
    beside = [operation("a", n / 4, figures=figures(cpu=(0.25, None)), is_parallel=True) for n in range(20)]
    (known,), (unknown,) = timeline(after, 1), timeline(beside, 1)

    assert (known.cpu_s, known.is_parallel) == (5, False)
    assert (unknown.cpu_s, unknown.cpu_average, unknown.is_parallel) == (None, None, True)


def test_arguments_of_calls_in_one_row() -> None:
    """A row of many calls has the arguments and the file that all of them have in common."""
    alike = [operation("a", at_s, arguments="CPU", saved=f"/{at_s}") for at_s in range(13)]
    (row,) = timeline(alike, 1)
    (different,) = timeline([*alike, operation("a", 13)], 1)

    assert (row.arguments, row.saved) == ("CPU", None)
    assert different.arguments is None


def test_calls_that_were_counted_together() -> None:
    """Calls that the log counts together, and those before them, are one row."""
    (row,) = timeline([operation("a", 0), operation("a", 1, count=990, total_s=0.5, longest_s=0.1)], 1)

    assert row.count == 991
