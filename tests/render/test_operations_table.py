"""Tests of the table of operations in text and Markdown, which has its own columns and sentences."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from nncftools.analysis.session import Session
from nncftools.cli import screen
from nncftools.render import page
from nncftools.render.operations_table import operations, operations_table
from nncftools.render.text import markdown_report, notebook_cell
from nncftools.render.view import View
from nncftools.session.model import Mark
from nncftools.units import MemoryUnit
from tests.made_up import MIB, mib, session
from tests.render.test_text import run_of

MOST = 60


def text_of(of: Session, width: int = 80, *, most: int = MOST, **choices: Any) -> str:  # noqa: ANN401 — any choice of a view
    """Return the table as a terminal of ``width`` columns shows it; empty if there is none."""
    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    table = operations_table(of, View(["rss"], **{"brief": True, **choices}), most)
    with console.capture() as captured:
        console.print("" if table is None else table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


@pytest.mark.parametrize(
    ("marks", "fields", "expected"),
    [
        ([(1, 3)], {"attached_to": 7}, ["before the first operation", "a", "after the last operation"]),
        ([(0, 1), (2, 4)], {}, ["a", "between operations", "a"]),
        ([(0.1, 2), (2.1, 3.9)], {}, ["a", "a"]),
    ],
    ids=["attached", "between", "short"],
)
def test_times_without_operations(
    marks: list[tuple[float, float]], fields: dict[str, Any], expected: list[str]
) -> None:
    """A time without operations has a row if it is at least 5 % of the run; only a start has imports."""
    of = run_of(*(Mark(name="a", start_s=start_s, end_s=end_s) for start_s, end_s in marks), **fields)

    assert [row.cells[1].text for row in operations(of, View(["rss"]), MOST).rows] == expected


@pytest.mark.parametrize("width", [40, 80])
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
    of, view = run_of(*(Mark(name=f"op {number}", start_s=number / 100) for number in range(300))), View(["rss"])
    text = text_of(of, most=12)

    assert "… and 288 smaller ones" in text
    assert len(text.splitlines()) == 14
    assert "\n300 op 299" in text_of(of)
    assert "… and 240 smaller ones" in markdown_report(of, view)
    assert "… and 240 smaller ones" in notebook_cell(of, view)


def compilations(*spans_s: tuple[float, float], name: str = "Compilation", depth: int = 2) -> list[Mark]:
    """Return calls on an inner level."""
    return [Mark(name=name, start_s=start_s, end_s=end_s, depth=depth) for start_s, end_s in spans_s]


PEAKS = "peak 100.0 MiB to 500.0 MiB (call 3), median 150.0 MiB"


@pytest.mark.parametrize(
    ("calls", "line"),
    [
        (
            compilations((0, 0.5), (1, 1.25), (2, 3), (3.5, 4), depth=1),
            "1.1 Compilation ×4: duration 0.250 s to 1.00 s (call 3), median 0.500 s; " + PEAKS,
        ),
        (
            [Mark(name="Inference", start_s=0, end_s=4, depth=1, count=211, total_s=3.0, longest_s=0.25)],
            "1.1 Inference ×211: longest call 0.250 s",
        ),
        (compilations((0, 0.5), (1, 1.25), (2, 3), depth=1), ""),
    ],
    ids=["calls", "counted calls", "rows of their own"],
)
def test_repeated_calls(calls: list[Mark], line: str) -> None:
    """Below the table, a row of repeated calls says how far they differ and which was the largest, in each output."""
    of = session(
        {"rss": mib(100, 100, 100, 100, 500, 100, 100, 200, 200)}, marks=[Mark(name="Export", start_s=0), *calls]
    )
    view = View(["rss"], depth=2)
    outputs = [operations_table(of, replace(view, brief=brief), 60) for brief in (True, False)]
    texts = [screen.plain(content) for content in outputs if content is not None]
    texts += [markdown_report(of, view), page.report(of, view).decode()]

    for text in texts:
        assert ("Compilation ×" in text or "Inference ×" in text) is bool(line)
        assert line in " ".join(text.split())


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
