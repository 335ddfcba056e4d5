"""The figures of a session that a report names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nncftools.session.samples import known

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nncftools.session.model import Peak, Process, Session
    from nncftools.session.samples import Samples


_NEAR = 1.02


@dataclass(frozen=True)
class Level:
    """One memory metric over the whole session, in bytes; None for unknown."""

    peak: float | None
    """The lower bound of the bracket: the real peak is at least this."""
    at_s: float | None
    """When the largest sample was; None when the peak came and went between two samples."""
    final: float | None
    average: float | None
    """The mean of the samples."""
    lowest: float | None
    first: float | None

    @property
    def delta(self) -> float | None:
        """From the first sample to the last."""
        return None if self.final is None or self.first is None else self.final - self.first

    def from_zero(self) -> Level:
        """Return the same with the first sample, the baseline, subtracted."""
        zero = self.first

        def above(value: float | None) -> float | None:
            return None if value is None or zero is None else value - zero

        return Level(
            peak=above(self.peak),
            at_s=self.at_s,
            final=above(self.final),
            average=above(self.average),
            lowest=above(self.lowest),
            first=above(zero),
        )


def level(samples: Samples, name: str, peaks: Mapping[str, Peak]) -> Level:
    """Return the level of the memory metric ``name``."""
    values = known(samples[name])
    peak = peaks.get(name)
    return Level(
        peak=None if peak is None else peak.low,
        at_s=None if peak is None or is_between_samples(peak) else peak.at_s,
        final=values[-1] if values else None,
        average=sum(values) / len(values) if values else None,
        lowest=min(values, default=None),
        first=values[0] if values else None,
    )


def is_between_samples(peak: Peak) -> bool:
    """Return whether the kernel knows of a peak that no sample came near to."""
    return (peak.low or 0) > (peak.sampled or 0) * _NEAR


def largest_process(session: Session) -> Process | None:
    """Return the process that was the largest by itself, or None when no size is known."""
    return max((process for process in session.processes if own_peak(process)), key=own_peak, default=None)


def own_peak(process: Process) -> int:
    """Return what a process held at most, as far as is known, in bytes; 0 for unknown."""
    return max(process.high_water_mark or 0, process.peak_rss or 0)


def cpu_s(session: Session) -> float | None:
    """Return the CPU seconds of the whole tree, user and system."""
    user, system = session.totals.get("cpu_user"), session.totals.get("cpu_system")
    return None if user is None or system is None else user + system
