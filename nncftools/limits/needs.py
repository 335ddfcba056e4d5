"""What would have been enough memory for a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nncftools.session.model import MEMORY

if TYPE_CHECKING:
    from nncftools.session.model import SessionData
    from nncftools.units import MemoryUnit


_PAGES_OF_FILES = 0.02
"""Beside anonymous memory, the kernel needs room for some pages of mapped files: beside 200 MiB of anonymous memory and
for a file of 300 MiB, 5 MiB (``python -m benchmarks.limits --only floors``)."""


class Needs(NamedTuple):
    """What a run needs, in bytes."""

    floor: int
    """What it cannot do without: the kernel can neither drop nor share it."""
    at_s: float
    """When it held that, in seconds since the start."""
    comfortable: int
    """With so much, everything that it maps and reads stays in memory: nothing is read twice."""
    is_bound: bool = False
    """Whether it needs more than that: it did not end by itself."""

    def text(self, unit: MemoryUnit) -> str:
        """Return this as what follows "needs": ``at least 1,055 MiB; 1,312 MiB to keep its files in memory``."""
        floor, comfortable = (f"{unit.brief(size)} {unit}" for size in (self.floor, self.comfortable))
        if self.is_bound:
            return f"more than {floor}"
        return f"at least {floor}" + (f"; {comfortable} to keep its files in memory" if floor != comfortable else "")


def needs(session: SessionData, *, is_bound: bool | None = None) -> Needs | None:
    """Return what a run needs; None when this was not recorded.

    The floor was sampled. What RSS had between two samples, as a high-water mark proves, counts as anonymous memory.
    ``is_bound`` says whether the run was cut short; by default it was unless it ended with an exit status.
    """
    floor = session.floor
    if floor is None:
        return None
    size = floor.size + _between_samples(session)
    read = sum(file.size for file in session.files_read)
    most = session.totals.get("read_chars")
    files = read if most is None else min(read, round(most))
    comfortable = size + floor.mapped + files
    least = size + round(min(size, floor.mapped) * _PAGES_OF_FILES)
    return Needs(least, floor.at_s, comfortable, _is_cut_short(session) if is_bound is None else is_bound)


def _between_samples(session: SessionData) -> int:
    peak = session.peaks.get("rss")
    return 0 if peak is None else max(0, (peak.low or 0) - (peak.sampled or 0))


def _is_cut_short(session: SessionData) -> bool:
    if not session.finished or session.exit is None or session.exit.signal is not None:
        return True
    has_failed = bool(session.exit.code) and any(failure.cause == MEMORY for failure in session.failures)
    return has_failed or bool(session.oom_kills or session.kernel_kills)
