from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.pseudo_terminal import PseudoTerminal
from tests.conftest import Run, burner


def test_files(nncf_tools: Run, tmp_path: Path) -> None:
    """With --output, each run has its own session; each has one line, and one table at the end has all of them."""
    result = nncf_tools("monitor --repeat 3 -i 0.02 -o run.json", *burner("touch", 20, 0))

    assert result.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-1.json", "run-2.json", "run-3.json"]
    assert "Peak memory" not in result.stderr
    assert re.findall(r"^Run (\d) of 3: RSS peak \d+\.\d MiB, \d+\.\d+ s$", result.stderr, re.MULTILINE) == list("123")
    assert result.stderr.count("3 RUNS") == 1
    assert re.search(r"^Peak RSS, MiB +(\d+\.\d +){3}\d+\.\d%$", result.stderr, re.MULTILINE)
    assert (
        "Written to run-1.json … run-3.json\n\nTo compare these runs with another group of runs, record the group, "
        "then: nncf-tools compare --base 'run-*.json' --new 'NEW-*.json'\n"
    ) in result.stderr


def test_stops_at_the_first_failure(nncf_tools: Run, tmp_path: Path) -> None:
    """A failed run is the last, and its status is returned."""
    script = "test -e once && exit 7; touch once"
    result = nncf_tools("monitor -q --repeat 5 -o run.json sh -c", script)

    assert result.returncode == 7
    assert result.stderr == "nncf-tools: stopped: run 2 of 5 ended with exit status 7\n"
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["run-1.json", "run-2.json"]


def test_nothing_runs_when_a_file_exists(in_process: Run, tmp_path: Path) -> None:
    """All files are checked before the first run."""
    (tmp_path / "run-3.json").write_text("precious")
    result = in_process("monitor --repeat 3 -o run.json touch ran")

    assert result.returncode == 2
    assert "'run-3.json' exists" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run-3.json"]


@pytest.mark.process
def test_step_fits(tmp_path: Path) -> None:
    """Where there is little room, the line with the file and the next command is broken between its parts."""
    words = "monitor", "-i", "0.02", "-o", "run.json", "--", "sleep", "0.3"
    shown = PseudoTerminal(tmp_path, *words, size=(50, 40)).until_end()

    assert shown.rstrip().splitlines()[-2:] == ["run.json", "which line held it: nncf-tools profile sleep 0.3"]
