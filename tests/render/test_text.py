from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from nncftools.analysis.session import Session
from nncftools.metrics import MEMORY, METRICS
from nncftools.render.text import report
from nncftools.render.view import View
from nncftools.session.model import (
    Floor,
    Host,
    Mark,
    Process,
    SamplerFacts,
)
from nncftools.units import MemoryUnit
from tests.made_up import MIB, mib, process, session

GB = 10**9
WIDTH = 80
RSS = mib(100, 300, 200)
SYSTEM = mib(1000, 1300, 1100)
HOSTILE = "\x1b[31mred\x1b]0;title\x07\r\nsecond\tline\u202eevil\x9b\x00"


def run(rss: Sequence[float | None] = RSS, system: Sequence[float | None] = SYSTEM, **fields: Any) -> Session:  # noqa: ANN401 — any field
    """Return a session of both metrics."""
    return session({"rss": rss, "system": system}, **fields)


def printed(of: Session, *, metrics: tuple[str, ...] = ("rss", "system"), **view: Any) -> str:  # noqa: ANN401 — any choice
    """Return the report as an 80-column terminal without colour shows it, without the blanks at the ends of lines."""
    stream = io.StringIO()
    console = Console(file=stream, width=WIDTH, highlight=False, color_system=None)
    console.print(report(of, View(metrics=metrics, **view)))
    return "".join(f"{line.rstrip(' ')}\n" for line in stream.getvalue().split("\n")[:-1])


def large(size: int) -> Session:
    """Return a session whose figures all have as many digits as ``size``."""
    processes = [process(high_water_mark=size, peak_rss=size, name="a-process-with-a-long-name-indeed")]
    totals = dict.fromkeys(("read_bytes", "write_bytes", "read_chars", "write_chars"), size * 1000)
    facts = SamplerFacts(cpu_s=12_345.6, peak_rss=50 * MIB, interval_s=0.001, missed=99_999, longest_gap_s=12_345.6)
    figures: dict[str, Any] = {"processes": processes, "totals": totals, "sampler": facts, "duration_s": 99_999.9}
    return run([size // 2, size, size // 3 * 2], [size, size + 1, size + 2], **figures)


@pytest.mark.parametrize("unit, size", [("B", 50 * GB), ("GB", 99_999 * GB)])
def test_large_figures_fit_into_80_columns(unit: str, size: int) -> None:
    """In every unit, no figure is cut and no line is broken or longer than the terminal."""
    text = printed(large(size), unit=MemoryUnit(unit))
    table = text[text.index("Memory,") : text.index("CPU")]
    figures = [MemoryUnit(unit).text(figure) for figure in (size, size // 2, size // 3 * 2, size + 1, size + 2)]

    assert max(cell_len(line) for line in text.splitlines()) <= WIDTH
    assert "…" not in table
    assert [figure for figure in figures if figure not in table] == []


@pytest.mark.parametrize(
    "changes",
    [
        {"command": ["python", HOSTILE]},
        {"command": [], "name": HOSTILE},
        {"host": Host(name=HOSTILE)},
        {"warnings": [HOSTILE]},
        {"processes": [process(name=HOSTILE, peak_rss=1)]},
        {"processes": [process(), process(1, name=HOSTILE, end_s=None)]},
    ],
    ids=["command", "name", "host", "warning", "process", "survivor"],
)
def test_nothing_that_a_terminal_acts_on(changes: dict[str, Any]) -> None:
    """Control characters from a file are escaped, so that they neither affect the terminal nor begin a new line."""
    text = printed(run(**changes))

    assert [character for character in text if not character.isprintable() and character != "\n"] == []
    assert [line for line in text.splitlines() if line.startswith("second")] == []


def marks_of(*sizes: int) -> list[Process]:
    """Return processes with these high-water marks in MiB."""
    return [process(place, high_water_mark=size * MIB, end_s=None) for place, size in enumerate(sizes)]


@pytest.mark.parametrize(
    "processes, unit, bracket",
    [
        (marks_of(200, 106), MemoryUnit.MiB, None),
        (marks_of(200, 107), MemoryUnit.MiB, "300.0 MiB and 307.0 MiB"),
        (marks_of(400, 50), MemoryUnit.MiB, "400.0 MiB and 450.0 MiB"),
        (marks_of(250, 250), MemoryUnit.KiB, "307,200 KiB and 512,000 KiB"),
        ([process(high_water_mark=290 * MIB)], MemoryUnit.MiB, None),
    ],
    ids=["up to 2 %", "more than 2 %", "of a spike", "in another unit", "no upper bound"],
)
def test_bracket_of_the_peak(processes: list[Process], unit: MemoryUnit, bracket: str | None) -> None:
    """The report gives the bracket of the real peak if its upper bound is known, and more than 2 % above the lower."""
    lines = printed(run(processes=processes), unit=unit).splitlines()
    expected = [] if bracket is None else [f"RSS peak      between {bracket} (the sum of high-water marks)"]

    assert [line for line in lines if line.startswith("RSS peak")] == expected


def test_all_metrics_fit_into_80_columns() -> None:
    """A report of every memory metric, of figures that were seldom known too, is no wider than the terminal."""
    columns = {name: mib(100, None, 300_000) for name in MEMORY}
    text = printed(session(columns), metrics=MEMORY)

    assert max(cell_len(line) for line in text.splitlines()) <= WIDTH
    assert [METRICS[name].label for name in MEMORY if METRICS[name].label not in text] == []


def run_of(*marks: Mark, **fields: Any) -> Session:  # noqa: ANN401 — any field
    """Return a session of four seconds that grows to 400 MiB and back, with marks."""
    columns = {
        "rss": mib(100, 100, 400, 200, 200),
        "cpu_user": [0, 1, 2, 3, 4],
        "cpu_system": [0] * 5,
        "read_bytes": mib(0, 10, 10, 10, 10),
        "write_bytes": mib(0, 0, 0, 5, 5),
        "read_chars": mib(0, 20, 20, 20, 20),
        "write_chars": mib(0, 0, 0, 7, 7),
        "time_s": [0, 1, 2, 3, 4],
    }
    return session(columns, marks=list(marks), duration_s=4.0, **fields)


@pytest.mark.parametrize("view", [{}, {"brief": True}])
@pytest.mark.parametrize("dropped_mib, stall_s, is_said", [(3100, 11.6, True), (3100, 0.1, False), (5, 3.0, False)])
def test_short_of_memory(view: dict[str, bool], dropped_mib: int, stall_s: float, is_said: bool) -> None:  # noqa: FBT001
    """Where memory was short, a line says that the peak is higher on a larger machine, and no other denies it."""
    totals = {"refaults": dropped_mib * MIB, "memory_stall": stall_s}
    floor = Floor(size=200 * MIB, at_s=1.0, mapped=10 * MIB)
    text = printed(session(totals=totals, floor=floor), metrics=("rss",), **view)
    line = (
        "the machine was short of memory: the kernel dropped 3.0 GiB of cached files and had to read the files again; "
        "on a machine with more memory the peak is higher"
    )

    assert (line in " ".join(text.split())) == is_said
    assert ("no file is read twice" in text) == (not is_said and not view)
