"""Two recordings of one program, made one after the other, as one session."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from msgspec.structs import replace

from nncftools.metrics import is_counter
from nncftools.session.operations import renumbered, with_ends
from nncftools.session.peaks import moved
from nncftools.session.samples import TIME, Samples

if TYPE_CHECKING:
    from nncftools.session.model import Peak
    from nncftools.session.session import Session

_NANOSECONDS = 1e9


def joined(earlier: Session, later: Session) -> Session:
    """Return both recordings as one, with times from the start of the earlier one.

    Counters go on from where the earlier recording ended. What happened between the two is unknown: no sample is there,
    and no counter rises. Processes are left out, because one that lived through both would be there twice.
    """
    apart_s = ((later.start.monotonic_ns or 0) - (earlier.start.monotonic_ns or 0)) / _NANOSECONDS
    begin_s = max(apart_s, earlier.duration_s)
    ended = [replace(mark, end_s=end_s) for mark, end_s in with_ends(earlier.marks, earlier)]
    afterwards = [
        replace(mark, start_s=mark.start_s + begin_s, end_s=None if mark.end_s is None else mark.end_s + begin_s)
        for mark in renumbered(later.marks, earlier.marks)
    ]
    return replace(
        later,
        start=earlier.start,
        duration_s=begin_s + later.duration_s,
        samples=_samples(earlier, later, begin_s),
        totals={name: (earlier.totals.get(name) or 0) + (total or 0) for name, total in later.totals.items()},
        peaks={name: _higher(earlier.peaks.get(name), peak, begin_s) for name, peak in later.peaks.items()},
        processes=[],
        marks=[*ended, *afterwards],
        warnings=list(dict.fromkeys([*earlier.warnings, *later.warnings])),
    )


def _samples(earlier: Session, later: Session, begin_s: float) -> Samples:
    def more(name: str) -> float:
        if name == TIME:
            return begin_s
        return (earlier.totals.get(name) or 0.0) if is_counter(name) else 0.0

    both = [name for name in later.samples if name in earlier.samples]
    return Samples(
        {
            name: earlier.samples[name] + array("d", (value + more(name) for value in later.samples[name]))
            for name in both
        }
    )


def _higher(earlier: Peak | None, later: Peak, begin_s: float) -> Peak:
    """Return the higher peak; its moment is that of the larger sample, which may be in the other recording."""
    both = [replace(peak, process=None) for peak in (earlier, moved(later, begin_s)) if peak is not None]
    higher = max(both, key=lambda peak: peak.low or 0)
    larger = max(both, key=lambda peak: peak.sampled or 0)
    return replace(higher, sampled=larger.sampled, at_s=larger.at_s)
