from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib import rc_context

from nncftools.session.model import Exit, Mark
from tests.conftest import Run
from tests.made_up import mib, session


def save(folder: Path, file: str, peak: float, **fields: Any) -> None:  # noqa: ANN401 — any field of a session
    """Write a session with this peak in MiB and one operation."""
    marks = [Mark(name="Export", start_s=0.5, end_s=1.0), Mark(name="inner", start_s=0.5, end_s=0.7, depth=1)]
    session({"rss": mib(100, peak, 50)}, **{"marks": marks, **fields}).save(folder / file)


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """Write a.json with a peak of 1000 MiB and b.json with one of 1100 MiB."""
    save(tmp_path, "a.json", 1000)
    save(tmp_path, "b.json", 1100)
    return tmp_path


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    """Write two groups of five runs, old-N.json and new-N.json."""
    for number in range(5):
        save(tmp_path, f"old-{number}.json", 1000 + number)
        save(tmp_path, f"new-{number}.json", 1100 + number)
    return tmp_path


@pytest.mark.usefixtures("pair")
class TestPair:
    @pytest.mark.parametrize("format_", ["bencher", "benchmark-action"])
    def test_history(self, in_process: Run, format_: str) -> None:
        """Formats for a history hold the figures of NEW, which may be given without BASE."""
        both = in_process("compare a.json b.json -f", format_).stdout

        assert "work --fast › Export" in both
        assert in_process("compare b.json -f", format_).stdout == both

    def test_marks_beside(self, in_process: Run, pair: Path) -> None:
        """Operations of a sidecar are compared."""
        for name in ("a", "b"):
            (pair / f"{name}.marks.json").write_text('[{"name": "Beside", "start_s": 0, "end_s": 1}]')

        assert "Beside" in in_process("compare a.json b.json --details").stdout.splitlines()


@pytest.mark.usefixtures("pair")
class TestGates:
    @pytest.mark.parametrize(
        "gates, status, lines",
        [
            (
                ["peak_rss>+20%"],
                0,
                ["nncf-tools: gate passed: peak_rss>+20%: 1,100.0 MiB against 1,000.0 MiB (+100.0 MiB, +10.00%)"],
            ),
            (
                ["peak_rss>+5%"],
                3,
                ["nncf-tools: gate failed: peak_rss>+5%: 1,100.0 MiB against 1,000.0 MiB (+100.0 MiB, +10.00%)"],
            ),
            (
                ["peak_rss@Export>1GiB", "duration>5s"],
                3,
                [
                    "nncf-tools: gate failed: peak_rss@Export>1GiB: 1.074 GiB",
                    "nncf-tools: gate passed: duration>5s: 1.00 s",
                ],
            ),
        ],
    )
    def test_status(self, in_process: Run, gates: list[str], status: int, lines: list[str]) -> None:
        """A failed gate gives status 3; every gate prints one line on standard error with the measured figure."""
        result = in_process("compare a.json b.json", *(word for gate in gates for word in ("--fail-if", gate)))

        assert (result.returncode, result.stderr.splitlines()) == (status, lines)
        assert result.stdout.startswith("Peak memory rose")

    def test_inner_operation(self, in_process: Run) -> None:
        """A gate can name an operation inside another one, which the table does not show."""
        result = in_process("compare a.json b.json --fail-if 'duration@inner>0.1s'")

        assert result.returncode == 3
        assert result.stderr == "nncf-tools: gate failed: duration@inner>0.1s: 0.200 s\n"
        assert "inner" not in result.stdout


@pytest.mark.usefixtures("groups")
class TestGroups:
    def test_patterns(self, in_process: Run, groups: Path) -> None:
        """--base and --new expand patterns, which leave out sidecars; the groups differ by more than their spread."""
        (groups / "old-0.marks.json").write_text("[]")
        result = in_process("compare --base 'old-*.json' --new 'new-*.json' --plot o.png")

        assert result.returncode == 0
        assert "5 runs: old-0.json, …, old-4.json" in result.stdout
        assert "+100.0*" in result.stdout

    def test_a_name_with_brackets(self, in_process: Run, groups: Path) -> None:
        """A name of an existing file means that file, even if it contains wildcards."""
        (groups / "old-0.json").rename(groups / "[x].json")

        assert in_process("compare --base '[x].json' --new 'new-*.json'").returncode == 0


LOWEST = "int4.json has the lowest Peak RSS of 3 runs"


@pytest.fixture
def many(tmp_path: Path) -> None:
    """Write three runs: fp32 of 1000 MiB, int8 of 400 MiB, and int4 of 300 MiB, without a name and CPU time."""
    save(tmp_path, "fp32.json", 1000, name="fp32", totals={"cpu_user": 8.0, "cpu_system": 0.0})
    save(tmp_path, "int8.json", 400, name="int8", duration_s=2.0, totals={"cpu_user": 4.0, "cpu_system": 0.0})
    save(tmp_path, "int4.json", 300, name="", exit=Exit(signal=9), totals={})


