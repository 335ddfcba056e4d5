"""The truth about a peak, which a workload knows because it allocates the memory itself."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import pathlib
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 2**20
SPIKE_S = 0.04
_ALMOST = 0.98
_PROC = pathlib.Path("/proc")


class Witness:
    """Writes the truth to a file; its facts are the fields of ``benchmarks.truth.truth.Truth``."""

    def __init__(self, file: str) -> None:
        """Take the calling process as the first one of the run."""
        self.file = file
        self._first = os.getpid()

    def resident(self) -> int:
        """Return the RSS in bytes of the first process, its descendants and the calling process."""
        return sum(_resident(pid) for pid in {*_family(self._first), os.getpid()})

    def pss(self) -> int:
        """Return the PSS in bytes of the same processes."""
        return sum(_pss(pid) for pid in {*_family(self._first), os.getpid()})

    def spike(self, mebibytes: int, *path: str, seconds: float = SPIKE_S, **facts: object) -> None:
        """Hold memory for a moment: this is the peak."""
        before = self.resident()
        with held(mebibytes) as area:
            time.sleep(seconds)
        self.tell(before + area.size, area.begin_ns, *path, pid=os.getpid(), **facts)

    @contextlib.contextmanager
    def peak(self, size: int, *path: str, **facts: object) -> Iterator[None]:
        """Write that memory is at its peak of ``size`` bytes during a ``with`` block, which gives it back."""
        begin_ns = time.monotonic_ns()
        yield
        self.tell(size, begin_ns, *path, **facts)

    def tell(self, size: int, begin_ns: int, *path: str, **facts: object) -> None:
        """Write that memory was at its peak of ``size`` bytes from ``begin_ns`` until now."""
        known = {"peak": size, "begin_ns": begin_ns, "end_ns": time.monotonic_ns(), "path": path, **facts}
        pathlib.Path(self.file).write_text(json.dumps(known) + "\n", encoding="ascii")


class Area:
    """Private memory of which each page was written."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # a kernel without huge pages is slower
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        almost = int(size * _ALMOST)
        self._write(0, almost)
        self.begin_ns = time.monotonic_ns()
        """When almost all of it was there: a report of this size is right, too."""
        self._write(almost, size)

    def _write(self, start: int, end: int) -> None:
        self._memory[start : end : mmap.PAGESIZE] = bytes(len(range(start, end, mmap.PAGESIZE)))

    def close(self) -> None:
        """Give it back."""
        self._memory.close()


@contextlib.contextmanager
def held(mebibytes: int) -> Iterator[Area]:
    """Hold memory during a ``with`` block."""
    area = Area(mebibytes * MIB)
    try:
        yield area
    finally:
        area.close()


def _family(pid: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield pid
    for task in (_PROC / str(pid) / "task").iterdir():
        for child in (task / "children").read_text(encoding="ascii").split():
            yield from _family(int(child))


def _resident(pid: int) -> int:
    return int((_PROC / str(pid) / "statm").read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE


def _pss(pid: int) -> int:
    lines = (_PROC / str(pid) / "smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
