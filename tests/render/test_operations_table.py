"""Tests of the table of operations in text and Markdown, which has its own columns and sentences."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from nncftools.analysis.session import Session
from nncftools.render.operations_table import operations, operations_table
from nncftools.render.page import report as page_report
from nncftools.render.table import NOTE
from nncftools.render.text import markdown_report, notebook_cell
from nncftools.render.view import View
from nncftools.session.model import END_UNKNOWN, Mark, OwnMemory
from nncftools.units import MemoryUnit
from tests.made_up import MIB, mib, process, session
from tests.render.test_text import run_of

MOST = 60


def text_of(of: Session, width: int = 80, *, most: int = MOST, **choices: Any) -> str:  # noqa: ANN401 — any choice of a view
    """Return the table as a terminal of ``width`` columns shows it; empty if there is none."""
    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    table = operations_table(of, View(["rss"], **{"brief": True, **choices}), most)
    with console.capture() as captured:
        console.print("" if table is None else table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def headings_of(of: Session, **choices: Any) -> list[str]:  # noqa: ANN401 — any choice of a view
    """Return the headings of the figures in all outputs."""
    return operations(of, View(["rss"], **choices), MOST).headings(" ")[2:]


def exactly(rss: int) -> OwnMemory:
    """Return a reading of the tree in MiB."""
    return OwnMemory(rss=rss * MIB, tree=rss * MIB)


def between(rss: int, low: int, high: int | None) -> OwnMemory:
    """Return a reading of an earlier version, with bounds in MiB."""
    most = None if high is None else high * MIB
    return OwnMemory(rss=rss * MIB, tree=rss * MIB, tree_low=low * MIB, tree_high=most)


WORKFLOW = run_of(
    Mark(name="Model Loading", start_s=0.5, end_s=1, own_start=exactly(100), own_end=exactly(100)),
    Mark(name="Compilation", start_s=1, end_s=3, own_start=exactly(100), own_end=exactly(200)),
)


def test_one_line_for_each_operation() -> None:
    """A row has number, name, peak, change and duration; long times without operations have a row, too."""
    assert text_of(WORKFLOW).splitlines() == [
        "Operations, MiB                         Peak Change Duration",
        "  before the first operation (imports) 100.0    0.0  0.500 s",
        "1 Model Loading                        100.0    0.0  0.500 s",
        "2 Compilation                          400.0 +100.0   2.00 s <- peak",
        "  after the last operation             200.0    0.0   1.00 s",
    ]


def test_narrow() -> None:
    """Where names leave the figures no room, columns continue below, and names are shortened."""
    assert text_of(WORKFLOW, 40).splitlines() == [
        "Operations, MiB      Peak Change",
        "  before the…ports) 100.0    0.0",
        "1 Model Loading     100.0    0.0",
        "2 Compilation       400.0 +100.0 <- peak",
        "  after the …ration 200.0    0.0",
        "",
        "Operations, MiB                 Duration",
        "  before the first o… (imports)  0.500 s",
        "1 Model Loading                  0.500 s",
        "2 Compilation                     2.00 s",
        "  after the last operation        1.00 s",
    ]


def test_details_are_joined_by_name() -> None:
    """Columns that do not fit continue below with the names; with room, all of them are in one row."""
    narrow, wide = (text_of(WORKFLOW, width, brief=False) for width in (60, 140))

    assert [line.split()[1:] for line in narrow.splitlines() if line.startswith("2 ")] == [
        ["Compilation", "400.0", "+100.0", "2.00", "s", "<-", "peak"],
        ["Compilation", "1.00", "s", "1.00", "1.00"],
        ["Compilation", "0.0", "5.0", "0.0", "7.0"],
    ]
    (line,) = [line for line in wide.splitlines() if line.startswith("2 ")]
    assert " ".join(line.split()[2:]) == "400.0 +100.0 2.00 s 1.00 s 1.00 1.00 0.0 5.0 0.0 7.0 <- peak"


def test_columns_with_figures() -> None:
    """Groups of columns without a figure other than 0 are left out; peak, change and duration are always there."""
    always = ["Peak, MiB", "Change, MiB", "Duration", "Start"]
    bare = session({"rss": mib(1, 2, 3)}, marks=[Mark(name="a", start_s=0.5, end_s=1)], duration_s=1.0)

    assert headings_of(WORKFLOW) == [
        *(*always, "Cores average", "peak", "Storage read", "written", "Calls read", "written"),
    ]
    assert headings_of(bare) == always


@pytest.mark.parametrize("brief", [True, False])
def test_a_metric_that_the_user_named(brief: bool) -> None:  # noqa: FBT001 — a parameter of a test
    """The peak and the change of a metric are in the table if it was asked for with ``--type``."""
    of = session(
        {"rss": mib(1, 2, 3), "anon": mib(1, 7, 5), "file": mib(9, 9, 9)},
        marks=[Mark(name="a", start_s=0, end_s=1)],
        duration_s=1.0,
    )
    text = text_of(of, 100, brief=brief, asked=["rss", "anon"])

    assert "Anon" in text
    assert "File" not in text
    assert " 7.0   +4.0" in text


def test_estimates() -> None:
    """An estimate has a ``≈``; the details explain that in one line."""
    first = Mark(name="Model Loading", start_s=0, end_s=1, own_end=between(100, 90, 400))
    second = Mark(name="Compilation", start_s=1, end_s=3, own_start=OwnMemory(tree=100 * MIB, is_estimate=True))
    of = run_of(first, second)

    assert "≈0.0   1.00 s\n" in text_of(of)
    assert "≈+100.0   2.00 s <- peak\n" in text_of(of)
    assert (text_of(of).count(NOTE), text_of(of, brief=False).count(NOTE)) == (0, 1)


NESTED = run_of(
    Mark(name="a", start_s=0, end_s=2),
    Mark(name="b", start_s=0, end_s=1, depth=1),
    Mark(name="c", start_s=0, end_s=1, depth=2),
    Mark(name="d", start_s=1, end_s=2, depth=1),
    Mark(name="e", start_s=2, end_s=4),
)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_numbers_do_not_change_with_depth(depth: int) -> None:
    """An operation has one number in text and Markdown, however many levels are shown; inner ones are indented."""
    numbers = {"a": "1", "b": "1.1", "c": "1.1.1", "d": "1.2", "e": "2"}
    expected = {name: number for name, number in numbers.items() if number.count(".") < depth}
    text = text_of(NESTED, depth=depth)
    markdown = markdown_report(NESTED, View(["rss"], depth=depth)).replace("&nbsp;", "").replace("*", "")

    assert {name: number for number, name in re.findall(r"\n([\d.]+) +([a-e]) ", text)} == expected
    assert {name: number for number, name in re.findall(r"\n\| ([\d.]+) +\| ([a-e]) +\|", markdown)} == expected


@pytest.mark.parametrize(
    ("marks", "fields", "expected"),
    [
        ([(1, 3)], {}, ["before the first operation (imports)", "a", "after the last operation"]),
        ([(1, 3)], {"attached_to": 7}, ["before the first operation", "a", "after the last operation"]),
        ([(0, 1), (2, 4)], {}, ["a", "between operations", "a"]),
        ([(0.1, 2), (2.1, 3.9)], {}, ["a", "a"]),
        ([], {}, []),
    ],
    ids=["at both ends", "attached", "between", "short", "no operation"],
)
def test_times_without_operations(
    marks: list[tuple[float, float]], fields: dict[str, Any], expected: list[str]
) -> None:
    """A time without operations has a row if it is at least 5 % of the run; only a start has imports."""
    of = run_of(*(Mark(name="a", start_s=start_s, end_s=end_s) for start_s, end_s in marks), **fields)

    assert [row.cells[1].text for row in operations(of, View(["rss"]), MOST).rows] == expected


def test_peak_outside_all_operations() -> None:
    """The time without operations that holds the peak has its mark."""
    of = run_of(Mark(name="a", start_s=0, end_s=0.5), Mark(name="b", start_s=3.5, end_s=4))

    assert "\n  between operations 400.0 +100.0   3.00 s <- peak\n" in text_of(of)


def test_operations_beside_others_of_their_process() -> None:
    """Each is followed by what is inside it, and times without operations are between the outermost ones."""
    of = run_of(
        Mark(name="a", start_s=0.5, end_s=2, pid=100, op=1),
        Mark(name="b", start_s=0.6, end_s=3, pid=100),
        Mark(name="in a", start_s=1, end_s=2, depth=1, pid=100, inside=1),
        Mark(name="in b", start_s=1, end_s=2, depth=1, pid=100),
    )
    names = [row.cells[1].text for row in operations(of, View(["rss"], depth=2), MOST).rows]

    assert names[1:-1] == ["a (parallel)", "in a (parallel)", "b (parallel)", "in b (parallel)"]
    assert "parallel: other operations of its process ran" in text_of(of, depth=2, brief=False)


def test_operations_of_several_processes() -> None:
    """Operations of several processes at the same time name their process, and its own peak is beside the tree's."""
    own = [OwnMemory(rss=rss * MIB, high_water_mark=mark * MIB) for rss, mark in ((10, 20), (30, 90))]
    first = Mark(name="Quantization", start_s=0, end_s=3, pid=100, own_start=own[0], own_end=own[1])
    second = Mark(name="Quantization", start_s=1, end_s=4, pid=101)
    table = operations(run_of(first, second, processes=[process(0), process(1, name="worker")]), View(["rss"]), MOST)

    assert [row.cells[1].text for row in table.rows] == [
        "Quantization (work, pid 100)",
        "Quantization (worker, pid 101)",
    ]
    place = table.headings(" ").index("Own peak, MiB")
    assert [row.cells[place].text for row in table.rows] == ["90.0", "–"]


