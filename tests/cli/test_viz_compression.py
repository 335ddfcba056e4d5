from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.compression.made_up import HEADER, changed, four, written
from tests.conftest import Run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write the minimum of four rows."""
    return written(tmp_path / "data.csv", four())


class TestFiles:
    @pytest.mark.parametrize("words", ["--input_file data.csv --output_dir .", "-i data.csv --terminal"])
    @pytest.mark.usefixtures("data")
    def test_spellings(self, in_process: Run, tmp_path: Path, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Options may be spelled with underscores; without a folder, the files go into the input's folder.

        Where plotext cannot be loaded, one line says so.
        """
        monkeypatch.setitem(sys.modules, "plotext", None)
        result = in_process(f"viz-compression {words}")

        assert result.returncode == 0
        assert result.stderr.count("no chart: plotext cannot be loaded") == words.count("--terminal")
        assert {path.name for path in tmp_path.iterdir()} == {"data.csv", "data.md", "data.png"}


def test_pipe_gets_no_escapes(in_process: Run, tmp_path: Path) -> None:
    """Control codes in the input reach neither standard output nor the written files."""
    rows = [{**one, HEADER[0]: "\x1b[31mred"} for one in changed(four(), 4, "plot name", "\x1b]0;title\x07")]
    written(tmp_path / "a.csv", rows)
    result = in_process("viz-compression -i a.csv -f SVG -f html --recommend 'error<=50%'")

    assert result.returncode == 0
    assert "\\x1b]0;title" in result.stdout
    for text in (
        result.stdout,
        result.stderr,
        *((tmp_path / f"a.{kind}").read_text() for kind in ("md", "svg", "html")),
    ):
        assert "\x1b" not in text
