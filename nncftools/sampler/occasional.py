"""What is read about once a second: occasional probes, counts of killed processes, and room on disks."""

from __future__ import annotations

import time

from nncftools.sampler.probes import columns_of
from nncftools.sampler.probes.free_space import FreeSpace
from nncftools.sampler.probes.huge_pages import HugePages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from nncftools.journal.writing import Plan
    from nncftools.sampler.limit_watch import LimitWatch

_EVERY_S = 1.0
_AFTER_END_S = 0.25
"""After the end of a process everything is read this soon, and at most this often."""


class Occasional:
    """The occasional probes of a recording."""

    def __init__(
        self,
        classes: Sequence[Any],
        root: str,
        plan: Plan,
        limits: LimitWatch,
        write_line: Callable[[str, object], None],
    ) -> None:
        self._classes = classes
        self._root = root
        self._plan = plan
        self._limits = limits
        self._write_line = write_line
        self._probes: list[Any] = []
        self._start_ns = time.monotonic_ns()
        self._has_ended = False
        self.at_s = 0.0
        """When the next reading is due."""

    def start(self, pid: int) -> None:
        """Make the probes of a command; the recording starts now."""
        self._start_ns = time.monotonic_ns()
        self._probes = [probe(self._root, pid, self._plan) for probe in self._classes]

    @property
    def columns(self) -> list[str]:
        """The columns of the values."""
        return [column for probe in self._probes for column in columns_of(probe)]

    @property
    def huge_pages(self) -> HugePages | None:
        """The probe of huge pages, which is read at marks, too."""
        return next((probe for probe in self._probes if isinstance(probe, HugePages)), None)

    def read(self, now_s: float) -> list[float | None]:
        """Read everything that is due, and return the values of the probes."""
        self.at_s = now_s + _EVERY_S
        thorough, self._has_ended = self._has_ended, False
        self._limits.check(now_s)
        self._write_room(always=False)
        return self.values(thorough=thorough)

    def values(self, *, thorough: bool) -> list[float | None]:
        """Return the values of the probes."""
        return [value for probe in self._probes for value in probe.read(thorough=thorough)]

    def process_ended(self, now_s: float) -> None:
        """Read everything soon: the kernel may have killed the process."""
        self._has_ended = True
        self.at_s = min(self.at_s, now_s + _AFTER_END_S)

    def close(self, now_s: float) -> None:
        """Write the last facts."""
        self._limits.check(now_s)
        self._write_room(always=True)
        for probe in self._probes:
            if isinstance(probe, FreeSpace):
                probe.close()

    def _write_room(self, *, always: bool) -> None:
        for probe in self._probes:
            if isinstance(probe, FreeSpace):
                for line in probe.lines(self._start_ns, always=always):
                    self._write_line("file_system", line)
