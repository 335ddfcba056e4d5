"""Tests of the table of operations in text and Markdown, which has its own columns and sentences."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from nncftools.analysis.session import Session
from nncftools.cli import screen
from nncftools.render import page
from nncftools.render.operations_table import operations_table
from nncftools.render.text import markdown_report, notebook_cell
from nncftools.render.view import View
from nncftools.units import MemoryUnit
from tests.made_up import MIB, marks, mib, process, rows, session
from tests.render.test_text import run_of

MOST = 60


def text_of(of: Session, width: int = 80, *, most: int = MOST, **choices: Any) -> str:  # noqa: ANN401 — any choice of a view
    """Return the table as a terminal of ``width`` columns shows it; empty if there is none."""
    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    table = operations_table(of, View(["rss"], **{"brief": True, **choices}), most)
    with console.capture() as captured:
        console.print("" if table is None else table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("unit", ["B", "MiB"])
@pytest.mark.parametrize("brief", [True, False])
def test_fits_a_terminal(width: int, unit: str, brief: bool) -> None:  # noqa: FBT001 — a parameter of a test
    """With names and functions of any length and language, no line is wider than the terminal, and no figure is cut."""
    of = run_of(
        *marks(f"{'x' * 200} 0-2", call="package.Class." + "f" * 90),
        *marks(f"x/{'模型' * 40} 0-1"),
        *marks("\x1b[31mred 2-4", error="ValueError"),
    )
    text = text_of(of, width, unit=MemoryUnit(unit), depth=2, brief=brief)

    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert "\\x1b[31mred" in text
    assert MemoryUnit(unit).text(400 * MIB) in text


def test_the_longest_of_many() -> None:
    """Of thousands, the longest are listed in their order, and one sentence of every output counts the others."""
    of, view = run_of(*marks(", ".join(f"op {number} {number / 100}" for number in range(300)))), View(["rss"])
    text = text_of(of, most=12)

    assert "… and 288 smaller ones" in text
    assert len(text.splitlines()) == 14
    assert "\n300 op 299" in text_of(of)
    assert "… and 240 smaller ones" in markdown_report(of, view)
    assert "… and 240 smaller ones" in notebook_cell(of, view)


PEAKS = "peak 100.0 MiB to 500.0 MiB (call 3), median 150.0 MiB"
COUNTED = {"count": 1_211, "total_s": 3.0, "longest_s": 0.25}


@pytest.mark.parametrize(
    "spans, fields, line",
    [
        (
            "0-0.5 1-1.25 2-3 3.5-4",
            {},
            "1.1 Compilation ×4: duration 0.250 s to 1.00 s (call 3), median 0.500 s; " + PEAKS,
        ),
        ("0-4", COUNTED, "1.1 Compilation ×1,211: longest call 0.250 s"),
        ("0-0.5 1-1.25 2-3", {}, ""),
    ],
    ids=["calls", "counted calls", "rows of their own"],
)
def test_repeated_calls(spans: str, fields: dict[str, float], line: str) -> None:
    """Below the table, a row of repeated calls says how far they differ and which was the largest, in each output."""
    of = session({"rss": mib(100, 100, 100, 100, 500, 100, 100, 200, 200)}, marks=marks("Export 0", total_s=2.0))
    for span in spans.split():
        of.marks += marks(f"x/Compilation {span}", **fields)
    view = View(["rss"], depth=2)
    outputs = [operations_table(of, replace(view, brief=brief), 60) for brief in (True, False)]
    texts = [screen.plain(content) for content in outputs if content is not None]
    assert re.search(r"2\.00 s in 1 call\b", texts[0])
    texts += [markdown_report(of, view), page.report(of, view).decode()]

    for text in texts:
        assert ("Compilation ×" in text) is bool(line)
        assert line in " ".join(text.split())


@pytest.mark.parametrize(
    "operations, names",
    rows("""
Load 1-3 | before the first, after the last
Load 0-0 | after the last
Load 0-0, Save 2-2 | between, after the last
Load 4-4 | before the first
"""),
)
def test_time_outside_operations(operations: str, names: str) -> None:
    """A row of unmarked time says on which side of the operations it is, also beside an operation without length."""
    found = re.findall("before the first|between|after the last", text_of(run_of(*marks(operations))))

    assert ", ".join(found) == names


INNER = "Quantization 0-3.6, Quantization/Bias correction 0-3.5"
FINDING = "Most of the time is in Compilation ×14, inside Quantization: 2.80 s of 4 s"


def compiling(number: int) -> str:
    """Return operations with so many calls of 0.2 s on the third level."""
    calls = (f"Quantization/Bias correction/Compilation {call / 4}-{call / 4 + 0.2:.2f}" for call in range(number))
    return ", ".join([INNER, *calls])


@pytest.mark.parametrize(
    "operations, depth, expected",
    [
        (compiling(14), 1, FINDING),
        (compiling(14), 2, FINDING.replace("Quantization", "Bias correction")),
        (compiling(14), 3, ""),
        (compiling(9), 1, "Most of the time is in Bias correction, inside Quantization: 3.50 s of 4 s"),
        ("Quantization 0-3.6", 1, ""),
        ("Export 0-4, Export/Compilation 0-1.9", 1, ""),
        ("Export 0-4, Export/Export 0-3", 1, ""),
        (
            "Export 0-4, Export/Compilation 0-3, Export/Compilation 1-2, Export/Compilation 2-3",
            1,
            "Most of the time is in Compilation ×3, inside Export: 3 s of 4 s",
        ),
        (
            "Load 0-2, Load/Compilation 0-1.5, Export 2-4, Export/Compilation 2-3.5",
            1,
            "Most of the time is in Compilation ×2, inside Export or Load: 3 s of 4 s",
        ),
    ],
    ids=[
        *("innermost", "one level more", "all shown", "less than half", "nothing inside", "not half"),
        *("the same name", "overlapping", "in two rows"),
    ],
)
def test_most_of_the_time(operations: str, depth: int, expected: str) -> None:
    """A line names the calls that explain most of the run if no row of the table does."""
    of = run_of(*marks(operations))
    found = [line for line in text_of(of, depth=depth).splitlines() if line.startswith("Most")]

    assert found == ([expected] if expected else [])
    assert (expected in markdown_report(of, View(["rss"], depth=depth))) if expected else True


def test_peak_between_operations() -> None:
    """The time outside all operations may hold the peak, beside an operation that may hold more."""
    of = session(marks=marks("A 0.7"))
    child = process(1, start_s=0.7, high_water_mark=900 * MIB, high_water_limit=900 * MIB)
    of.processes = [process(high_water_mark=MIB, end_s=None), child]

    assert text_of(of).count("<- peak?") == 2


def test_another_row_explains_more() -> None:
    """No calls are named if a row of another process is longer."""
    of = run_of(*marks("Export 0-3", pid=1), *marks("Training 0-4", pid=2), *marks("Export/trace 0-2.5", pid=1))

    assert "Most of the time" not in text_of(of, depth=1)
