from __future__ import annotations

from typing import Any

import pytest

from nncftools.render.operations import operations, rows
from nncftools.session.phases import Phase


def phase(name: str = "step", start_s: float = 0, duration_s: float = 1, **fields: Any) -> Phase:  # noqa: ANN401 — any field of a phase
    """Return an operation."""
    return Phase(name=name, start_s=start_s, end_s=start_s + duration_s, **fields)


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
    """A title names the operation, how often it was called and whether it failed, whatever the name is."""
    assert operations([phase(**fields)])[0].title == expected


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
    assert operations([phase(**fields)])[0].details == expected


def test_numbers_are_places_in_the_list() -> None:
    """Operations are numbered from one, and so are their rows."""
    every = operations([phase("a"), phase("b")])

    assert [row.number for row in rows(every, 2)] == [1, 2]


def test_few_rows_of_many() -> None:
    """The longest operations keep their rows and numbers, in the order of the list; the others are summed."""
    every = operations([phase(duration_s=duration_s, read_bytes=7) for duration_s in (1, 5, 2, 4)])
    listed = rows(every, 3)

    assert [row.number for row in listed] == [2, 4, None]
    assert listed[-1].title == "and 2 more"
    assert listed[-1].duration_s == 3
    assert listed[-1].figures == (14, None, None, None)


def test_a_short_operation_that_wrote_much_is_listed() -> None:
    """What has a large share of the I/O is listed, however short it was."""
    every = operations([phase(duration_s=duration_s, write_bytes=1 / duration_s) for duration_s in (9, 8, 0.1)])

    assert [row.number for row in rows(every, 2)] == [3, None]


def test_no_operations() -> None:
    """Nothing marked has no rows."""
    assert rows(operations([]), 3) == []


def test_operations_of_no_length() -> None:
    """Marks that all end at once are listed, too."""
    assert len(rows(operations([phase(duration_s=0)] * 5), 3)) == 3
