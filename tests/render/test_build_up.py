from __future__ import annotations

import io

import pytest
from rich.console import Console

from nncftools.analysis.session import Session
from nncftools.errors import NncfToolsError, UsageError
from nncftools.render import build_up, text
from nncftools.render.build_up import BuildUpReport, build_up_report
from nncftools.render.view import View
from nncftools.session.model import Mark
from nncftools.units import MemoryUnit
from tests.made_up import MIB, process, session
from tests.made_up_stacks import group, grown, stack

MAIN = "/a/b.py:9 main"
LOAD, RUN = stack(MAIN, "torch/load.py:1 load"), stack(MAIN, "torch/run.py:2 run")
HOSTILE = stack("/a/\x1b[31m.py:9 [bold red]x[/]\n", *(f"pkg/{'n' * 300}.py:{n} {'f' * 300}" for n in range(400)))


def exported(**fields: object) -> Session:
    """Return a run that loads 400 MiB, then takes 100, in an operation each."""
    groups = [group("anonymous", 300), group("file", 200, "/m/model.safetensors", clean=150, copied=50)]
    marks = [Mark(name="Load", start_s=0.0, end_s=0.5), Mark(name="Run", start_s=0.5, end_s=1.0)]
    return grown((LOAD, 400), (RUN, 100), **{"groups": groups, "marks": marks, **fields})


def whole(
    of: Session,
    operation: str | None = None,
    at_s: float | None = None,
    between_s: tuple[float, float] | None = None,
) -> BuildUpReport:
    """Return a build-up in MiB."""
    return build_up_report(of, MemoryUnit.MiB, operation, at_s, between_s)


def printed(of: BuildUpReport, width: int = 80) -> list[str]:
    """Return the lines of a build-up as a terminal without colour shows them."""
    stream = io.StringIO()
    Console(file=stream, width=width, highlight=False, color_system=None).print(build_up.as_text(of))
    return [line.rstrip() for line in stream.getvalue().splitlines()]


class TestText:
    def test_tables(self) -> None:
        """The code stands as a tree, the memory by its kinds."""
        lines = printed(whole(exported()))

        assert lines[3] == "Peak at 0.980 s during Run: RSS 500.0 MiB"
        assert [line.split() for line in lines if "b.py:9 main" in line][-1] == [
            "500.0",
            "100%",
            "100%",
            "a/b.py:9",
            "main",
        ]
        assert any(line.endswith("    torch/load.py:1 load") for line in lines)
        (file,) = [line.split() for line in lines if line.endswith("/m/model.safetensors")]
        assert file[:6] == ["200.0", "40%", "200.0", "0.0", "150.0", "50.0"]

    def test_sums(self) -> None:
        """The rows at one depth sum to the whole."""
        rows = whole(exported()).tables["Code"].rows
        sizes = [float(row.cells[0].text) for row in rows if row.depth == 1]

        assert sum(sizes) == pytest.approx(500, abs=1)

    @pytest.mark.parametrize("width", [40, 80, 120])
    def test_width(self, width: int) -> None:
        """Nothing is wider than the terminal, and deep stacks and long names are harmless."""
        lines = printed(whole(grown((HOSTILE, 400), (RUN, 300))), width)

        assert max(map(len, lines)) <= width
        assert not any("\x1b" in line for line in lines)
        assert any("[bold red]" in line for line in lines)

    def test_narrow(self) -> None:
        """In a narrow terminal, code and kinds of memory come first."""
        lines = printed(whole(exported()), 40)
        start = lines.index("Code")

        assert lines[start + 1].split() == ["code", "MiB", "share", "certain"]
        assert lines[start + 2].split() == ["a/b.py:9", "main", "500.0", "100%", "100%"]
        assert any(line.startswith("/m/model.") and "200.0" in line for line in lines)

    def test_processes(self) -> None:
        """What several processes held has a table."""
        of = exported()
        assert of.snapshots is not None
        (first,) = of.snapshots.processes
        of.snapshots.processes.append(
            type(first)(process=1, pid=101, time_s=[0.0, 0.1, 1.0], rss=[0, 50 * MIB, 50 * MIB], apart_s=[0.0] * 3)
        )
        of.processes.append(process(1))
        found = [[cell.text for cell in row.cells][-2:] for row in whole(of).tables["Processes"].rows]

        assert found == [["100", "work"], ["101", "work"]]


class TestMarkdown:
    def test_tables(self) -> None:
        """The same tables, with names escaped."""
        shown = build_up.as_markdown(whole(grown((HOSTILE, 400), (LOAD, 300))))

        assert "|   MiB |   share |   certain | code" in shown
        assert "\\[bold red\\]" in shown
        assert "\x1b" not in shown


