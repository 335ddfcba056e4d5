"""Peaks as brackets, from samples and the kernel's high-water marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.metrics import MEMORY_METRICS
from nncftools.session.model import Peak
from nncftools.session.samples import known

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.session.model import Process
    from nncftools.session.samples import Samples

SAMPLED = "sampled"
HIGH_WATER_MARK = "high_water_mark"


def peaks(samples: Samples, processes: Sequence[Process]) -> dict[str, Peak]:
    """Return the peak of every memory metric that was recorded.

    RSS cannot have been lower than the high-water mark of any one process, which also holds what came and went
    between two samples.
    """
    return {name: _peak(name, samples, processes) for name in samples.metrics if name in MEMORY_METRICS}


def _peak(name: str, samples: Samples, processes: Sequence[Process]) -> Peak:
    values = known(samples[name])
    mark = max((process.high_water_mark or 0 for process in processes), default=0) if name == "rss" else 0
    if not values:
        return Peak(sampled=None, at_s=None, low=mark or None, low_from=HIGH_WATER_MARK if mark else None)
    highest = max(values)
    sampled = int(highest)
    at_s = samples.time_s[samples[name].index(highest)]
    if mark > sampled:
        return Peak(sampled=sampled, at_s=at_s, low=mark, low_from=HIGH_WATER_MARK)
    return Peak(sampled=sampled, at_s=at_s, low=sampled, low_from=SAMPLED)
