"""Run the command line in this process, for tests of what comes after the start."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from nncftools.cli import app
from tests.conftest import Run


@pytest.fixture
def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run nncf-tools as ``nncf_tools`` does, in this process: not to record, which changes its signals."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # commands set it; this restores it after the test

    def run(line: object = "", *words: object) -> subprocess.CompletedProcess[str]:
        arguments = [app.PROGRAM, *shlex.split(str(line)), *map(str, words)]
        monkeypatch.setattr(sys, "argv", arguments)
        capsys.readouterr()
        status = app.run()
        return subprocess.CompletedProcess(arguments, status, *capsys.readouterr())

    return run
