from __future__ import annotations

import ast
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest

from nncftools.cli.sweep import worker
from tests.surroundings import HANGING_S

FOLDER = Path(worker.__file__).parent
OTHERS = {"nncf", "numpy", "openvino", "tokenizers", "transformers"}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_steps_need_nothing_of_ours(path: Path) -> None:
    """The environment of NNCF needs no nncf-tools: steps import themselves by relative names, and libraries."""
    nodes = list(ast.walk(ast.parse(path.read_bytes())))
    names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    for node in nodes:
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    roots = {name.partition(".")[0] for name in names}

    assert roots - sys.stdlib_module_names <= OTHERS


class Inherited(NamedTuple):
    """What a step inherits: a file with its job, to which it appends its result, and an end of a pipe."""

    file: IO[bytes]
    sweep: int
    ours: int

    def start(self, job: dict[str, Any], *options: str) -> subprocess.Popen[str]:
        """Start a step with a job."""
        self.file.write(json.dumps(job).encode())
        self.file.seek(0)
        descriptors = [self.file.fileno(), self.sweep]
        words = [sys.executable, *options, str(FOLDER), *map(str, descriptors)]
        pipe = subprocess.PIPE
        return subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, pass_fds=descriptors)


@pytest.fixture
def inherited() -> Iterator[Inherited]:
    """Make what a step inherits."""
    with tempfile.TemporaryFile() as file:
        ends = os.pipe()
        yield Inherited(file, *ends)
        for end in ends:
            with contextlib.suppress(OSError):
                os.close(end)


@pytest.mark.process
def test_steps_start_without_site_packages(inherited: Inherited) -> None:
    """The folder runs by its path; a module that is unknown is an error, not a silent end."""
    process = inherited.start({"step": "module", "module": "none", "folder": ".", "words": []}, "-S")
    _, error = process.communicate(timeout=HANGING_S)

    assert process.returncode == 1
    assert "No module named none" in error


def timed(code: str, folder: Path) -> dict[str, Any]:
    """Return the job of a module that runs some code."""
    return {"step": "module", "module": "timeit", "folder": str(folder), "words": ["-n", "1", "-r", "1", code]}


@pytest.mark.process
def test_library_runs_as_a_step(tmp_path: Path, inherited: Inherited) -> None:
    """A module gets its command line and the folder to work in; the result follows the job."""
    job = timed("import os; print(os.getcwd())", tmp_path)
    printed, _ = inherited.start(job).communicate(timeout=HANGING_S)
    inherited.file.seek(0)

    assert printed.splitlines()[0] == str(tmp_path.resolve())
    assert inherited.file.read() == json.dumps(job).encode() + b"\n{}"


@pytest.mark.process
def test_step_ends_with_its_sweep(tmp_path: Path, inherited: Inherited) -> None:
    """A step ends when nobody has the other end of the pipe any more, whatever it does."""
    process = inherited.start(timed("print('began', flush=True)\nimport time\ntime.sleep(600)", tmp_path))
    assert process.stdout is not None
    assert process.stdout.readline() == "began\n"
    os.close(inherited.ours)
    process.communicate(timeout=HANGING_S)

    assert process.returncode == 1
