from __future__ import annotations

import io
import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from nncftools.analysis.session import Session
from nncftools.intake import Limits, Redaction
from nncftools.reading_marks import collecting, resolving
from nncftools.reading_marks.collecting import take_log
from nncftools.reading_marks.entries import Entry
from nncftools.reading_marks.resolving import Log, _NestedMarks, resolve
from nncftools.session.model import Mark
from nncftools.session.nesting import with_ends
from tests.conftest import HANGING_S
from tests.made_up import process, session

PID = 100
"""The first process of a made-up session."""


def moment(name: str, start_s: float, **fields: Any) -> Entry:  # noqa: ANN401 — any field
    """Return a moment that a program marks, by default on its main thread."""
    return Entry(**{"name": name, "start_s": start_s, "pid": PID, "tid": PID, "source": "api", **fields})


def begin(name: str, op: int, start_s: float, **fields: Any) -> Entry:  # noqa: ANN401 — any field
    """Return the begin of an operation."""
    return moment(name, start_s, event="begin", op=op, **fields)


def end(op: int, start_s: float, **fields: Any) -> Entry:  # noqa: ANN401 — any field
    """Return the end of an operation."""
    return moment("", start_s, event="end", op=op, **fields)


def both(name: str, op: int, start_s: float, end_s: float, **fields: Any) -> list[Entry]:  # noqa: ANN401 — any field
    """Return begin and end of an operation."""
    return [begin(name, op, start_s, **fields), end(op, end_s, **fields)]


def run(**fields: Any) -> Session:  # noqa: ANN401 — any field
    """Return a session of ten seconds."""
    return session(duration_s=10.0, **fields)


def spans(marks: list[Mark]) -> list[tuple[str, float, float | None, int]]:
    """Return name, start, end and depth of operations."""
    return [(mark.name, mark.start_s, mark.end_s, mark.depth) for mark in marks]


def lost(start_s: float) -> Entry:
    """Return the line that says that lines of the first process are missing since then."""
    return Entry(event="lost", lost=3, pid=PID, start_s=start_s)


def test_ends_that_may_be_missing() -> None:
    """What is open when lines are lost ends at an unknown time, unless its end follows; nothing nests in it."""
    entries = [begin("a", 1, 1), begin("b", 3, 2), begin("c", 5, 3), end(5, 4), moment("d", 4.5), lost(5)]
    later = [*both("e", 7, 6, 7), *both("f", 9, 6, 7, pid=PID + 1, tid=PID + 1), end(1, 8)]
    marks = resolve([*entries, *later], run())

    assert spans(marks) == [
        ("a", 1, 8, 0),
        ("b", 2, 4.5, 1),
        ("c", 3, 4, 2),
        ("d", 4.5, 4.5, 2),
        ("e", 6, 7, 0),
        ("f", 6, 7, 0),
    ]
    assert [mark.error for mark in marks] == [None, "end unknown", None, "end unknown", None, None]


def test_log_that_is_cut() -> None:
    """Where the log broke off, what is open then ends at an unknown time: it is not called unfinished."""
    marks = resolve([begin("a", 1, 1), begin("b", 3, 2), *both("c", 5, 3, 4)], run(), Log(is_cut=True))

    assert spans(marks) == [("a", 1, 4, 0), ("b", 2, 4, 1), ("c", 3, 4, 2)]
    assert [mark.error for mark in marks] == ["end unknown", "end unknown", None]


def counted(entries: list[Entry], limit: int) -> tuple[list[tuple[str, int, float | None]], list[str]]:
    """Return name, count and end of what is counted together beyond a limit inside each operation, and the warnings."""
    of = run()
    with mock.patch.object(resolving, "LIMITS", Limits(marks_of_operation=limit)):
        marks = resolve(entries, of)
    return [(mark.name, mark.count, mark.end_s) for mark in marks if mark.total_s is not None], of.warnings


def test_limits_count_what_may_have_ended() -> None:
    """Operations beyond the limits are counted once, also where ends may be missing before one comes."""
    entries = [begin("a", 1, 1), end(1, 2), begin("b", 3, 3), lost(4), end(3, 5), *both("b", 5, 6, 7)]
    together, (warning,) = counted(entries, 1)

    assert together == [("b", 2, 7)]
    assert warning.startswith("2 operations are counted together")


