from __future__ import annotations

import pathlib

import pytest

from tests.compression.made_up import HEADER, changed, four, written
from tests.conftest import Run


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
