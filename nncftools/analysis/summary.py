"""Computes the figures of a whole session for reports, points for drawing, and warnings about figures.

Sizes are bytes, times are seconds, None is unknown. PSS takes long to count, so most samples have no PSS. Only the
functions for drawing load NumPy.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from math import inf, isnan
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from nncftools.analysis.operation import Operation, sum_all
from nncftools.analysis.peaks import CPU, RATE_WINDOW_S, READING, mark_of_tree, pick_spaced
from nncftools.analysis.session import Session
from nncftools.metrics import cpu_counters
from nncftools.session.model import UNKNOWN_PEAK, Exit, Host, Peak, Process, RankRun, SessionData
from nncftools.session.samples import drift
from nncftools.units import MemoryUnit, seconds_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = "NDArray[np.float64]"
Points: TypeAlias = "tuple[Floats, Floats]"


_DROPPED_SHARE = 0.05
_DROPPED_LEAST = 64 << 20
_STALL_LEAST_S = 0.5


def dropped_files(session: SessionData) -> int:
    """Return how many bytes of files the kernel dropped from the page cache and read again because memory was short.

    The result is 0 if there are too few to matter.
    """
    dropped = session.totals.get("refaults") or 0
    stall_s = session.totals.get("memory_stall") or 0
    least = max(_DROPPED_LEAST, _DROPPED_SHARE * (session.rss_peak.low or 0))
    return round(dropped) if dropped > least and stall_s > _STALL_LEAST_S else 0


class MetricSummary(NamedTuple):
    """A memory metric over the whole session."""

    peak: float | None
    """The lower bound of the peak: the real peak is at least this size."""
    span_s: tuple[float, float] | None
    """The peak was reached between these two moments. If a sample shows the peak, both moments are equal."""
    final: float | None
    average: float | None
    """The mean of the samples."""
    lowest: float | None
    first: float | None

    @property
    def delta(self) -> float | None:
        """The last known sample minus the first known sample; None if no sample is known."""
        return None if self.final is None or self.first is None else self.final - self.first

    def from_zero(self) -> MetricSummary:
        """Return the summary minus the first sample, which is the baseline."""
        above = {}
        for name in ("peak", "final", "average", "lowest", "first"):
            size = getattr(self, name)
            above[name] = None if size is None or self.first is None else size - self.first
        return self._replace(**above)


def summarize_level(session: SessionData, name: str) -> MetricSummary:
    """Return the summary of the memory metric ``name``."""
    values = session.samples[name]
    figures = session.samples.figures(name)
    peak = session.peaks.get(name, UNKNOWN_PEAK)
    return MetricSummary(
        peak=peak.low,
        span_s=peak.span_s,
        final=next((value for value in reversed(values) if not isnan(value)), None),
        average=figures.average,
        lowest=figures.lowest if figures.known else None,
        first=next((value for value in values if not isnan(value)), None),
    )


def device_rise(session: Session, device: str) -> tuple[float, float] | None:
    """Return how far a device's used memory rose above the first reading, and the moment of the first reading.

    If the driver does not report the memory of single processes, the run took at most this memory after the first
    reading.
    """
    column = f"device_used@{device}"
    if column not in session.samples:
        return None
    pairs = zip(session.samples.time_s, session.samples[column], strict=True)
    readings = [(at_s, size) for at_s, size in pairs if not isnan(size)]
    if not readings:
        return None
    first_s, first = readings[0]
    return max(size for _, size in readings) - first, first_s


def is_between_samples(peak: Peak) -> bool:
    """Return whether the kernel's high-water marks prove a peak far above all samples."""
    low = peak.low or 0
    is_above = low > (peak.sampled or 0) + drift(low)
    return is_above and peak.low_from != READING


class LargestProcess(NamedTuple):
    """The process that held the most memory by itself."""

    process: Process
    size: int
    by_kernel: bool
    """Whether the size is the kernel's high-water mark. Otherwise, the size is a sample."""


