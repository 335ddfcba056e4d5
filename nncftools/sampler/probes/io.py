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


class Io:
    """Bytes read and written, of storage and of system calls."""

    kind = PROCESS
    metrics = ("read_bytes", "write_bytes", "read_chars", "write_chars")
    file = "io"
    source = "/proc/PID/io"
    cost = "3 µs a process"

    def __init__(self, slot: int) -> None:
        self._slot = slot
        self._retired: tuple[int, ...] | None = (0, 0, 0, 0)

    def read(self, processes: Sequence[Process]) -> tuple[int, ...] | tuple[None, ...]:
        """Return the sums in bytes.

        They are None while we may not read a process of the tree, and for ever if it ends before we may.
        """
        slot = self._slot
        pread = os.pread
        if self._retired is None:
            return _UNKNOWN
        read_bytes, write_bytes, read_chars, write_chars = self._retired
        for process in processes:
            if not process.alive:
                continue
            try:
                words = pread(process.files[slot], SMALL, 0).split()
            except OSError:
                words = process.read_slot(slot).split()
                if not words and process.alive:
                    return _UNKNOWN
                if not words:
                    continue
            read_chars += int(words[1])
            write_chars += int(words[3])
            read_bytes += int(words[9])
            write_bytes += int(words[11])
        return read_bytes, write_bytes, read_chars, write_chars

    def retire(self, process: Process) -> None:
        """Add the bytes of a child of ours that has ended: its file is readable until it is reaped."""
        last = [value for value in self.read([process]) if value is not None]
        self._retired = tuple(last) or None