@pytest.mark.parametrize("ends", [[Entry(event="exec", pid=PID, start_s=8)], []], ids=["exec", "number used again"])
def test_limits_count_what_another_program_left_open(ends: list[Entry]) -> None:
    """What is counted together inside an operation stays when the process runs another program, with equal numbers."""
    steps = [entry for op in (2, 3, 4, 5) for entry in both("step", op, op, op + 1)]
    new = [begin("new", 1, 9, tid=PID + len(ends) - 1), *both("step", 2, 9, 10, tid=PID + len(ends) - 1)]
    entries = [begin("old", 1, 1), *steps, *ends, *new]

    assert counted(entries, 2)[0] == [("step", 2, 6)]
    assert [mark.name for mark in resolve(entries, run())] == ["old", *["step"] * 4, "new", "step"]


@pytest.mark.parametrize("last", ["exec", "lost"])
def test_limits_count_what_is_open_inside_others(last: str) -> None:
    """An operation beyond the limits that is open at an exec, or where lines are missing, is counted."""
    entries = [begin("old", 1, 1), *both("step", 2, 2, 3), begin("step", 3, 3), Entry(event=last, pid=PID, start_s=5)]

    assert counted(entries, 1)[0] == [("step", 1, 5)]


def test_moments_end_one_another() -> None:
    """A moment opens an operation that the next one ends; the last one has no end of its own."""
    marks = resolve([moment("a", 1), moment("b", 2), moment("a", 3)], run())

    assert spans(marks) == [("a", 1, 2, 0), ("b", 2, 3, 0), ("a", 3, None, 0)]
    assert [mark.error for mark in marks] == [None] * 3


def test_order_of_the_lines_does_not_count() -> None:
    """Lines of several programs come in any order; their times decide."""
    marks = resolve([moment("b", 2), *reversed(both("c", 1, 3, 4)), moment("a", 1)], run())

    assert [mark.name for mark in marks] == ["a", "b", "c"]


def test_nested_operations() -> None:
    """A nested operation is deeper; a moment inside it ends with it."""
    entries = [begin("out", 1, 1), begin("in", 2, 2), moment("step", 3), end(2, 4), end(1, 5), moment("next", 6)]

    assert spans(resolve(entries, run())) == [
        ("out", 1, 5, 0),
        ("in", 2, 4, 1),
        ("step", 3, 4, 2),
        ("next", 6, None, 0),
    ]


def test_marks_by_hand_follow_one_another() -> None:
    """An operation marked by hand ends the preceding moment on its level."""
    assert spans(resolve([moment("m", 1), *both("op", 1, 2, 3), moment("n", 4)], run())) == [
        ("m", 1, 2, 0),
        ("op", 2, 3, 0),
        ("n", 4, None, 0),
    ]


def test_automatic_is_inside_of_the_moment_before() -> None:
    """A catalogued call does not end a moment marked by hand: it is nested in it."""
    auto = both("Export", 1, 2, 3, source="auto")

    assert spans(resolve([moment("mine", 1), *auto, moment("next", 4)], run())) == [
        ("mine", 1, 4, 0),
        ("Export", 2, 3, 1),
        ("next", 4, None, 0),
    ]


def test_ends_are_matched_by_number() -> None:
    """Operations that overlap on one thread, as those of coroutines do, end independently."""
    entries = [begin("a", 1, 1), begin("b", 2, 2), end(1, 3), end(2, 4)]

    assert spans(resolve(entries, run())) == [("a", 1, 3, 0), ("b", 2, 4, 1)]


def test_threads_have_stacks_of_their_own() -> None:
    """Marks by hand on another thread are parallel to the main thread's; a catalogued call there is nested in it."""
    entries = [
        *both("main", 1, 1, 9),
        *both("beside", 2, 2, 3, tid=101),
        *both("Export", 3, 4, 5, tid=102, source="auto"),
    ]

    assert spans(resolve(entries, run())) == [("main", 1, 9, 0), ("beside", 2, 3, 0), ("Export", 4, 5, 1)]


def test_descendants_are_inside_of_their_ancestors() -> None:
    """Operations of a grandchild are nested in what its grandparent was doing, even if its parent marks nothing."""
    processes = [process(0), process(1, parent=0), process(2, parent=1, start_s=0.5)]
    entries = [*both("parent", 1, 1, 5), *both("grandchild", 1, 2, 3, pid=102, tid=102), moment("x", 6, pid=102)]

    assert spans(resolve(entries, run(processes=processes))) == [
        ("parent", 1, 5, 0),
        ("grandchild", 2, 3, 1),
        ("x", 6, None, 0),
    ]


