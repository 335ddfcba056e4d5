"""Record a workload that knows the truth."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec

import benchmarks
from benchmarks.truth.rows import key
from benchmarks.truth.truth import Truth
from nncftools import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.truth.rows import Row

ROOT = pathlib.Path(benchmarks.__file__).parents[1]
"""The folder in which programs run."""
_BOUND_S = 60
"""All workloads end within a few seconds."""


class RunError(Exception):
    """A workload or its recording failed."""


def record(row: Row, folder: pathlib.Path, number: int) -> tuple[Truth, Session]:
    """Record a row's workload for the ``number``-th time; keep truth and session in ``folder``.

    Raises RunError, NncfToolsError.
    """
    truth, session = (folder / f"{key(row)}-{number}.{ending}" for ending in ("truth.json", "json"))
    truth.unlink(missing_ok=True)
    workload = (sys.executable, "-m", "benchmarks.workloads.known", row.workload, str(truth))
    recorder = (sys.executable, "-m", "nncftools", row.command, *_options(row), "--force", "-o", str(session))
    if row.is_attached:
        with subprocess.Popen(workload, cwd=ROOT, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            _run([*recorder, "--pid", str(process.pid)])
    else:
        _run([*recorder, "--", *workload])
    return msgspec.json.decode(truth.read_bytes(), type=Truth), Session.load(session)


def _options(row: Row) -> tuple[str, ...]:
    return "-q", "--no-plot", "-i", str(row.interval_ms / 1000), *row.options


def _run(words: Sequence[str]) -> None:
    try:
        ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=_BOUND_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise RunError(f"did not end within {_BOUND_S} s") from error
    if ended.returncode:
        raise RunError(f"exit status {ended.returncode}: {ended.stderr.strip()}")
