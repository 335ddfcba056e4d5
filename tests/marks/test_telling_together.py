from __future__ import annotations

import io
import json
from collections import Counter

import pytest

from nncftools import intake
from nncftools.intake import Limits
from nncftools.marks.collecting import take_log
from nncftools.redaction import Redaction
from nncftools.session.model import Mark
from nncftools.session.session import Session
from tests.made_up import session

FEW = Limits()._replace(marks_of_operation=3, marks_of_process=5, marks_of_recording=8)
Row = dict[str, object]


def span(op: int, begin: int, end: int, name: str = "step", **more: object) -> list[Row]:
    """Return begin and end of an operation, in milliseconds."""
    where = {"pid": 100, "tid": 100, **more}
    return [
        {"event": "begin", "op": op, "name": name, "source": "api", "t_ns": 5 + begin * 10**6, **where},
        {"event": "end", "op": op, "t_ns": 5 + end * 10**6, **where},
    ]


def taken(rows: list[Row], limits: Limits = FEW) -> Session:
    """Return a session of 1,000 seconds with the marks of a log."""
    of = session(duration_s=1000.0)
    token = intake._in_force.set(limits)
    try:
        take_log(of, io.BytesIO(b"".join(json.dumps(row).encode() + b"\n" for row in rows)), "log", Redaction())
    finally:
        intake._in_force.reset(token)
    return of


def told(of: Session) -> list[tuple[str, int, float | None, float | None]]:
    """Return names, counts and total and longest seconds."""
    return [(mark.name, mark.count, mark.total_s, mark.longest_s) for mark in of.marks]


def test_up_to_the_limit_all_are_listed() -> None:
    """As many operations as the limit have lines of their own, without a warning."""
    of = taken([row for op in range(3) for row in span(op, op * 10, op * 10 + 5)])

    assert told(of) == [("step", 1, None, None)] * 3
    assert of.warnings == []


def test_further_ones_are_counted_by_name() -> None:
    """Beyond it, operations of one name are one line with their number, total and longest time; a warning counts."""
    rows = [row for op in range(3) for row in span(op, op * 10, op * 10 + 5)]
    rows += [*span(3, 100, 200, "a"), *span(4, 300, 600, "a"), *span(5, 700, 800, "b")]
    of = taken(rows)

    assert told(of)[3:] == [
        ("a", 2, pytest.approx(0.4), pytest.approx(0.3)),
        ("b", 1, pytest.approx(0.1), pytest.approx(0.1)),
    ]
    assert (of.marks[3].start_s, of.marks[3].end_s) == (0.1, 0.6)
    (warning,) = of.warnings
    assert warning.startswith("3 operations are counted together with others of their name: at most 3 are listed")


def test_each_operation_has_its_own_limit() -> None:
    """The limit is for what is directly inside one operation; what is counted stays inside of it."""
    inner = [row for op in range(1, 4) for row in span(op, op * 10, op * 10 + 5)]
    begin, end = span(0, 0, 500, "outer")
    of = taken([begin, *inner, *span(9, 60, 70), end], FEW._replace(marks_of_operation=2))

    assert [(mark.name, mark.depth, mark.count) for mark in of.marks] == [
        ("outer", 0, 1),
        ("step", 1, 1),
        ("step", 1, 1),
        ("step", 1, 2),
    ]


def test_what_is_inside_of_counted_ones_is_part_of_them() -> None:
    """Operations inside an operation that is only counted are not told at all."""
    rows = [row for op in range(3) for row in span(op, op * 10, op * 10 + 5)]
    begin, end = span(3, 100, 200)
    of = taken([*rows, begin, *span(4, 110, 120, "inside"), end])

    assert "inside" not in {mark.name for mark in of.marks}


def test_moments_are_counted_too() -> None:
    """A moment beyond the limit lasts until the next one."""
    rows: list[Row] = [
        {"name": "m", "source": "api", "t_ns": 5 + at * 10**9, "pid": 100, "tid": 100} for at in range(10)
    ]
    of = taken(rows)

    assert told(of)[:3] == [("m", 1, None, None)] * 3
    assert told(of)[3] == ("m", 7, 6.0, 1.0)


def test_counted_inside_of_a_moment() -> None:
    """What is counted together inside of a moment is told when the next moment ends it."""
    where = {"pid": 100, "tid": 100, "source": "api"}
    rows: list[Row] = [{"name": "m", "t_ns": 5, **where}]
    rows += [row for op in range(5) for row in span(op, op * 10 + 1, op * 10 + 5, source="auto")]
    rows += [{"name": "n", "t_ns": 5 + 10**9, **where}]

    assert [(mark.name, mark.count, mark.depth) for mark in taken(rows).marks] == [
        *(("m", 1, 0), ("step", 1, 1), ("step", 1, 1), ("step", 1, 1), ("step", 2, 1), ("n", 1, 0))
    ]


def test_each_task_has_its_own_limit() -> None:
    """Operations of parallel tasks count for the operation around them in their context."""
    rows: list[Row] = [{**span(task, task, 900)[0], "in": 0} for task in (1, 3)]
    for op in range(5, 9):
        rows += [{**row, "in": 1 + op % 2 * 2} for row in span(op, op * 10, op * 10 + 5)]
    of = taken(rows, FEW._replace(marks_of_operation=2, marks_of_process=9))

    assert [mark.count for mark in of.marks] == [1] * 6
    assert of.warnings == []


def test_many_names_share_a_line() -> None:
    """A hundred names are counted each by itself, all further ones together."""
    rows = [row for op in range(300) for row in span(op, op * 10, op * 10 + 5, f"step {op}")]
    of = taken(rows)
    names = Counter(mark.name for mark in of.marks)

    assert len(of.marks) == 3 + 100 + 1
    assert names["further operations"] == 1
    assert of.marks[-1].count == 300 - 103


@pytest.mark.parametrize("different", ["pid", "tid"])
def test_the_whole_recording_has_a_limit(different: str) -> None:
    """Marks of many processes or threads are bounded, too: by process, and in all."""
    rows = [row for op in range(50) for row in span(op, op * 10, op * 10 + 5, **{different: 100 + op})]
    of = taken(rows)

    assert sum(mark.count == 1 for mark in of.marks) == (8 if different == "pid" else 3)
    assert len(of.marks) <= 9
    assert sum(mark.count for mark in of.marks) == 50


def test_a_million_levels_are_a_few() -> None:
    """Operations inside each other are listed to a depth of 200; what is further inside is part of the last one."""
    rows = [span(op, op, 2000 - op)[0] for op in range(5000)]
    of = taken(rows, Limits())

    assert max(mark.depth for mark in of.marks) <= 200
    assert len(of.marks) <= 201


def test_counted_marks_keep_nothing_of_single_calls() -> None:
    """Arguments, errors and readings belong to one call, and are not those of the line that counts several."""
    rows = [row for op in range(3) for row in span(op, op * 10, op * 10 + 5)]
    rows += [row for op in (3, 4) for row in span(op, op * 10, op * 10 + 5, arguments=["x"], rss=5)]
    last: Mark = taken(rows).marks[-1]

    assert (last.count, last.arguments, last.own_start, last.own_end) == (2, None, None, None)