def largest_process(session: Session) -> LargestProcess | None:
    """Return the process that held the most memory by itself.

    The ``ru_maxrss`` of the command counts only if no other process was seen. If the sampler was killed, figures of
    processes that continued to run may be too old. In this case, the result is None if the process held less than the
    peak divided by the number of processes.
    """
    largest = None
    for process in session.processes:
        mark = process.high_water_mark or 0
        if len(session.processes) == 1:
            mark = max(mark, mark_of_tree(process, session.sampler.peak_rss or 0))
        sampled = process.peak_rss or 0
        size = max(mark, sampled)
        if largest is None or size > largest.size:
            largest = LargestProcess(process, size, by_kernel=mark >= sampled)
    if largest is None or not largest.size:
        return None
    share = (session.rss_peak.sampled or 0) / len(session.processes)
    return largest if session.finished or largest.size >= share else None


def is_of_python(session: Session) -> bool:
    """Return whether the process that held the most memory is a Python process."""
    largest = largest_process(session)
    return largest is not None and largest.process.is_python


def cpu_s(session: Session) -> float | None:
    """Return the CPU seconds of the whole tree: user time plus system time."""
    spent = [session.totals[name] for name in cpu_counters(session.totals)]
    return sum_all(spent) if spent else None


def cores_average(session: Session) -> float | None:
    """Return the average number of cores that the whole tree kept busy over the recording."""
    spent_s = cpu_s(session)
    return None if spent_s is None or session.duration_s <= 0 else spent_s / session.duration_s


def count_samples(session: Session) -> int:
    """Return the number of samples that were taken, including samples that were merged with others."""
    return max(session.sampler.taken or 0, len(session.samples))


def count_short_lived(session: Session) -> int:
    """Return how many processes were seen in fewer than two samples. During their lives, sums may be too small."""
    return sum(process.samples in (0, 1) for process in session.processes)


def unit_for(size: float) -> MemoryUnit:
    """Return the largest binary unit that is at most ``size`` bytes."""
    units = (MemoryUnit.GiB, MemoryUnit.MiB, MemoryUnit.KiB)
    return next((unit for unit in units if size >= unit.factor), MemoryUnit.B)


def end_of(run: RankRun) -> float:
    """Return the end of a rank in seconds since the start of the job."""
    return run.start_s + run.duration_s


def failed_in_order(runs: Iterable[RankRun]) -> list[RankRun]:
    """Return the failed ranks of a job, sorted by end. If ends are equal, ranks without a signal come first.

    Later failures are consequences: often, the launcher ended these ranks by a signal.
    """

    def order(run: RankRun) -> tuple[float, bool]:
        return end_of(run), run.exit is not None and run.exit.signal is not None

    not_failed = (None, Exit(), Exit(code=0))
    failed = [run for run in runs if run.exit not in not_failed]
    return sorted(failed, key=order)


def largest_rank(runs: Iterable[RankRun]) -> RankRun | None:
    """Return the rank of a job whose RSS peak is the highest of all ranks; None if no peak is known."""
    largest = None
    size = -1
    for run in runs:
        low = run.peaks.get("rss", UNKNOWN_PEAK).low
        if low is not None and low > size:
            largest = run
            size = low
    return largest


class HiddenTime(NamedTuple):
    """Inner calls with the same name that took most of a run.

    They are nested too deeply to be in the table of operations.
    """

    name: str
    calls: int
    time_s: float
    """Seconds during which at least one of the inner calls ran."""
    inside: str
    """Names of the operations in the table that enclose the inner calls: ``Export or Load``; empty if there are none.
    """


def hidden_time(session: Session, depth: int = 1) -> HiddenTime | None:
    """Return the inner calls with the same name that took most of the run; None if there are none.

    The table of operations has only the first ``depth`` nesting levels. Operations in these levels are outer
    operations, and all others are inner calls. Inner calls with the same name are returned if they took at least half
    of the run, and more time than any outer operation that contains no call with this name. If this is true for several
    names, the most deeply nested calls are returned.
    """
    listed = [operation for operation in session.operations if operation.depth < depth]
    calls: dict[str, list[Operation]] = {}
    for operation in session.operations:
        if operation.depth >= depth:
            calls.setdefault(operation.name, []).append(operation)
    candidates = []
    for name, group in calls.items():
        time_s = _time_in(group)
        if time_s * 2 < session.duration_s:
            continue
        around = set(group)
        for call in group:
            around.update(call.ancestors)
        others = [operation.duration_s for operation in listed if operation not in around]
        names = {outer.name for outer in around if outer.depth == depth - 1}
        if name not in names and time_s > max(others, default=0.0):
            count = sum(call.count for call in group)
            hidden = HiddenTime(name, count, time_s, inside=" or ".join(sorted(names)))
            candidates.append((group[-1].depth, time_s, hidden))
    return max(candidates)[-1] if candidates else None


