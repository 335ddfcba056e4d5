"""``/proc/PID/io``: bytes read and written by a process and its reaped children (proc(5)).

``read_bytes`` and ``write_bytes`` count the bytes of storage; ``rchar`` and ``wchar`` count the bytes of system calls,
page cache and pipes included.
"""

from __future__ import annotations

import os

from nncftools.sampler.kernel_file import SMALL
from nncftools.sampler.probes import PROCESS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.sampler.tree import Process

_UNKNOWN = (None, None, None, None)
_NOTHING = (0, 0, 0, 0)
_PLACES = (9, 11, 1, 3)
"""The words of the file that hold the metrics."""


class Io:
    """Bytes read and written, of storage and of system calls."""

    kind = PROCESS
    metrics = ("read_bytes", "write_bytes", "read_chars", "write_chars")
    file = "io"
    source = "/proc/PID/io"
    cost = "3 µs a process"

    def __init__(self, slot: int) -> None:
        self._slot = slot
        self._retired: tuple[int, ...] | None = _NOTHING
        self._summed = -1
        """How many processes are in ``_sums``; -1 when these are to be made again."""
        self._sums: tuple[int, ...] = ()

    def read(self, processes: Sequence[Process]) -> tuple[int, ...] | tuple[None, ...]:
        """Return the sums in bytes.

        They are None while we may not read a process of the tree, and for ever if it ends before we may.
        """
        slot = self._slot
        pread = os.pread
        if self._retired is None:
            return _UNKNOWN
        has_changed = len(processes) != self._summed
        for process in processes:
            try:
                data = pread(process.files[slot], SMALL, 0) if process.alive else b""
            except OSError:
                data = process.read_slot(slot)
                if not data and process.alive:
                    self._summed = -1
                    return _UNKNOWN
            if data != process.data[slot]:
                has_changed = True
                process.data[slot] = data
                words = data.split()
                process.parts[slot] = tuple(int(words[place]) for place in _PLACES) if words else _NOTHING
        if has_changed:
            parts = [process.parts[slot] for process in processes]
            self._sums = tuple(map(sum, zip(self._retired, *parts, strict=True)))
            self._summed = len(processes)
        return self._sums

    def retire(self, process: Process) -> None:
        """Add the bytes of a child of ours that has ended: its file is readable until it is reaped."""
        last = [value for value in self.read([process]) if value is not None]
        self._summed = -1
        self._retired = tuple(last) or None
