from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from markdown_it import MarkdownIt
from msgspec.structs import replace as replace_fields
from rich.console import Console

from nncftools.analysis.comparison import Comparison, Run, compared, measured
from nncftools.analysis.figures import GrownStack
from nncftools.analysis.gates import judged, parsed
from nncftools.render import comparison, comparison_outputs, summary_json
from nncftools.render.sentences import when_text
from nncftools.session.model import END_UNKNOWN, Exit, Host, Mark, Snapshots
from nncftools.units import MemoryUnit
from tests.made_up import MIB, mib, process, session
from tests.made_up_stacks import grown, stack

if TYPE_CHECKING:
    from collections.abc import Sequence

HOSTILE = "a|b <script>`x`</script>\n\x1b[31m*_"


def run(peak: float, title: str = "run.json", **fields: Any) -> Run:  # noqa: ANN401 — any field of a session
    """Return a run with this peak in MiB and one operation."""
    marks = fields.pop("marks", [Mark(name="Export", start_s=0.5, end_s=1.0)])
    of = session({"rss": mib(100, peak, 50)}, marks=marks, **fields)
    return measured(of, title, peak=when_text(of), with_inner=True)


def pair(**fields: Any) -> Comparison:  # noqa: ANN401 — any field of a session
    """Return the comparison of a peak of 1000 MiB with one of 1100 MiB."""
    return compared([run(1000, "base.json")], [run(1100, "new.json", **fields)])


def groups(count: int) -> Comparison:
    """Return the comparison of two groups whose peaks do not overlap."""
    return compared(*([run(size + place, f"{size}-{place}.json") for place in range(count)] for size in (100, 200)))


def text(
    of: Comparison, width: int = 80, unit: MemoryUnit = MemoryUnit.MiB, *gates: str, has_details: bool = True
) -> list[str]:
    """Return the lines of the text at a width."""
    verdicts = [judged(parsed(gate), of) for gate in gates]
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(comparison_outputs.as_text(of, unit, verdicts, has_details=has_details))
    return [line.rstrip() for line in captured.get().splitlines()]


def row(lines: list[str], name: str) -> list[str]:
    """Return the words of the first line that begins so, without them."""
    return next(line.strip() for line in lines if line.strip().startswith(name)).removeprefix(name).split()


def with_stacks(base: float, new: float) -> Comparison:
    """Return the comparison of runs in which a loader took so many MiB, next to 300 of something else."""
    main, load = "/a/b[c.py:9 main", "torch/load.py:1 load"
    runs = [grown((stack(main), 300), (stack(main, load), size)) for size in (base, new)]
    return compared([measured(runs[0], "base.json")], [measured(runs[1], "new.json")])