def test_call_error_and_number() -> None:
    """The function, the exception and the number of calls are next to the name."""
    mark = Mark(
        name="Compilation", start_s=0, end_s=4, call="openvino.Core.compile_model", error="RuntimeError", count=24,
        total_s=2.0, longest_s=0.5,
    )  # fmt: skip
    text = text_of(run_of(mark), width=120)

    assert "1 Compilation ×24 ✕  RuntimeError · compile_model · 2.00 s in 24 calls 400.0 " in text


def test_an_unknown_end() -> None:
    """An operation whose end is unknown has no duration, change and peak; the details say why."""
    lost = Mark(name="Export", start_s=1.0, end_s=3.0, error=END_UNKNOWN)
    of = run_of(Mark(name="Load", start_s=0, end_s=1), lost)

    assert "2 Export …  end unknown        –      –        –\n" in text_of(of)
    words = " ".join(text_of(of, brief=False).split())
    assert "end unknown: the mark of the end was lost, and so the figures from start to end are unknown" in words


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("unit", ["B", "MiB"])
@pytest.mark.parametrize("brief", [True, False])
def test_fits_a_terminal(width: int, unit: str, brief: bool) -> None:  # noqa: FBT001 — a parameter of a test
    """With names and functions of any length and language, no line is wider than the terminal, and no figure is cut."""
    marks = [
        Mark(name="x" * 200, start_s=0, end_s=2, call="package.Class." + "f" * 90),
        Mark(name="模型" * 40, start_s=0, end_s=1, depth=1),
        Mark(name="\x1b[31mred", start_s=2, end_s=4, error="ValueError"),
    ]
    text = text_of(run_of(*marks), width, unit=MemoryUnit(unit), depth=2, brief=brief)

    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert "\\x1b[31mred" in text
    assert MemoryUnit(unit).text(400 * MIB) in text