def _time_in(calls: Sequence[Operation]) -> float:
    """Return the seconds during which any of these calls ran. The calls are sorted by start."""
    time_s = 0.0
    until_s = -inf
    for call in calls:
        if call.end_s > until_s:
            time_s += min(call.in_calls_s, call.end_s - max(call.start_s, until_s))
            until_s = call.end_s
    return time_s


_NEAR = 0.95
"""A sample is near the peak if RSS is at least this share of the peak."""


class NearPeak(NamedTuple):
    """The sample with a known PSS that is nearest to the RSS peak."""

    pss: float
    rss: float
    distance_s: float
    is_at_peak: bool
    """Whether RSS in this sample was near the peak."""


def pss_near_peak(session: Session) -> NearPeak | None:
    """Return PSS at the RSS peak; None if PSS or the moment of the peak is unknown."""
    samples = session.samples
    place = session.peak_place
    if place is None or "rss" not in samples or "pss" not in samples:
        return None
    ages_s = samples["pss_age"] if "pss_age" in samples else [0.0] * len(samples)
    enough = (session.rss_peak.low or 0) * _NEAR
    candidates = []
    for at_s, age_s, pss in zip(samples.time_s, ages_s, samples["pss"], strict=True):
        if isnan(pss):
            continue
        counted_s = at_s - age_s  # PSS was counted earlier than the sample
        rss = samples["rss"][max(0, bisect_right(samples.time_s, counted_s) - 1)]
        if not isnan(rss):
            distance_s = max(0.0, place.from_s - counted_s, counted_s - place.to_s)
            candidates.append(NearPeak(pss, rss, distance_s, is_at_peak=rss >= enough))
    at_peak = [near for near in candidates if near.is_at_peak]
    return min(at_peak or candidates, key=attrgetter("distance_s", "rss", "pss"), default=None)


_MANY_MISSED = 0.05
_PAUSE_S = 1.0
"""If a gap between samples is at least this long, the run was paused. A busy machine, or the start of a process,
causes shorter gaps.
"""
_DISK_WAS_FULL = "the journal could not be written"
"""The beginning of a warning. A session with this warning needs no other warning about missing samples."""
_NAMED = 3
_HELPER = "from multiprocessing."
_HELPERS = ("resource_tracker", "forkserver")
"""Helper processes of Python that end just after the program that started them. Python starts a helper with
``-c CODE``. The code contains the text of ``_HELPER``, followed by one of these names."""


def of_recording(session: Session) -> list[str]:
    """Return the warnings of a recording. A merged session has the warnings of all merged recordings."""
    if session.ranks:
        return [*session.warnings]
    return [*session.warnings, *_warn_of_survivors(session), *_warn_of_missed(session)]


def processes_at_peak(session: Session) -> list[Process]:
    """Return the processes that were alive at the RSS peak; empty if the moment is unknown."""
    at_s = session.rss_peak.at_s
    if at_s is None:
        return []
    begun = [process for process in session.processes if (process.start_s or 0) <= at_s]
    return [process for process in begun if process.end_s is None or at_s < process.end_s]


def forked_copies(session: Session) -> int:
    """Return how many processes at the RSS peak were forked copies, which share pages with the parent."""
    return sum(process.forked_copy for process in processes_at_peak(session))


def _is_helper(process: Process) -> bool:
    code = " ".join(process.command).partition(_HELPER)[2]
    return code.startswith(_HELPERS) and not process.forked_copy  # a forked copy is a worker, not a helper


