"""Whatever a command waits for, a signal that asks for the end ends it."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from tests import waiting
from tests.conftest import HANGING_S, command_line
from tests.made_up import session

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="/proc says what a process waits for"),
]
JOURNAL = pathlib.Path(__file__).parents[1] / "data" / "journals" / "children.journal.jsonl.gz"
SIGNALS = [signal.SIGTERM, *(pytest.param(number, marks=pytest.mark.long) for number in (signal.SIGINT, signal.SIGHUP))]
STILL_S = 0.5
QUIET = ("-q", "--no-plot", "--no-stacks", "-o", "o.json")
WAITS = {
    "report of a FIFO": ("report", "fifo"),
    "report of standard input": ("report", "-"),
    "report with marks of a FIFO": ("report", "run.json", "--marks", "fifo"),
    "report into a full pipe": ("report", "run.json", "--format", "session"),
    "compare with a FIFO": ("compare", "run.json", "fifo"),
    "viz-compression of a FIFO": ("viz-compression", "-i", "fifo"),
    "watch of a recording": ("watch", "run.journal.jsonl"),
    "replay without a terminal": ("replay", "run.json", "--speed", "0.01"),
    "monitor of a FIFO": ("monitor", "./fifo.py"),
    "profile with output that is held open": ("profile", *QUIET, "--mark-on", "x", "sh", "-c", "sleep 60 &"),
}

QUICK = {"report of a FIFO", "watch of a recording", "monitor into a full pipe"}
"""One for each kind of wait: for input, for an end, and for a reader."""


@contextlib.contextmanager
def full_pipe() -> Iterator[int]:
    """Yield the end of a pipe that nobody reads, and that has no room."""
    outer, inner = os.pipe()
    try:
        os.set_blocking(inner, False)
        with contextlib.suppress(BlockingIOError):
            while os.write(inner, bytes(4096)):
                pass
        os.set_blocking(inner, True)
        yield inner
    finally:
        os.close(outer)
        os.close(inner)


def call(pid: int) -> str:
    """Return the system call that a process is in, with its arguments, or ``running``."""
    return pathlib.Path(f"/proc/{pid}/syscall").read_text()


def waits(process: subprocess.Popen[bytes], name: str) -> bool:
    """Return whether a process is where it waits, and stays in one system call for a while."""
    assert process.poll() is None, "it did not wait"
    before = call(process.pid)
    if "full pipe" in name and before.split()[1:2] != ["0x1"]:
        return False
    if "held open" in name and [child.name() for child in psutil.Process(process.pid).children()] != ["sleep"]:
        return False
    until_s = time.monotonic() + STILL_S
    while not before.startswith("running") and call(process.pid) == before:
        if time.monotonic() > until_s:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in WAITS]
)
def test_signal_ends_it(tmp_path: pathlib.Path, name: str, number: int) -> None:
    """A command that waits for input, a reader or an end is ended by SIGTERM, SIGINT and SIGHUP."""
    session().save(tmp_path / "run.json")
    (tmp_path / "run.journal.jsonl").write_bytes(gzip.decompress(JOURNAL.read_bytes()))
    os.mkfifo(tmp_path / "fifo")
    os.mkfifo(tmp_path / "fifo.py", 0o700)
    with contextlib.ExitStack() as stack:
        journal = stack.enter_context((tmp_path / "run.journal.jsonl").open("rb"))
        fcntl.flock(journal, fcntl.LOCK_EX)
        silent = os.open(tmp_path / "fifo", os.O_RDWR)  # a writer that writes nothing
        stack.callback(os.close, silent)
        full = stack.enter_context(full_pipe())
        process = subprocess.Popen(
            command_line(*WAITS[name]),
            cwd=tmp_path,
            stdin=silent,
            stdout=full if name == "report into a full pipe" else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(process.kill)
        waiting.until(lambda: waits(process, name), name)
        process.send_signal(number)
        status = process.wait(HANGING_S)

    assert status in {-number, 128 + number, 0}
