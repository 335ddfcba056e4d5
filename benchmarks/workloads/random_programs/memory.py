"""Memory that is taken piece by piece, and given back at once."""

from __future__ import annotations

import mmap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 2**20
MAPPED, HUGE, HEAP = "mapped", "huge", "heap"
"""Small pages; pages of 2 MiB where the kernel has them; a bytearray."""
HEAP_MIB = 33
"""From this size on, free(3) always gives memory back: its threshold (M_MMAP_THRESHOLD) rises up to 32 MiB."""
_PIECE = 4 * MIB


class Area:
    """Private memory of which each page was written."""

    def __init__(self, size: int, kind: str, look: Callable[[], None]) -> None:
        """Take it; call ``look`` after each piece."""
        self._memory: mmap.mmap | bytearray
        if kind == HEAP:
            self._memory = bytearray(size)
        else:
            self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if kind == HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
                self._memory.madvise(mmap.MADV_HUGEPAGE)
        for start in range(0, size, _PIECE):
            end = min(size, start + _PIECE)
            self._memory[start : end : mmap.PAGESIZE] = bytes(len(range(start, end, mmap.PAGESIZE)))
            look()

    def close(self) -> None:
        """Give it back."""
        if isinstance(self._memory, mmap.mmap):
            self._memory.close()
        else:
            self._memory = bytearray()
