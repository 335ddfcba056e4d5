from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.made_up import mib, session

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[1]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))


def run_step(number: int, folder: Path, program: str, script: str, **inputs: str) -> int:
    """Run a step of the action, in which a program is this script; return the exit status."""
    (folder / program).write_text(f"#!/bin/sh\n{script}\n")
    (folder / program).chmod(0o755)
    files = {"GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "GITHUB_OUTPUT": str(folder / "output")}
    ours = {"RUNNER_TEMP": str(folder), "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    words = ["bash", "-e", "-o", "pipefail", "-c", ACTION["runs"]["steps"][number]["run"]]
    return subprocess.run(words, cwd=folder, env={**os.environ, **files, **ours, **inputs}, check=False).returncode


@pytest.mark.process
@pytest.mark.parametrize("gates, status", [("", "0"), ("peak_rss>+5%\n\nduration>3600s\n", "3")])
def test_comparison(tmp_path: Path, gates: str, status: str) -> None:
    """The first step writes the table into the summary and passes on the status of the gates."""
    session({"rss": mib(10, 60)}).save(tmp_path / "base.json")
    session({"rss": mib(10, 90)}).save(tmp_path / "new.json")
    ours = f'exec "{sys.executable}" -m nncftools "$@"'

    assert run_step(0, tmp_path, "nncf-tools", ours, BASE="base.json", NEW="new.json", GATES=gates) == 0
    assert (tmp_path / "output").read_text() == f"status={status}\n"
    assert "Peak memory rose by 30.0 MiB" in (tmp_path / "summary.md").read_text("utf-8")


@pytest.mark.process
def test_earlier_table(tmp_path: Path) -> None:
    """A comparison that fails shows no table of an earlier step with this action."""
    (tmp_path / "nncf-tools.md").write_text("of another comparison")

    assert run_step(0, tmp_path, "nncf-tools", "exit 2", BASE="base.json", NEW="new.json", GATES="") == 2
    assert {path.name for path in tmp_path.iterdir()} <= {"nncf-tools", "output"}


COMMENT = """
for word; do [ "$before" = --jq ] && asked=$word; before=$word; done
[ "$asked" ] && exec jq -r "$asked" comments.json
echo "$@" > called
"""
"""Stand in for GitHub's program: it answers with the comments in a file."""


@pytest.mark.process
@pytest.mark.skipif(shutil.which("jq") is None, reason="GitHub's program has jq inside")
@pytest.mark.parametrize(
    "kind, association, is_updated",
    [("Bot", "NONE", True), ("User", "MEMBER", True), ("User", "NONE", False), ("User", "CONTRIBUTOR", False)],
)
def test_comment_of_another_user(tmp_path: Path, kind: str, association: str, *, is_updated: bool) -> None:
    """The table does not go into a comment that somebody else has begun with our mark, and may edit."""
    comment = {"id": 7, "body": "<!-- nncf-tools -->", "user": {"type": kind}, "author_association": association}
    (tmp_path / "comments.json").write_text(json.dumps([comment]))
    (tmp_path / "nncf-tools.md").write_text("table")
    run_step(1, tmp_path, "gh", COMMENT, COMMENTS="all", COMMENT="one")

    assert ("PATCH one/7" in (tmp_path / "called").read_text()) == is_updated


def test_inputs_of_the_docs() -> None:
    """docs/compare-and-ci.md describes each input, and its workflow uses no other."""
    page = (ROOT / "docs" / "compare-and-ci.md").read_text("utf-8")
    workflow = yaml.safe_load(re.findall(r"```yaml\n(on: pull_request.*?)```", page, re.DOTALL)[0])
    used = workflow["jobs"]["memory"]["steps"][-1]["with"]

    assert all(f"`{name}`" in page for name in ACTION["inputs"])
    assert set(used) <= set(ACTION["inputs"])


@pytest.mark.real
def test_schema() -> None:
    """The action is what GitHub's published schema allows."""
    program = Path(sys.executable).with_name("check-jsonschema")
    words = [program, "--builtin-schema", "vendor.github-actions", str(ROOT / "action.yml")]

    assert subprocess.run(words, check=False, timeout=60).returncode == 0
