"""How close to the RSS peak PSS was counted: it takes long, so most samples do not know it."""

from __future__ import annotations

from bisect import bisect_right
from math import isnan
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from nncftools.session.session import Session

_NEAR = 0.95
"""RSS of a sample near the peak, as a share of the peak."""


class NearPeak(NamedTuple):
    """The sample that knows PSS and is nearest to the RSS peak; bytes and seconds."""

    pss: float
    rss: float
    distance_s: float
    is_at_peak: bool
    """Whether RSS was close to its peak in this sample."""


def pss_near_peak(session: Session) -> NearPeak | None:
    """Return what is known about PSS at the RSS peak; None if PSS or the moment of the peak is unknown."""
    samples, peak, place = session.samples, session.peaks.get("rss"), session.peak_place
    if peak is None or place is None or not {"rss", "pss"} <= set(samples.metrics):
        return None
    ages = samples["pss_age"] if "pss_age" in samples else [0.0] * len(samples)
    times, every_rss = samples.time_s, samples["rss"]
    known = []
    for at_s, age, pss in zip(times, ages, samples["pss"], strict=True):
        if isnan(pss):
            continue
        counted_s = at_s - age
        rss = every_rss[max(0, bisect_right(times, counted_s) - 1)]  # the sample shows it later than it was counted
        if not isnan(rss):
            known.append((max(0.0, place.from_s - counted_s, counted_s - place.to_s), rss, pss))
    if not known:
        return None
    at_peak = [one for one in known if one[1] >= (peak.low or 0) * _NEAR]
    distance_s, rss, pss = min(at_peak or known)
    return NearPeak(pss, rss, distance_s, is_at_peak=bool(at_peak))
