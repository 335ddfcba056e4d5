from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from nncftools import Session
from nncftools.session.model import Mark
from tests.made_up import mib, session

pytestmark = [pytest.mark.real, pytest.mark.process]
ROOT = Path(__file__).parents[2]
_READ = """
run = mlflow.search_runs(output_format="list")[0]
assert run.data.metrics["peak_rss"] == 60 << 20, run.data.metrics
assert run.data.params["command"] == "work --fast"
assert [file.path for file in mlflow.artifacts.list_artifacts(run_id=run.info.run_id)] == ["run.png"]
"""


def test_lines_of_the_docs(real_environment: dict[str, str], tmp_path: Path) -> None:
    """The lines for MLflow in docs/compare-and-ci.md write parameters, figures and picture to a store of files."""
    made = session({"rss": mib(10, 60)}, marks=[Mark(name="Export", start_s=0.1, end_s=0.4)])
    made.save(tmp_path / "run.json")
    assert Session.load(tmp_path / "run.json").operations
    lines = re.findall(
        r"```python\n(import mlflow.*?)```", (ROOT / "docs" / "compare-and-ci.md").read_text("utf-8"), re.DOTALL
    )
    store = {"MLFLOW_TRACKING_URI": f"file:{tmp_path / 'store'}", "MLFLOW_ALLOW_FILE_STORE": "true"}
    own = os.pathsep.join((str(ROOT), sysconfig.get_path("purelib")))  # what a session needs is not there
    env = {**real_environment, **store, "PYTHONPATH": own}
    python = Path(real_environment["PATH"].split(os.pathsep)[0], "python")
    words = [str(python), "-c", lines[0] + _READ]
    result = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)

    assert result.returncode == 0, result.stderr