class TestChoice:
    def test_operation(self) -> None:
        """The peak of an operation has only what was there by then."""
        found = whole(exported(), "Load")

        assert found.title == "Peak of Load at 0.480 s: RSS 400.0 MiB"
        assert sum(float(row.cells[0].text) for row in found.tables["Code"].rows if not row.depth) == 400

    def test_function(self) -> None:
        """An operation is also chosen by the function that it called, as in a gate."""
        of = exported(marks=[Mark(name="Work", start_s=0.5, end_s=1.0, call="torch.run")])

        assert whole(of, "run").title.startswith("Peak of run at 0.980 s")

    def test_moment(self) -> None:
        """A moment has what was there then."""
        found = whole(exported(), at_s=0.25)

        assert found.title.startswith("At 0.250 s: RSS 200")

    def test_growth(self) -> None:
        """Between two moments there is what grew, without the kinds of memory of one moment."""
        found = whole(exported(), between_s=(0.25, 0.98))
        lines = printed(found)

        assert found.title == "Growth from 0.250 s to 0.980 s: RSS 300.0 MiB"
        assert any(line.endswith("% of the growth, 100 % certain") for line in lines)
        assert not any("made of" in line or line == "Memory" for line in lines)

    @pytest.mark.parametrize(
        ("between_s", "why"),
        [
            ((0.5, 0.2), "0.5 s is not before 0.2 s"),
            ((0.5, 0.5), "0.5 s is not before 0.5 s"),
            ((0.5, 9.0), "9 s is outside the recording, which lasted 0.980 s"),
        ],
    )
    def test_bad_times(self, between_s: tuple[float, float], why: str) -> None:
        """Times that are not in order, or not in the recording, are refused."""
        with pytest.raises(UsageError, match=f"^{why}$"):
            whole(exported(), between_s=between_s)

    def test_no_growth(self) -> None:
        """Where nothing grew, that is said."""
        with pytest.raises(NncfToolsError, match=r"^Growth from 0\.481 s to 0\.515 s: no process grew$"):
            whole(exported(), between_s=(0.481, 0.515))

    @pytest.mark.parametrize("at_s", [-1.0, 99.0])
    def test_moment_outside(self, at_s: float) -> None:
        """A moment outside of the recording is refused, with its length."""
        with pytest.raises(UsageError, match=r"outside the recording, which lasted 0\.980 s"):
            whole(exported(), at_s=at_s)

    def test_operation_with_the_highest_peak(self) -> None:
        """Of several operations of one name, the one with the highest peak is shown; a number chooses another one."""
        marks = [Mark(name="Step", start_s=start_s, end_s=start_s + 0.5) for start_s in (0.0, 0.5)]
        of = exported(marks=marks)

        assert whole(of, "Step").title == whole(of, "Step (2)").title.replace(" (2)", "")
        assert "500.0 MiB" in whole(of, "Step").title
        assert "400.0 MiB" in whole(of, "Step (1)").title

    def test_unknown_operation(self) -> None:
        """For an unknown operation, those that there are are named."""
        with pytest.raises(UsageError, match=r"no operation 'Save'; the session has 'Load', 'Run'"):
            whole(exported(), "Save")

    def test_no_stacks(self) -> None:
        """Without stacks, the reason is named."""
        with pytest.raises(NncfToolsError, match="recorded without stacks"):
            whole(session())
        of = exported(missing="py-spy is not installed")
        assert of.snapshots is not None
        of.snapshots.processes[0].windows = []
        with pytest.raises(NncfToolsError, match="no stacks: py-spy is not installed"):
            whole(of)


class TestReport:
    def test_lines_are_under_the_headline(self) -> None:
        """The report has the rows and the lines about the peak under its headline, in text and in Markdown."""
        view = View(metrics=["rss"])
        stream = io.StringIO()
        Console(file=stream, width=80, highlight=False, color_system=None).print(text.report(exported(), view))
        lines = stream.getvalue().splitlines()
        shown = text.markdown_report(exported(), view)

        assert lines[:3] == [
            "run: Peak memory 500 MiB, 1.0 s after the start, during Run",
            "  500 MiB  b.py:9 main (torch load)",
            "took 1.0 s",
        ]
        assert [line[:14].strip() for line in lines[3:6]] == ["peak", "running", "seen"]
        assert "- seen: 100 % of the peak" in shown

    def test_not_from_zero(self) -> None:
        """Where the peak is above the first sample, the rows and lines about the whole peak are not shown."""
        shown = text.markdown_report(exported(), View(metrics=["rss"], from_zero=True))

        assert "running" not in shown
        assert "b.py:9" not in shown