def test_the_longest_of_many() -> None:
    """Of thousands, the longest are listed in their order, and one sentence of every output counts the others."""
    marks = [Mark(name=f"op {number}", start_s=number / 1000) for number in range(3000)]
    of, view = run_of(*marks), View(["rss"])

    assert "… and 2,988 smaller ones" in text_of(of, most=12)
    assert len(text_of(of, most=12).splitlines()) == 14
    assert "\n3000 op 2999" in text_of(of)
    assert "… and 2,940 smaller ones" in markdown_report(of, view)
    assert "… and 2,940 smaller ones" in notebook_cell(of, view)


SMALL = [
    Mark(name="Export", start_s=0, end_s=3.9),
    *(Mark(name=f"small {number}", start_s=3.9 + number / 1000) for number in range(5)),
    Mark(name="Saving", start_s=3.905, end_s=4),
    *(Mark(name=f"inner {number}", start_s=number, end_s=number + 0.001, depth=1) for number in range(3)),
]


def test_small_ones_are_counted_alike() -> None:
    """Text, Markdown, page and notebook leave out the same small operations, with the same sentence."""
    of, view = run_of(*sorted(SMALL, key=lambda mark: (mark.start_s, mark.depth))), View(["rss"])
    outputs = [text_of(of), markdown_report(of, view), page_report(of, view).decode(), notebook_cell(of, view)]

    assert [re.findall(r"and \d+ smaller ones", output) for output in outputs] == [["and 5 smaller ones"]] * 4


