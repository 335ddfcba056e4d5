from __future__ import annotations

from typing import Any

import pytest

from nncftools.render.operations import listed, rows
from nncftools.session.operations import Operation
from tests.made_up import figures

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
        ({"name": "a\tb\x1b[31m"}, "a\\tb\\x1b[31m"),
        ({"name": "x" * 300, "count": 2}, f"{'x' * 132}…{'x' * 67} ×2"),
    ],
)
def test_title(fields: dict[str, Any], expected: str) -> None:
    """A title has the operation's name, its number of calls and its error, for any name."""
    assert listed([operation(**fields)])[0].title == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ""),
        ({"call": "nncf.quantize"}, "nncf.quantize"),
        ({"error": "ValueError", "call": "f"}, "✕ ValueError · f"),
        ({"error": "unfinished"}, "unfinished"),
        ({"count": 3, "total_s": 0.5}, "0.500 s in 3 calls"),
    ],
)
def test_details(fields: dict[str, Any], expected: str) -> None:
    """Details are how it ended, the time in repeated calls, and the function."""
    assert listed([operation(**fields)])[0].details == expected


def test_numbers_are_places_in_the_list() -> None:
    """Operations are numbered from one, and so are their rows."""
    every = listed([operation("a"), operation("b")])

    assert [row.number for row in rows(every, COUNTERS, 2)] == [1, 2]


def test_few_rows_of_many() -> None:
    """The longest operations keep their rows and numbers, in the order of the list; the others are summed."""
    every = listed([operation(duration_s=duration_s, figures=figures(read_bytes=7)) for duration_s in (1, 5, 2, 4)])
    shown = rows(every, COUNTERS, 3)

    assert [row.number for row in shown] == [2, 4, 0]
    assert shown[-1].title == "and 2 more"
    assert shown[-1].operation.duration_s == 3
    assert [shown[-1].operation.of(column).spent for column in COUNTERS] == [14, None]


def test_a_short_operation_that_wrote_much_is_listed() -> None:
    """What has a large share of the I/O is listed, however short it was."""
    every = listed(
        [operation(duration_s=duration_s, figures=figures(write_bytes=1 / duration_s)) for duration_s in (9, 8, 0.1)]
    )

    assert [row.number for row in rows(every, COUNTERS, 2)] == [3, 0]


def test_no_operations() -> None:
    """Nothing marked has no rows."""
    assert rows([], COUNTERS, 3) == []


def test_operations_of_no_length() -> None:
    """Marks that all end at once are listed, too."""
    assert len(rows(listed([operation(duration_s=0)] * 5), COUNTERS, 3)) == 3
