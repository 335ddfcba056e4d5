from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from nncftools.analysis.comparison import Comparison, Run, compare_runs, measure_run
from nncftools.analysis.figures import GrownStack
from nncftools.analysis.gates import judge_gate, parse_gate
from nncftools.render import comparison, comparison_outputs
from nncftools.render.sentences import when_text
from nncftools.session.model import Mark
from nncftools.units import MemoryUnit
from tests.made_up import MIB, marks, mib, rows, session

HOSTILE = "a|b <script>`x`</script>\n\x1b[31m*_"


def run(peak: float, title: str = "run.json", **fields: Any) -> Run:  # noqa: ANN401 — any field of a session
    """Return a run with this peak in MiB and one operation."""
    operations = fields.pop("marks", marks("Export 0.5-1"))
    of = session({"rss": mib(100, peak, 50)}, marks=operations, **fields)
    return measure_run(of, title, peak=when_text(of), with_inner=True)


def groups(count: int) -> Comparison:
    """Return the comparison of two groups whose peaks do not overlap."""
    return compare_runs(*([run(size + place, f"{size}-{place}.json") for place in range(count)] for size in (100, 200)))


def text(
    of: Comparison, width: int = 80, unit: MemoryUnit = MemoryUnit.MiB, *gates: str, has_details: bool = True
) -> list[str]:
    """Return the lines of the text at a width."""
    verdicts = [judge_gate(parse_gate(gate), of) for gate in gates]
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(comparison_outputs.as_text(of, unit, verdicts, has_details=has_details))
    return [line.rstrip() for line in captured.get().splitlines()]


def row(lines: list[str], name: str) -> list[str]:
    """Return the words of the first line that begins so, without them."""
    return next(line.strip() for line in lines if line.strip().startswith(name)).removeprefix(name).split()


def brief(of: Comparison, *gates: str) -> list[str]:
    """Return the lines of the short text at 80 columns."""
    return text(of, 80, MemoryUnit.MiB, *gates, has_details=False)


class TestBrief:
    @pytest.mark.parametrize(
        "peak, duration_s, expected",
        [
            (1100, 1.0, ("rose by 100.0 MiB (1,000 → 1,100 MiB, +10.0%)", "did not change (1.00 s)")),
            (900, 2.0, ("fell by 100.0 MiB (1,000 → 900 MiB, -10.0%)", "rose by 1.00 s (1.00 → 2.00 s, +100.0%)")),
            (12000, 1.0, ("rose by 11,000 MiB (1,000 → 12,000 MiB, 12×)", "did not change (1.00 s)")),
            (1001, 1.01, ("hardly changed (1,000.0 → 1,001.0 MiB)", "hardly changed (1.00 → 1.01 s)")),
            (1000, 1.0, ("did not change (1,000.0 MiB)", "did not change (1.00 s)")),
        ],
    )
    def test_answer_is_the_first_line(self, peak: float, duration_s: float, expected: tuple[str, str]) -> None:
        """The first line says how the peak changed, the second how the duration did; noise is called so."""
        lines = brief(compare_runs([run(1000)], [run(peak, duration_s=duration_s)]))

        assert lines[:3] == [f"Peak memory {expected[0]}", f"Duration {expected[1]}", ""]

    @pytest.mark.parametrize(
        "base, new, expected",
        rows("""
100 101 102 103 104 | 200 201 202 203 204 | , more than the spread of 5 and 5 runs
200 201 202 203 204 | 100 101 102 103 104 | , more than the spread of 5 and 5 runs
100 101 | 200 201 202 | ; every run of new is above every run of base
200 | 100 101 102 | ; every run of new is below every run of base
100 200 300 | 250 260 270 | did not change by more than the spread of 3 and 3 runs (200.0 → 260.0 MiB)
1000 1000 1000 1000 | 1001 1001 1001 1001 | Peak memory hardly changed (1,000.0 → 1,001.0 MiB)
"""),
    )
    def test_spread(self, base: str, new: str, expected: str) -> None:
        """Of several runs, the first line says whether the change exceeds their spread."""
        of = compare_runs(*([run(float(size)) for size in side.split()] for side in (base, new)))

        assert comparison.answer(of, MemoryUnit.MiB).endswith(expected)

    def test_without_memory(self) -> None:
        """Of recordings without memory, the first line is about the duration, and no other one is."""
        runs = [
            measure_run(session({"cpu_user": (0, 1, 2)}, totals={"read_bytes": 5}, duration_s=of), "a") for of in (1, 2)
        ]
        lines = brief(compare_runs(runs[:1], runs[1:]))

        assert lines[:2] == ["Duration rose by 1.00 s (1.00 → 2.00 s, +100.0%)", ""]


