"""The process that asks the drivers of GPUs and NPUs what a run holds; the sampler writes its lines to the journal.

A driver may take seconds to begin, wait, or crash. Each kind of driver is read in a thread of its own, and nobody waits
for this process: when the sampler closes the pipe, it ends, whatever its threads do. Its lines are JSON, each with one
key: ``sources`` (all that is read), ``devices`` (``t_ns`` on CLOCK_MONOTONIC, ``of`` which source, ``values`` by
column, and ``next_s``, how long it waits then), ``device`` (what is known of a device), ``warning``, and ``ended`` (the
source, and the error if it could not go on).
"""

from __future__ import annotations

import _thread
import contextlib
import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    from nncftools.sampler.tree import Process, Tree

    class Source(Protocol):
        """Reads the devices of one kind of driver."""

        what: str
        """The devices, for messages."""
        share: float
        """Of the time, that readings may take."""
        every_s: float
        """The shortest time between two readings."""
        clock: Callable[[], float]
        """Seconds by which the cost of a reading is counted."""

        def begin(self, run: Run) -> bool:
            """Return whether there is anything to read; that may take seconds."""

        def read(self, run: Run) -> Mapping[str, float | None]:
            """Return a value by column, None for unknown."""


OUTPUT = 1


class Run:
    """The processes of a run, and the pipe to its sampler; for several threads."""

    def __init__(self, tree: Tree, output: int = OUTPUT, *, children: bool = True) -> None:
        self._tree = tree
        self._output = output
        self._children = children
        self._lock = _thread.allocate_lock()

    def processes(self) -> list[Process]:
        """Return those that live."""
        with self._lock:
            self._tree.refresh()
            for process in list(self._tree.processes):
                if not _lives(process):
                    self._tree.remove(process)
            if self._tree.processes:
                self._tree.children = self._children
            return list(self._tree.processes)

    def write(self, key: str, value: object) -> None:
        """Write a line; a short write to a pipe is whole (PIPE_BUF, pipe(7))."""
        with self._lock, contextlib.suppress(OSError):
            os.write(self._output, json.dumps({key: value}, separators=(",", ":")).encode() + b"\n")


def _lives(process: Process) -> bool:
    try:
        return bool(os.pread(process.files[0], 64, 0))
    except OSError:
        return bool(process.read_slot(0))


_REPEAT_NS = 500_000_000


def follow(source: Source, run: Run, sleep: Callable[[float], None] = time.sleep) -> None:
    """Read a source again and again: less often the longer a reading takes. The same values are seldom written.

    On a busy machine, a reading may take long by chance: the shortest of three counts.
    """
    if not source.begin(run):
        return
    before: tuple[Mapping[str, float | None], int] | None = None
    written_ns = 0
    costs_s = [0.0, 0.0]
    while True:
        begun_s = source.clock()
        values = source.read(run)
        now_ns = time.monotonic_ns()
        costs_s = [*costs_s[-2:], source.clock() - begun_s]
        wait_s = max(source.every_s, min(costs_s) / source.share)
        said = (values, round(wait_s))
        if said != before or now_ns - written_ns >= _REPEAT_NS:  # also no value: the sampler knows that we live
            before, written_ns = said, now_ns
            run.write("devices", {"t_ns": now_ns, "of": source.what, "next_s": wait_s, "values": values})
        sleep(wait_s)
