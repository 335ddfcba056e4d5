"""The figures of a session that a report names, and hints: what a reader should know before trusting a figure.

The figures are levels of memory, the largest process and rank, CPU time, several calls of an operation together, and
PSS near the peak. PSS takes long to count, so most samples do not know it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import inf, isnan
from typing import NamedTuple

from msgspec import structs

from nncftools.analysis.operation import Figures, LazyMapping, Operation
from nncftools.analysis.peaks import mark_of_tree
from nncftools.analysis.session import Session
from nncftools.metrics import cpu_counters
from nncftools.session.model import END_UNKNOWN, UNKNOWN_PEAK, Host, Peak, Process, RankRun, SessionData
from nncftools.session.samples import drift
from nncftools.units import MemoryUnit, seconds_text

_FEWEST_SAMPLES = 2


_DROPPED_SHARE = 0.05
_DROPPED_LEAST = 64 << 20
_STALL_LEAST_S = 0.5


def dropped_files(session: SessionData) -> int:
    """Return the bytes that were dropped and read again while memory was short; 0 if they were too few to matter."""
    dropped = session.totals.get("refaults") or 0
    stall_s = session.totals.get("memory_stall") or 0
    least = max(_DROPPED_LEAST, _DROPPED_SHARE * (session.rss_peak.low or 0))
    return round(dropped) if dropped > least and stall_s > _STALL_LEAST_S else 0


class MetricSummary(NamedTuple):
    """One memory metric over the whole session, in bytes; None for unknown."""

    peak: float | None
    """The lower bound of the bracket: the real peak is at least this."""
    span_s: tuple[float, float] | None
    """Between these moments memory rose to the peak; they are equal when a sample shows it; None for unknown."""
    final: float | None
    average: float | None
    """The mean of the samples."""
    lowest: float | None
    first: float | None

    @property
    def delta(self) -> float | None:
        """From the first sample to the last."""
        return None if self.final is None or self.first is None else self.final - self.first

    def from_zero(self) -> MetricSummary:
        """Return the same with the first sample, the baseline, subtracted."""
        zero = self.first
        sizes = {name: getattr(self, name) for name in ("peak", "final", "average", "lowest", "first")}
        above = {name: None if size is None or zero is None else size - zero for name, size in sizes.items()}
        return self._replace(**above)


def level(session: SessionData, name: str) -> MetricSummary:
    """Return the level of the memory metric ``name``."""
    values, figures = session.samples[name], session.samples.figures(name)
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
    """Return by how many bytes what everyone holds of a device rose after its first reading, and when that was.

    Where the driver does not tell what a process holds, the run holds at most this, but for what it held by then.
    """
    column = f"device_used@{device}"
    if column not in session.samples:
        return None
    pairs = zip(session.samples.time_s, session.samples[column], strict=True)
    known = [(at_s, size) for at_s, size in pairs if not isnan(size)]
    return (max(size for _, size in known) - known[0][1], known[0][0]) if known else None


def is_between_samples(peak: Peak) -> bool:
    """Return whether the kernel's marks prove a peak that no sample comes close to."""
    return (peak.low or 0) > (peak.sampled or 0) + drift(peak.low or 0)


class LargestProcess(NamedTuple):
    """The process that held the most memory by itself."""

    process: Process
    size: int
    """In bytes."""
    by_kernel: bool
    """Whether the size is the kernel's high-water mark and not a sample."""


def largest_process(session: Session) -> LargestProcess | None:
    """Return the process that held the most memory by itself, or None when no size is known.

    The ``ru_maxrss`` of the command is its own only when no other process was seen. When the sampler was killed, the
    figures of processes that went on may be old: the largest must have held a share of the peak.
    """
    alone = len(session.processes) == 1
    candidates = []
    for process in session.processes:
        of_tree = mark_of_tree(process, session.sampler.peak_rss or 0) if alone else 0
        mark, sampled = max(process.high_water_mark or 0, of_tree), process.peak_rss or 0
        candidates.append(LargestProcess(process, max(mark, sampled), mark >= sampled))
    largest = max(candidates, key=lambda candidate: candidate.size, default=None)
    least = 0 if session.finished else (session.rss_peak.sampled or 0) / max(1, len(candidates))
    return None if largest is None or not largest.size or largest.size < least else largest


def is_of_python(session: Session) -> bool:
    """Return whether the process that held the most memory is a Python."""
    largest = largest_process(session)
    return largest is not None and largest.process.is_python


def cpu_s(session: Session) -> float | None:
    """Return the CPU seconds of the whole tree, user and system."""
    spent = [session.totals[name] for name in cpu_counters(session.totals)]
    return total(spent) if spent else None