class TestText:
    @pytest.mark.parametrize(
        "seconds, expected",
        [
            ((0.5, 0.25), ("s", "0.500", "0.250")),
            ((12.5, 13), ("s", "12.50", "13.00")),
            ((599, 1), ("s", "599.0", "1.0")),
            ((600, 660), ("min", "10.00", "11.00")),
            ((3 * 3600, 0), ("h", "3.00", "0.00")),
            ((-2.0, -2.0), ("s", "-2.000", "-2.000")),
        ],
    )
    def test_time(self, seconds: tuple[float, float], expected: tuple[str, str, str]) -> None:
        """Both times of a line are in one unit that fits the longer, also the negative times of a damaged session."""
        base, new = (run(100, duration_s=of) for of in seconds)
        unit, *cells = expected

        assert row(text(compare_runs([base], [new])), f"Duration, {unit}")[:2] == cells

    def test_more_times_than_a_float_holds(self) -> None:
        """A time of nearly nothing, as a damaged file has it, does not end the comparison."""
        lines = text(compare_runs([run(100, duration_s=1e-320)], [run(100, duration_s=1.0)]))

        assert row(lines, "Duration, s")[-1] == ">1,000×"

    def test_many_operations(self) -> None:
        """Of 1,000 operations those are shown that changed most, and the others are counted."""
        marks = [Mark(name=f"op {place}", start_s=place / 1_000) for place in range(1_000)]
        of = compare_runs([run(1000, marks=marks)], [run(1100, marks=marks)])
        lines = text(of)

        assert len(lines) < 300
        assert "… and 970 operations that changed less" in lines

    @pytest.mark.parametrize("has_details", [False, True])
    def test_width(self, has_details: bool) -> None:  # noqa: FBT001 — a parameter of a test
        """No line is wider than 80 columns, however large the figures and long the names."""
        call = {"call": "a.b_" + "c" * 200, "arguments": "d" * 100}
        sides = ([Mark(name="y" * 200, start_s=0.5, end_s=end_s, **call)] for end_s in (0.6, 0.9))
        base, new = ([run(9_999_000 + place, "x" * 100, marks=of) for place in range(5)] for of in sides)

        assert max(map(len, text(compare_runs(base, new), has_details=has_details))) <= 80

    def test_headings_in_a_narrow_terminal(self) -> None:
        """The name of an operation has all columns, and each line of a figure's label is indented."""
        of = compare_runs(*([run(peak, marks=marks("A_long_name_of_an_operation 0.5-1"))] for peak in (1000, 1100)))

        assert "A_long_name_of_an_operation\n  Peak RSS,    1,000.0 1,100.0\n  MiB\n" in "\n".join(text(of, 30))


@pytest.mark.parametrize(
    "changes, peak, expected",
    [
        ([("load", "b.py load", 98)], 109.8, "most of it b.py load, +98 MiB"),
        ([("load", "b.py load", 120.6)], 109.8, "all of it b.py load; other code holds less"),
        ([("load", "b.py load", -120)], -100, "all of it b.py load; other code holds more"),
        ([("load", "b.py load", -60)], -100, "most of it b.py load, -60 MiB"),
        ([("b.py", "b.py (a)", 60), ("b.py", "b.py (c)", 30)], 100, "most of it b.py (a), +60 MiB"),
        ([("b.py", "b.py (a)", 40), ("b.py", "b.py (c)", 30)], 100, "most of it b.py, +70 MiB"),
        ([("a", "a", -100), ("b", "b", 80)], 100, "most of it b, +80 MiB"),
        ([("a", "a", 40), ("b", "b", 40)], 100, ""),
        ([("code that no stack shows",) * 2 + (80,)], 100, "most of it code that no stack shows, +80 MiB"),
        ([], 100, ""),
    ],
)
def test_owner_of_the_change(changes: list[tuple[str, str, float]], peak: float, expected: str) -> None:
    """With stacks, the first line names the code that holds most of the change, and never more than all of it."""
    stacks = [
        GrownStack(label, owner, "", "", 500 * MIB, (500 + change) * MIB, is_within_bounds=False)
        for owner, label, change in changes
    ]
    answer = comparison.answer(replace(compare_runs([run(1000)], [run(1000 + peak)]), stacks=stacks), MemoryUnit.MiB)

    assert answer.partition("%)")[2] == (f": {expected}" if expected else "")


def test_hostile_names() -> None:
    """Names are text in Markdown and on the page: no tag, no emphasis, no cell of a table comes from them."""
    hostile: dict[str, Any] = {"marks": [Mark(name=HOSTILE, start_s=0.5)], "command": [HOSTILE]}
    of = compare_runs([run(1, HOSTILE, **hostile)], [run(2, **hostile)])
    verdicts = [judge_gate(parse_gate(f"peak_rss@{of.operations[0].name}>1GiB"), of)]
    markdown = comparison_outputs.as_markdown(of, MemoryUnit.MiB, verdicts)
    html = str(MarkdownIt("commonmark").enable("table").render(markdown))
    page = comparison_outputs.as_page(comparison_outputs.as_text(of, MemoryUnit.MiB, has_details=True))

    assert "<script" not in html + page
    assert "<em>" not in html
    assert "a|b &lt;script&gt;`x`&lt;/script&gt;\\n\\x1b[31m*_" in html
    assert all(line.count("<td") <= 1 for line in html.splitlines())
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert "vw)" not in page  # a vw includes the scrollbar
