"""Transparent huge pages that the machine has mapped: one page fault adds 2 MiB then, instead of a page.

``/proc/vmstat`` counts them (Documentation/admin-guide/mm/transhuge.rst). Smaller ones, where they are switched on, are
not in it: then nothing is known.
"""

from __future__ import annotations

import os

from nncftools.sampler.kernel_file import read_all
from nncftools.sampler.probes import OCCASIONAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nncftools.journal.writing import Plan

SETTINGS = "/sys/kernel/mm/transparent_hugepage"
_KEYS = (b"\nthp_fault_alloc ", b"\nthp_collapse_alloc ", b"\nthp_file_mapped ")
_NEVER = "[never]"


class HugePages:
    """Bytes in huge pages since the first reading; unknown if huge pages of several sizes are in use."""

    kind = OCCASIONAL
    metrics = ("huge_pages",)
    source = "/proc/vmstat"
    cost = "25 µs a second"

    def __init__(self, root: str, pid: int = 0, plan: Plan | None = None) -> None:  # noqa: ARG002 — as other probes
        self._size = _size_of_page()
        self._first = 0
        try:
            self._file = os.open(f"{root}/vmstat", os.O_RDONLY)
        except OSError:
            self._size = None
        self.latest: int | None = None
        """The count at the last reading."""
        self.is_new = False
        """Whether ``latest`` was read and not used yet."""
        self._first = self.count() or 0
        self.latest = None if self._size is None else 0

    def read(self, *, thorough: bool = False) -> list[int | None]:  # noqa: ARG002 — one file
        """Return the bytes that were mapped so far."""
        return [self.count()]

    def count(self) -> int | None:
        """Return the bytes that were mapped so far; None for unknown."""
        if self._size is not None:
            data = read_all(self._file)
            self.latest = sum(_count(data, key) for key in _KEYS) * self._size - self._first
            self.is_new = True
        return self.latest


def _count(data: bytes, key: bytes) -> int:
    place = data.find(key)
    return 0 if place < 0 else int(data[place + len(key) :].split(b"\n", 1)[0])


def _size_of_page() -> int | None:
    """Return the size of a huge page in bytes, 0 where there are none; None if other sizes are in use, too."""
    try:
        with open(f"{SETTINGS}/hpage_pmd_size") as file:
            size = int(file.read())
        for name in os.listdir(SETTINGS):
            if name.startswith("hugepages-") and name != f"hugepages-{size // 1024}kB" and not _is_off(name):
                return None
    except FileNotFoundError:
        return 0
    except (OSError, ValueError):
        return None
    return size


def _is_off(name: str) -> bool:
    """Return whether anonymous memory gets no huge pages of a size. Raises OSError."""
    try:
        with open(f"{SETTINGS}/{name}/enabled") as file:
            return _NEVER in file.read()
    except FileNotFoundError:  # a size for files only
        return True
