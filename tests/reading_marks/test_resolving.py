"""Lines of a marks log become operations: tables of lines and of the operations that they make, as short texts."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace as replaced

from nncftools.analysis.session import Session
from nncftools.intake import Limits, Redaction
from nncftools.reading_marks import collecting, resolving
from nncftools.reading_marks.collecting import take_log
from nncftools.reading_marks.resolving import Log, _NestedMarks, resolve
from nncftools.session.nesting import add_ends
from tests.made_up import process, session
from tests.reading_marks.texts import entries, entry, spans


def run(**fields: Any) -> Session:  # noqa: ANN401 — any field
    """Return a session of ten seconds: a process, its child and grandchild, and a process that lives to the end."""
    family = [process(), process(1, parent=0), process(2, parent=1, start_s=0.5), process(3, end_s=10.0)]
    return session(duration_s=10.0, processes=family, **fields)


NESTING = """
ends that may be missing
1 +a.1, 2 +b.3, 3 +c.5, 4 -5, 4.5 *d, 5 lost, 6 +e.7, 7 -7, 6 +f.9 other, 7 -9 other, 8 -1
a 1-8 0, b 2-4.5 1 end unknown, c 3-4 2, d 4.5-4.5 2 end unknown, e 6-7 0, f 6-7 0

moments end one another
1 *a, 2 *b, 3 *a
a 1-2 0, b 2-3 0, a 3- 0

lines in any order
2 *b, 4 -1, 3 +c.1, 1 *a
a 1-2 0, b 2-3 0, c 3-4 0

a moment in an operation
1 +out.1, 2 +in.2, 3 *step, 4 -2, 5 -1, 6 *next
out 1-5 0, in 2-4 1, step 3-4 2, next 6- 0

a moment in a task
1 +a.1 in0, 2 *m, 3 -1
a 1-3 0, m 2-3 1

an operation by hand ends a moment
1 *m, 2 +op.1, 3 -1, 4 *n
m 1-2 0, op 2-3 0, n 4- 0

a call is in the moment before
1 *mine, 2 +Export.1 auto, 3 -1 auto, 4 *next
mine 1-4 0, Export 2-3 1, next 4- 0

ends by number
1 +a.1, 2 +b.2, 3 -1, 4 -2
a 1-3 0, b 2-4 1

threads
1 +main.1, 2 +beside.2 tid=101, 3 -2 tid=101, 4 +Export.3 tid=102 auto, 5 -3 tid=102, 9 -1
main 1-9 0, beside 2-3 0, Export 4-5 1

descendants
1 +parent.1, 2 +grandchild.1 pid=102 tid=102, 3 -1 pid=102 tid=102, 5 -1, 6 *x pid=102
parent 1-5 0, grandchild 2-3 1, x 6- 0

marks from outside
0 *first shell, 1 +inner.1, 2 -1, 3 *second shell
first 0-3 0, inner 1-2 1, second 3- 0

rows with both ends
1 *in shell end_s=2, 1 *out shell end_s=4, 4 *after shell end_s=5
out 1-4 0, in 1-2 1, after 4-5 0

a given depth
1 *a shell end_s=2 depth=3, 1.5 *b shell depth=0
a 1-2 3, b 1.5- 0

an error
1 +a.1, 2 -1 error="KeyError"
a 1-2 0 KeyError

no ends
1 +out.1, 2 +in.2
out 1- 0 unfinished, in 2- 1 unfinished

no inner end
1 +out.1, 2 +in.2, 3 -1
out 1-3 0, in 2-3 1 unfinished

an end without begin
1 -7
none

many calls in a line
1 *Run auto end_s=4 count=5 total_s=2 longest_s=1, 2 +Export.1 auto, 3 -1
Run x5=2/1 1-4 0, Export 2-3 0

steps of different loops
1 +T.1 auto step, 1.5 -1, 2 +T.2 auto step, 2.5 -2, 3 +I.3 auto step, 3.5 -3, 4 +I.4 auto step, 4.5 -4
T x2=1/0.5 1-2.5 0, I x2=1/0.5 3-4.5 0

parallel tasks on a thread
1 +a.1 in0, 2 +b.3 in0, 3 +c.5 within=1, 4 +d.7 within=3, 5 -1, 6 -5, 7 -7, 8 +e.9 in0, 9 -3
a 1-5 0, b 2-9 0, c 3-6 1, d 4-7 1, e 8- 0 unfinished

