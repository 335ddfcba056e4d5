"""The file that any Python may meet: it parses with Python 2.7, and steps aside for all before 3.10."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from pathlib import Path
from typing import Any

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
    nodes = [*ast.walk(ast.parse(HOOK.read_bytes(), feature_version=(3, 7)))]
    annotations = [getattr(node, name, None) for node in nodes for name in ("annotation", "returns", "kwonlyargs")]

    assert not any(annotations)
    assert [type(node) for node in nodes if isinstance(node, NEWER)] in ([], [ast.Starred])
    assert HOOK.read_bytes().isascii()


@pytest.mark.process
@pytest.mark.parametrize("version", ["2.7", "3.7", "3.9", "3.10"])
@pytest.mark.parametrize("own", [True, pytest.param(False, marks=pytest.mark.long)])
def test_old_pythons_run_as_without_us(tmp_path: Path, version: str, own: bool) -> None:  # noqa: FBT001 — a parameter
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
    done, without_us = (
        subprocess.run(words, env=variables, capture_output=True, text=True, timeout=HANGING_S, check=True)
        for variables in (environment, {**environment, "PYTHONPATH": ""})
    )

    # Debian's Python has a sitecustomize of its own.
    assert done.stdout == ("own True []" if own else without_us.stdout)
    assert done.stderr == ""
    assert ('"python":' in log.read_text(encoding="utf-8")) == (tuple(map(int, version.split("."))) >= (3, 10))


SCRIPT = """import multiprocessing, sys
def work(number):
    return number
def main():
    work(0)
    if sys.argv[1:] == ["interpreter"]:
        from concurrent.futures import InterpreterPoolExecutor
        with InterpreterPoolExecutor(1) as pool:
            list(pool.map(work, range(2)))
    elif len(sys.argv) > 1:
        with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
            pool.map(work, range(2))
    print("done")
if __name__ == "__main__":
    main()
"""
PYTHONS = ["3.14", pytest.param("3.15", marks=pytest.mark.long)]


def events(folder: Path, version: str, *words: str) -> list[dict[str, Any]]:
    """Run the script, whose function is to be marked, with options of this Python; return the lines of its log."""
    log = folder / "log"
    log.touch()
    (folder / "script.py").write_text(SCRIPT, encoding="utf-8")
    of_python, _, of_script = " ".join(words).partition("|")
    command = [python(version), *of_python.split(), "script.py", *of_script.split()]
    environment = {**os.environ, **calls.environment(log, [calls.Call("__main__", "work", "Work")])}
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=HANGING_S, check=True
    )

    assert done.stdout == "done\n"
    assert "Traceback" not in done.stderr
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


@pytest.mark.process
@pytest.mark.parametrize("version", PYTHONS)
@pytest.mark.parametrize(
    "options, is_marked",
    [
        ("-P", True),
        ("-W error", True),
        ("-I", False),
        ("-E", False),
        ("-S", False),
        ("-X lazy_imports=all", True),
        *(
            pytest.param(f"-X {option}", True, marks=pytest.mark.long)
            for option in ("dev", "frozen_modules=off", "importtime=2", "no_debug_ranges", "disable-remote-debug")
        ),
    ],
)
def test_options(tmp_path: Path, version: str, options: str, is_marked: bool) -> None:  # noqa: FBT001 — the same
    """The hook works with each option of newer Pythons, but for those that switch off all variables."""
    found = events(tmp_path, version, options)

    assert [line["event"] for line in found if "event" in line] == ["begin", "end"] * is_marked
    assert not any("warning" in line for line in found)


@pytest.mark.process
@pytest.mark.parametrize(
    "method, version",
    [
        ("forkserver", "3.12"),
        *(pytest.param(method, "3.14", marks=pytest.mark.long) for method in ("forkserver", "spawn", "interpreter")),
    ],
)
def test_function_of_the_script_in_workers(tmp_path: Path, version: str, method: str) -> None:
    """A function of the script is marked in workers and other interpreters, where the script has another name."""
    begun = [
        (line["pid"], line["tid"]) for line in events(tmp_path, version, "|", method) if line.get("event") == "begin"
    ]

    assert len(begun) == 3
    assert begun[0] not in begun[1:]
    assert (begun[0][0] == begun[1][0]) == (method == "interpreter")
