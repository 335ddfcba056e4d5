from __future__ import annotations

import pathlib
from typing import Any

import pytest

from nncftools.session.model import Mark
from tests.conftest import Run
from tests.made_up import mib, session


def save(folder: pathlib.Path, name: str, peak: float, **fields: Any) -> None:  # noqa: ANN401 — any field of a session
    """Write a session with this peak in MiB and one operation."""
    marks = [Mark(name="Export", start_s=0.5, end_s=1.0), Mark(name="inner", start_s=0.5, end_s=0.7, depth=1)]
    session({"rss": mib(100, peak, 50)}, **{"marks": marks, **fields}).save(folder / name)


@pytest.fixture
def pair(tmp_path: pathlib.Path) -> pathlib.Path:
    """Write a.json with a peak of 1000 MiB and b.json with one of 1100 MiB."""
    save(tmp_path, "a.json", 1000)
    save(tmp_path, "b.json", 1100)
    return tmp_path


@pytest.fixture
def groups(tmp_path: pathlib.Path) -> pathlib.Path:
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
        both = in_process("compare", "a.json", "b.json", "-f", format_).stdout

        assert "work --fast › Export" in both
        assert in_process("compare", "b.json", "-f", format_).stdout == both

    def test_marks_beside(self, in_process: Run, pair: pathlib.Path) -> None:
        """Operations of a sidecar are compared."""
        for name in ("a", "b"):
            (pair / f"{name}.marks.json").write_text('[{"name": "Beside", "start_s": 0, "end_s": 1}]')

        assert "Beside" in in_process("compare", "a.json", "b.json", "--details").stdout.splitlines()


@pytest.mark.usefixtures("pair")
class TestGates:
    @pytest.mark.parametrize(
        ("gates", "status", "lines"),
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
        result = in_process("compare", "a.json", "b.json", *(word for gate in gates for word in ("--fail-if", gate)))

        assert (result.returncode, result.stderr.splitlines()) == (status, lines)
        assert result.stdout.startswith("Peak memory rose")

    def test_inner_operation(self, in_process: Run) -> None:
        """A gate can name an operation inside another one, which the table does not show."""
        result = in_process("compare", "a.json", "b.json", "--fail-if", "duration@inner>0.1s")

        assert result.returncode == 3
        assert result.stderr == "nncf-tools: gate failed: duration@inner>0.1s: 0.200 s\n"
        assert "inner" not in result.stdout


@pytest.mark.usefixtures("groups")
class TestGroups:
    def test_patterns(self, in_process: Run, groups: pathlib.Path) -> None:
        """--base and --new expand patterns, which leave out sidecars; the groups differ by more than their spread."""
        (groups / "old-0.marks.json").write_text("[]")
        result = in_process("compare", "--base", "old-*.json", "--new", "new-*.json", "--plot", "o.png")

        assert result.returncode == 0
        assert "5 runs: old-0.json, …, old-4.json" in result.stdout
        assert "+100.0*" in result.stdout

    def test_a_name_with_brackets(self, in_process: Run, groups: pathlib.Path) -> None:
        """A name of an existing file means that file, even if it contains wildcards."""
        (groups / "old-0.json").rename(groups / "[x].json")

        assert in_process("compare", "--base", "[x].json", "--new", "new-*.json").returncode == 0


@pytest.mark.usefixtures("pair")
class TestBadInput:
    @pytest.mark.parametrize(
        ("words", "status", "message"),
        [
            (["a.json", "pss.json"], 1, "no memory metric in common"),
            (["a.json", "b.json", "-o", "text"], 2, "option --output: 'text' exists"),
            (["a.json", "b.json", "-p", "old.png"], 2, "option --plot: 'old.png' exists"),
        ],
    )
    def test_is_one_line(
        self, in_process: Run, tmp_path: pathlib.Path, words: list[str], status: int, message: str
    ) -> None:
        """A file that cannot be compared, read or written gives one line that names it."""
        (tmp_path / "text").write_text("no session")
        (tmp_path / "old.png").write_text("precious")
        session({"pss": mib(1, 2)}).save(tmp_path / "pss.json")
        result = in_process("compare", *words)

        assert result.returncode == status
        assert len(result.stderr.splitlines()) == 1
        assert message in result.stderr
        assert (tmp_path / "old.png").read_text() == "precious"