@pytest.mark.usefixtures("many")
class TestMany:
    @pytest.mark.parametrize(
        "words, answer, rows",
        [
            (
                ("fp32.json", "int8.json", "int4.json"),
                f"{LOWEST}. Compared with fp32: Peak memory fell by 700.0 MiB (1,000 → 300 MiB, -70.0%)",
                [
                    "fp32 1,000.0 MiB 1.00 s 8.00 s",
                    "int8 400.0 MiB -60.0% 2.00 s +100.0% 4.00 s -50.0%",
                    "int4.json 300.0 MiB -70.0% 1.00 s –",
                ],
            ),
            (
                ("int4.json", "fp32.json", "int8.json", "-u", "GiB"),
                LOWEST,
                [
                    "int4.json 0.293 GiB 1.00 s –",
                    "fp32 0.977 GiB +233.3% 1.00 s 8.00 s",
                    "int8 0.391 GiB +33.3% 2.00 s +100.0% 4.00 s",
                ],
            ),
        ],
    )
    def test_table(self, in_process: Run, words: tuple[str, ...], answer: str, rows: list[str]) -> None:
        """All runs are in one table by name, with the change from the first; the answer is the lowest peak."""
        text = in_process("compare", *words).stdout
        lines = [" ".join(line.split()) for line in text.splitlines()]
        markdown = in_process("compare", *words, "-f", "markdown").stdout

        assert " ".join(text.split("\n\n")[0].split()) == answer
        assert lines[lines.index(rows[0]) : lines.index(rows[0]) + 3] == rows
        assert "int4.json was killed by signal 9" in text
        assert markdown.startswith(f"**{answer}**\n\n| Run ")
        assert [
            " ".join(line.replace("|", " ").replace("*", "").split()) for line in markdown.splitlines()[4:7]
        ] == rows

    def test_details(self, in_process: Run) -> None:
        """--details and the page also have each comparison with the first; so does JSON, with the names."""
        words = ("compare", "fp32.json", "int8.json", "int4.json")
        details, page = (in_process(*words, *more).stdout for more in (("--details",), ("-f", "html")))
        found = json.loads(in_process(*words, "-f", "json").stdout)["comparisons"]

        _, wide, narrow = page.split("<pre>")
        for text in (details, wide, narrow):
            assert text.count(LOWEST) == 1
            assert text.count("Peak memory fell by 600.0 MiB") == 1
        assert [one["new"][0]["name"] for one in found] == ["int8", ""]
        assert {one["base"][0]["name"] for one in found} == {"fp32"}

    def test_gates(self, in_process: Run) -> None:
        """The number of failed gates is below the table."""
        result = in_process("compare fp32.json int8.json int4.json --fail-if 'peak_rss<-65%'")

        assert result.returncode == 3
        assert "1 of 2 gates failed" in result.stdout

    @pytest.mark.parametrize(
        "files, names",
        [
            (("fp32.json", "int8.json", "int4.json"), ["fp32", "int8", "int4.json"]),
            (("fp32.json", "copy/fp32.json", "int4.json"), ["fp32.json", "copy/fp32.json", "int4.json"]),
            (("fp32.json", "int4.json", "copy"), ["fp32", "int4.json", "copy"]),
        ],
    )
    def test_names(self, in_process: Run, tmp_path: Path, files: tuple[str, ...], names: list[str]) -> None:
        """The picture has the names of the table: of the runs, or else of files and folders, or else the paths."""
        (tmp_path / "copy").mkdir()
        save(tmp_path / "copy", "fp32.json", 900, name="fp32")
        save(tmp_path / "copy", "session.json", 800, name="")
        text = in_process("compare", *files, "--plot", "o.svg").stdout
        with rc_context({"svg.fonttype": "none"}):
            in_process("compare", *files, "--plot", "o.svg", "--force")
        drawn = (tmp_path / "o.svg").read_text()

        for name in names:
            assert f"\n{name} " in text
            assert f">{name}: peak " in drawn


@pytest.mark.usefixtures("pair")
class TestBadInput:
    @pytest.mark.parametrize(
        "words, status, message",
        [
            (["a.json", "pss.json"], 1, "no memory metric in common"),
            (["a.json", "b.json", "-o", "text"], 2, "option --output: 'text' exists"),
            (["a.json", "b.json", "-p", "old.png"], 2, "option --plot: 'old.png' exists"),
        ],
    )
    def test_is_one_line(self, in_process: Run, tmp_path: Path, words: list[str], status: int, message: str) -> None:
        """A file that cannot be compared, read or written gives one line that names it."""
        (tmp_path / "text").write_text("no session")
        (tmp_path / "old.png").write_text("precious")
        session({"pss": mib(1, 2)}).save(tmp_path / "pss.json")
        result = in_process("compare", *words)

        assert result.returncode == status
        assert len(result.stderr.splitlines()) == 1
        assert message in result.stderr
        assert (tmp_path / "old.png").read_text() == "precious"
