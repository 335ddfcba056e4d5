"""``/proc/PID/smaps_rollup``: PSS and USS, which the kernel counts page by page (proc(5), in kB of 1,024 bytes).

Counting takes 11 ms per GiB of 4 KiB pages and holds the target's memory lock. So it runs in a separate thread, and
seldom enough to take less than 1 % of the time.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import time

from nncftools.sampler.kernel_file import PAGE
from nncftools.sampler.probes import SLOW

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.sampler.tree import Process

_PAUSE = 99
"""Ratio of each pause to the CPU time of the pass before it."""
_BLUR = 0.02
"""A pass is dropped if processes with more than this share of the sum started or ended during it."""
_KIB = 1024
_UNKNOWN = (None, None)
_UNREADABLE = (-1, -1)


class Smaps:
    """Proportional and unique set size; unknown in the samples between two passes."""

    kind = SLOW
    metrics = ("pss", "uss")
    source = "/proc/PID/smaps_rollup"
    cost = "11 ms a GiB, in a thread, at most 1 % of the time"

    def __init__(self) -> None:
        self._due_s = 0.0
        self._running = False
        self._members: set[Process] = set()
        self._result: tuple[int, int] | None = None

    def read(self, processes: Sequence[Process]) -> tuple[int, int] | tuple[None, None]:
        """Return the sums in bytes of a pass that ended since the last call, otherwise None; begin a pass when due."""
        if self._running:
            return _UNKNOWN
        result, self._result = self._result, None
        members = {process for process in processes if process.rss and process.counted}
        if result is not None:
            blurred = sum(max(process.peak_rss, process.rss) for process in members ^ self._members) * PAGE
            if blurred > result[0] * _BLUR:
                result = None
        folders = _own_folders(processes) if time.monotonic() >= self._due_s else []
        if folders:
            self._running = True
            self._members = members
            _thread.start_new_thread(self._pass, (folders,))
        return result or _UNKNOWN

    def _pass(self, folders: list[int | str]) -> None:
        sums = [_rollup(folder) for folder in folders]
        for folder in folders:
            if isinstance(folder, int):
                os.close(folder)
        found = [(pss, uss) for pss, uss in sums if pss]
        if found and _UNREADABLE not in sums:
            self._result = sum(pss for pss, _ in found), sum(uss for _, uss in found)
        self._due_s = time.monotonic() + _PAUSE * time.thread_time()
        self._running = False


def _own_folders(processes: Sequence[Process]) -> list[int | str]:
    """Return new descriptors of the processes' folders: the loop may close its own, and their numbers may be reused.

    Of processes whose folder is not kept open, the path is returned.
    """
    folders: list[int | str] = []
    for process in processes:
        if not (process.alive and process.counted):
            continue
        folder: int | str = process.path
        if process.directory >= 0:
            with contextlib.suppress(OSError):
                descriptor = os.dup(process.directory)
                if descriptor < process.allowance.below:
                    folder = descriptor
                else:
                    os.close(descriptor)
        folders.append(folder)
    return folders


def _rollup(folder: int | str) -> tuple[int, int]:
    """Return PSS and USS in bytes: 0 for a process that is gone, -1 for one that we may not read."""
    try:
        if isinstance(folder, str):
            file = os.open(f"{folder}/smaps_rollup", os.O_RDONLY)
        else:
            file = os.open("smaps_rollup", os.O_RDONLY, dir_fd=folder)
        try:
            data = os.pread(file, 4096, 0)
        finally:
            os.close(file)
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0
    except OSError:
        return _UNREADABLE
    lines = (line.split() for line in data.split(b"\n")[1:] if line)
    sizes = {words[0]: int(words[1]) * _KIB for words in lines}
    return sizes.get(b"Pss:", 0), sum(size for key, size in sizes.items() if key.startswith(b"Private_"))


def why_unavailable(root: str) -> str:
    """Return why PSS is unknown on this system; empty when it is known."""
    return "" if os.path.exists(f"{root}/self/smaps_rollup") else "the kernel has no smaps_rollup (before 4.14)"