def total(values: Sequence[float | None]) -> float | None:
    """Return the sum of values; None if one of them is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def cores_average(session: Session) -> float | None:
    """Return how many cores the whole tree kept busy, on average over the recording."""
    spent_s = cpu_s(session)
    return None if spent_s is None or session.duration_s <= 0 else spent_s / session.duration_s


def taken(session: Session) -> int:
    """Return how many samples were taken, including those that were merged with their neighbours."""
    return max(session.sampler.taken or 0, len(session.samples))


def short_lived(session: Session) -> int:
    """Return how many processes were seen in fewer than two samples: sums may be too small while they lived."""
    return sum(process.samples < _FEWEST_SAMPLES for process in session.processes)


def unit_for(size: float) -> MemoryUnit:
    """Return the largest binary unit in which ``size`` bytes are a number of at least one."""
    units = (MemoryUnit.GiB, MemoryUnit.MiB, MemoryUnit.KiB)
    return next((unit for unit in units if size >= unit.factor), MemoryUnit.B)


def end_of(run: RankRun) -> float:
    """Return when a rank ended, in seconds since the start of the job."""
    return run.start_s + run.duration_s


def failed_in_order(runs: Iterable[RankRun]) -> list[RankRun]:
    """Return the ranks of a job that failed, in the order of their ends; of equal ones, first those without a signal.

    What failed later is a consequence: often the launcher ended it by a signal.
    """
    failed = [run for run in runs if run.exit is not None and (run.exit.code or run.exit.signal is not None)]
    return sorted(failed, key=lambda run: (end_of(run), run.exit is not None and run.exit.signal is not None))


def largest_rank(runs: Iterable[RankRun]) -> RankRun | None:
    """Return the rank of a job whose RSS peak is the highest; None when none is known."""
    known = [(peak.low, run) for run in runs if (peak := run.peaks.get("rss")) is not None and peak.low is not None]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def combined(group: Sequence[Operation]) -> Operation:
    """Return several calls as one operation: from the first start to the last end, with the sum of what they cost.

    The sum is unknown if some ran at the same time: the figures of each are then those of all of them.
    """
    if len(group) == 1:
        return group[0]
    first, last = group[0], max(group, key=lambda operation: operation.end_s)
    latest_s = accumulate((operation.end_s for operation in group), max)
    is_sum = all(after.start_s >= end_s for after, end_s in zip(group[1:], latest_s, strict=False))
    has_peak = {operation.has_peak for operation in group}
    errors = [operation.error for operation in reversed(group) if operation.error]
    return structs.replace(
        first,
        calls=group,
        end_s=last.end_s,
        error=END_UNKNOWN if END_UNKNOWN in errors else next(iter(errors), None),
        count=sum(operation.count for operation in group),
        total_s=sum(call.in_calls_s for call in group),
        cores_s=sum(call.duration_s if call.cores_s is None else call.cores_s for call in group),
        longest_s=max(call.duration_s if call.longest_s is None else call.longest_s for call in group),
        arguments=_common(call.arguments for call in group),
        saved=_common(call.saved for call in group),
        has_peak=True if True in has_peak else None if None in has_peak else False,
        is_parallel=any(call.is_parallel for call in group),
        figures=LazyMapping(
            first.figures, lambda column: _total([call.of(column) for call in group], last.of(column), is_sum=is_sum)
        ),
        rates=LazyMapping(first.rates, lambda column: _highest(call.rates[column] for call in group)),
    )


class HiddenTime(NamedTuple):
    """Most of a run's time, in calls of one name that a list of the outer levels does not show."""

    name: str
    calls: int
    time_s: float
    """Time that several calls share counts once."""
    inside: str
    """The names of the listed operations around these calls; empty if there are none."""


def hidden_time(session: Session, depth: int = 1) -> HiddenTime | None:
    """Return the calls that explain most of the run although the outer ``depth`` levels do not show them, if any do.

    Calls of one name explain it if they took at least half of the run, and more than any listed operation without such
    a call inside it. Of several names, the one on the innermost level is returned.
    """
    listed = [operation for operation in session.operations if operation.depth < depth]
    calls: dict[str, list[Operation]] = {}
    for operation in session.operations:
        if operation.depth >= depth:
            calls.setdefault(operation.name, []).append(operation)
    found = []
    for name, group in calls.items():
        time_s = _time_in(group)
        if time_s * 2 < session.duration_s:
            continue
        around = {outer for call in group for outer in (call, *call.ancestors)}
        others = (operation.duration_s for operation in listed if operation not in around)
        names = {outer.name for outer in around if outer.depth == depth - 1}
        if name not in names and time_s > max(others, default=0.0):
            hidden = HiddenTime(name, sum(call.count for call in group), time_s, " or ".join(sorted(names)))
            found.append((group[-1].depth, hidden.time_s, hidden))
    return max(found)[-1] if found else None


def _time_in(calls: Sequence[Operation]) -> float:
    """Return the seconds in which at least one of these calls ran; calls are in the order of their starts."""
    time_s = 0.0
    until_s = -inf
    for call in calls:
        if call.end_s > until_s:
            time_s += min(call.in_calls_s, call.end_s - max(call.start_s, until_s))
            until_s = call.end_s
    return time_s