class TestStacks:
    def test_text(self) -> None:
        """The code that held more at the peak is a table below the figures."""
        lines = text(with_stacks(100, 200))

        place = next(number for number, line in enumerate(lines) if line.endswith("Code at the RSS peak"))
        assert lines[place + 1].split(maxsplit=3) == ["100.0", "200.0", "+100.0", "b[c.py main (torch load)"]

    def test_markdown(self) -> None:
        """The same in Markdown, with names escaped."""
        shown = comparison_outputs.as_markdown(with_stacks(100, 200), MemoryUnit.MiB)

        assert "| 100.0 | 200.0 | **+100.0** | b\\[c.py main (torch load) |" in re.sub(" +", " ", shown)

    def test_json(self) -> None:
        """The document has functions and files, in bytes."""
        (found,) = summary_json.document([(with_stacks(100, 200), [])])["comparisons"]

        assert found["stacks"] == [
            {
                "text": "b[c.py main (torch load)",
                "function": "load",
                "file": "torch/load.py",
                "base": pytest.approx(100 * MIB, rel=0.01),
                "new": pytest.approx(200 * MIB, rel=0.01),
                "change": pytest.approx(100 * MIB, rel=0.01),
                "within_bounds": False,
            }
        ]

    def test_nothing_changed(self) -> None:
        """If no code held more or less, there is no table."""
        assert not any("Code at" in line for line in text(with_stacks(100, 100)))

    @pytest.mark.parametrize("has_details", [False, True])
    @pytest.mark.parametrize(
        ("snapshots", "why"),
        [
            (None, "record it with `nncf-tools profile`"),
            (Snapshots(missing="only root may read\nstacks"), "only root may read\\nstacks"),
        ],
    )
    def test_one_side_only(self, snapshots: Snapshots | None, why: str, has_details: bool) -> None:  # noqa: FBT001 — a parameter of a test
        """If only one side has stacks, one line says which has none, and what to do; without any, nothing does."""
        seen = measured(grown((stack("/a/b.py:9 main"), 300)), "new.json")
        lines = text(compared([run(300, "base.json", snapshots=snapshots)], [seen]), 200, has_details=has_details)

        assert lines[2] == f"Which code changed is unknown: base.json has no stacks; {why}"
        assert summary_json.document([(pair(), [])])["comparisons"][0]["stacks"] is None
        assert not any("stacks" in line for line in text(pair(), has_details=has_details))

    def test_uncertain(self) -> None:
        """A change that may be none, because only the caller is certain, is marked, with a note."""
        load, run = (stack("/a/b.py:9 main", *of) for of in (("t/a.py:1 load",), ("t/a.py:2 run",)))
        runs = [grown((load, 100), (run, 100)), grown((run, 100), (run, 100))]
        for of in runs:
            assert of.snapshots is not None
            (watched,) = of.snapshots.processes
            (whole,) = watched.windows
            watched.windows = [replace_fields(whole, time_s=[whole.from_s, whole.to_s])]
        shown = text(compared([measured(runs[0], "base.json")], [measured(runs[1], "new.json")]))

        assert any("~ b.py main (t load)" in line for line in shown)
        assert "~ code: both sides may be equal, as a part is not certain" in shown


def brief(of: Comparison, *gates: str) -> list[str]:
    """Return the lines of the short text at 80 columns."""
    return text(of, 80, MemoryUnit.MiB, *gates, has_details=False)


def compression(arguments: str) -> Mark:
    """Return a call of compress_weights."""
    call = "nncf.compress_weights"
    return Mark(name="Weight Compression", call=call, arguments=arguments, start_s=0.5, end_s=1.0)


