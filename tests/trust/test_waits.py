"""Each wait of a command ends with a signal that asks for the end: SIGTERM, SIGINT and SIGHUP."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.cli.forecast import models
from tests.cli.sweep.inputs import write_inputs
from tests.conftest import command_line
from tests.made_up import session
from tests.surroundings import HANGING_S
from tests.waiting import until

pytestmark = pytest.mark.process

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FREE = ["fit", "--free-only", "-o", "out"]
MONITOR = ["monitor", "-o", "run.json"]
SWEEP = ["sweep", "--model", "model", "--text", "text.txt", "--calibration", "calibration.txt", "-o", "results.csv"]
FORECAST = ["forecast", "--no-output", "-o", "out"]
GRID = '[[configuration]]\nname = "wait"\nmode = "int4_sym"\n'


def exists(name: str) -> Callable[[pathlib.Path, int], object]:
    """Return whether a program has come as far as a file."""
    return lambda folder, _: (folder / name).exists()


def catches(_folder: pathlib.Path, pid: int) -> bool:
    """Return whether a program no longer ends by a signal itself."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))
    return bool(caught >> (signal.SIGHUP - 1) & 1)


def reads_fifo(folder: pathlib.Path, pid: int) -> bool:
    """Return whether a program has opened the FIFO, and stays in one system call."""
    process = pathlib.Path(f"/proc/{pid}")
    with contextlib.suppress(OSError):
        before = (process / "syscall").read_text()
        time.sleep(0.05)
        is_still = (process / "syscall").read_text() == before != "running\n"
        return is_still and any(file.samefile(folder / "fifo") for file in (process / "fd").iterdir())
    return False


class Wait(NamedTuple):
    """A command, when it waits, and which of its streams nobody reads."""

    words: list[str]
    waits: Callable[[pathlib.Path, int], object]
    unread: str = ""
    is_killed: bool = False
    """Whether nothing is left to do, so that the signal itself may end it."""
    status: int | None = None
    """The exit status of the user's command, if it has ended: then it may be ours, too."""


TENSORS = [(f"layers.{number}.w", "F32", [1], 4) for number in range(8)]
LOOKS = f"echo '{json.dumps({'tensors': TENSORS, 'layer_types': None})}'"
BEGUN = ["sh", "-c", "touch here; exec sleep 1000"]
HERE = "touch here; trap '' TERM INT HUP; while :; do sleep 0.1; done"
WAITS = {
    "fit, prepare": Wait([*FREE, "--prepare", HERE, "--", "true"], exists("here")),
    "fit, cleanup": Wait([*FREE, "--cleanup", HERE, "--", "sleep", "0.3"], exists("here")),
    "fit, run": Wait([*FREE, "--", *BEGUN], exists("here")),
    "fit, success": Wait([*FREE, "--success", HERE, "--", "sleep", "0.3"], exists("here")),
    "fit, messages": Wait([*FREE, "--", "sleep", "0.3"], catches, "stderr", is_killed=True),
    "fit, result": Wait([*FREE, "--", "sleep", "0.3"], exists("out/fit.md"), "stdout", is_killed=True),
    "sweep, grid": Wait([*SWEEP, "--grid", "fifo"], reads_fifo, is_killed=True),
    "sweep, step": Wait([*SWEEP, "--grid", "grid.toml"], exists("waited")),
    "sweep, messages": Wait([*SWEEP, "--grid", "grid.toml", "--only", "fp32"], catches, "stderr", is_killed=True),
    "monitor, command": Wait([*MONITOR, "--", *BEGUN], exists("here"), "stderr"),
    "monitor, report": Wait([*MONITOR, "--", "sh", "-c", "exit 7"], exists("run.json"), "stderr", status=7),
    "monitor, first run": Wait([*MONITOR, "--repeat", "3", "--", *BEGUN], exists("here"), "stderr"),
    "monitor, next run": Wait(
        [*MONITOR, "--repeat", "3", "--", "sleep", "0.1"], exists("run-1.json"), "stderr", status=0
    ),
    "monitor, prepare": Wait([*MONITOR, "--prepare", HERE, "--", "true"], exists("here"), "stderr"),
    "monitor, cleanup": Wait([*MONITOR, "--repeat", "3", "--cleanup", HERE, "--", "true"], exists("here")),
    "forecast, make": Wait([*FORECAST, "--from-config", "--", "bin/python3", "model"], exists("made")),
    "forecast, run": Wait([*FORECAST, "--", "sh", "-c", "touch here; exec sleep 1000", "sh", "slices"], exists("here")),
    "report, FIFO": Wait(["report", "fifo"], reads_fifo, is_killed=True),
    "report, standard input": Wait(["report", "-"], catches, is_killed=True),
    "report, marks": Wait(["report", "saved.json", "--marks", "fifo"], reads_fifo, is_killed=True),
    "report, output": Wait(["report", "saved.json", "--format", "session"], catches, "stdout", is_killed=True),
    "compare, FIFO": Wait(["compare", "saved.json", "fifo"], reads_fifo, is_killed=True),
    "viz-compression, FIFO": Wait(["viz-compression", "-i", "fifo"], reads_fifo, is_killed=True),
    "replay, time": Wait(["replay", "saved.json", "--speed", "0.01"], catches, is_killed=True),
    "sweep, plan": Wait([*SWEEP, "--grid", "grid.toml", "--dry-run"], catches, "stdout", is_killed=True),
}