def test_marks_from_outside_enclose_everything() -> None:
    """A shell script's marks are the outermost, and end only one another."""
    outside = {"pid": None, "tid": None, "source": "shell"}
    entries = [moment("first", 0, **outside), *both("inner", 1, 1, 2), moment("second", 3, **outside)]

    assert spans(resolve(entries, run())) == [("first", 0, 3, 0), ("inner", 1, 2, 1), ("second", 3, None, 0)]


def test_rows_with_both_ends_nest_by_time() -> None:
    """Rows of a sidecar that lie within others are nested in them, also those that begin at the same time."""
    rows = [
        Entry(name="in", start_s=1, end_s=2),
        Entry(name="out", start_s=1, end_s=4),
        Entry(name="after", start_s=4, end_s=5),
    ]

    assert spans(resolve(rows, run())) == [("out", 1, 4, 0), ("in", 1, 2, 1), ("after", 4, 5, 0)]


def test_a_depth_that_is_given_is_kept() -> None:
    """Rows with a depth, as written by profile, are taken as they are."""
    rows = [Entry(name="a", start_s=1, end_s=2, depth=3), Entry(name="b", start_s=1.5, depth=0)]

    assert spans(resolve(rows, run())) == [("a", 1, 2, 3), ("b", 1.5, None, 0)]


def test_errors_are_kept() -> None:
    """The exception that ended an operation is kept by name."""
    (mark,) = resolve([begin("a", 1, 1), end(1, 2, error="KeyError")], run())

    assert mark.error == "KeyError"


@pytest.mark.parametrize(
    ("finished", "inner", "outer"), [(True, "unfinished", "unfinished"), (False, None, None)], ids=["ended", "running"]
)
def test_unfinished_operations(finished: bool, inner: str | None, outer: str | None) -> None:  # noqa: FBT001 — a parameter
    """Operations without an end are unfinished, unless the recording is still running."""
    marks = resolve([begin("out", 1, 1), begin("in", 2, 2)], run(finished=finished))

    assert [mark.error for mark in marks] == [outer, inner]
    assert [mark.end_s for mark in marks] == [None, None]


def test_missing_end_is_that_of_the_enclosing_operation() -> None:
    """An operation without an end line ends with its enclosing one."""
    marks = resolve([begin("out", 1, 1), begin("in", 2, 2), end(1, 3)], run())

    assert spans(marks) == [("out", 1, 3, 0), ("in", 2, 3, 1)]
    assert [mark.error for mark in marks] == [None, "unfinished"]


def test_an_end_without_begin_is_nothing() -> None:
    """The end of an operation that began before the recording is ignored."""
    assert resolve([end(7, 1)], run()) == []


def test_aggregated_calls() -> None:
    """A line of aggregated calls is one operation with their number, total time and longest time."""
    entry = moment("Generation", 1, end_s=4.0, count=500, total_s=2.0, longest_s=0.001, source="auto")
    mark, after = resolve([entry, *both("Export", 1, 2, 3, source="auto")], run())

    assert (mark.count, mark.total_s, mark.longest_s, mark.end_s) == (500, 2.0, 0.001, 4.0)
    assert after.depth == 0


def test_steps_are_one_training() -> None:
    """Steps of a loop with nothing between them are one operation, from the first start to the last end."""
    entries: list[Entry] = []
    for number in range(3):
        at_s = float(number)
        entries += both("Training", 10 * number, at_s, at_s + 0.125, source="auto", step=True, call="backward")
        entries += both("Training", 10 * number + 1, at_s + 0.5, at_s + 0.75, source="auto", step=True, call="step")
    entries += both("Saving", 99, 3, 4, source="auto")
    entries += both("Training", 100, 5, 6, source="auto", step=True, call="backward")
    training, saving, more = resolve(entries, run())

    assert spans([training, saving, more]) == [("Training", 0, 2.75, 0), ("Saving", 3, 4, 0), ("Training", 5, 6, 0)]
    assert (training.count, training.total_s, training.longest_s) == (3, 1.125, 0.25)
    assert training.call == "backward, step"
    assert more.count == 1


def test_kinds_by_name() -> None:
    """A mark by hand that is named like a kind gets that kind, in any case."""
    marks = resolve([moment("model_loading", 1), moment("Lunch", 2)], run())

    assert [mark.kind for mark in marks] == ["Model Loading", None]