numbers from 0
1 +theirs.0, 2 +ours.1 in0 tid=101, 3 +inner.3 in0
theirs 1- 0 unfinished, ours 2- 0 unfinished, inner 3- 1 unfinished

calls in a task
1 +a.1 in0, 2 +b.3 in0, 3 +Export.2 within=1 auto, 4 +Trace.4 within=1 auto, 5 -4, 6 -2, 7 -1, 8 -3
a 1-7 0, b 2-8 0, Export 3-6 1, Trace 4-5 2

operations in a call, and in a coroutine
1 +fit.2 in0 auto, 2 +epoch.1 in0, 3 -1, 4 -2, 5 +fetch.4 in0 auto later, 6 +epoch.3 in0, 7 +parse.5 within=4
fit 1-4 0, epoch 2-3 1, fetch 5- 0 unfinished, epoch 6- 0 unfinished, parse 7- 1 unfinished

a profiler in the moment of another
1 *Load one, 2 *Export one, 3 *prepare two, 4 *convert two, 5 -0 profiler=2, 6 *Compile one, 7 *more two
Load 1-2 0, Export 2-6 0, prepare 3-4 1, convert 4-5 1, Compile 6- 0, more 7- 1

two profilers in turn
1 *a1 one, 2 *b1 two, 3 *a2 one, 4 +block.1 two, 5 *a3 within=1 profiler=1, 6 -1, 7 *a4 one, 8 *b2 two
a1 1-3 0, b1 2-4 1, a2 3-5 0, block 4-6 1, a3 5-7 2, a4 7- 0, b2 8- 1

a profiler's own operation ends its moment
1 +mine.1 one, 2 +theirs.3 within=1 profiler=2, 3 *m within=3 profiler=1, 4 -3, 5 -1
mine 1-5 0, theirs 2-4 1, m 3-5 2

parallel operations are not cut
1 +a.1 in0 long, 2 +b.3 in0 long, 4 -3 long
a 1-10 0 unfinished, b 2-4 0

a PID that is used again
1 +first.1 in0 long, 2 +second.1 in0 long, 3 -1 long
first 1-10 0 unfinished, second 2-3 0

exec
1 *a long, 2 +b.1 long, 2 +c.3 other, 4 +d.1 long, 5 -1 long, 6 -3 other, 3 exec long error="unfinished"
a 1-2 0, b 2-3 0 unfinished, c 2-6 0, d 4-5 0

repeated line of output
0 *a output, 1 *a output, 2 *b output, 3 *b output, 4 *a output
a 0-2 0, b 2-4 0, a 4- 0

repeated mark of a shell
0 *a shell, 1 *a shell
a 0-1 0, a 1- 0

a shell between lines of output
0 *a output, 1 *a output, 2 *a output, 1.5 *a shell
a 0-1.5 0, a 1.5-2 0, a 2- 0