_SINCE = (6, 2)
"""From this version of Linux on, RSS in /proc is not exact, because each CPU keeps a part of the count of a process's
pages (commit f1a7941243c1).
"""
_EXACT_AGAIN = (6, 16)
"""From this version of Linux on, RSS in /proc is exact again, because the kernel adds up the parts of all CPUs (commit
82241a83cd15).
"""
_ALSO_EXACT = {
    (6, 6): 99,
    (6, 12): 39,
    (6, 15): 7,
}
"""Older versions of Linux in which RSS is exact from a patch level on, because they also have commit 82241a83cd15:
``{(major, minor): first patch level}``.
"""
_RELEASE = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")


def rss_error(host: Host) -> int:
    """Return the possible error of a process's RSS in /proc, in bytes; 0 if RSS is exact, or if nothing is known.

    Each CPU keeps a part of the page count. A CPU adds this part to the sum when the part reaches max(32, 2 × number of
    CPUs) pages (lib/percpu_counter.c).
    """
    version = _RELEASE.match(host.release)
    if host.system != "Linux" or host.cpus is None or version is None:
        return 0
    series = (int(version[1]), int(version[2]))
    patch = int(version[3] or 0)
    if not _SINCE <= series < _EXACT_AGAIN or patch >= _ALSO_EXACT.get(series, patch + 1):
        return 0
    has_large_pages = "64k" in host.release or host.machine.startswith("ppc64")
    return max(32, 2 * host.cpus) * host.cpus * (65536 if has_large_pages else 4096)


def _warn_of_survivors(session: Session) -> Iterator[str]:
    if not session.finished or session.attached_to is not None:
        return
    survivors = [process for process in session.processes if process.end_s is None and not _is_helper(process)]
    if survivors and survivors[0].id != 0:
        names = ", ".join(f"{process.name} (pid {process.pid})" for process in survivors[:_NAMED])
        more = f" and {len(survivors) - _NAMED} more" if len(survivors) > _NAMED else ""
        yield f"still running when the command ended, and not recorded further: {names}{more}"


def _warn_of_missed(session: Session) -> Iterator[str]:
    sampler = session.sampler
    missed = sampler.missed or 0
    due = missed + count_samples(session)
    few = due * _MANY_MISSED
    is_explained = any(text.startswith(_DISK_WAS_FULL) for text in session.warnings)
    if session.duration_s < _PAUSE_S or missed <= few or is_explained:
        return
    gap_s = sampler.longest_gap_s or 0.0
    text = f"{missed:,} of {due:,} samples were missed"
    if gap_s >= _PAUSE_S and sampler.interval_s and missed - gap_s / sampler.interval_s <= few:
        yield f"{text}, in one gap of {seconds_text(gap_s)}: the run was suspended, or the machine slept or was busy"
    else:
        yield f"{text}, the longest gap is {seconds_text(gap_s)}: use a longer --interval or leave a core free"


SELDOM = 0.6
"""If a metric is known in a smaller share of the samples, the metric has a longer interval of its own, like PSS."""
GAP = 2.5
"""If two samples are more than this many intervals apart, the metric is unknown in between."""
_SHORTEST_S = 1e-3

MOST_POINTS = 2000
"""The most points to draw. A screen cannot show more."""


