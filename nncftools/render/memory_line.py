"""What pictures and reports draw and say of memory over time: a metric's points and peak, the limit, a peak's label.

Every medium takes its points from here, so that none shows another peak.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nncftools.analysis.peak_text import SEPARATOR, span_text, where_text
from nncftools.analysis.series import Floats, decimated_with_gaps
from nncftools.analysis.summary import is_between_samples, level
from nncftools.limits.needs import MACHINE, Effective, effective_limit
from nncftools.render.view import View, label
from nncftools.session.peaks import sampled_peak
from nncftools.session.session import Session
from nncftools.units import MemoryUnit, brief_size, printable, shortened

_NEAR = 0.5
"""A larger part of a limit is near it."""
_FILE, _OPERATION, _OWNER = 80, 70, 60
"""Lengths of texts, in characters."""


class MemoryLine(NamedTuple):
    """Seconds, and sizes in the view's unit, above the first sample if the view asks for that; NaN breaks the line."""

    time_s: Floats
    sizes: Floats
    is_sparse: bool
    """Whether fewer than half of the samples contain the metric."""
    peak: tuple[float, float]
    """The time of the peak, and its size; at an unknown time, the largest sample."""
    peak_size: float
    """The size of the peak, whether its time is known or not."""
    span_s: tuple[float, float] | None
    """Between these moments memory rose to the peak; None for unknown."""
    mark: tuple[float, float] | None
    """The same if the peak is a high-water mark above the line."""
    peak_text: str
    """``"RSS peak 300.0 MiB at 0.500 s"``."""


def memory_line(session: Session, view: View, name: str, points: int = 4000, *, gaps: bool = True) -> MemoryLine | None:
    """Return a metric as a line of about ``points`` points at most; None when no sample contains it."""
    samples = session.samples
    if name not in samples or not (figures := samples.figures(name)).known:
        return None
    values = np.asarray(samples[name])
    zero = float(values[~np.isnan(values)][0]) if view.from_zero else 0.0
    spacing_s = session.sampler.spacing_s if gaps else None
    time_s, sizes = decimated_with_gaps(samples.time_s, values, spacing_s, points)
    peak = session.peaks.get(name) or sampled_peak(name, samples)
    of = level(samples, name, {name: peak})
    size = (figures.highest if of.peak is None else of.peak) - zero
    text = f"{label(name)} peak {view.unit.label(size)}"
    if of.span_s is None:
        point = samples.time_s[int(np.nanargmax(values))], figures.highest - zero
        text += " at an unknown moment"
    else:
        point = sum(of.span_s) / 2, size
        text += f" at {span_text(of.span_s)}"
    is_mark = is_between_samples(peak)
    return MemoryLine(
        time_s,
        (sizes - zero) / view.unit.factor,
        figures.known < len(values) / 2,
        (point[0], point[1] / view.unit.factor),
        size / view.unit.factor,
        of.span_s,
        of.span_s if is_mark else None,
        f"{text} (kernel's high-water mark)" if is_mark else text,
    )


class DrawnLimit(NamedTuple):
    """A limit as a line in a picture."""

    size: float
    """In the view's unit."""
    name: str
    size_text: str

    @property
    def label(self) -> str:
        """Name and size in two lines."""
        return f"{self.name}\n{self.size_text}"


def limit_text(session: Session) -> str | None:
    """Return which part of its limit a run held at its peak: ``95 % of 8 GiB (control group, set by FILE)``.

    All memory of the machine is a limit only for a run that held more than half of it. None when there is no limit.
    """
    limit, peak = _limit_and_peak(session)
    if limit is None or (limit.kind == MACHINE and peak <= limit.size * _NEAR):
        return None
    by = f", set by {shortened(printable(limit.set_by), _FILE)}" if limit.set_by else ""
    of = "all of the machine" if limit.kind == MACHINE else limit.kind
    return f"{limit.share_text(peak)} of {brief_size(limit.size)} ({of}{by})"


def drawn_limit(session: Session, view: View) -> DrawnLimit | None:
    """Return the limit, if the view shows RSS and it came near: an axis with any other limit would hide the data."""
    limit, peak = _limit_and_peak(session)
    if limit is None or peak <= limit.size * _NEAR or view.from_zero or "rss" not in view.metrics:
        return None
    return DrawnLimit(view.unit.of(limit.size), limit.name, brief_size(limit.size))


def _limit_and_peak(session: Session) -> tuple[Effective | None, int]:
    """Return the limit and the RSS peak in bytes; no limit where either is unknown."""
    peak = session.peaks.get("rss")
    if peak is None or peak.low is None or session.from_zero:
        return None, 0
    return effective_limit(session), peak.low


def peak_label(session: Session, unit: MemoryUnit) -> str:
    """Return ``during Export · 404 MiB by convert.py:893 export``; empty when neither is known."""
    return " · ".join(filter(None, (shortened(where_text(session), _OPERATION), _owner(session, unit))))


def _owner(session: Session, unit: MemoryUnit) -> str:
    """Return the place in the code that held the most; empty when no stacks were taken."""
    if session.snapshots is None:
        return ""
    from nncftools.analysis.build_up import of_peak
    from nncftools.analysis.frames import held_by, tree_of

    build_up = of_peak(session)
    largest = [] if build_up is None else held_by(tree_of(build_up), 1)
    if not largest:
        return ""
    text = largest[0].label
    if len(text) > _OWNER:
        text = text.rpartition(SEPARATOR)[2]
    return f"{unit.brief(largest[0].size)} {unit} by {shortened(text, _OWNER)}"
