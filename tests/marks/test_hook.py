"""The file that any Python may meet: it parses with Python 2.7, and steps aside for all before 3.10."""

from __future__ import annotations

import ast
import os
import pathlib
import subprocess
import sys

import pytest

from nncftools.marks import calls
from tests.conftest import HANGING_S
from tests.pythons import python

HOOK = calls.HOOK / "sitecustomize.py"
NEWER = (
    *(ast.AnnAssign, ast.JoinedStr, ast.Nonlocal, ast.NamedExpr, ast.Match, ast.YieldFrom, ast.MatMult, ast.Starred),
    *(ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await),
)
"""Syntax that Python 2.7 does not have; a starred argument it has, but only last."""


def test_the_hook_has_no_newer_syntax() -> None:
    """Without a Python 2.7, its grammar is checked: no annotations, no f-strings, nothing that came later."""
    tree = ast.parse(HOOK.read_bytes(), feature_version=(3, 7))
    newer = [node for node in ast.walk(tree) if isinstance(node, NEWER)]
    arguments = [node.args for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    annotated = [one for of in arguments for one in of.args if one.annotation is not None]
    future = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    returns = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.returns is not None]

    assert [type(node) for node in newer] in ([], [ast.Starred])
    assert [*annotated, *future, *returns] == []
    assert not any(of.kwonlyargs or of.posonlyargs for of in arguments)
    assert HOOK.read_bytes().isascii()


@pytest.mark.process
@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7", "3.8", "3.9", "3.10", f"3.{sys.version_info[1]}"])
@pytest.mark.parametrize("own", [True, False])
def test_old_pythons_run_as_without_us(tmp_path: pathlib.Path, version: str, own: bool) -> None:  # noqa: FBT001 — a parameter
    """The program's own sitecustomize runs, nothing is written but the marks, and no trace is left on the path."""
    if own:
        (tmp_path / "sitecustomize.py").write_text("import sys\nsys.stdout.write('own ')\n", encoding="utf-8")
    log = tmp_path / "log"
    log.touch()
    path = os.pathsep.join([str(calls.HOOK), *([str(tmp_path)] if own else [])])
    environment = {**os.environ, "PYTHONPATH": path, "NNCF_TOOLS_MARKS": str(log), "PYTHONDONTWRITEBYTECODE": "1"}
    program = (
        "import sys; sys.stdout.write('%s %s' % ('sitecustomize' in sys.modules, [p for p in sys.path if 'hook' in p]))"
    )
    words = [python(version), "-c", program]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=HANGING_S, check=True)

    assert done.stdout == f"{'own ' if own else ''}{own} []"
    assert done.stderr == ""
    assert ('"python":' in log.read_text(encoding="utf-8")) == (tuple(map(int, version.split("."))) >= (3, 10))