def keep_extremes(time: Floats, value: Floats, most: int = MOST_POINTS) -> Points:
    """Return points in time order: the least and the largest of each bucket, and the last point.

    ``most`` limits the number of points. If a bucket has unknown values, the first NaN is kept, too, so that a gap
    stays a gap.
    """
    import numpy as np

    if len(value) <= most:
        return time, value
    unknown = np.isnan(value)
    kept_of_bucket = 3 if unknown.any() else 2
    width = -(-len(value) // ((most - 1) // kept_of_bucket))
    padding = (0, -len(value) % width)
    buckets = np.pad(value, padding, mode="edge").reshape(-1, width)
    is_unknown = np.pad(unknown, padding, mode="edge").reshape(-1, width)
    offsets = [
        np.where(is_unknown, np.inf, buckets).argmin(axis=1),
        np.where(is_unknown, -np.inf, buckets).argmax(axis=1),
        is_unknown.argmax(axis=1),
    ]
    begins = np.arange(0, len(value), width)
    in_buckets = begins + np.array(offsets[:kept_of_bucket])
    indexes = np.unique(np.append(in_buckets, len(value) - 1))
    return time[indexes], value[indexes]


def decimated_with_gaps(
    time_s: ArrayLike, values: ArrayLike, interval_s: float | None, points: int = MOST_POINTS
) -> Points:
    """Return times and values of fewer points that look like the whole column. ``points`` limits the number of points.

    If samples are missing, a NaN breaks the line. Some metrics (PSS) are unknown in most samples. For these metrics,
    only known values are returned, without NaN.
    """
    import numpy as np

    time = np.asarray(time_s, dtype=np.float64)
    value = np.asarray(values, dtype=np.float64)
    is_known = ~np.isnan(value)
    if is_known.sum() < len(is_known) * SELDOM:
        time = time[is_known]
        value = value[is_known]
    elif interval_s:
        after = np.flatnonzero(np.diff(time) > GAP * interval_s) + 1
        time = np.insert(time, after, time[after])
        value = np.insert(value, after, np.nan)
    return keep_extremes(time, value, points)


def run_s(session: SessionData) -> float:
    """Return the length of a session's time axis in seconds, which is never 0."""
    return max([session.duration_s, *session.samples.time_s[-1:], _SHORTEST_S])


def window_s(session: SessionData, most: int) -> float:
    """Return the length in seconds of the windows in which rates are measured. ``most`` limits the number of rates."""
    return max(RATE_WINDOW_S, run_s(session) / most)


def rates_of(session: SessionData, counters: Sequence[str], most: int) -> Points:
    """Return moments, and the rate of the sum of counters from each moment to the next.

    ``most`` limits the number of rates. If a counter was not recorded, there are no moments and no rates.
    """
    import numpy as np

    samples = session.samples
    if not counters or not all(column in samples for column in counters):
        return np.empty(0), np.empty(0)
    columns = [np.asarray(samples[column]) for column in counters]
    totals = np.sum(columns, axis=0)
    return rates(samples.time_s, totals, window_s(session, most), session.sampler.spacing_s)


def highest_rate(session: Session, counters: Sequence[str]) -> float | None:
    """Return the highest rate of the sum of counters over 0.2 s; None if unknown, or if the run is shorter.

    The rates of operations are included, because their windows begin at other moments. So the result is at least the
    highest rate of any operation.
    """
    _, sampled = rates_of(session, counters, sys.maxsize)
    all_rates = [rate for rate in sampled.tolist() if not isnan(rate)]
    column = ""
    if tuple(counters) == cpu_counters(session.samples):
        column = CPU
    elif len(counters) == 1:
        column = counters[0]
    for operation in session.operations:
        rate = operation.rates.get(column)
        if rate is not None:
            all_rates.append(rate)
    return max(all_rates, default=None)


def rates(time_s: ArrayLike, totals: ArrayLike, window_s: float, interval_s: float | None = None) -> Points:
    """Return moments, and the growth per second of the counter ``totals`` from each moment to the next.

    There is one rate fewer than moments, as ``Axes.stairs`` needs. Moments are the times of samples with a known
    counter, at least ``window_s`` apart; the last sample ends the last window. If two samples are more than 2.5 windows
    and 2.5 ``interval_s`` apart, samples are missing, and the rate is NaN. If the samples span no window, there are no
    moments and no rates.
    """
    import numpy as np

    time = np.asarray(time_s, dtype=np.float64)
    total = np.asarray(totals, dtype=np.float64)
    is_known = ~np.isnan(total)
    time = time[is_known]
    total = total[is_known]
    bounds = list(pick_spaced(time.data, window_s))  # the loop is over windows, not over samples
    if len(bounds) <= 1:
        return np.empty(0), np.empty(0)
    bounds[-1] = len(time) - 1
    moments = time[bounds]
    rate = np.diff(total[bounds]) / np.diff(moments)
    if interval_s:
        gaps = np.flatnonzero(np.diff(time) > GAP * max(interval_s, window_s))
        rate[np.searchsorted(bounds, gaps, side="right") - 1] = np.nan
    return moments, rate