def test_arguments_and_saved_file() -> None:
    """An operation has the arguments of its begin, and the file that its end names."""
    (mark,) = resolve([begin("a", 1, 1, arguments=["INT4_SYM", "g64"]), end(1, 2, saved="/m.xml")], run())

    assert (mark.arguments, mark.saved) == ("INT4_SYM, g64", "/m.xml")


def test_steps_of_different_loops() -> None:
    """Steps of one name are one operation; a step of another name begins the next one."""
    train = [both("Training", number, number, number + 0.5, source="auto", step=True) for number in (1, 2)]
    infer = [both("Inference", number, number, number + 0.5, source="auto", step=True) for number in (3, 4)]
    marks = resolve([entry for pair in (*train, *infer) for entry in pair], run())

    assert spans(marks) == [("Training", 1, 2.5, 0), ("Inference", 3, 4.5, 0)]
    assert [mark.count for mark in marks] == [2, 2]


def context(name: str, op: int, start_s: float, around: int = 0, **fields: Any) -> Entry:  # noqa: ANN401 — any field
    """Return the begin of an operation that names the one around it."""
    return begin(name, op, start_s, within=around, **fields)


def test_parallel_tasks_on_one_thread() -> None:
    """Operations that name what is around them stand beside each other, each with those inside of it."""
    entries = [
        *(context("a", 1, 1), context("b", 3, 2), context("in a", 5, 3, 1), context("in b", 7, 4, 3)),
        *(end(1, 5), end(5, 6), end(7, 7), context("after", 9, 8), end(3, 9)),
    ]
    marks = resolve(entries, run())

    assert spans(marks) == [
        *(("a", 1, 5, 0), ("b", 2, 9, 0), ("in a", 3, 6, 1), ("in b", 4, 7, 1)),
        ("after", 8, None, 0),
    ]
    assert [mark.op for mark in marks] == [1, None, None, None, None]
    assert [mark.inside for mark in marks] == [None, None, 1, None, None]


def test_numbers_from_0() -> None:
    """Another program may count its operations from 0; a line that names none around it is inside of its thread's."""
    entries = [begin("theirs", 0, 1), context("ours", 1, 2, tid=101), context("in theirs", 3, 3)]

    assert [(mark.name, mark.depth) for mark in resolve(entries, run())] == [
        *(("theirs", 0), ("ours", 0), ("in theirs", 1))
    ]


def test_call_in_a_task() -> None:
    """A call that names the operation around it is inside of that one; a call inside of a call is inside of that."""
    auto = {"source": "auto"}
    entries = [
        *(context("a", 1, 1), context("b", 3, 2)),
        *(context("Export", 2, 3, 1, **auto), context("Trace", 4, 4, 1, **auto)),
        *(end(4, 5), end(2, 6), end(1, 7), end(3, 8)),
    ]
    marks = resolve(entries, run())

    assert spans(marks) == [("a", 1, 7, 0), ("b", 2, 8, 0), ("Export", 3, 6, 1), ("Trace", 4, 5, 2)]
    assert marks[2].inside == marks[0].op == 1


def test_operation_inside_of_a_call() -> None:
    """A call is around what its thread marks by hand meanwhile; a coroutine that is marked as a call is not."""
    auto = {"source": "auto", "within": 0}
    entries = [
        *(begin("fit", 2, 1, **auto), context("epoch", 1, 2), end(1, 3), end(2, 4)),
        *(begin("fetch", 4, 5, later=True, **auto), context("epoch", 3, 6), context("parse", 5, 7, 4)),
    ]

    assert spans(resolve(entries, run())) == [
        *(("fit", 1, 4, 0), ("epoch", 2, 3, 1)),
        *(("fetch", 5, None, 0), ("epoch", 6, None, 0), ("parse", 7, None, 1)),
    ]


def test_profilers_do_not_end_each_others_moments() -> None:
    """A profiler that begins to mark inside of another one's moment is inside of it, and cuts nothing of it."""
    outer, inner = {"within": 0, "profiler": 1}, {"within": 0, "profiler": 2}
    entries = [
        *(moment("Load", 1, **outer), moment("Export", 2, **outer)),
        *(moment("prepare", 3, **inner), moment("convert", 4, **inner), end(0, 5, profiler=2)),
        *(moment("Compile", 6, **outer), moment("more", 7, **inner)),
    ]

    assert spans(resolve(entries, run())) == [
        *(("Load", 1, 2, 0), ("Export", 2, 6, 0), ("prepare", 3, 4, 1), ("convert", 4, 5, 1)),
        *(("Compile", 6, None, 0), ("more", 7, None, 1)),
    ]


