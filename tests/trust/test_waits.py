"""Each wait of a command ends with a signal that asks for the end: SIGTERM, SIGINT and SIGHUP."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.forecast import models
from tests.cli.sweep.inputs import write_inputs
from tests.conftest import command_line
from tests.made_up import rows, session
from tests.surroundings import HANGING_S
from tests.waiting import until

pytestmark = pytest.mark.process

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
GRID = '[[configuration]]\nname = "wait"\nmode = "int4_sym"\n'


def catches(pid: int) -> bool:
    """Return whether a program no longer ends by a signal itself."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))
    return bool(caught >> (signal.SIGHUP - 1) & 1)


def reads_fifo(folder: Path, pid: int) -> bool:
    """Return whether a program has opened the FIFO, and stays in one system call."""
    process = Path(f"/proc/{pid}")
    with contextlib.suppress(OSError):
        before = (process / "syscall").read_text()
        time.sleep(0.05)
        is_still = (process / "syscall").read_text() == before != "running\n"
        return is_still and any(file.samefile(folder / "fifo") for file in (process / "fd").iterdir())
    return False


TENSORS = [(f"layers.{number}.w", "F32", [1], 4) for number in range(8)]
LOOKS = f"echo '{json.dumps({'tensors': TENSORS, 'layer_types': None})}'"
WAITS = """
{fit} -- sh -c {begun} | here |  |
{fit} -- sleep 0.3 | caught | stderr | killed
{monitor} -- sh -c {begun} | here | stderr |
{monitor} --repeat 3 -- sleep 0.1 | run-1.json | stderr |
report fifo | fifo |  | killed
report saved.json --format session | caught | stdout | killed
long
{fit} --prepare {hang} -- true | here |  |
{fit} --cleanup {hang} -- sleep 0.3 | here |  |
{fit} --success {hang} -- sleep 0.3 | here |  |
{fit} -- sleep 0.3 | out/fit.md | stdout | killed
{sweep} --grid fifo | fifo |  | killed
{sweep} --grid grid.toml | waited |  |
{sweep} --grid grid.toml --only fp32 | caught | stderr | killed
{sweep} --grid grid.toml --dry-run | caught | stdout | killed
{monitor} -- sh -c 'exit 7' | run.json | stderr | 7
{monitor} --repeat 3 -- sh -c {begun} | here | stderr |
{monitor} --prepare {hang} -- true | here | stderr |
{monitor} --repeat 3 --cleanup {hang} -- true | here |  |
{forecast} --from-config -- bin/python3 model | made |  |
{forecast} -- sh -c {begun} sh slices | here |  |
report - | caught |  | killed
report saved.json --marks fifo | fifo |  | killed
compare saved.json fifo | fifo |  | killed
viz-compression -i fifo | fifo |  | killed
replay saved.json --speed 0.01 | caught |  | killed
""".format(
    fit="fit --free-only -o out",
    monitor="monitor -o run.json",
    sweep="sweep --python ./python --model model --text text.txt --calibration calibration.txt -o results.csv",
    forecast="forecast --no-output -o out",
    begun="'touch here; exec sleep 1000'",
    hang=shlex.quote("touch here; trap '' TERM INT HUP; while :; do sleep 0.1; done"),
)
"""Command line, what shows that it waits, the stream that nobody reads, and how else it may end.

It waits when a file exists, when it reads the FIFO, or when it catches signals. It may also be killed by the signal if
nothing is left to do, or end with the status of the user's command.
"""


def waits(sign: str, folder: Path, pid: int) -> bool:
    """Return whether a command waits."""
    if sign == "caught":
        return catches(pid)
    return reads_fifo(folder, pid) if sign == "fifo" else (folder / sign).exists()


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


def prepared(folder: Path) -> dict[str, str]:
    """Make what the commands need in a folder; return their environment."""
    write_inputs(folder)
    (folder / "grid.toml").write_text(GRID)
    session().save(folder / "saved.json")
    os.mkfifo(folder / "fifo")
    models.write(folder / "slices", 8)
    (folder / "bin").mkdir()
    waits = f"[ $3 = make ] && touch {folder}/made && exec sleep 1000\n[ $4 = {folder}/model ] || exit 1"
    (folder / "bin/python3").write_text(f"#!/bin/sh\n{waits}\n{LOOKS}")
    (folder / "bin/python3").chmod(0o755)
    return {**os.environ, "SWEEP_WAITED": str(folder / "waited")}


@pytest.mark.parametrize("line, sign, unread, end", rows(WAITS))
def test_ends(tmp_path: Path, line: str, sign: str, unread: str, end: str) -> None:
    """Each of three commands at this wait gets another signal, once, and ends with its status."""
    with contextlib.ExitStack() as stack:
        commands: list[tuple[int, Path, subprocess.Popen[bytes]]] = []
        for number in SIGNALS:
            folder = tmp_path / signal.Signals(number).name
            environment = prepared(folder)
            silent = os.open(folder / "fifo", os.O_RDWR)  # a writer that writes nothing
            stack.callback(os.close, silent)
            streams: dict[str, int] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            if unread:
                streams[unread] = stack.enter_context(full_pipe())
            process = subprocess.Popen(
                command_line(line),
                cwd=folder,
                env=environment,
                start_new_session=True,
                stdin=silent,
                **streams,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            commands.append((number, folder, process))
        for number, folder, process in commands:
            until(lambda folder=folder, process=process: waits(sign, folder, process.pid) or process.poll() is not None)
            assert process.poll() is None
            process.send_signal(number)
        statuses = [process.wait(HANGING_S) for _, _, process in commands]

    expected = [{str(128 + number), end.replace("killed", str(-number))} for number in SIGNALS]
    assert all(str(status) in allowed for status, allowed in zip(statuses, expected, strict=True)), statuses
