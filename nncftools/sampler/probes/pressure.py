"""Signs that memory is short: time that was lost, pages that were swapped or read again, processes that were killed.

``/proc/pressure/memory`` is PSI (Documentation/accounting/psi.rst), in microseconds; ``/proc/vmstat`` counts pages and
events of the machine (proc(5)). A v2 group has ``memory.pressure`` of its own; v1 has none.
"""

from __future__ import annotations

import os

from nncftools.sampler.control_groups import Hierarchies
from nncftools.sampler.kernel_file import PAGE, read_all
from nncftools.sampler.probes import OCCASIONAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nncftools.journal.writing import Plan

_KEYS = (b"\nworkingset_refault_file ", b"\nworkingset_refault_anon ", b"\npswpin ", b"\npswpout ", b"\noom_kill ")
_OLD_KEY = b"\nworkingset_refault "
"""Before Linux 5.9, of files and anonymous memory together."""
_PRESSURE = 512


class Pressure:
    """Stall, refaults, swapping and killed processes since the first reading.

    Reading ``vmstat`` takes 25 µs, so it is read again only after memory has stalled, and when a process ended.
    """

    kind = OCCASIONAL
    metrics = ("memory_stall", "refaults", "swap_in", "swap_out", "oom_kills", "group_oom_kills")
    source = "/proc/pressure/memory, /proc/vmstat"
    cost = "2 µs a second, 25 µs where memory is short"

    def __init__(self, root: str, pid: int, plan: Plan) -> None:  # noqa: ARG002 — the same for every plan
        self._group = group = Hierarchies(root).group_of(pid)
        own = None if group is None else _opened(f"{group.folder}/memory.pressure")
        self._pressure = _opened(f"{root}/pressure/memory") if own is None else own
        self._vmstat = _opened(f"{root}/vmstat")
        self._counts: list[int | None] = []
        self._stalled_us: int | None = None
        self._first: list[float | None] = [0] * len(self.metrics)
        self._first = self.read(thorough=True)

    def read(self, *, thorough: bool) -> list[float | None]:
        """Return seconds, bytes three times, and two counts; ``thorough`` reads all, also if memory did not stall."""
        stalled_us = self._read_stall()
        if thorough or stalled_us != self._stalled_us or stalled_us is None:
            self._counts = self._read_counts()
        self._stalled_us = stalled_us
        now = [None if stalled_us is None else stalled_us / 1e6, *self._counts]
        return [
            None if value is None or first is None else value - first
            for value, first in zip(now, self._first, strict=True)
        ]

    def _read_stall(self) -> int | None:
        """Return for how long some task waited for memory."""
        if self._pressure is None:
            return None
        try:
            return int(os.pread(self._pressure, _PRESSURE, 0).partition(b"total=")[2].split(None, 1)[0])
        except (OSError, ValueError, IndexError):
            return None

    def _read_counts(self) -> list[int | None]:
        data = b"" if self._vmstat is None else read_all(self._vmstat)
        files, anonymous, swapped_in, swapped_out, kills = (_count(data, key) for key in _KEYS)
        refaults = _count(data, _OLD_KEY) if files is None or anonymous is None else files + anonymous
        pages = [refaults, swapped_in, swapped_out]
        of_group = None if self._group is None else self._group.oom_kills()
        return [*(None if number is None else number * PAGE for number in pages), kills, of_group]


def _count(data: bytes, key: bytes) -> int | None:
    place = data.find(key)
    return None if place < 0 else int(data[place + len(key) :].split(b"\n", 1)[0])


def _opened(file: str) -> int | None:
    try:
        return os.open(file, os.O_RDONLY)
    except OSError:
        return None
