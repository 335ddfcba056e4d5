"""Whether the operations of quantization libraries are found in the real packages, and the programs stay the same.

``python -m benchmarks.quantizers FOLDER [NAME ...]`` makes a virtual environment for each library in FOLDER (1.2 GB and a
minute each), and a random model of two layers. Each library's program runs alone and under ``profile``. The operations
are printed; the exit status is 1 if an operation or a result differs. All of it takes 10 minutes without the installing.
"""

from __future__ import annotations

import argparse
import difflib
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from benchmarks.venvs import prepared, versions
from nncftools import Session

_HERE = pathlib.Path(__file__).parent
_MODELS = _HERE.parents[1] / "tests" / "real" / "models.py"
_ENVIRONMENT = {**os.environ, "CI": "true", "HF_HUB_OFFLINE": "1", "GPTQMODEL_CPU_WORKERS": "2"}
"""GPTQModel needs two workers, and takes one on a machine with two cores."""


class Library(NamedTuple):
    """A library with the packages of the environment, and the operations of the program."""

    packages: tuple[str, ...]
    """The library first."""
    operations: str
    """A line each, indented by depth; ``×2`` after lines that are repeated."""


_TRANSFORMERS = "transformers==5.24.0", "accelerate==1.15.0", "torch==2.13.0"
_LOAD = "Model Loading transformers.PreTrainedModel.from_pretrained"
LIBRARIES: dict[str, Library] = {}


def outline(session: Session) -> list[str]:
    """Return the operations, a line each, indented by depth; repeated lines are counted."""
    lines = (f"{'  ' * mark.depth}{mark.name} {mark.call}" for mark in session.marks)
    counted = []
    for line, group in groupby(lines):
        count = len(list(group))
        counted.append(f"{line} ×{count}" if count > 1 else line)
    return counted


def results(output: str) -> list[str]:
    """Return the lines of a program's results."""
    return [line for line in output.splitlines() if line.startswith("result ")]


def run(words: list[str]) -> str:
    """Run a command and return the output. Raises CalledProcessError."""
    return subprocess.run(words, env=_ENVIRONMENT, stdout=subprocess.PIPE, text=True, check=True).stdout


def judge(name: str, folder: pathlib.Path) -> Iterator[str]:
    """Run a library's program alone and under ``profile``; print the operations, and yield the differences."""
    library = LIBRARIES[name]
    python = prepared(folder / name, library.packages)
