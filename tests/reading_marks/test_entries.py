from __future__ import annotations

import io
import json

import pytest

from nncftools.errors import NncfToolsError
from nncftools.reading_marks.entries import read_rows
from nncftools.session.model import Start

START = Start(utc="2026-11-21T07:00:00+00:00", monotonic_ns=5_000_000_000)


def times(data: str, name: str = "x.marks.jsonl", start: Start = START) -> list[tuple[str, float | None, float | None]]:
    """Return name, start and end of the valid rows."""
    entries = [row.entry for row in read_rows(io.BytesIO(data.encode()), name, start)]
    assert None not in entries
    return [(entry.name, entry.start_s, entry.end_s) for entry in entries if entry is not None]


def wrong(data: str, name: str = "x.marks.jsonl", start: Start = START) -> tuple[str, str]:
    """Return position and problem of the only row."""
    (row,) = read_rows(io.BytesIO(data.encode()), name, start)
    assert row.entry is None
    return row.position, row.problem


@pytest.mark.parametrize(
    "text, name",
    [
        ('[{"name": "a", "start_s": 1, "end_s": 2.5}, {"name": "b", "start_s": 3}]', "x.json"),
        ('{"name": "a", "start_s": 1, "end_s": 2.5}\n\n{"name": "b", "start_s": 3}', "x.jsonl"),
        ("name,start_s,end_s,note\na,1,2.5,mine\nb,3,,\n", "x.csv"),
        ("name,start,end\na,1,2.5\nb,3,\n", "x.csv"),
        ("\ufeffname;start_s;end_s;note\r\na;1;2,5;1,5\r\nb;3;;\r\n", "x.csv"),
        ("name;start;end\na;1.0;2.5\nb;3;\n", "X.CSV"),
        ("name\tstart_s\tend_s\na\t1\t2,5\nb\t3\t\n", "x.csv"),
        ("sep=;\r\nname;start_s;end_s\r\na;1;2,5\r\nb;3;\r\n", "x.csv"),
        ("name; start_s; end_s\na; 1; 2,5\nb; 3; \n", "x.csv"),
    ],
    ids=[
        "json",
        "json lines",
        "csv",
        "csv of short names",
        "semicolons and decimal commas",
        "semicolons and decimal points",
        "tabs and decimal commas",
        "the separator in the first line",
        "spaces after semicolons",
    ],
)
def test_formats(text: str, name: str) -> None:
    """JSON, JSON Lines and CSV hold the same rows; unknown columns are ignored."""
    assert times(text, name) == [("a", 1, 2.5), ("b", 3, None)]


@pytest.mark.parametrize(
    "row",
    [
        {"start_s": 1.5, "end_s": 2},
        {"start": "2026-11-21T07:00:01.5Z", "end": "2026-11-21T07:00:02+00:00"},
        {"start": "2026-11-21T08:00:01,500000000+01:00", "end_s": 2},
        {"t_ns": 6_500_000_000, "end_ns": 7_000_000_000},
    ],
    ids=["seconds", "wall clock", "as date -Ins", "monotonic"],
)
def test_times(row: dict[str, object]) -> None:
    """Seconds from the start, wall-clock times with a zone and CLOCK_MONOTONIC mean the same moment."""
    assert times(json.dumps({"name": "a", **row})) == [("a", 1.5, 2.0)]


@pytest.mark.parametrize(
    "row, complaint",
    [
        ('{"start_s": 1}', "a non-empty `name` expected"),
        ('{"name": "a"}', "`start_s` (seconds from the start), `start` (seconds, or ISO 8601 with zone) or `t_ns`"),
        ('{"name": "a", "start": "2026-11-21T07:00:00"}', "a time with its zone expected"),
        ('{"name": "a", "start": "noon"}', "Invalid isoformat string: 'noon'"),
        (
            '{"name": "a", "start_s": 2, "end_s": 1}',
            "seconds up to 10^10, expected, found 2 and 1",
        ),
        ('{"name": "a", "start_s": "soon"}', "Expected `float | null`, got `str` - at `$.start_s`"),
        ('{"name": "a", "start_s": 1, "event": "stop"}', '`event`: "begin" or "end" expected'),
        ('{"name": "a", "start_s": 1, "event": "begin"}', "`op` and `pid`, two whole numbers, expected"),
        ('{"name": "a", "start_s": 1e999}', "Number out of range"),
        ("half a li", "JSON is malformed"),
    ],
)
def test_wrong_rows(row: str, complaint: str) -> None:
    """The problem of an unreadable row says where it is and what was expected."""
    position, problem = wrong(row)

    assert position == "line 1"
    assert complaint in problem


@pytest.mark.parametrize(
    "content, name, message",
    [
        (b"[1, 2", "x.json", r"^x\.json: not a list of marks: Input data was truncated"),
        (b"[" * 2_000_000, "x.json", "not a list of marks"),
        (b"name,start_s\n" + b"x" * 200_000 + b",1\n", "x.csv", r"x\.csv: not CSV: field larger than field limit"),
        (b"sep=,\nname,start_s,start_s\n", "x.csv", r"x\.csv: line 2: a column is named twice"),
    ],
    ids=["cut", "nested without end", "cell without end", "column named twice"],
)
def test_damaged_file(content: bytes, name: str, message: str) -> None:
    """A file that is no list, or no table, cannot be read at all. Excel's line with the separator counts."""
    with pytest.raises(NncfToolsError, match=message):
        list(read_rows(io.BytesIO(content), name, START))


def test_decimal_commas_of_a_row_of_many_calls() -> None:
    """All cells in seconds may have a decimal comma."""
    (row,) = read_rows(io.BytesIO(b"name;start_s;end_s;total_s;longest_s;count\na;0,1;0,5;0,3;0,2;3\n"), "x.csv", START)

    assert row.entry is not None
    assert (row.entry.total_s, row.entry.longest_s) == (0.3, 0.2)


def test_monotonic_times_of_an_unknown_clock() -> None:
    """A session without a CLOCK_MONOTONIC start says so."""
    unknown = Start(utc="2026-11-21T07:00:00+00:00")

    assert "has no start on CLOCK_MONOTONIC" in wrong('{"name": "a", "t_ns": 1}', start=unknown)[1]
