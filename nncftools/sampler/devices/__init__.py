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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nncftools.sampler.tree import Process, Tree


class WatchedRun:
    """The processes of a run, and the pipe to its sampler; for several threads."""

    def __init__(self, tree: Tree, output: int, *, children: bool = True) -> None:
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
