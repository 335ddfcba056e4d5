from __future__ import annotations

from typing import Any

import pytest

from nncftools.render.listing import numbered, peak_notes, rows, timeline, without_small
from nncftools.session.model import Mark
from nncftools.session.operation import Operation
from tests.made_up import figures, mib, session


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


COUNTERS = ("read_bytes", "write_bytes")


def named(name: str = "step", start_s: float = 0, duration_s: float = 1, **fields: Any) -> Operation:  # noqa: ANN401 — any field of an operation
    """Return an operation."""
    return Operation(name=name, start_s=start_s, end_s=start_s + duration_s, **fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "step"),
        ({"count": 24}, "step ×24"),
        ({"error": "ValueError"}, "step ✕"),
        ({"error": "unfinished"}, "step …"),
        ({"count": 2, "error": "KeyError"}, "step ×2 ✕"),
        ({"is_parallel": True, "error": "KeyError"}, "step (parallel) ✕"),
        ({"name": "a\tb\x1b[31m"}, "a\\tb\\x1b[31m"),
        ({"name": "x" * 300, "count": 2}, f"{'x' * 132}…{'x' * 67} ×2"),
    ],
)
def test_title(fields: dict[str, Any], expected: str) -> None:
    """A title has the operation's name, its number of calls, whether it is parallel, and its error, for any name."""
    assert numbered([named(**fields)], session())[0].title == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ""),
        ({"call": "nncf.quantize"}, "quantize"),
        ({"call": "nncf.quantize", "arguments": "64 samples, mixed"}, "quantize(64 samples, mixed)"),
        ({"name": "AWQ", "call": "nncf.AWQ.apply"}, ""),
        ({"error": "ValueError", "call": "f"}, "✕ ValueError · f"),
        ({"error": "unfinished"}, "unfinished"),
        ({"count": 3, "total_s": 0.5}, "0.500 s in 3 calls"),
    ],
)
def test_details(fields: dict[str, Any], expected: str) -> None:
    """Details are how it ended, the function with its arguments, and the time in repeated calls."""
    assert numbered([named(**fields)], session())[0].details == expected


def test_numbers_are_places_in_the_list() -> None:
    """Operations are numbered from one, and so are their rows."""
    every = numbered([named("a"), named("b")], session())

    assert [row.number for row in rows(every, COUNTERS, 2, session())] == [1, 2]


def test_few_rows_of_many() -> None:
    """The longest operations keep their rows and numbers, in the order of the list; the others are summed."""
    lengths_s = (1, 5, 2, 4)
    every = numbered([named(duration_s=length_s, figures=figures(read_bytes=7)) for length_s in lengths_s], session())
    shown = rows(every, COUNTERS, 3, session())

    assert [row.number for row in shown] == [2, 4, 0]
    assert shown[-1].title == "and 2 more"
    assert shown[-1].operation.duration_s == 3
    assert [shown[-1].operation.of(column).spent for column in COUNTERS] == [14, None]


def test_a_short_operation_that_wrote_much_is_listed() -> None:
    """What has a large share of the I/O is listed, however short it was."""
    every = numbered(
        [named(duration_s=duration_s, figures=figures(write_bytes=1 / duration_s)) for duration_s in (9, 8, 0.1)],
        session(),
    )

    assert [row.number for row in rows(every, COUNTERS, 2, session())] == [3, 0]


def test_no_operations() -> None:
    """Nothing marked has no rows."""
    assert rows([], COUNTERS, 3, session()) == []


def test_operations_of_no_length() -> None:
    """Marks that all end at once are listed, too."""
    assert len(rows(numbered([named(duration_s=0)] * 5, session()), COUNTERS, 3, session())) == 3


class TestSmall:
    """Operations of less than 1 % of time and memory."""

    @staticmethod
    def left(*operations: Operation, peak_mib: int = 1000) -> list[int]:
        """Return the numbers of the operations that are shown of a run of 100 s."""
        of = session({"rss": mib(1, peak_mib)}, duration_s=100.0)
        return [one.number for one in without_small(numbered(operations, of), of)]

    def test_folded(self) -> None:
        """Several small ones are left out."""
        assert self.left(
            named(duration_s=90),
            named(duration_s=0.9),
            named(duration_s=0.1),
        ) == [1]

    def test_only_one(self) -> None:
        """A single one takes no more room than its replacement."""
        assert self.left(named(duration_s=90), named(duration_s=0.9)) == [1, 2]

    def test_all_are_small(self) -> None:
        """Many small ones that took most of the time are what the run did."""
        assert self.left(*[named(duration_s=0.9)] * 50, named(duration_s=10)) == list(range(1, 52))

    @pytest.mark.parametrize(
        ("fields", "shown"),
        [
            ({"has_peak": True}, True),
            ({"has_peak": None}, True),
            ({"error": "ValueError"}, True),
            ({"figures": figures(rss=mib(100, 111, 111))}, True),
            ({"figures": figures(rss=mib(100, 100, 111))}, True),
            ({"figures": figures(rss=mib(111, 100, 111))}, True),
            ({"figures": figures(rss=mib(100, 109, 109))}, False),
        ],
        ids=["peak", "perhaps the peak", "failed", "grew", "went up", "freed", "grew little"],
    )
    def test_never_left_out(self, fields: dict[str, Any], *, shown: bool) -> None:
        """What holds the peak, failed or changed memory by more than 1 % of the peak is shown, however short it was."""
        small = named(duration_s=0.5)
        found = self.left(named(duration_s=90), named(duration_s=0.5, **fields), small, small)

        assert (2 in found) == shown


def test_peak_among_many_rows() -> None:
    """The operation that holds the peak has a row, however short it was."""
    of = [
        named(duration_s=9),
        named(duration_s=8),
        named(duration_s=0.1, has_peak=True),
    ]

    assert [row.number for row in rows(numbered(of, session()), COUNTERS, 2, session())] == [3, 0]


class TestNotes:
    """The mark of the peak in a table."""

    def test_innermost(self) -> None:
        """Of nested operations, the innermost shown one has the mark, and no other."""
        every = [
            named("A", has_peak=True),
            named("B", depth=1, has_peak=True),
            named("C", depth=1),
        ]

        assert peak_notes(every, session()) == {id(every[1]): "<- peak"}
        assert peak_notes(every[:1], session()) == {id(every[0]): "<- peak"}

    def test_either(self) -> None:
        """Operations that may hold it have a question mark."""
        every = [named("All", has_peak=True), named("A", depth=1, has_peak=None)]

        assert peak_notes(every, session()) == {id(every[1]): "<- peak?"}

    @pytest.mark.parametrize(("span", "note"), [((0, 0.45), "after"), ((0.55, 1), "before")])
    def test_just_outside(self, span: tuple[float, float], note: str) -> None:
        """The nearest operation is marked as such."""
        columns = {"rss": mib(*[100] * 5, 300, *[100] * 5), "time_s": [place / 10 for place in range(11)]}
        of = session(columns, marks=[Mark(name="A", start_s=span[0], end_s=span[1])])

        assert peak_notes(of.operations, of) == {id(of.operations[0]): f"<- peak just {note}"}
