from __future__ import annotations

from typing import Any

import pytest

from nncftools.render.listing import numbered, peak_notes, rows, without_small
from nncftools.session.model import Mark
from nncftools.session.operation import Operation
from tests.made_up import figures, mib, session

COUNTERS = ("read_bytes", "write_bytes")


def operation(name: str = "step", start_s: float = 0, duration_s: float = 1, **fields: Any) -> Operation:  # noqa: ANN401 — any field of an operation
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
    assert numbered([operation(**fields)], session())[0].title == expected


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
    assert numbered([operation(**fields)], session())[0].details == expected


def test_numbers_are_places_in_the_list() -> None:
    """Operations are numbered from one, and so are their rows."""
    every = numbered([operation("a"), operation("b")], session())

    assert [row.number for row in rows(every, COUNTERS, 2, session())] == [1, 2]


def test_few_rows_of_many() -> None:
    """The longest operations keep their rows and numbers, in the order of the list; the others are summed."""
    lengths_s = (1, 5, 2, 4)
    every = numbered(
        [operation(duration_s=length_s, figures=figures(read_bytes=7)) for length_s in lengths_s], session()
    )
    shown = rows(every, COUNTERS, 3, session())

    assert [row.number for row in shown] == [2, 4, 0]
    assert shown[-1].title == "and 2 more"
    assert shown[-1].operation.duration_s == 3
    assert [shown[-1].operation.of(column).spent for column in COUNTERS] == [14, None]


def test_a_short_operation_that_wrote_much_is_listed() -> None:
    """What has a large share of the I/O is listed, however short it was."""
    every = numbered(
        [operation(duration_s=duration_s, figures=figures(write_bytes=1 / duration_s)) for duration_s in (9, 8, 0.1)],
        session(),
    )

    assert [row.number for row in rows(every, COUNTERS, 2, session())] == [3, 0]


def test_no_operations() -> None:
    """Nothing marked has no rows."""
    assert rows([], COUNTERS, 3, session()) == []


def test_operations_of_no_length() -> None:
    """Marks that all end at once are listed, too."""
    assert len(rows(numbered([operation(duration_s=0)] * 5, session()), COUNTERS, 3, session())) == 3


class TestSmall:
    """Operations of less than 1 % of time and memory."""

    @staticmethod
    def left(*operations: Operation, peak_mib: int = 1000) -> list[int]:
        """Return the numbers of the operations that are shown of a run of 100 s."""
        of = session({"rss": mib(1, peak_mib)}, duration_s=100.0)
        return [one.number for one in without_small(numbered(operations, of), of)]

    def test_folded(self) -> None:
        """Several small ones are left out."""
        assert self.left(operation(duration_s=90), operation(duration_s=0.9), operation(duration_s=0.1)) == [1]

    def test_only_one(self) -> None:
        """A single one takes no more room than its replacement."""
        assert self.left(operation(duration_s=90), operation(duration_s=0.9)) == [1, 2]

    def test_all_are_small(self) -> None:
        """Many small ones that took most of the time are what the run did."""
        assert self.left(*[operation(duration_s=0.9)] * 50, operation(duration_s=10)) == list(range(1, 52))

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
        small = operation(duration_s=0.5)
        found = self.left(operation(duration_s=90), operation(duration_s=0.5, **fields), small, small)

        assert (2 in found) == shown


def test_peak_among_many_rows() -> None:
    """The operation that holds the peak has a row, however short it was."""
    of = [operation(duration_s=9), operation(duration_s=8), operation(duration_s=0.1, has_peak=True)]

    assert [row.number for row in rows(numbered(of, session()), COUNTERS, 2, session())] == [3, 0]


class TestNotes:
    """The mark of the peak in a table."""

    def test_innermost(self) -> None:
        """Of nested operations, the innermost shown one has the mark, and no other."""
        every = [operation("A", has_peak=True), operation("B", depth=1, has_peak=True), operation("C", depth=1)]

        assert peak_notes(every, session()) == {id(every[1]): "<- peak"}
        assert peak_notes(every[:1], session()) == {id(every[0]): "<- peak"}

    def test_either(self) -> None:
        """Operations that may hold it have a question mark."""
        every = [operation("All", has_peak=True), operation("A", depth=1, has_peak=None)]

        assert peak_notes(every, session()) == {id(every[1]): "<- peak?"}

    @pytest.mark.parametrize(("span", "note"), [((0, 0.45), "after"), ((0.55, 1), "before")])
    def test_just_outside(self, span: tuple[float, float], note: str) -> None:
        """The nearest operation is marked as such."""
        columns = {"rss": mib(*[100] * 5, 300, *[100] * 5), "time_s": [place / 10 for place in range(11)]}
        of = session(columns, marks=[Mark(name="A", start_s=span[0], end_s=span[1])])

        assert peak_notes(of.operations, of) == {id(of.operations[0]): f"<- peak just {note}"}
