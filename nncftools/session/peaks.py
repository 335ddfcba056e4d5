"""Peaks as brackets, from samples and the kernel's high-water marks."""

from __future__ import annotations

from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING

from msgspec.structs import replace

from nncftools.metrics import is_memory
from nncftools.session.model import Peak

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nncftools.session.model import Process
    from nncftools.session.samples import Samples

SAMPLED = "sampled"
HIGH_WATER_MARK = "high_water_mark"


def peaks(samples: Samples, processes: Sequence[Process], floor: int | None = None) -> dict[str, Peak]:
    """Return the peak of every memory metric that was recorded.

    The RSS peak was at least the high-water mark of any one process: a mark also covers what came and went between two
    samples. It was at most the sum of the marks of processes that lived at the same time. ``floor`` is what the sampler
    itself held: the command inherits it in its ``ru_maxrss`` over fork and exec (getrusage(2)).
    """
    found = {name: sampled_peak(name, samples) for name in samples.metrics if is_memory(name)}
    if "rss" in found:
        by_id = {process.id: process for process in processes}
        held = ((process.start_s, process.end_s, _most(process, by_id)) for process in processes)
        found["rss"] = bracketed(found["rss"], _largest_mark(processes, floor or 0), largest_sum(held) or None)
    return found


def sampled_peak(name: str, samples: Samples) -> Peak:
    """Return the peak of a metric as far as samples show it."""
    figures = samples.figures(name)
    if not figures.known:
        return Peak(sampled=None, at_s=None, low=None)
    at_s = samples.time_s[samples[name].index(figures.highest)]
    return Peak(sampled=int(figures.highest), at_s=at_s, low=int(figures.highest), low_from=SAMPLED)


def bracketed(peak: Peak, mark: int, high: int | None) -> Peak:
    """Return a sampled peak that was also at least ``mark``, 0 for unknown, and at most ``high``, None for unknown."""
    if mark > (peak.low or 0):
        peak = replace(peak, low=mark, low_from=HIGH_WATER_MARK)
    return replace(peak, high=None if high is None else max(high, peak.low or 0))


def _largest_mark(processes: Sequence[Process], floor: int) -> int:
    """Return the largest high-water mark of a single process in bytes, 0 for unknown."""
    return max((max(process.high_water_mark or 0, mark_of_tree(process, floor)) for process in processes), default=0)


def mark_of_tree(process: Process, floor: int) -> int:
    """Return the largest mark of the command and all descendants that were waited for; 0 if it is unknown.

    This is the ``ru_maxrss`` of the process that the recording started, unless it is what the sampler itself held. It
    is 0 for any other process.
    """
    limit = process.high_water_limit or 0
    started_by_us = process.id == 0 and process.start_s is not None and process.start_s >= 0
    return limit if started_by_us and limit > floor else 0


def largest_sum(held: Iterable[tuple[float | None, float | None, int | None]]) -> int | None:
    """Return the largest sum of sizes that were held at the same time, each given as its begin, its end and its size.

    What ends at the moment at which another begins overlaps with it. An end of None is never. The sum is None if a
    begin or a size is.
    """
    changes: list[tuple[float, int]] = []
    for begin, end, size in held:
        if begin is None or size is None:
            return None
        changes += [(begin, -size), (inf if end is None else end, size)]
    return max(accumulate((-size for _, size in sorted(changes)), initial=0))


def _most(process: Process, by_id: Mapping[int, Process]) -> int | None:
    """Return the most that a process can have held.

    This is its mark, if the kernel reported it at the end of the process or the process was still running at the end of
    the recording. Otherwise it is the ``ru_maxrss`` of the process or of the nearest ancestor that has one, since that
    is the largest of all descendants that were waited for.
    """
    if (process.accounted or process.end_s is None) and process.high_water_mark is not None:
        return process.high_water_mark
    above: Process | None = process
    for _ in range(len(by_id)):
        if above is None or above.high_water_limit is not None:
            break
        above = by_id.get(above.parent) if above.parent is not None else None
    return None if above is None else above.high_water_limit
