"""Six parallel tasks of one process, recorded by ``monitor``."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from nncftools import Session
from tests.conftest import BURNERS, Run, command_line
from tests.surroundings import HANGING_S

pytestmark = pytest.mark.process

TASKS = [f"Task {number}" for number in range(6)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Record the tasks; return the session's file."""
    path = tmp_path_factory.mktemp("tasks") / "run.json"
    command = [sys.executable, BURNERS / "tasks.py"]
    words = command_line("monitor", "-q", "-i", "0.02", "-o", path, "--", *command)
    subprocess.run(words, cwd=path.parent, check=True, timeout=HANGING_S)
    return path


def report(run: Run, path: pathlib.Path, *options: str) -> str:
    """Return what ``report`` prints."""
    done = run("report", *options, path)
    assert done.returncode == 0, done.stderr
    return done.stdout


def operations(run: Run, path: pathlib.Path, depth: int) -> list[dict[str, Any]]:
    """Return the operations of the JSON."""
    found: list[dict[str, Any]] = json.loads(report(run, path, "-f", "json", "--depth", f"{depth}"))["phases"]
    return found


def test_tasks_are_beside_each_other(recorded: pathlib.Path) -> None:
    """Each task is an outermost operation, with its own inner one inside, and ends by itself."""
    found = Session.load(recorded).operations
    outer = [one for one in found if one.depth == 0]

    assert [one.name for one in outer] == TASKS
    assert [one.end_s for one in outer] == sorted(one.end_s for one in outer)
    assert {one.parent.name: one.name for one in found if one.parent} == {
        name: name.replace("Task", "Inside") for name in TASKS
    }


def test_peak_is_the_same_at_each_depth(in_process: Run, recorded: pathlib.Path) -> None:
    """The peak may be in each of the tasks that were open: the innermost shown operation of each has the note."""
    texts = [report(in_process, recorded, "--depth", depth) for depth in ("1", "3")]
    headlines = [next(line for line in text.splitlines() if line.startswith("Peak memory")) for text in texts]

    assert headlines[0] == headlines[1]
    for depth in (1, 3):
        found = operations(in_process, recorded, depth)
        assert [of["name"] for of in found if of["depth"] == 0 and of["has_peak"] is None] == TASKS
        assert {of["has_peak"] for of in found} == {None}
    assert [text.count("<- peak?") for text in texts] == [6, 6]