a program between lines of output
0 *a output, 1 *a output, 0.5 *c, 1.5 *c
a 0- 0, c 0.5-1.5 1, c 1.5- 1
"""
"""Name, lines of a log, and operations."""


@pytest.mark.parametrize("case", NESTING.split("\n\n"))
def test_nesting(case: str) -> None:
    """Times, processes, threads, contexts and profilers decide what is in what, and when an operation ends."""
    _, lines, expected = case.strip().split("\n")

    assert (spans(resolve(entries(lines), run())) or "none") == expected


STEPS = "2 +step.2, 3 -2, 3 +step.3, 4 -3, 4 +step.4, 5 -4, 5 +step.5, 6 -5"
COUNTED = {
    "up to the limit": (4, STEPS, "step 2-3 0, step 3-4 0, step 4-5 0, step 5-6 0"),
    "beyond it, by name": (
        3,
        f"{STEPS}, 6 +b.6, 7 -6, 7 +b.7, 9 -7",
        "step 2-3 0, step 3-4 0, step 4-5 0, step x1=1/1 5-6 0, b x2=3/2 6-9 0",
    ),
    "many calls in a line": (
        1,
        "1 +a.1, 2 -1, 3 *a auto end_s=9 count=5 total_s=2 longest_s=1, 9 +a.2 auto, 10 -2",
        "a 1-2 0, a x6=3/1 3-10 0",
    ),
    "in each operation": (
        2,
        f"1 +out.1, {STEPS}, 7 -1, 8 +out.6, 9 -6",
        "out 1-7 0, step 2-3 1, step 3-4 1, step x2=2/1 4-6 1, out 8-9 0",
    ),
    "in one that is counted": (1, "1 +a.1, 2 -1, 3 +b.2, 4 +in.3, 5 -3, 6 -2", "a 1-2 0, b x1=3/3 3-6 0"),
    "moments": (1, "1 *m, 2 *m, 3 *m, 5 *m", "m 1-2 0, m x3=3/2 2-5 0"),
    "in a moment": (
        2,
        "1 *m, 2 +c.2 auto, 3 -2, 3 +c.3 auto, 4 -3, 4 +c.4 auto, 5 -4, 7 *n",
        "m 1-7 0, c 2-3 1, c 3-4 1, c x1=1/1 4-5 1, n 7- 0",
    ),
    "in each task": (
        2,
        (
            "1 +a.1 in0, 1 +b.3 in0, 2 +c.5 within=1, 3 -5, 2 +c.7 within=3, 3 -7, 4 +c.9 within=1, 5 -9, "
            "4 +c.11 within=3, 5 -11, 6 -1, 6 -3"
        ),
        "a 1-6 0, b 1-6 0, c 2-3 1, c 2-3 1, c 4-5 1, c 4-5 1",
    ),
    "where ends may be missing": (1, "1 +a.1, 2 -1, 3 +b.3, 4 lost, 5 -3, 6 +b.5, 7 -5", "a 1-2 0, b x2=2/1 3-7 0"),
    "of the program before an exec": (
        2,
        f"1 +old.1, {STEPS}, 8 exec, 9 +new.1, 9 +step.2, 10 -2",
        "old 1- 0 unfinished, step 2-3 1, step 3-4 1, step x2=2/1 4-6 1, new 9- 0 unfinished, step 9-10 1",
    ),
    "of a program whose number is used again": (
        2,
        f"1 +old.1, {STEPS}, 9 +new.1 tid=99, 9 +step.2 tid=99, 10 -2 tid=99",
        "old 1- 0 unfinished, step 2-3 1, step 3-4 1, step x2=2/1 4-6 1, new 9- 0 unfinished, step 9-10 1",
    ),
    "open at an exec": (1, "1 +old.1, 2 +s.2, 3 -2, 3 +s.3, 5 exec", "old 1- 0 unfinished, s 2-3 1, s x1=2/2 3-5 1"),
    "open where lines are missing": (
        1,
        "1 +old.1, 2 +s.2, 3 -2, 3 +s.3, 5 lost",
        "old 1-5 0 end unknown, s 2-3 1, s x1=2/2 3-5 1",
    ),
}


@pytest.mark.parametrize("limit, lines, expected", COUNTED.values(), ids=COUNTED)
def test_counted_together(limit: int, lines: str, expected: str) -> None:
    """Beyond a limit in each operation, operations of a name are one line, and a warning has their number."""
    of = run()
    with mock.patch.object(resolving, "LIMITS", Limits(marks_of_operation=limit)):
        marks = resolve(entries(lines), of)
    number = sum(map(int, re.findall(r" x(\d+)=", expected)))

    assert spans(marks) == expected
    assert [warning.partition(" ")[0] for warning in of.warnings] == [str(number)] * bool(number)


ENDS = {
    "task": (
        "1 +a.1 in0 long, 2 +task.3 within=1 long, 3 +call.2 within=1 auto long, 4 -1 long",
        [4, 10, 4],
    ),
    "profiler on two threads": (
        "1 *a one pid=103 tid=104, 2 *b two long, 3 *c one long",
        [3, 10, 10],
    ),
}


@pytest.mark.parametrize("lines, expected", ENDS.values(), ids=ENDS)
def test_ends(lines: str, expected: list[float]) -> None:
    """A task that never ended lasts as long as its process; a profiler's moment ends with the next on any thread."""
    of = run()

    assert [end_s for _, end_s in add_ends(resolve(entries(lines), of), of)] == expected


