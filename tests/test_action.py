from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.made_up import mib, session

yaml = pytest.importorskip("yaml")
ROOT = pathlib.Path(__file__).parents[1]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))


@pytest.mark.process
@pytest.mark.parametrize(("gates", "status"), [("", "0"), ("peak_rss>+5%\n\nduration>3600s\n", "3")])
def test_comparison(tmp_path: pathlib.Path, gates: str, status: str) -> None:
    """The first step writes the table into the summary and passes on the status of the gates."""
    session({"rss": mib(10, 60)}).save(tmp_path / "base.json")
    session({"rss": mib(10, 90)}).save(tmp_path / "new.json")
    (tmp_path / "nncf-tools").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nncftools "$@"\n')
    (tmp_path / "nncf-tools").chmod(0o755)
    files = {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "GITHUB_OUTPUT": str(tmp_path / "output")}
    inputs = {"BASE": "base.json", "NEW": "new.json", "GATES": gates, "RUNNER_TEMP": str(tmp_path)}
    env = {**os.environ, **files, **inputs, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    script = ["bash", "-e", "-o", "pipefail", "-c", ACTION["runs"]["steps"][0]["run"]]
    subprocess.run(script, cwd=tmp_path, env=env, check=True, timeout=60)

    assert (tmp_path / "output").read_text() == f"status={status}\n"
    assert "Peak RSS 50.0 % higher" in (tmp_path / "summary.md").read_text("utf-8")


def test_inputs_of_the_docs() -> None:
    """docs/ci.md describes each input, and its workflow uses no other."""
    page = (ROOT / "docs" / "ci.md").read_text("utf-8")
    workflow = yaml.safe_load(re.findall(r"```yaml\n(on: pull_request.*?)```", page, re.DOTALL)[0])
    used = workflow["jobs"]["memory"]["steps"][-1]["with"]

    assert all(f"`{name}`" in page for name in ACTION["inputs"])
    assert set(used) <= set(ACTION["inputs"])


@pytest.mark.real
def test_schema() -> None:
    """The action is what GitHub's published schema allows."""
    program = pathlib.Path(sys.executable).with_name("check-jsonschema")
    words = [program, "--builtin-schema", "vendor.github-actions", str(ROOT / "action.yml")]

    assert subprocess.run(words, check=False, timeout=60).returncode == 0