def test_interleaved_profilers() -> None:
    """Each profiler's moments last until its own next one, whatever others mark, also in an operation of theirs."""
    one, other = {"within": 0, "profiler": 1}, {"within": 0, "profiler": 2}
    entries = [
        *(moment("a1", 1, **one), moment("b1", 2, **other), moment("a2", 3, **one)),
        *(context("block", 1, 4, profiler=2), moment("a3", 5, within=1, profiler=1), end(1, 6)),
        *(moment("a4", 7, **one), moment("b2", 8, **other)),
    ]

    assert spans(resolve(entries, run())) == [
        *(("a1", 1, 3, 0), ("b1", 2, 4, 1), ("a2", 3, 5, 0), ("block", 4, 6, 1)),
        *(("a3", 5, 7, 2), ("a4", 7, None, 0), ("b2", 8, None, 1)),
    ]


def test_moment_of_a_profiler_ends_with_its_own_operation() -> None:
    """A moment ends with the operation that its profiler marked around it, not with another profiler's."""
    entries = [
        *(
            context("mine", 1, 1, profiler=1),
            context("other's", 3, 2, 1, profiler=2),
            moment("m", 3, within=3, profiler=1),
        ),
        *(end(3, 4), end(1, 5)),
    ]

    assert spans(resolve(entries, run())) == [("mine", 1, 5, 0), ("other's", 2, 4, 1), ("m", 3, 5, 2)]


LONG = run(processes=[process(end_s=10.0)])
"""A run whose process lives to its end."""


def test_what_goes_on_in_parallel_is_not_cut() -> None:
    """What never ended lasts as long as its process, although an operation on its level began later."""
    marks = resolve([context("a", 1, 1), context("b", 3, 2), end(3, 4)], LONG)

    assert spans(marks) == [("a", 1, 10, 0), ("b", 2, 4, 0)]
    assert [mark.error for mark in marks] == ["unfinished", None]


def test_task_outlives_what_it_began_in() -> None:
    """A task that never ended does not end with the operation in which it was made, as an inner call would."""
    entries = [context("a", 1, 1), context("task", 3, 2, 1), begin("call", 2, 3, source="auto", within=1), end(1, 4)]
    ended = [(mark.name, end_s) for mark, end_s in with_ends(resolve(entries, LONG), LONG)]

    assert ended == [("a", 4), ("task", 10), ("call", 4)]


def test_moments_of_one_profiler_on_several_threads() -> None:
    """The last moment of a thread ends with the next one of the same profiler on another thread, not with others'."""
    one, other = {"within": 0, "profiler": 1}, {"within": 0, "profiler": 2}
    entries = [moment("a", 1, tid=101, **one), moment("b", 2, **other), moment("c", 3, **one)]
    ended = [(mark.name, mark.start_s, end_s) for mark, end_s in with_ends(resolve(entries, LONG), LONG)]

    assert ended == [("a", 1, 3), ("b", 2, 10), ("c", 3, 10)]


def test_operations_of_a_pid_that_is_used_again() -> None:
    """A process that ended without its ends is around nothing of the next one with its PID and its numbers."""
    marks = resolve([context("first", 1, 1), context("second", 1, 2), end(1, 3)], LONG)

    assert spans(marks) == [("first", 1, 10, 0), ("second", 2, 3, 0)]


def test_exec() -> None:
    """All that is open in a process ends when it runs another program; nothing that begins later is inside of it."""
    other = {"pid": PID + 1, "tid": PID + 1}
    entries = [
        moment("a", 1),
        begin("b", 1, 2),
        begin("c", 3, 2, **other),
        begin("d", 1, 4),
        end(1, 5),
        end(3, 6, **other),
    ]
    marks = resolve([*entries, Entry(event="exec", pid=PID, start_s=3, error="unfinished")], LONG)

    assert spans(marks) == [("a", 1, 2, 0), ("b", 2, 3, 0), ("c", 2, 6, 0), ("d", 4, 5, 0)]
    assert [mark.error for mark in marks] == [None, "unfinished", None, None]


