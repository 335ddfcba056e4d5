"""A test that waits until it is let go: pytest runs it as ``test_step.py``."""

import os
import time
from pathlib import Path

_MOST_S = 400
_SAMPLES_S = 0.15


def test_step() -> None:
    """Wait for the file ``go``."""
    folder = Path(os.environ["FAULTS_CONTROL"])
    (folder / "new").write_text(str(os.getpid()))
    (folder / "new").rename(folder / "begun")  # it appears whole
    deadline = time.monotonic() + _MOST_S
    while not (folder / "go").exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(_SAMPLES_S)
    (folder / "new").write_text("0")  # this process goes on
    (folder / "new").rename(folder / "ended")