class TestBrief:
    @pytest.mark.parametrize(
        ("peak", "duration_s", "expected"),
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
        lines = brief(compared([run(1000)], [run(peak, duration_s=duration_s)]))

        assert lines[:3] == [f"Peak memory {expected[0]}", f"Duration {expected[1]}", ""]

    @pytest.mark.parametrize(
        ("base", "new", "expected"),
        [
            ((100, 101, 102, 103, 104), (200, 201, 202, 203, 204), ", more than the spread of 5 and 5 runs"),
            ((200, 201, 202, 203, 204), (100, 101, 102, 103, 104), ", more than the spread of 5 and 5 runs"),
            ((100, 101), (200, 201, 202), ", with every run of new above every run of base"),
            ((200,), (100, 101, 102), ", with every run of new below every run of base"),
            (
                (100, 200, 300),
                (250, 260, 270),
                "did not change by more than the spread of 3 and 3 runs (200.0 → 260.0 MiB)",
            ),
            ((1000, 1000, 1000, 1000), (1001, 1001, 1001, 1001), "Peak memory hardly changed (1,000.0 → 1,001.0 MiB)"),
        ],
    )
    def test_spread(self, base: Sequence[float], new: Sequence[float], expected: str) -> None:
        """Of several runs, the first line says whether the change exceeds their spread."""
        of = compared(*([run(size, f"{size}-{place}") for place, size in enumerate(side)] for side in (base, new)))

        assert comparison.answer(of, MemoryUnit.MiB).endswith(expected)

    def test_brackets(self) -> None:
        """If the brackets of the peaks overlap, the first line says that they may be the same."""
        wide = process(high_water_limit=1200 * MIB, start_s=-1.0)
        of = compared([run(1000, processes=[wide])], [run(1100, processes=[wide])])
        expected = "Peak memory may be the same (1,000.0 → 1,100.0 MiB): neither peak is known exactly enough"

        assert comparison.answer(of, MemoryUnit.MiB) == expected

    def test_without_memory(self) -> None:
        """Of recordings without memory, the first line is about the duration, and no other one is."""
        runs = [
            measured(session({"cpu_user": (0, 1, 2)}, totals={"read_bytes": 5}, duration_s=of), "a") for of in (1, 2)
        ]
        lines = brief(compared(runs[:1], runs[1:]))

        assert lines[:2] == ["Duration rose by 1.00 s (1.00 → 2.00 s, +100.0%)", ""]

    def test_other_machine(self) -> None:
        """A line says that the machines differ."""
        assert brief(pair(host=Host(name="big")))[2] == "The runs were on different hosts"

    @pytest.mark.parametrize(
        ("gates", "expected"),
        [
            (["peak_rss>+5%"], "The gate failed"),
            (["peak_rss>+5%", "duration>9s"], "1 of 2 gates failed"),
            (["peak_rss>+50%", "duration>9s"], "All 2 gates passed"),
        ],
    )
    def test_gates_follow(self, gates: list[str], expected: str) -> None:
        """With gates, the line after the answer says how many failed."""
        assert brief(pair(), *gates)[1] == expected

    def test_at_most_ten_rows(self) -> None:
        """Of a thousand operations that changed, those are shown that changed most: ten rows with the run's own."""
        marks = [Mark(name=f"op {place}", start_s=place / 1000, end_s=place / 1000 + 0.4) for place in range(1000)]
        of = compared([run(1000, marks=marks)], [run(2000, marks=marks)])
        table = comparison.brief(of, MemoryUnit.MiB)

        assert len(table.rows) == comparison.MOST_ROWS == 10
        assert len(brief(of)) < 30

    def test_operations_within_noise_are_left_out(self) -> None:
        """An operation is a row only if its peak or its duration changed by more than noise."""
        of = compared([run(1000)], [run(1002)])

        assert not any("Export" in line for line in brief(of))
        assert any(line.startswith("Export: peak, MiB") for line in brief(pair()))

    def test_settings_that_differ(self) -> None:
        """Options of the command, arguments of a function and facts of the machine are shown where they differ."""
        one, other = (["python", "export.py", "--ratio", ratio, "out"] for ratio in ("0.8", "1.0"))
        base = run(1000, command=one, marks=[compression("INT8")])
        new = run(1000, command=other, marks=[compression("INT4_SYM")], tool_version="9")
        rows = [[cell.text for cell in row.cells] for row in comparison.settings(compared([base], [new])).rows]

        assert rows == [
            ["command", "--ratio 0.8", "--ratio 1.0"],
            ["Weight Compression", "compress_weights(INT8)", "compress_weights(INT4_SYM)"],
            ["tool version", "0.1.0", "9"],
        ]

    def test_an_unknown_end(self) -> None:
        """An operation whose end is unknown on one side is shown without duration and peak."""
        marks = [Mark(name="Export", start_s=0.5, end_s=1.0, error=END_UNKNOWN)]
        of = compared([run(1000)], [run(1100, marks=marks)])

        assert not any("Export" in line for line in brief(of))
        assert "Export" in text(of)
        assert comparison_outputs.as_markdown(of, MemoryUnit.MiB).endswith("</details>\n")

    def test_width(self) -> None:
        """No line is wider than 80 columns, however large the figures and long the names."""
        call = {"call": "a.b_" + "c" * 200, "arguments": "d" * 100}
        sides = ([Mark(name="y" * 200, start_s=0.5, end_s=end_s, **call)] for end_s in (0.6, 0.9))
        base, new = ([run(9_999_000 + place, "x" * 100, marks=of) for place in range(5)] for of in sides)

        assert max(map(len, brief(compared(base, new)))) <= 80

    @pytest.mark.parametrize(
        ("changes", "peak", "expected"),
        [
            ([("load", "b.py load", 98)], 109.8, "most of it b.py load, +98 MiB"),
            ([("load", "b.py load", 120.6)], 109.8, "all of it b.py load; other code holds less"),
            ([("load", "b.py load", -120)], -100, "all of it b.py load; other code holds more"),
            ([("load", "b.py load", -60)], -100, "most of it b.py load, -60 MiB"),
            ([("b.py", "b.py (numpy ones)", 60)], 100, "most of it b.py (numpy ones), +60 MiB"),
            (
                [("b.py", "b.py (numpy ones)", 60), ("b.py", "b.py (torch load)", 30)],
                100,
                "most of it b.py (numpy ones), +60 MiB",
            ),
            ([("b.py", "b.py (numpy ones)", 40), ("b.py", "b.py (torch load)", 30)], 100, "most of it b.py, +70 MiB"),
            ([("a", "a", -100), ("b", "b", 80)], 100, "most of it b, +80 MiB"),
            ([("a", "a", 40), ("b", "b", 40)], 100, ""),
            ([("code that no stack shows",) * 2 + (80,)], 100, "most of it code that no stack shows, +80 MiB"),
            ([], 100, ""),
        ],
    )
    def test_owner_of_the_change(self, changes: list[tuple[str, str, float]], peak: float, expected: str) -> None:
        """With stacks, the first line names the code that holds most of the change, and never more than all of it."""
        stacks = [
            GrownStack(label, owner, "", "", 500 * MIB, (500 + change) * MIB, is_within_bounds=False)
            for owner, label, change in changes
        ]
        answer = comparison.answer(replace(compared([run(1000)], [run(1000 + peak)]), stacks=stacks), MemoryUnit.MiB)
        likely = [stack._replace(is_within_bounds=True) for stack in stacks]
        of_likely = comparison.answer(replace(compared([run(1000)], [run(1000 + peak)]), stacks=likely), MemoryUnit.MiB)

        assert answer.partition("%)")[2] == (f": {expected}" if expected else "")
        assert of_likely == answer.replace("of it ", "of it likely ")

    def test_owner_of_recordings(self) -> None:
        """The first line names the own function, and in brackets the function of a library that took the memory."""
        assert brief(with_stacks(100, 200))[0].endswith(": most of it b[c.py main")

    def test_devices(self) -> None:
        """What the run held of each device is one of the main figures."""
        columns = [{"rss": mib(1, 9, 2), "device_memory@nvidia0": mib(0, size, 1)} for size in (70_000, 30_000)]
        lines = brief(compared(*([measured(session(of), f"{number}.json")] for number, of in enumerate(columns))))

        assert row(lines, "Peak Device memory nvidia0, MiB") == ["70,000", "30,000", "-40,000*", "-57.1%"]


def several_calls() -> Comparison:
    """Return the comparison of a run with one Epoch and one with two, of which the second holds the peak."""
    first, second = (
        Mark(name="Epoch", start_s=start_s, end_s=start_s + 0.4, call="train", arguments="int8") for start_s in (0, 0.5)
    )
    columns = {"time_s": (0, 0.2, 0.6, 1)}
    base = session(columns | {"rss": mib(10, 20, 5, 5)}, marks=[replace_fields(first, arguments="fp32")], duration_s=1)
    new = session(columns | {"rss": mib(10, 40, 200, 5)}, marks=[first, second])
    return compared([measured(base, "base.json", with_inner=True)], [measured(new, "new.json", with_inner=True)])


class TestSeveralCalls:
    @pytest.mark.parametrize("has_details", [False, True])
    def test_text(self, has_details: bool) -> None:  # noqa: FBT001 — a parameter of a test
        """The first of several calls has a number, in tables, settings and notes: the name alone is all of them."""
        lines = text(several_calls(), has_details=has_details)
        names = [line[: len("Epoch (1)")] for line in lines if line.startswith("Epoch")]

        assert len(names) > 1
        assert set(names) == {"Epoch (1)"}
        assert any(line.lower() == "operations only in new: epoch (2)" for line in lines)

    def test_gate(self) -> None:
        """A gate on the number looks at the row of the table, and one on the name says that it looks at all calls."""
        lines = text(several_calls(), has_details=True)
        verdicts = [judged(parsed(f"peak_rss@{name}>+999MiB"), several_calls()) for name in ("Epoch (1)", "Epoch")]

        figures = next(lines[place + 1 :] for place, line in enumerate(lines) if line.startswith("Epoch (1)"))
        assert row(figures, "Peak RSS, MiB")[:2] == ["20.0", "40.0"]
        assert [verdict.measured for verdict in verdicts] == [
            "40.0 MiB against 20.0 MiB (+20.0 MiB, +100.00%)",
            "200.0 MiB against 20.0 MiB (+180.0 MiB, +900.00%) in 2 and 1 calls",
        ]

    def test_other_numbers(self) -> None:
        """If an operation has another number in the runs, as gates understand it, its row has both."""
        marks = [Mark(name="Epoch", start_s=place / 2, end_s=place / 2 + 0.4, arguments=f"{place}") for place in (0, 1)]
        turned = [replace_fields(mark, arguments=f"{1 - place}") for place, mark in enumerate(marks)]
        of = compared([run(1000, marks=marks)], [run(1100, marks=turned)])

        assert [operation.title for operation in of.operations] == ["Epoch (1 → 2)", "Epoch (2 → 1)"]

    def test_json_keeps_names(self) -> None:
        """In JSON the names of operations stay as they were."""
        (found,) = summary_json.document([(several_calls(), [])])["comparisons"]

        assert [operation["name"] for operation in found["operations"]] == ["Epoch", "Epoch (2)"]


class TestText:
    def test_one_run_each(self) -> None:
        """A figure is a line: base, new, change and per cent."""
        assert row(text(pair()), "Peak RSS, MiB") == ["1,000.0", "1,100.0", "+100.0", "+10.0%"]

    def test_unit(self) -> None:
        """Peaks are in the unit that was asked for."""
        assert row(text(pair(), unit=MemoryUnit.GiB), "Peak RSS, GiB") == ["0.977", "1.074", "+0.098", "+10.0%"]

    @pytest.mark.parametrize(
        ("seconds", "expected"),
        [
            ((0.5, 0.25), ("s", "0.500", "0.250")),
            ((12.5, 13), ("s", "12.50", "13.00")),
            ((599, 1), ("s", "599.0", "1.0")),
            ((600, 660), ("min", "10.00", "11.00")),
            ((3 * 3600, 0), ("h", "3.00", "0.00")),
        ],
    )
    def test_time(self, seconds: tuple[float, float], expected: tuple[str, str, str]) -> None:
        """Both times of a line are in one unit that fits the longer."""
        base, new = (run(100, duration_s=of) for of in seconds)
        unit, *cells = expected

        assert row(text(compared([base], [new])), f"Duration, {unit}")[:2] == cells

    def test_more_times_than_a_float_holds(self) -> None:
        """A time of nearly nothing, as a damaged file has it, does not end the comparison."""
        lines = text(compared([run(100, duration_s=1e-320)], [run(100, duration_s=1.0)]))

        assert row(lines, "Duration, s")[-1] == ">1,000×"

    def test_what_was_not_done_is_left_out(self) -> None:
        """I/O of which there was none on either side is no line; from nothing there is no percentage."""
        lines = text(pair(totals={"read_bytes": 1 << 30, "write_bytes": 0, "cpu_user": 1.0, "cpu_system": 1.0}))

        assert row(lines, "Storage read, GiB") == ["0.000", "1.000", "+1.000", ">1,000×"]
        assert not any("written" in line for line in lines)

    def test_groups(self) -> None:
        """In groups a line has medians and p, and beneath it the range of the runs."""
        lines = text(groups(5))
        place = next(number for number, line in enumerate(lines) if line.startswith("Peak RSS, MiB"))

        assert row(lines, "Peak RSS, MiB") == ["102.0", "202.0", "+100.0", "+98.0%", "0.008", "*"]
        assert lines[place + 1].split() == ["100.0–104.0", "200.0–204.0"]
        assert "* the difference exceeds the spread (p ≤ 0.05; this many runs can reach 0.0079)" in lines

    def test_groups_too_small(self) -> None:
        """If groups are too small for a significant result, a line says so."""
        assert "so few runs reach p = 0.1 at best: too few to show a significant difference" in " ".join(
            text(groups(3))
        )

    def test_brackets(self) -> None:
        """A difference within the brackets is marked, and a note gives the brackets."""
        wide = process(high_water_limit=1200 * MIB, start_s=-1.0)
        of = compared([run(1000, processes=[wide])], [run(1100, processes=[wide])])

        assert row(text(of), "Peak RSS, MiB")[2] == "+100.0~"
        note = (
            "~ Peak RSS: both may be equal, as the brackets overlap: base 1,000.0–1,200.0 MiB, new 1,100.0–1,200.0 MiB"
        )
        assert note in " ".join(text(of))

    def test_operations(self) -> None:
        """An operation of both has its own lines, others are listed."""
        lines = text(pair(marks=[Mark(name="Export", start_s=0.5, end_s=0.7), Mark(name="Save", start_s=0.8)]))
        place = [line.strip() for line in lines].index("Export")

        assert row(lines[place:], "Duration, s") == ["0.500", "0.200", "-0.300", "-60.0%"]
        assert "Operations only in new: Save" in lines

    @pytest.mark.parametrize(
        ("base", "new", "expected"),
        [
            ("INT4_SYM, g64", "INT4_SYM, g64", "Weight Compression compress_weights(INT4_SYM, g64)"),
            ("INT8", "INT4", "Weight Compression compress_weights(INT8) → compress_weights(INT4)"),
        ],
    )
    def test_functions(self, base: str, new: str, expected: str) -> None:
        """The function of an operation is next to its name; operations are matched even if their arguments differ."""
        call = {"name": "Weight Compression", "call": "nncf.compress_weights"}
        runs = [[run(1000, marks=[Mark(**call, start_s=0, end_s=1, arguments=one)])] for one in (base, new)]

        assert expected in " ".join(" ".join(text(compared(*runs))).split())

    def test_many_operations(self) -> None:
        """Of 1,000 operations those are shown that changed most, and the others are counted."""
        marks = [Mark(name=f"op {place}", start_s=place / 1_000) for place in range(1_000)]
        of = compared([run(1000, marks=marks)], [run(1100, marks=marks)])
        lines = text(of)

        assert len(lines) < 300
        assert "… and 970 operations that changed less" in lines

    def test_operations_of_some_runs(self) -> None:
        """An operation that only some runs have is shown with their number."""
        of = compared([run(100), run(101, marks=[])], [run(102), run(103)])

        assert "Export (in 1 of 2 and 2 of 2 runs)" in text(of)

    def test_width(self) -> None:
        """No line is wider than 80 columns, however large the figures and long the names."""
        base = [run(9_999_000 + place, "x" * 100, marks=[Mark(name="y" * 200, start_s=0.5)]) for place in range(5)]
        new = [run(1_000 + place, "z" * 100, marks=[Mark(name="y" * 200, start_s=0.5)]) for place in range(5)]

        assert max(map(len, text(compared(base, new)))) <= 80

    def test_hostile_names(self) -> None:
        """Control characters in names are written out."""
        of = compared([run(1, HOSTILE, marks=[Mark(name=HOSTILE, start_s=0)])], [run(2, command=[HOSTILE])])

        assert "\x1b" not in "".join(text(of))

    def test_warnings(self) -> None:
        """What is wrong with a run is at the end."""
        assert text(pair(exit=Exit(code=3)))[-1] == "! new.json ended with exit status 3"


class TestMarkdown:
    def html(self, of: Comparison, *gates: str) -> str:
        """Return what a renderer makes of it."""
        verdicts = [judged(parsed(gate), of) for gate in gates]
        markdown = comparison_outputs.as_markdown(of, MemoryUnit.MiB, verdicts)
        return str(MarkdownIt("commonmark").enable("table").render(markdown))

    def test_is_a_table(self) -> None:
        """A figure is a row of a table. One table is shown; those of sides, and of run and operations, are folded."""
        html = self.html(pair())
        shown, _, folded = html.partition("<details>")

        assert (shown.count("<table>"), folded.count("<table>")) == (1, 2)
        assert folded.count("</details>") == 1
        assert '<td style="text-align:right">1,000.0</td>' in html
        assert '<td style="text-align:right"><strong>+100.0</strong></td>' in html

    def test_groups(self) -> None:
        """For groups, the range of the runs follows the median, and p has its own column."""
        html = self.html(groups(5))

        assert ">202.0 (200.0–204.0)</td>" in html
        assert ">0.008 *</td>" in html

    def test_gates(self) -> None:
        """Gates and what came of them are a table of their own."""
        html = self.html(pair(), "peak_rss>+5%", "peak_rss>8GiB")

        assert "<td><code>peak_rss&gt;+5%</code></td>" in "".join(html.replace(' style="text-align:left"', ""))
        assert html.startswith("<p><strong>❌ Peak memory rose by 100.0 MiB (1,000 → 1,100 MiB, +10.0%)</strong></p>")
        assert "<p>1 of 2 gates failed. Duration did not change (1.00 s)</p>" in html
        assert "<strong>failed</strong>" in html
        assert ">passed</td>" in html

    def test_hostile_names(self) -> None:
        """Names are text: no tag, no emphasis, no cell of a table comes from them."""
        hostile = {"marks": [Mark(name=HOSTILE, start_s=0.5)], "command": [HOSTILE]}
        of = compared([run(1, HOSTILE, **hostile)], [run(2, **hostile)])
        html = self.html(of, f"peak_rss@{of.operations[0].name}>1GiB")

        assert "<script" not in html
        assert "<em>" not in html
        assert "a|b &lt;script&gt;`x`&lt;/script&gt;\\n\\x1b[31m*_" in html
        assert all(line.count("<td") <= 1 for line in html.splitlines())


class TestJson:
    def test_keys(self) -> None:
        """The document holds both sides of every figure in bytes and seconds."""
        of = pair()
        verdicts = [judged(parsed("peak_rss>+5%"), of)]
        document = json.loads(json.dumps(summary_json.document([(of, verdicts)])))
        found = document["comparisons"][0]

        assert document["format"] == "nncf-tools-comparison"
        peak = "at 0.500 s during Export"
        assert found["base"] == [{"session": "base.json", "command": "work --fast", "peak": peak}]
        assert found["figures"]["peak_rss"] == {
            "unit": "B",
            "base": {"median": 1000 * MIB, "min": 1000 * MIB, "max": 1000 * MIB, "high": None, "runs": [1000 * MIB]},
            "new": {"median": 1100 * MIB, "min": 1100 * MIB, "max": 1100 * MIB, "high": None, "runs": [1100 * MIB]},
            "change": 100 * MIB,
            "percent": 10.0,
            "within_brackets": False,
            "p": None,
            "exceeds_spread": None,
            "stands_out": True,
        }
        assert found["operations"][0]["name"] == "Export"
        assert found["operations"][0]["base_functions"] == []
        assert found["gates"][0]["passed"] is False

    def test_groups(self) -> None:
        """Groups have p, and the smallest that they can reach."""
        found = summary_json.document([(groups(5), [])])["comparisons"][0]

        assert found["smallest_p"] == pytest.approx(2 / 252)
        assert found["figures"]["peak_rss"]["p"] == pytest.approx(2 / 252)
        assert found["figures"]["peak_rss"]["exceeds_spread"] is True


def test_page_of_hostile_names() -> None:
    """Names are text, and the page's policy allows no program and nothing from anywhere else."""
    hostile = {"marks": [Mark(name=HOSTILE, start_s=0.5)], "command": [HOSTILE]}
    of = compared([run(1, HOSTILE, **hostile)], [run(2, **hostile)])
    page = comparison_outputs.as_page(comparison_outputs.as_text(of, MemoryUnit.MiB, has_details=True))

    assert "<script" not in page
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
