"""Peaks as brackets, from samples and the kernel's high-water marks."""

from __future__ import annotations

from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING

from nncftools.metrics import is_memory
from nncftools.session.model import Peak
from nncftools.session.samples import known

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nncftools.session.model import Process
    from nncftools.session.samples import Samples

SAMPLED = "sampled"
HIGH_WATER_MARK = "high_water_mark"


def peaks(samples: Samples, processes: Sequence[Process], floor: int | None = None) -> dict[str, Peak]:
    """Return the peak of every memory metric that was recorded.

    RSS cannot have been lower than the high-water mark of any one process, which also holds what came and went
    between two samples, and not higher than the marks of processes that lived at the same time together. ``floor`` is
    what the sampler held: the command has it in its ``ru_maxrss``, over fork and exec (getrusage(2)).
    """
    found = {name: _sampled(name, samples) for name in samples.metrics if is_memory(name)}
    if "rss" in found:
        found["rss"] = _bracketed(found["rss"], processes, floor or 0)
    return found


def _sampled(name: str, samples: Samples) -> Peak:
    values = known(samples[name])
    if not values:
        return Peak(sampled=None, at_s=None, low=None)
    highest = max(values)
    at_s = samples.time_s[samples[name].index(highest)]
    return Peak(sampled=int(highest), at_s=at_s, low=int(highest), low_from=SAMPLED)


def _bracketed(peak: Peak, processes: Sequence[Process], floor: int) -> Peak:
    low, low_from = peak.low, peak.low_from
    mark = largest_mark(processes, floor)
    if mark > (low or 0):
        low, low_from = mark, HIGH_WATER_MARK
    high = _together(processes)
    if high is not None and low is not None:
        high = max(high, low)
    return Peak(sampled=peak.sampled, at_s=peak.at_s, low=low, high=high, low_from=low_from)


def largest_mark(processes: Sequence[Process], floor: int) -> int:
    """Return the largest high-water mark of a single process in bytes, 0 for unknown."""
    marks = [process.high_water_mark or 0 for process in processes]
    return max([*marks, *(mark_of_tree(process, floor) for process in processes)], default=0)


def mark_of_tree(process: Process, floor: int) -> int:
    """Return the largest mark of the command and all descendants that were waited for; 0 for unknown, or another one.

    It is the ``ru_maxrss`` of the process that the recording started, unless that is what the sampler held itself.
    """
    limit = process.high_water_limit or 0
    started_by_us = process.id == 0 and process.start_s is not None and process.start_s >= 0
    return limit if started_by_us and limit > floor else 0


def _together(processes: Sequence[Process]) -> int | None:
    """Return the largest sum of what processes that lived at the same time can have held; None when unknown."""
    by_id = {process.id: process for process in processes}
    held: list[tuple[float, float, int]] = []
    for process in processes:
        most = _most(process, by_id)
        if most is None or process.start_s is None:
            return None
        held.append((process.start_s, inf if process.end_s is None else process.end_s, most))
    return largest_sum(held) or None


def largest_sum(held: Iterable[tuple[float, float, int]]) -> int:
    """Return the largest sum of what overlaps, each given as its begin, its end and its size; 0 for nothing.

    What ends when another begins overlaps with it.
    """
    changes = [change for begin, end, size in held for change in ((begin, -size), (end, size))]
    return max(accumulate((-size for _, size in sorted(changes)), initial=0))


def _most(process: Process, by_id: Mapping[int, Process]) -> int | None:
    """Return what a process can have held at most.

    That is its mark, if the kernel told it at its end or the process still ran at the recording's; else the
    ``ru_maxrss`` of itself or of the next ancestor that has one, for it is the largest of all that were waited for.
    """
    if (process.accounted or process.end_s is None) and process.high_water_mark is not None:
        return process.high_water_mark
    above: Process | None = process
    for _ in range(len(by_id)):
        if above is None or above.high_water_limit is not None:
            break
        above = by_id.get(above.parent) if above.parent is not None else None
    return None if above is None else above.high_water_limit