def test_log_that_is_cut() -> None:
    """Where the log broke off, what is open then ends at an unknown time: it is not called unfinished."""
    marks = resolve(entries("1 +a.1, 2 +b.3, 3 +c.5, 4 -5"), run(), Log(is_cut=True))

    assert spans(marks) == "a 1-4 0 end unknown, b 2-4 1 end unknown, c 3-4 2"


def test_running() -> None:
    """While the recording still runs, operations without an end are not called unfinished."""
    assert spans(resolve(entries("1 +out.1, 2 +in.2"), run(finished=False))) == "out 1- 0, in 2- 1"


def test_numbers_of_the_context() -> None:
    """An operation that others name has its number, and those in it name it."""
    lines = "1 +a.1 in0, 2 +b.3 in0, 3 +c.5 within=1, 4 +d.7 within=3, 5 -1, 6 -5, 7 -7, 8 +e.9 in0, 9 -3"
    marks = resolve(entries(lines), run())

    assert [mark.op for mark in marks] == [1, None, None, None, None]
    assert [mark.inside for mark in marks] == [None, None, 1, None, None]


def test_facts() -> None:
    """An operation has a kind by its name, the arguments of its begin, and the file that its end names."""
    begin, end = entries("1 +model_loading.1, 2 -1")
    (mark,) = resolve([replaced(begin, arguments=["INT4", "g64"]), replaced(end, saved="/m")], run())

    assert (mark.kind, mark.arguments, mark.saved) == ("Model Loading", "INT4, g64", "/m")


def test_steps_are_one_training() -> None:
    """Steps of a loop with nothing between them are one operation, from the first start to the last end."""
    lines = [
        f'{at} +Train.{at} auto step call="backward", {at}.125 -{at}, {at}.5 +Train.9 auto step call="step", {at}.75 -9'
        for at in range(3)
    ]
    marks = resolve(entries(", ".join([*lines, "3 +Save.4 auto, 4 -4, 5 +Train.5 auto step, 6 -5"])), run())
    training, _, more = marks

    assert spans(marks) == "Train x3=1.125/0.25 0-2.75 0, Save 3-4 0, Train 5-6 0"
    assert (training.count, training.total_s, training.longest_s) == (3, 1.125, 0.25)
    assert training.call == "backward, step"
    assert more.count == 1


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
    with mock.patch.object(resolving, "LIMITS", limits), mock.patch.object(collecting, "LIMITS", limits):
        take_log(of, io.BytesIO(b"".join(json.dumps(row).encode() + b"\n" for row in rows)), "log", Redaction())
    return of


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


@pytest.mark.parametrize("line", ["1 *step pid={0}", "1 *step tid={0}", "1 +step.{0} pid={0}", "1 +step.{0} tid={0}"])
def test_what_is_open_has_a_limit(line: str) -> None:
    """Operations that never end do not take more memory the more there are, and all are counted."""
    nested = _NestedMarks(run(), Log())
    with mock.patch.object(resolving, "LIMITS", FEW):
        marks = nested.marks(entry(line.format(number)) for number in range(1, 1001))
    nesting = nested._nesting

    assert sum(mark.count for mark in marks) == 1000
    for kept in nested._frames, nested._processes, nesting._threads, nesting._moments, range(nesting.open_count):
        assert len(kept) <= 2 * FEW.marks_of_recording


def test_known_programs_have_a_limit() -> None:
    """A log with the numbers of very many programs does not take more memory the more there are."""
    names = [{"program": number, "python": "3.13", "pid": number, "t_ns": 5} for number in range(1, 1001)]
    log = io.BytesIO(b"".join(json.dumps(row).encode() + b"\n" for row in names))
    with mock.patch.object(collecting, "LIMITS", FEW):
        notes = take_log(session(duration_s=1000.0), log, "log", Redaction())

    assert notes.programs == 1000
    assert len(notes.begun_s) == FEW.marks_of_recording


def test_a_million_levels_are_a_few() -> None:
    """Operations inside each other are listed to a depth of 200; what is further inside is part of the last one."""
    rows = [span(op, op, 2000 - op)[0] for op in range(5000)]
    of = taken(rows, Limits())

    assert max(mark.depth for mark in of.marks) <= 200
    assert len(of.marks) <= 201
