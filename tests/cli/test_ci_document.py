"""The workflow of docs/compare-and-ci.md: its commands do what the steps after them need."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.made_up import mib, session

PAGE = (Path(__file__).parents[2] / "docs/compare-and-ci.md").read_text(encoding="utf-8")
WORKFLOW = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def commands() -> list[list[str]]:
    """Return the commands that compare, as words; a folded block is one line."""
    folded = re.sub(r">\n +(nncf-tools [^\n]*)\n +(--)", r"\1 \2", "".join(WORKFLOW))
    return [shlex.split(line)[1:] for line in re.findall(r"run: (nncf-tools compare [^\n]+)", folded)]


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Write what the steps before have recorded: groups of three runs."""
    for name, peak in (("base", 1000), ("new", 1010), ("run", 1000)):
        for number in (1, 2, 3):
            session({"rss": mib(100, peak + number)}).save(tmp_path / f"{name}-{number}.json")
    return tmp_path


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_commands_write_their_files(in_process: Run, recorded: Path, words: list[str]) -> None:
    """Each command works as it stands, and writes the file that the next step reads."""
    result = in_process(*words)
    written = recorded / words[words.index("--output") + 1]

    assert (result.returncode, "Traceback" in result.stderr) == (0, False)
    assert written.stat().st_size
    assert written.suffix == ".md" or json.loads(written.read_text(encoding="utf-8"))


def test_there_are_commands() -> None:
    """The page compares with gates, and writes both histories."""
    assert [words[words.index("--format") + 1] for words in commands()] == ["markdown", "benchmark-action", "bencher"]
    assert "--fail-if" in commands()[0]