def output(*names: str, source: str = "output") -> list[Entry]:
    """Return what lines of output mark, one each second."""
    return [Entry(name=name, start_s=number, source=source) for number, name in enumerate(names)]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (output("a", "a", "b", "b", "a"), [("a", 0), ("b", 2), ("a", 4)]),
        (output("a", "a", source="shell"), [("a", 0), ("a", 1)]),
        ([*output("a", "a", "a"), Entry(name="a", start_s=1.5, source="shell")], [("a", 0), ("a", 1.5), ("a", 2)]),
        ([*output("a", "a"), moment("c", 0.5), moment("c", 1.5)], [("a", 0), ("c", 0.5), ("c", 1.5)]),
    ],
    ids=["output", "a shell", "a shell between", "a program between"],
)
def test_repeated_line_of_output(entries: list[Entry], expected: list[tuple[str, float]]) -> None:
    """A line of output with the name of the operation that is open begins none: a progress bar is one operation."""
    assert [(mark.name, mark.start_s) for mark in resolve(entries, run())] == expected


def test_very_many_lines_of_output() -> None:
    """A hundred thousand lines of one name are one operation, soon."""
    rows: list[Row] = [{"name": "step", "source": "output", "t_ns": 5 + number} for number in range(100_000)]
    before_s = time.process_time()
    of = taken(rows, Limits())

    assert [(mark.name, mark.count) for mark in of.marks] == [("step", 1)]
    assert time.process_time() - before_s < HANGING_S


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


def test_aggregated_calls_are_many() -> None:
    """A line that stands for many calls counts with their total and their longest time, not with the time it spans."""
    rows = [row for op in range(3) for row in span(op, op * 10, op * 10 + 5)]
    times = {"t_ns": 5 + 100 * 10**6, "end_ns": 5 + 900 * 10**6, "total_ns": 30 * 10**6, "longest_ns": 2 * 10**6}
    rows += [{"name": "a", "source": "auto", "pid": 100, "tid": 100, "count": 500, **times}, *span(4, 910, 911, "a")]

    assert told(taken(rows))[3:] == [("a", 501, pytest.approx(0.031), pytest.approx(0.002))]


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


@pytest.mark.parametrize("different", ["pid", "tid"])
@pytest.mark.parametrize("is_moment", [True, False])
def test_what_is_open_has_a_limit(different: str, *, is_moment: bool) -> None:
    """Operations that never end do not take more memory the more there are, and all are counted."""
    every = [{different: number} for number in range(1, 1001)]
    if not is_moment:
        every = [{**fields, "event": "begin", "op": number} for number, fields in enumerate(every)]
    nested = _NestedMarks(run(), Log())
    with mock.patch.object(resolving, "LIMITS", FEW):
        marks = nested.marks(moment("step", 1.0, **fields) for fields in every)

    assert sum(mark.count for mark in marks) == 1000
    assert nested._nesting.open_count <= 2 * FEW.marks_of_recording
    assert len(nested._nesting._threads) <= 2 * FEW.marks_of_recording
    assert len(nested._nesting._moments) <= 2 * FEW.marks_of_recording
    assert len(nested._processes) <= FEW.marks_of_recording
    assert len(nested._frames) <= 2 * FEW.marks_of_recording


def test_lines_wait_for_a_while() -> None:
    """Of lines that end nothing, however many there are, only so many are kept as may have to wait for earlier ones."""
    read = 0
    done = []
    nested = _NestedMarks(run(), Log())

    def lines() -> Iterator[Entry]:
        nonlocal read
        for read in range(5 * resolving._WAITING):
            yield lost(read)

    with mock.patch.object(nested, "_add", side_effect=lambda _: done.append(read)):
        nested.marks(lines())

    assert len(done) == 5 * resolving._WAITING
    assert done[0] < 2 * resolving._WAITING


def test_known_programs_have_a_limit() -> None:
    """A log with the numbers of very many programs does not take more memory the more there are."""
    names = [{"program": number, "python": "3.13", "pid": number, "t_ns": 5} for number in range(1, 1001)]
    log = io.BytesIO(b"".join(json.dumps(row).encode() + b"\n" for row in names))
    with mock.patch.object(collecting, "LIMITS", FEW):
        notes = take_log(session(duration_s=1000.0), log, "log", Redaction())

    assert notes.programs == 1000
    assert len(notes.begun_s) == FEW.marks_of_recording


def test_nothing_is_kept_of_what_has_ended() -> None:
    """Of processes that have ended all their operations, nothing is kept."""
    nested = _NestedMarks(run(), Log())
    rows = (entry for pid in range(1, 101) for entry in both("step", 1, 1.0, 2.0, pid=pid))

    assert len(nested.marks(rows)) == 100
    assert nested._nesting.open_count == 0
    assert (nested._nesting._threads, nested._nesting._moments) == ({}, {})


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
