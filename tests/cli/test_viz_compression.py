from __future__ import annotations

import json
import pathlib

import pytest

from tests.compression.made_up import HEADER, MADE_UP, changed, four, written
from tests.conftest import Run

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "compression" / "smollm2.csv"
OWN = [
    *("--metric", "held-out text, perplexity:lower"),
    *("--metric", "held-out text, next-token acc:higher"),
    *("--metric", "held-out text, word acc:higher"),
]


@pytest.fixture
def data(tmp_path: pathlib.Path) -> pathlib.Path:
    """Write the minimum of four rows."""
    return written(tmp_path / "data.csv", four())


class TestFiles:
    @pytest.mark.parametrize("words", [["--input_file", "data.csv", "--output_dir", "."], ["-i", "data.csv"]])
    @pytest.mark.usefixtures("data")
    def test_spellings(self, in_process: Run, tmp_path: pathlib.Path, words: list[str]) -> None:
        """Options may be spelled with underscores; without a folder, the files go into the input's folder."""
        result = in_process("viz-compression", *words)

        assert result.returncode == 0
        assert {path.name for path in tmp_path.iterdir()} == {"data.csv", "data.md", "data.png"}

    def test_file_of_a_sweep(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """A CSV file of `sweep` is drawn by its own columns, and a note names them."""
        path = pathlib.Path(__file__).parents[2] / "examples/compression/smollm2_sweep.csv"

        result = in_process("viz-compression", "-i", path, "-o", ".")

        assert result.returncode == 0
        assert (
            "the error is the average of held-out text, word perplexity; held-out text, last-word acc" in result.stderr
        )
        assert (tmp_path / "smollm2_sweep.png").exists()


class TestOutput:
    def test_json(self, in_process: Run) -> None:
        """--json prints every row by the input's columns, with the computed values."""
        result = in_process("viz-compression", "-i", MADE_UP, "-o", "out", "--json", "--recommend", "error<=5%")
        rows = json.loads(result.stdout)

        assert [round(one["average relative error"], 9) for one in rows] == [0, 0.01, 0.03, 0.05, 0.08, 0.14]
        assert [one["recommended"] for one in rows] == [False, False, False, True, False, False]
        assert rows[2]["lora rank"] == 64
        assert rows[2]["compression rate"] == 5
        assert rows[0]["lora rank"] is None
        assert rows[0]["compression time, min"] == "0"

    def test_recommend(self, in_process: Run) -> None:
        """--recommend prints the smallest model within the bound to standard output."""
        result = in_process("viz-compression", "-i", MADE_UP, "-o", "out", "--recommend", "error<=5%")

        assert result.stdout == (
            "int4 with scale estimation (80% int4) is the smallest with error up to 5%: error 5.0%, 1.25 Gb, "
            "6.4x smaller\n"
        )

    def test_answer_before_the_chart(self, in_process: Run) -> None:
        """With --terminal, the answer is the first line, and the chart follows."""
        result = in_process("viz-compression", "-i", MADE_UP, "-o", "out", "--terminal")

        assert result.stdout.splitlines()[0].startswith("int4 with scale estimation (80% int4) is the smallest")
        assert "compression rate" in result.stdout

    @pytest.mark.usefixtures("data")
    def test_several_files(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """Several files give one table with a column of models."""
        result = in_process("viz-compression", "-i", "data.csv", "-i", MADE_UP, "-o", "out")

        assert result.returncode == 0
        table = (tmp_path / "out/data+made_up_compression.md").read_text()
        answered = [line.partition(": ")[0] for line in result.stdout.splitlines()]
        assert answered == ["Made-up-7b, made up", "Made-up-7b, made up, gs64"]
        assert table.startswith("| model ")
        assert table.count("\n") == 11

    def test_example(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """The example's own metrics, further columns and largest error work as its README shows."""
        words = ["--extra", "--max-error", "30%", "--recommend", "error<=10%", *OWN]
        result = in_process("viz-compression", "-i", EXAMPLE, "-o", "out", *words)

        assert result.returncode == 0
        assert result.stdout.startswith("int4 symmetric with lora correction is the smallest with error up to 10%: ")
        assert "note: rows beyond --max-error, not in the picture: 1\n" in result.stderr
        assert "compression<br>time,<br>s" in (tmp_path / "out/smollm2.md").read_text()


class TestBadInput:
    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["-i", "none.csv"], "cannot read 'none.csv': No such file or directory"),
            (["-i", "data.csv", "-i", "./data.csv"], "option --input-file: a file is given twice"),
            (["-i", "data.csv", "--recommend", "small"], "option --recommend: 'error<=5%'"),
            (["-i", "data.csv", "--recommend", "peak<1GiB"], "'data.csv': 'peak' needs the column 'peak memory, MiB'"),
            (["-i", "data.csv", "--also", "memory"], "'memory' is not one of"),
            (["-i", "data.csv", "--metric", "mmlu"], "option --metric: 'COLUMN:higher'"),
            (["-i", "data.csv", "--max-error", "much"], "option --max-error: a percentage above 0 expected"),
            (["-i", "data.csv", "--format", "gif"], "'gif' is not one of"),
            ([], "option --input-file: missing"),
        ],
    )
    @pytest.mark.usefixtures("data")
    def test_options(self, in_process: Run, tmp_path: pathlib.Path, words: list[str], message: str) -> None:
        """A wrong option gives one line that names it, and nothing is written."""
        result = in_process("viz-compression", *words)

        assert result.returncode in {1, 2}
        assert message in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_pipe_gets_no_escapes(in_process: Run, tmp_path: pathlib.Path) -> None:
    """Control codes in the input reach neither standard output nor the written files."""
    rows = [{**one, HEADER[0]: "\x1b[31mred"} for one in changed(four(), 4, "plot name", "\x1b]0;title\x07")]
    written(tmp_path / "a.csv", rows)
    result = in_process("viz-compression", "-i", "a.csv", "-f", "SVG", "-f", "html", "--recommend", "error<=50%")

    assert result.returncode == 0
    assert "\\x1b]0;title" in result.stdout
    for text in (
        result.stdout,
        result.stderr,
        *((tmp_path / f"a.{kind}").read_text() for kind in ("md", "svg", "html")),
    ):
        assert "\x1b" not in text