def _common(texts: Iterable[str | None]) -> str | None:
    different = set(texts)
    return different.pop() if len(different) == 1 else None


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _total(every: Sequence[Figures], last: Figures, *, is_sum: bool) -> Figures:
    """Return the figures of a column for several operations together."""
    return Figures(
        start=every[0].start,
        end=last.end,
        peak=max((figures.peak for figures in every if figures.peak is not None), key=lambda of: of.low, default=None),
        spent=total([figures.spent for figures in every]) if is_sum else None,
    )


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
    samples, moment = session.samples, session.peak_place
    if moment is None or not {"rss", "pss"} <= set(samples.metrics):
        return None
    ages = samples["pss_age"] if "pss_age" in samples else [0.0] * len(samples)
    times, every_rss = samples.time_s, samples["rss"]
    known = []
    counted = [(at_s - age, pss) for at_s, age, pss in zip(times, ages, samples["pss"], strict=True) if not isnan(pss)]
    for counted_s, pss in counted:
        rss = every_rss[max(0, bisect_right(times, counted_s) - 1)]  # the sample shows it later than it was counted
        if not isnan(rss):
            known.append((max(0.0, moment.from_s - counted_s, counted_s - moment.to_s), rss, pss))
    if not known:
        return None
    at_peak = [item for item in known if item[1] >= (session.rss_peak.low or 0) * _NEAR]
    distance_s, rss, pss = min(at_peak or known)
    return NearPeak(pss, rss, distance_s, is_at_peak=bool(at_peak))


_MANY_MISSED = 0.05
_PAUSE_S = 1.0
"""A busy machine, or the start of a process, delays samples by less: only a longer gap is a pause of the run."""
_DISK_WAS_FULL = "the journal could not be written"
"""The beginning of the warning that explains missing samples."""
_NAMED = 3
_HELPER, _HELPERS = "from multiprocessing.", ("resource_tracker", "forkserver")
"""How the code of processes begins that end just after their program."""


def of_recording(session: Session) -> list[str]:
    """Return the warnings of one recording by itself, which also hold when it is merged with others."""
    return [*session.warnings, *_survivors(session), *_missed(session)]


def processes_at_peak(session: Session) -> list[Process]:
    """Return the processes that were alive at the RSS peak; none if its moment is unknown."""
    at_s = session.rss_peak.at_s
    if at_s is None:
        return []
    return [
        process
        for process in session.processes
        if (process.start_s or 0) <= at_s and (process.end_s is None or at_s < process.end_s)
    ]


def forked_copies(session: Session) -> int:
    """Return how many processes at the RSS peak were forked copies, which share pages with their parent."""
    return sum(process.forked_copy for process in processes_at_peak(session))


def _is_helper(process: Process) -> bool:
    code = " ".join(process.command).partition(_HELPER)[2]
    return code.startswith(_HELPERS) and not process.forked_copy  # which is a worker


_SINCE, _EXACT_AGAIN = (6, 2), (6, 16)
"""Linux counts RSS on each CPU since commit f1a7941243c1. /proc adds these counts up again since 82241a83cd15."""
_ALSO_EXACT = {(6, 6): 99, (6, 12): 39, (6, 15): 7}
"""The stable releases that took 82241a83cd15: from this patch level on."""
_RELEASE = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")


def rss_error(host: Host) -> int:
    """Return by how many bytes RSS in /proc may be off for one process; 0 where it is exact, or nothing is known.

    Each CPU adds its count to the sum when it has reached a batch, max(32, 2 × CPUs) pages (lib/percpu_counter.c).
    """
    version = _RELEASE.match(host.release)
    if host.system != "Linux" or host.cpus is None or version is None:
        return 0
    series, patch = (int(version[1]), int(version[2])), int(version[3] or 0)
    if not _SINCE <= series < _EXACT_AGAIN or patch >= _ALSO_EXACT.get(series, patch + 1):
        return 0
    has_large_pages = "64k" in host.release or host.machine.startswith("ppc64")
    return max(32, 2 * host.cpus) * host.cpus * (65536 if has_large_pages else 4096)


def _survivors(session: Session) -> Iterator[str]:
    if not session.finished or session.attached_to is not None:
        return
    left = [process for process in session.processes if process.end_s is None and not _is_helper(process)]
    if left and left[0].id != 0:
        named = ", ".join(f"{process.name} (pid {process.pid})" for process in left[:_NAMED])
        more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        yield f"still running when the command ended, and not recorded further: {named}{more}"


def _missed(session: Session) -> Iterator[str]:
    facts = session.sampler
    if session.duration_s < _PAUSE_S:
        return
    missed = facts.missed or 0
    due = missed + taken(session)
    if missed <= due * _MANY_MISSED or any(text.startswith(_DISK_WAS_FULL) for text in session.warnings):
        return
    gap_s = facts.longest_gap_s or 0.0
    lost = f"{missed:,} of {due:,} samples were missed"
    if gap_s >= _PAUSE_S and facts.interval_s and missed - gap_s / facts.interval_s <= due * _MANY_MISSED:
        yield f"{lost}, in one gap of {seconds_text(gap_s)}: the run was suspended, or the machine slept or was busy"
    else:
        yield f"{lost}, the longest gap is {seconds_text(gap_s)}: use a longer --interval or leave a core free"
