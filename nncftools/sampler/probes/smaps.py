"""``/proc/PID/smaps_rollup``: PSS and USS, which the kernel counts page by page (proc(5), in kB of 1,024 bytes).

Counting takes 11 ms per GiB of 4 KiB pages and holds the target's memory lock. So it runs in a separate thread, and
takes at most a given share of the time: half of it at regular distances, the rest when RSS reaches a new maximum.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import time

from nncftools.sampler.probes import SLOW

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.sampler.tree import Process

_HIGHER = 1.02
"""A maximum is new when RSS exceeds that of all passes by this ratio."""
_KIB = 1024
_UNKNOWN = (None, None, None)
_UNREADABLE = (-1, -1)


class Smaps:
    """Proportional and unique set size, and how old they are; unknown in the samples between two passes."""

    kind = SLOW
    metrics = ("pss", "uss", "pss_age")
    source = "/proc/PID/smaps_rollup"
    cost = "11 ms a GiB, in a thread, by default at most 1 % of the time"

    def __init__(self, share: float) -> None:
        """Use at most ``share`` of the time; the last pass may go beyond it."""
        self._share = share
        self._begun_s = time.monotonic()
        self._spent_s = 0.0
        self._regular_s = 0.0
        """The part of ``_spent_s`` for passes at regular distances."""
        self._highest = 0
        """The highest RSS at which a pass began, in pages."""
        self._running = False
        self._result: tuple[int, int, float] | None = None

    def read(self, processes: Sequence[Process]) -> tuple[int, int, float] | tuple[None, None, None]:
        """Return the sums in bytes and their age, if a pass has ended since the last call; begin a pass when due."""
        if self._running:
            return _UNKNOWN
        result, self._result = self._result, None
        now_s = time.monotonic()
        budget_s = self._share * (now_s - self._begun_s)
        if self._spent_s <= budget_s:
            rss = sum([process.rss for process in processes if process.counted])
            is_higher = rss > self._highest * _HIGHER
            if is_higher or self._regular_s <= budget_s / 2:
                self._begin(processes, rss, is_regular=not is_higher)
        return _UNKNOWN if result is None else (*result[:2], now_s - result[2])

    def _begin(self, processes: Sequence[Process], rss: int, *, is_regular: bool) -> None:
        folders = _own_folders(processes)
        if folders:
            self._highest = max(self._highest, rss)
            self._running = True
            _thread.start_new_thread(self._pass, (folders, is_regular))

    def _pass(self, folders: list[int | str], is_regular: bool) -> None:  # noqa: FBT001 — a thread takes no keywords
        begun_s = time.monotonic()
        sums = [_rollup(folder) for folder in folders]
        # When a process ends during a pass, the others' shares of its pages grow: with its own share, the sum would
        # count them twice. Without it, the sum is at most what the others held at the end.
        kept = [found for folder, found in zip(folders, sums, strict=True) if _exists(folder)]
        for folder in folders:
            if isinstance(folder, int):
                os.close(folder)
        found = [(pss, uss) for pss, uss in kept if pss]
        if found and _UNREADABLE not in sums:
            middle_s = (begun_s + time.monotonic()) / 2
            self._result = sum(pss for pss, _ in found), sum(uss for _, uss in found), middle_s
        spent_s = time.thread_time()
        self._spent_s += spent_s
        if is_regular:
            self._regular_s += spent_s
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
        file = _opened(folder)
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


def _opened(folder: int | str) -> int:
    """Open the file, which counts nothing yet. Raises OSError, for a zombie, too."""
    if isinstance(folder, str):
        return os.open(f"{folder}/smaps_rollup", os.O_RDONLY)
    return os.open("smaps_rollup", os.O_RDONLY, dir_fd=folder)


def _exists(folder: int | str) -> bool:
    try:
        os.close(_opened(folder))
    except OSError:
        return False
    return True


def why_unavailable(root: str) -> str:
    """Return why PSS is unknown on this system; empty when it is known."""
    return "" if os.path.exists(f"{root}/self/smaps_rollup") else "the kernel has no smaps_rollup (before 4.14)"
