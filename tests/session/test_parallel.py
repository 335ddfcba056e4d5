from __future__ import annotations

import io
import json
from typing import Any

import msgspec
import pytest

from nncftools.marks.collecting import take_log
from nncftools.redaction import Redaction
from nncftools.session.model import Mark
from nncftools.session.operations import renumbered, with_parallel
from nncftools.session.peak_place import enclosing
from nncftools.session.session import Session
from tests.made_up import mib, process, session

Row = tuple[str, float, float, int]
"""Name, start, end and depth of an operation."""


def run(*rows: Row, **fields: Any) -> Session:  # noqa: ANN401 — any field of a mark
    """Return a run of ten seconds with operations of one process."""
    of = session(duration_s=10.0, processes=[process(end_s=10.0)])
    of.marks = [
        Mark(**{"name": name, "start_s": start_s, "end_s": end_s, "depth": depth, "pid": 100, **fields})
        for name, start_s, end_s, depth in rows
    ]
    return of


def parallel(of: Session) -> str:
    """Return the names of the parallel operations."""
    return " ".join(operation.name for operation in of.operations if operation.is_parallel)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("a", 0, 5, 0), ("b", 5, 9, 0)], ""),
        ([("a", 0, 9, 0), ("b", 1, 5, 1), ("c", 5, 9, 1), ("d", 6, 7, 2)], ""),
        ([("a", 0, 5, 0), ("b", 4, 9, 0)], "a b"),
        ([("a", 0, 9, 0), ("b", 1, 5, 1), ("c", 4, 9, 1)], "b c"),
        ([("a", 0, 9, 0), ("b", 1, 5, 1), ("c", 2, 3, 0)], "a b c"),
        ([("a", 0, 2, 0), ("b", 1, 9, 1), ("c", 3, 5, 0), ("d", 9, 10, 0)], "b c"),
        ([("a", 0, 9, 0), ("b", 0, 9, 0), ("c", 9, 10, 0)], "a b"),
        ([("a", 0, 9, 0), ("b", 3, 3, 0), ("c", 9, 10, 0)], ""),
        ([("a", 0, 9, 0), ("b", 1, 2, 0), ("c", 3, 4, 0), ("d", 3, 4, 1)], "a b c d"),
    ],
)
def test_which_are_parallel(rows: list[Row], expected: str) -> None:
    """Two that share some time are parallel unless one is around the other; a moment without a time is not."""
    assert parallel(run(*rows)) == expected


def test_operations_that_are_not_parallel() -> None:
    """Operations of several processes, marks from outside, and calls that are counted together are not."""
    rows = [("a", 0.0, 9.0, 0), ("b", 1.0, 5.0, 0)]
    of = run(*rows)
    of.marks[1].pid = 101

    assert parallel(of) == ""
    assert parallel(run(*rows, pid=None)) == ""
    assert parallel(run(*rows, count=2)) == ""


def test_many_at_once() -> None:
    """Time grows with the number of operations, not with its square."""
    rows = [(f"{place}", place * 1e-4, 9.0 + place * 1e-5, 0) for place in range(30_000)]
    of = run(*rows)
    found = with_parallel(of.operations)

    assert sum(operation.is_parallel for operation in found) == 30_000


def test_named_encloser() -> None:
    """An operation that names what it is inside of is inside of that, although another one began later."""
    of = run(("a", 0, 5, 0), ("b", 1, 9, 0), ("in a", 2, 3, 1), ("in b", 2, 3, 1))
    of.marks[0].op, of.marks[2].inside = 7, 7
    operations = of.operations
    above = enclosing(operations)

    assert [above[id(one)].name for one in operations[2:]] == ["a", "b"]


def test_marks_of_two_files_keep_apart() -> None:
    """Numbers of marks that come together stay different; marks without any stay without."""
    first, second = ([Mark(name="a", start_s=0, op=1), Mark(name="b", start_s=0, inside=1)] for _ in range(2))

    assert [(mark.op, mark.inside) for mark in renumbered(second, first)] == [(2, None), (None, 2)]
    assert renumbered(second, []) == second


def test_saved_sessions_say_the_same() -> None:
    """Which operations are parallel, and inside of which, survives saving; it is a matter of the marks alone."""
    lines = [
        *(("begin", 1, 0, "a", 1), ("begin", 3, 0, "b", 2), ("begin", 5, 1, "in a", 3), ("begin", 7, 3, "in b", 4)),
        *(("end", 1, 0, "", 5), ("end", 5, 0, "", 6), ("end", 7, 0, "", 7), ("end", 3, 0, "", 8)),
    ]
    keys = ("event", "op", "in", "name", "start_s")
    rows = [dict(zip(keys, line, strict=True), pid=100, tid=100) for line in lines]
    log = "\n".join(map(json.dumps, rows)).encode()
    of = session({"rss": mib(1, 2, 3), "time_s": [0, 5, 10]}, processes=[process(end_s=10.0)])
    take_log(of, io.BytesIO(log), "log", Redaction())
    read = session({"rss": mib(1, 2, 3), "time_s": [0, 5, 10]}, processes=[process(end_s=10.0)])
    read.marks = msgspec.json.decode(msgspec.json.encode(of.marks), type=list[Mark])

    for one in (of, read):
        above = enclosing(one.operations)
        assert parallel(one) == "a b in a in b"
        assert [above[id(inner)].name for inner in one.operations if inner.depth] == ["a", "b"]
