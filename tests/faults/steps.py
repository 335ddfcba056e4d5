"""A test that waits until it is let go: pytest runs it as ``test_step.py``."""

import os
import pathlib
import time

_MOST_S = 400
_SAMPLES_S = 0.15


def test_step() -> None:
    """Wait for the file ``go``."""
    folder = pathlib.Path(os.environ["FAULTS_CONTROL"])
    _note(folder / "begun", os.getpid())
    deadline = time.monotonic() + _MOST_S
    while not (folder / "go").exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(_SAMPLES_S)
    _note(folder / "ended", 0)  # this process goes on


def _note(path: pathlib.Path, pid: int) -> None:
    """Write a process ID to a file that appears whole."""
    beside = path.with_suffix(".new")
    beside.write_text(str(pid))
    beside.rename(path)
