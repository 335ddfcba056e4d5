"""A program in C whose memory looks like that of a Python 3.13, and is far larger than that of any."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nncftools import Session
from tests.conftest import BURNERS, HANGING_S, command_line
from tests.waiting import until

if TYPE_CHECKING:
    from typing import Any

pytestmark = [pytest.mark.process, pytest.mark.long]
MIB = 1 << 20


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program, whose file is called like a Python."""
    path = tmp_path_factory.mktemp("built") / "python3.13"
    words = ["gcc", "-O1", "-Wall", "-Werror", "-rdynamic", "-o", path, BURNERS / "interpreter.c"]
    subprocess.run(words, check=True)
    return path


def helper_of(log: Path) -> int:
    """Wait for the first line of a helper's log, and return the PID in it."""
    line = until(lambda: log.exists() and log.read_bytes().partition(b"\n")[0], "the helper")
    first: dict[str, Any] = json.loads(line or b"")
    pid: int = first["helper"]["pid"]
    return pid


def largest_rss(process: subprocess.Popen[bytes], helper: int) -> int:
    """Wait for the end of a process, and return the high-water mark of its helper in bytes (VmHWM, proc(5))."""
    largest = 0
    status = Path(f"/proc/{helper}/status")
    deadline = time.monotonic() + HANGING_S
    while process.poll() is None and time.monotonic() < deadline:
        # The helper ends before the process does: then it has no file any more.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            _, _, mark = status.read_bytes().partition(b"VmHWM:")
            largest = max(largest, int(mark.split()[0]) * 1024 if mark else 0)
        time.sleep(0.005)
    return largest


@pytest.mark.parametrize(
    "kind, functions",
    [
        ("tables", 60),
        ("short_tables", 60),
        ("frames", 1),
        ("dictionaries", 1),
        ("codes", 0),
        ("frame_circle", 0),
        ("thread_circle", 0),
        ("interpreter_circle", 0),
    ],
)
def test_cost(tmp_path: Path, python: Path, kind: str, functions: int) -> None:
    """The helper stays small and within its time, stacks that can be read are there, and the session is soon saved."""
    words = command_line("profile", "-q", "-o", "run.json", "--", python, kind, 1_000)
    with subprocess.Popen(words, cwd=tmp_path) as process:
        begun_s = time.monotonic()
        largest = largest_rss(process, helper_of(tmp_path / "run.snapshots.jsonl"))
        lasted_s = time.monotonic() - begun_s
    session = Session.load(tmp_path / "run.json")
    assert session.snapshots is not None
    names = {frame.function for frame in session.snapshots.frames} - {"…"}

    assert 0 < largest <= 40 * MIB
    assert 0 < (session.snapshots.cpu_s or 0) <= 0.6
    assert lasted_s - session.duration_s < 5
    assert len(names) == functions
