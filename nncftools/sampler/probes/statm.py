"""``/proc/PID/statm``: resident and virtual size, 1.2 µs a process (proc(5), in pages)."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.sampler.tree import Process

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Statm:
    """RSS and VMS, summed: a page that several processes share counts once for each."""

    metrics = ("rss", "vms")
    file = "statm"

    def __init__(self, slot: int) -> None:
        self._slot = slot

    def read(self, processes: Sequence[Process]) -> tuple[float | None, ...]:
        """Return the sums in bytes and note each process's own peak; None when only zombies are left."""
        slot = self._slot
        pread = os.pread
        rss = vms = 0
        for process in processes:
            try:
                virtual, resident, _ = pread(process.files[slot], 128, 0).split(b" ", 2)
            except (OSError, ValueError):
                process.alive = False
                continue
            size = int(resident)
            if not size:  # it is ending and has given back its memory
                continue
            rss += size
            vms += int(virtual)
            process.samples += 1
            if size > process.peak_rss:  # noqa: PLR1730 — max() costs 60 ns more, for every process at every sample
                process.peak_rss = size
        return (rss * PAGE, vms * PAGE) if rss else (None, None)

    def retire(self, process: Process) -> None:
        """Keep nothing: memory ends with its process."""
