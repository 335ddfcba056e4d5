"""Record a program, and know when each of its processes has ended."""

from __future__ import annotations

import os
import random
import selectors
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.truth.recording import ROOT, RunError
from benchmarks.workloads.random_programs.notes import BEGAN, GONE

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence

    from typing_extensions import Self

_BOUND_S = 60
_ORPHANS_S = 5
"""Orphans end within this time after the recording."""
_PIECE = 2**16
_RECORDERS = (("monitor",), ("monitor",), ("profile", "--no-stacks"))


def program(seed: int, file: pathlib.Path) -> list[str]:
    """Return the words that run a program and have it note into a file."""
    return [sys.executable, "-m", "benchmarks.workloads.random_programs", str(seed), str(file)]


def recorder(seed: int, interval_ms: int, session: pathlib.Path) -> list[str]:
    """Return the words that record the program with this number."""
    command = random.Random(seed).choice(_RECORDERS)  # noqa: S311 — no secret
    options = ("-q", "--no-plot", "-i", str(interval_ms / 1000), "--force", "-o", str(session), "--")
    return [sys.executable, "-m", "nncftools", *command, *options]


def noted(words: Sequence[str], fifo: pathlib.Path) -> list[str]:
    """Run a command whose processes write their notes to a FIFO; return the notes. Raises RunError."""
    os.mkfifo(fifo, 0o600)
    pipe = os.open(fifo, os.O_RDWR)  # as there is always a writer, it never ends
    try:
        with _Watch(pipe) as watch, _started(words) as command:
            watch.until_gone(command.pid, _BOUND_S)
            if command.poll() is None:
                command.kill()
                raise RunError(f"did not end within {_BOUND_S} s")
            assert command.stderr is not None
            if command.returncode:
                raise RunError(f"exit status {command.returncode}: {command.stderr.read().strip()}")
            watch.until_gone(None, _ORPHANS_S)
            return watch.lines
    finally:
        os.close(pipe)
        fifo.unlink()


def _started(words: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


class _Watch:
    """Reads notes, and adds when each process that they name ended: its PIDFD is readable once its memory is gone."""

    def __init__(self, pipe: int) -> None:
        self.lines: list[str] = []
        self._pipe = pipe
        self._rest = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(pipe, selectors.EVENT_READ)
        self._pids: dict[int, int] = {}
        """By PIDFD."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._pids:
            os.close(descriptor)
        self._selector.close()

    def until_gone(self, pid: int | None, within_s: float) -> None:
        """Follow the notes until a process has ended, or until all have."""
        deadline = time.monotonic() + within_s
        if pid is not None:
            self._follow(pid)
        while (left_s := deadline - time.monotonic()) > 0 and self._goes_on(pid):
            ready = {key.fd for key, _ in self._selector.select(left_s)}
            for descriptor in ready - {self._pipe}:
                self._end(descriptor)
            if self._pipe in ready:
                self._read()

    def _goes_on(self, pid: int | None) -> bool:
        return bool(self._pids) if pid is None else pid in self._pids.values()

    def _read(self) -> None:
        *lines, self._rest = (self._rest + os.read(self._pipe, _PIECE)).split(b"\n")
        for line in lines:
            self.lines.append(line.decode("ascii"))
            if line.startswith(BEGAN.encode("ascii")):
                self._follow(int(line.split()[2]))

    def _follow(self, pid: int) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._gone(pid)
            return
        self._selector.register(descriptor, selectors.EVENT_READ)
        self._pids[descriptor] = pid

    def _end(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)
        os.close(descriptor)
        self._gone(self._pids.pop(descriptor))

    def _gone(self, pid: int) -> None:
        self.lines.append(f"{GONE} {time.monotonic_ns()} {pid}")