def compilations(*spans_s: tuple[float, float], name: str = "Compilation", depth: int = 2) -> list[Mark]:
    """Return calls on an inner level."""
    return [Mark(name=name, start_s=start_s, end_s=end_s, depth=depth) for start_s, end_s in spans_s]


QUANTIZATION = Mark(name="Quantization", start_s=0, end_s=3.6)
CORRECTION = Mark(name="Bias correction", start_s=0, end_s=3.5, depth=1)
CALLS = compilations(*((number / 4, number / 4 + 0.2) for number in range(14)))
FINDING = "Most of the time is in Compilation ×14, inside Quantization: 2.80 s of 4 s"


@pytest.mark.parametrize(
    ("marks", "depth", "expected"),
    [
        ([QUANTIZATION, CORRECTION, *CALLS], 1, FINDING),
        ([QUANTIZATION, CORRECTION, *CALLS], 2, FINDING.replace("Quantization", "Bias correction")),
        ([QUANTIZATION, CORRECTION, *CALLS], 3, ""),
        (
            [QUANTIZATION, CORRECTION, *CALLS[:9]],
            1,
            "Most of the time is in Bias correction, inside Quantization: 3.50 s of 4 s",
        ),
        ([QUANTIZATION], 1, ""),
        ([Mark(name="Export", start_s=0, end_s=4), *compilations((0, 1.9), depth=1)], 1, ""),
        ([Mark(name="Export", start_s=0, end_s=4), *compilations((0, 3), name="Export", depth=1)], 1, ""),
        (
            [Mark(name="Export", start_s=0, end_s=4), *compilations((0, 3), (1, 2), (2, 3), depth=1)],
            1,
            "Most of the time is in Compilation ×3, inside Export: 3 s of 4 s",
        ),
        (
            [
                Mark(name="Export", start_s=0, end_s=3, pid=1),
                Mark(name="Training", start_s=0, end_s=4, pid=2),
                Mark(name="trace", start_s=0, end_s=2.5, depth=1, pid=1),
            ],
            1,
            "",
        ),
        (
            [
                Mark(name="Load", start_s=0, end_s=2),
                *compilations((0, 1.5), depth=1),
                Mark(name="Export", start_s=2, end_s=4),
                *compilations((2, 3.5), depth=1),
            ],
            1,
            "Most of the time is in Compilation ×2, inside Export or Load: 3 s of 4 s",
        ),
    ],
    ids=[
        *("innermost", "one level more", "all shown", "less than half", "nothing inside", "not half"),
        *("the same name", "overlapping", "another row explains more", "in two rows"),
    ],
)
def test_most_of_the_time(marks: list[Mark], depth: int, expected: str) -> None:
    """A line names the calls that explain most of the run if no row of the table does."""
    of = run_of(*sorted(marks, key=lambda mark: (mark.start_s, mark.depth)))
    found = [line for line in text_of(of, depth=depth).splitlines() if line.startswith("Most")]

    assert found == ([expected] if expected else [])
    assert (expected in markdown_report(of, View(["rss"], depth=depth))) if expected else True
