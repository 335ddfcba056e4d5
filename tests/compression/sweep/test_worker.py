from __future__ import annotations

import ast
import json
import os
import pathlib
import subprocess
import sys

import pytest

from nncftools.compression.sweep import worker
from nncftools.limits import groups

FOLDER = pathlib.Path(worker.__file__).parent
OTHERS = {"nncf", "numpy", "openvino", "tokenizers", "transformers"}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_steps_need_nothing_of_ours(path: pathlib.Path) -> None:
    """The environment of NNCF needs no nncf-tools: steps import themselves by relative names, and libraries."""
    tree = ast.walk(ast.parse(path.read_bytes()))
    absolute = [node.module or "" for node in tree if isinstance(node, ast.ImportFrom) and not node.level]
    plain = [
        alias.name
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    roots = {name.partition(".")[0] for name in [*absolute, *plain]}

    assert roots - sys.stdlib_module_names <= OTHERS


@pytest.mark.process
def test_steps_start_without_site_packages(tmp_path: pathlib.Path) -> None:
    """The folder runs by its path; a step that is unknown is an error, not a silent end."""
    job = tmp_path / "job.json"
    starter = {"starter": os.getpid(), "started": groups.started(os.getpid()), "stop": "none"}
    job.write_text(json.dumps({"step": "none", "result": "result.json", **starter}))
    done = subprocess.run([sys.executable, "-S", FOLDER, job], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "KeyError: 'none'" in done.stderr


@pytest.mark.process
def test_library_runs_as_a_step(tmp_path: pathlib.Path) -> None:
    """A module gets its command line; it ends when the sweep says so, as any step does."""
    job = {
        "step": "module",
        "result": str(tmp_path / "result.json"),
        "module": "timeit",
        "stop": str(tmp_path / "stop"),
    }
    job |= {"starter": os.getpid(), "started": groups.started(os.getpid())}
    file = tmp_path / "job.json"
    statuses = []
    for code in ("print('ran')", "import time; time.sleep(600)"):
        file.write_text(json.dumps({**job, "words": ["-n", "1", "-r", "1", code]}))
        done = subprocess.run([sys.executable, FOLDER, file], capture_output=True, text=True, check=False)
        statuses.append((done.returncode, "ran" in done.stdout))
        (tmp_path / "stop").touch()

    assert statuses == [(0, True), (1, False)]
