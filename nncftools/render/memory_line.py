"""A memory metric over time with its peak, ready to draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nncftools.analysis.peak_text import span_text
from nncftools.analysis.series import decimated_with_gaps
from nncftools.analysis.summary import is_between_samples, level
from nncftools.render.view import label
from nncftools.session.peaks import sampled_peak

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nncftools.render.view import View
    from nncftools.session.session import Session

    Points = NDArray[np.float64]


class MemoryLine(NamedTuple):
    """Seconds, and sizes in the view's unit, above the first sample if the view asks for that; NaN breaks the line."""

    time_s: Points
    sizes: Points
    is_sparse: bool
    """Whether fewer than half of the samples contain the metric."""
    peak: tuple[float, float]
    """The time of the peak, and its size."""
    mark: tuple[float, float] | None
    """If the peak is a high-water mark above the line: the two moments between which it rose."""
    peak_text: str
    """``"RSS peak 300.0 MiB at 0.500 s"``."""


def memory_line(session: Session, view: View, name: str, points: int = 4000) -> MemoryLine | None:
    """Return a metric as a line of about ``points`` points at most; None when no sample contains it."""
    samples = session.samples
    if name not in samples or not (figures := samples.figures(name)).known:
        return None
    values = np.asarray(samples[name])
    zero = float(values[~np.isnan(values)][0]) if view.from_zero else 0.0
    time_s, sizes = decimated_with_gaps(samples.time_s, values, session.sampler.spacing_s, points)
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
        of.span_s if is_mark else None,
        f"{text} (kernel's high-water mark)" if is_mark else text,
    )
