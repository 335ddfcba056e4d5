from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nncftools.cli import recording, series
from nncftools.cli.series import Runner
from nncftools.sampler.client import Starter
from tests import waiting
from tests.cli.forecast import models
from tests.cli.test_planning import until_ended
from tests.conftest import command_line
from tests.surroundings import HANGING_S


@pytest.fixture(autouse=True)
def own_input() -> Iterator[None]:
    """Keep this process's standard input."""
    kept = os.dup(0)
    yield
    os.dup2(kept, 0)
    os.close(kept)


def test_file(tmp_path: Path) -> None:
    """Every run reads a file from where it was before the first one."""
    (tmp_path / "text").write_bytes(b"first, second")
    descriptor = os.open(tmp_path / "text", os.O_RDONLY)
    os.dup2(descriptor, 0)
    os.read(0, 7)
    start = series.find_input()
    read = []
    for _ in range(2):
        series.rewind_input(start)
        read.append(os.read(0, 100))

    assert read == [b"second", b"second"]
    os.close(descriptor)


@pytest.mark.parametrize("is_open", [True, False])
def test_pipe(*, is_open: bool) -> None:
    """What can be read once only is read by no run; no input is an empty one."""
    out, into = os.pipe()
    os.write(into, b"once")
    if is_open:
        os.dup2(out, 0)
    else:
        os.close(0)
    Runner(Starter())

    assert os.read(0, 100) == b""
    assert os.get_inheritable(0)
    os.close(into)
    os.close(out)


@pytest.mark.parametrize(
    "status, text, why",
    [
        (1, "RuntimeError: no TorchScript\nException:\ntuple index out of range\n", ": RuntimeError: no TorchScript"),
        (130, "Traceback (most recent call last):\nKeyboardInterrupt\n", ": KeyboardInterrupt"),
        (3, "oh\n", ""),
    ],
)
def test_why(tmp_path: Path, status: int, text: str, why: str) -> None:
    """A run failed for the last error in its log that says more than its name; an interrupt is one without a text."""
    log = tmp_path / "log"
    log.write_text(text)
    with log.open() as file:
        found = series.explain_failure(recording.Recorded(status, None), file.fileno())

    assert found == f"exit status {status}{why}"


@pytest.mark.process
def test_command_that_ignores_signals(tmp_path: Path) -> None:
    """A signal ends a command that ignores it, with its descendants, also after the sampler was killed."""
    models.write(tmp_path / "model", 8)
    ignores = "trap '' INT TERM; kill -9 $PPID; sleep 1000 & echo $! >pid; wait; sleep 1000; :"
    words = command_line("forecast --no-output -o out -- sh -c", ignores, "model")
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        waiting.until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"))
        process.terminate()
        _, said = process.communicate(timeout=HANGING_S)

    assert process.returncode == 128 + signal.SIGTERM
    assert b"interrupted; the runs that ended are kept; continue with: --resume --output " in said
    until_ended(tmp_path / "pid")