@contextlib.contextmanager
def full_pipe() -> Iterator[int]:
    """Yield the end of a pipe that takes no further byte, and that nobody reads."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"-")
    os.set_blocking(writer, True)
    try:
        yield writer
    finally:
        os.close(reader)
        os.close(writer)


def prepared(folder: pathlib.Path) -> dict[str, str]:
    """Make what the commands need in a folder; return their environment."""
    write_inputs(folder)
    (folder / "grid.toml").write_text(GRID)
    session().save(folder / "saved.json")
    os.mkfifo(folder / "fifo")
    models.write(folder / "slices", 8)
    (folder / "bin").mkdir()
    (folder / "bin/python3").write_text(f"#!/bin/sh\n[ $3 = make ] && touch {folder}/made && exec sleep 1000\n{LOOKS}")
    (folder / "bin/python3").chmod(0o755)
    return {**os.environ, "SWEEP_WAITED": str(folder / "waited")}


QUICK = {"report, FIFO", "report, output", "fit, run", "fit, messages", "monitor, command", "monitor, next run"}
"""One for each kind of wait: for input, for a reader, and for a command."""


@pytest.mark.parametrize(
    "wait",
    [pytest.param(of, id=name, marks=[] if name in QUICK else pytest.mark.long) for name, of in WAITS.items()],
)
def test_ends(wait: Wait, tmp_path: pathlib.Path) -> None:
    """Each of three commands at this wait gets another signal, once, and ends with its status."""
    with contextlib.ExitStack() as stack:
        commands: list[tuple[int, pathlib.Path, subprocess.Popen[bytes]]] = []
        for number in SIGNALS:
            folder = tmp_path / signal.Signals(number).name
            environment = prepared(folder)
            silent = os.open(folder / "fifo", os.O_RDWR)  # a writer that writes nothing
            stack.callback(os.close, silent)
            streams: dict[str, int] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            if wait.unread:
                streams[wait.unread] = stack.enter_context(full_pipe())
            more = ["--python", str(folder / "python")] if wait.words[0] == "sweep" else []
            words = command_line(wait.words[0], *more, *wait.words[1:])
            process = subprocess.Popen(
                words, cwd=folder, env=environment, start_new_session=True, stdin=silent, **streams
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            commands.append((number, folder, process))
        for number, folder, process in commands:
            until(lambda folder=folder, process=process: wait.waits(folder, process.pid) or process.poll() is not None)
            assert process.poll() is None
            process.send_signal(number)
        statuses = [process.wait(HANGING_S) for _, _, process in commands]

    expected = [{128 + number, wait.status, -number if wait.is_killed else None} for number in SIGNALS]
    assert all(status in allowed for status, allowed in zip(statuses, expected, strict=True)), statuses
