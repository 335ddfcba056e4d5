"""A memory metric over time with its peak, ready to draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nncftools.analysis.series import decimated_with_gaps
from nncftools.analysis.summary import level
from nncftools.render.view import label
from nncftools.units import seconds_text

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
    """The time of the largest sample, and its size."""
    peak_text: str
    """``"RSS peak 300.0 MiB at 0.500 s"``."""
    kernel_text: str
    """``" (kernel: 400.0 MiB)"`` when the kernel measured a higher peak between two samples, otherwise empty."""


def memory_line(session: Session, view: View, name: str, points: int = 4000) -> MemoryLine | None:
    """Return a metric as a line of about ``points`` points at most; None when no sample contains it."""
    samples = session.samples
    if name not in samples or not (figures := samples.figures(name)).known:
        return None
    values = np.asarray(samples[name])
    zero = float(values[~np.isnan(values)][0]) if view.from_zero else 0.0
    time_s, sizes = decimated_with_gaps(samples.time_s, values, session.sampler.spacing_s, points)
    peak_size, peak_s = figures.highest - zero, samples.time_s[int(np.nanargmax(values))]
    peak = level(samples, name, session.peaks)
    kernel = None if peak.at_s is not None or peak.peak is None else peak.peak - zero
    return MemoryLine(
        time_s,
        (sizes - zero) / view.unit.factor,
        figures.known < len(values) / 2,
        (peak_s, peak_size / view.unit.factor),
        f"{label(name)} peak {view.unit.label(peak_size)} at {seconds_text(peak_s)}",
        "" if kernel is None else f" (kernel: {view.unit.label(kernel)})",
    )
