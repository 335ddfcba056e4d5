"""``/proc/meminfo``: memory in use on the whole machine (proc(5), in kB of 1,024 bytes)."""

from __future__ import annotations

import os

from nncftools.sampler.probes import SYSTEM


class Meminfo:
    """SYSTEM: MemTotal − MemAvailable, which includes all processes of the machine."""

    kind = SYSTEM
    metrics = ("system",)
    source = "/proc/meminfo"
    cost = "15 µs"

    def __init__(self, root: str, pid: int) -> None:  # noqa: ARG002 — the same for every process
        self._file = os.open(f"{root}/meminfo", os.O_RDONLY)

    def read(self) -> tuple[float | None, ...]:
        """Return the bytes in use; None on a kernel without MemAvailable (before 3.14)."""
        words = os.pread(self._file, 256, 0).split(None, 8)
        if words[6] != b"MemAvailable:":
            return (None,)
        return ((int(words[1]) - int(words[7])) * 1024,)
