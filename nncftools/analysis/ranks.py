"""Recordings of the ranks of one job, merged into one session.

The columns are sums of what the ranks held at the same time, on one clock.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from math import isnan
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from nncftools import metrics
from nncftools.analysis.peaks import MostHeld, PeakCandidate, bracketed, moved, sampled_peak
from nncftools.analysis.series import GAP, SELDOM, decimated_with_gaps
from nncftools.analysis.session import Session
from nncftools.analysis.summary import cpu_s, end_of, failed_in_order, largest_rank, of_recording, total
from nncftools.backports import moment_of
from nncftools.errors import NncfToolsError
from nncftools.metrics import is_counter, is_memory
from nncftools.session.model import Host, Peak, Process, RankRun, SamplerFacts, Start
from nncftools.session.nesting import with_ends
from nncftools.session.samples import TIME, Samples, kept_rows
from nncftools.units import seconds_text

Column = NDArray[np.float64]
Parts = Sequence[tuple[float, Session]]
"""Start times and recordings."""
Named = Mapping[str, Session]

_MOST_ROWS = 1_000_000


def summed(parts: Parts) -> Samples:
    """Return the sums at every moment at which a rank took a sample; very many moments are merged into buckets."""
    moments = np.unique(np.concatenate([np.asarray(session.samples.time_s) + at_s for at_s, session in parts]))
    every = dict.fromkeys(name for _, session in parts for name in session.samples.metrics)
    columns = [name for name in every if _has_sum(parts, name)]
    sums = {name: _sum(parts, name, moments) for name in columns if is_memory(name)}
    if len(moments) > _MOST_ROWS:
        kept = kept_rows([_column(values) for values in sums.values()], len(moments), _MOST_ROWS)
        moments, sums = moments[kept], {name: values[kept] for name, values in sums.items()}
    sums |= {name: _sum(parts, name, moments) for name in columns if name not in sums}
    return Samples({TIME: _column(moments), **{name: _column(values) for name, values in sums.items()}})


def _has_sum(parts: Parts, name: str) -> bool:
    """Return whether a metric was recorded everywhere it is needed, and its sum has a meaning."""
    metric = metrics.of(name)
    by_machine = [any(name in session.samples for _, session in machine) for machine in machines_of(parts)]
    if metric is not None and metric.scope == metrics.DEVICE and metric.merging != metrics.NEVER:
        return any(by_machine)  # a machine may lack the device
    if is_once_per_machine(name):
        return all(by_machine)
    is_summed = metric is None or metric.merging != metrics.NEVER or len(by_machine) == len(parts)
    return is_summed and all(name in session.samples for _, session in parts)


def is_once_per_machine(name: str) -> bool:
    """Return whether a metric is one figure per machine, the same for all of its ranks."""
    metric = metrics.of(name)
    return metric is not None and metric.merging == metrics.ONCE_PER_MACHINE


def _column(values: Column) -> array[float]:
    return array("d", values.tobytes())


def _sum(parts: Parts, name: str, moments: Column) -> Column:
    """Return the sum of a metric at moments of the job; NaN where it is unknown for one rank.

    A rank without a device holds nothing of it. A figure of a machine comes from the first of its ranks that knows it.
    """
    if not is_once_per_machine(name):
        return _added([part for part in parts if name in part[1].samples], name, moments)
    machines = [
        [_added([part], name, moments) for part in machine if name in part[1].samples] for machine in machines_of(parts)
    ]

    known = [reduce(lambda a, b: np.where(np.isnan(a), b, a), columns) for columns in machines if columns]
    total: Column = np.sum(known, axis=0)
    return total


def _added(parts: Parts, name: str, moments: Column) -> Column:
    every = [_changes(session, name, at_s) for at_s, session in parts]
    times, by, unknown = (np.concatenate(of) for of in zip(*every, strict=True))
    order = np.argsort(times, kind="stable")
    places = np.searchsorted(times[order], moments, side="right")
    total = np.append(0.0, np.cumsum(by[order]))[places]
    return np.where(np.append(0.0, np.cumsum(unknown[order]))[places] > 0, np.nan, total)


def machines_of(parts: Parts) -> list[Parts]:
    """Return recordings by machine: by boot ID, or by name if another tool's log has no boot ID."""
    have_boots = all(session.host.boot_id for _, session in parts)
    machines: dict[str, list[tuple[float, Session]]] = {}
    for at_s, session in parts:
        machines.setdefault(session.host.boot_id if have_boots else session.host.name, []).append((at_s, session))
    return list(machines.values())


def _changes(session: Session, name: str, at_s: float) -> tuple[Column, Column, Column]:
    """Return when a metric of a rank changed, by how much, and where it becomes unknown (1) and known again (-1).

    A rank holds its last sample until the next one, and nothing while it does not run; a counter keeps its value. After
    a recording that broke off, everything is unknown.
    """
    time_s, values = np.asarray(session.samples.time_s) + at_s, np.asarray(session.samples[name])
    end_s = np.nextafter(max(at_s + session.duration_s, time_s.max(initial=0.0)), np.inf)
    known = ~np.isnan(values)
    is_over = session.finished is not False
    is_seldom = known.sum() < len(known) * SELDOM  # a figure with an interval of its own, as PSS
    longest_s = np.inf if is_seldom else GAP * (session.sampler.spacing_s or np.inf)
    time_s, values = time_s[known], values[known]
    before, after = np.append(at_s, time_s), np.append(time_s, end_s)
    is_gap = after - before > longest_s if len(time_s) else np.array([True])
    gap_begin = np.where(np.arange(len(before)) > 0, before + longest_s, at_s)[is_gap]
    runs = [time_s[0] if len(time_s) else at_s, end_s]
    outside = ([-np.inf, *runs], [1.0, -1.0, 1.0]) if is_once_per_machine(name) else ([end_s], [float(not is_over)])
    left = 0.0 if is_counter(name) or not len(values) else -values[-1]
    times = np.concatenate([time_s, [end_s], gap_begin, after[is_gap], outside[0]])
    by = np.concatenate([np.diff(values, prepend=0.0), [left]])
    gaps = np.concatenate([np.ones(is_gap.sum()), -np.ones(is_gap.sum()), outside[1]])
    return times, np.append(by, np.zeros(len(gaps))), np.append(np.zeros(len(by)), gaps)


_NANOSECONDS = 1e9
_SET_S = 0.5
"""The wall clock and CLOCK_MONOTONIC drift apart by less than this: a larger difference means that one was set."""


def start_times(sessions: Named) -> tuple[dict[str, float], list[str]]:
    """Return when recordings began, in seconds since the first of them, and warnings of why this may be wrong.

    On one machine CLOCK_MONOTONIC decides, between machines the wall clock. Raises NncfToolsError for a recording
    without a start time.
    """
    moments: dict[str, float] = {}
    warnings: list[str] = []
    for machine in _machines(sessions):
        first = min(machine, key=lambda name: machine[name].start.monotonic_ns or 0)
        for name, session in machine.items():
            later_ns = (session.start.monotonic_ns or 0) - (machine[first].start.monotonic_ns or 0)
            moments[name] = _moment(first, machine[first]) + later_ns / _NANOSECONDS
            apart_s = _moment(name, session) - moments[name]
            if abs(apart_s) > _SET_S:
                host = session.host.name or "one machine"
                text = f"the wall clock of {host} was set by {seconds_text(abs(apart_s))} between the starts of {first}"
                warnings.append(f"{text} and {name}: they are lined up by CLOCK_MONOTONIC")
    zero = min(moments.values())
    at_s = {name: moments[name] - zero for name in sessions}
    return at_s, [*warnings, *_disagreeing(sessions), *_apart(at_s, sessions)]


def _machines(sessions: Named) -> list[dict[str, Session]]:
    """Return recordings by machine; one without a boot ID is a machine of its own."""
    machines: dict[str, dict[str, Session]] = {}
    for name, session in sessions.items():
        is_known = session.host.boot_id and session.start.monotonic_ns is not None
        machines.setdefault(session.host.boot_id if is_known else f"of {name}", {})[name] = session
    return list(machines.values())


def _moment(name: str, session: Session) -> float:
    if session.start.utc is None:
        raise NncfToolsError(f"{name}: has no start time: it cannot be lined up with the others")
    return moment_of(session.start.utc).timestamp()


def _disagreeing(sessions: Named) -> Iterator[str]:
    """Warn if the clocks of several machines may not agree."""
    machines = [next(iter(machine.values())) for machine in _machines(sessions)]
    if len(machines) == 1:
        return
    unsynchronized = [session.host.name or "unknown host" for session in machines if session.start.utc_error_s is None]
    if unsynchronized:
        names = ", ".join(sorted(set(unsynchronized)))
        why = f"nothing, such as NTP, synchronizes that of {names}"
        yield f"the clocks may not be comparable: {why}; recordings and their sum may be shifted"
        return
    errors_s = sorted((session.start.utc_error_s or 0.0 for session in machines), reverse=True)
    intervals = (session.sampler.interval_s or session.sampler.achieved_interval_s or 0.0 for session in machines)
    if errors_s[0] + errors_s[1] > max(intervals):
        text = f"the clocks of the machines may differ by {seconds_text(errors_s[0] + errors_s[1])}"
        yield f"{text}, more than the interval: recordings may be shifted against each other by that much"


def _apart(at_s: Mapping[str, float], sessions: Named) -> Iterator[str]:
    """Warn of recordings during which no other one ran."""
    spans = {name: (begin_s, begin_s + sessions[name].duration_s) for name, begin_s in at_s.items()}
    alone = [
        name
        for name, (begin_s, end_s) in spans.items()
        if all(last_s < begin_s or end_s < first_s for other, (first_s, last_s) in spans.items() if other != name)
    ]
    if alone and len(spans) > 1:
        text = f"by the wall clock nothing else ran at the time of {', '.join(alone)}: the clocks differ"
        yield f"{text}, or these are not parts of one job (`nncf-tools compare` compares runs)"


_POINTS = 2000
_NAMED = 10


def merged(sessions: Named) -> Session:
    """Return one session for the recordings of a job, which are given by the names of their files.

    Memory is the sum of what the ranks held at the same time, each by its last sample. ``system`` counts once per
    machine. Raises NncfToolsError for two recordings of one rank, for one without a start time, for one that was
    merged already, and for runs without a rank that ran one after the other.
    """
    _check(sessions)
    numbers = {file: None if session.rank is None else session.rank.number for file, session in sessions.items()}
    order = sorted(sessions, key=lambda file: (np.inf if numbers[file] is None else numbers[file], file))
    of = {file if numbers[file] is None else f"rank {numbers[file]}": sessions[file] for file in order}
    at_s, clock_warnings = start_times(of)
    _check_together(of, at_s)
    parts = [(at_s[name], session) for name, session in of.items()]
    samples = summed(parts)
    runs = [_run(name, session, at_s[name]) for name, session in of.items()]
    first = min(of, key=lambda name: at_s[name])
    worst = largest_rank(runs)
    failed = failed_in_order(runs)
    hosts = [machine[0][1].host for machine in machines_of(parts)]
    machines = Host(name=f"{len(hosts)} machines", **_combined(sum, ("cpus", "memory"), hosts))
    finished = {session.finished for session in of.values()}
    marks = () if worst is None else with_ends(of[worst.name].marks, of[worst.name])
    since_s = 0.0 if worst is None else at_s[worst.name]
    operations_of = []
    if worst is not None and of[worst.name].marks:
        text = f"operations come from {worst.name}, which has the highest peak"
        operations_of = [f"{text}; their memory, CPU and I/O are those of all ranks"]
    return Session(
        tool_version=of[first].tool_version,
        **{name: getattr(parts[0][1], name) for name in ("name", "command", "cwd")},
        ranks=runs,
        start=Start(utc=of[first].start.utc, utc_error_s=of[first].start.utc_error_s),
        duration_s=max(begin_s + session.duration_s for begin_s, session in parts),
        finished=False if False in finished else None if None in finished else True,
        exit=failed[0].exit if failed else None if any(run.exit is None for run in runs) else runs[0].exit,
        host=hosts[0] if len(hosts) == 1 else machines,
        sampler=_sampler([session.sampler for session in of.values()]),
        samples=samples,
        from_zero=any(session.from_zero for session in of.values()),
        totals=_totals(parts),
        peaks={name: _peak(name, samples, runs) for name in samples.metrics if is_memory(name)},
        processes=list(_processes(parts)),
        devices=list({device.device: device for session in of.values() for device in session.devices}.values()),
        marks=[replace(mark, start_s=mark.start_s + since_s, end_s=end_s + since_s) for mark, end_s in marks],
        models=[model for session in of.values() for model in session.models],
        warnings=[
            *clock_warnings,
            *_missing(of.values()),
            *_left_out(of, samples),
            *_recording_warnings(of),
            *operations_of,
        ],
    )


def _check(sessions: Named) -> None:
    seen: dict[int, str] = {}
    for file, session in sessions.items():
        if session.ranks:
            raise NncfToolsError(f"{file} was merged from {len(session.ranks)} recordings: name those instead")
        if session.rank is not None and (before := seen.setdefault(session.rank.number, file)) != file:
            both = f"{before} and {file} are both of rank {session.rank.number}"
            raise NncfToolsError(f"{both}: name the recordings of one job")


def _check_together(sessions: Named, at_s: Mapping[str, float]) -> None:
    """Raise NncfToolsError for recordings that no launcher numbered and that ran one after the other."""
    if any(session.rank is not None for session in sessions.values()):
        return
    first = min(sessions, key=lambda name: at_s[name] + sessions[name].duration_s)
    last = max(sessions, key=lambda name: at_s[name])
    if at_s[last] >= at_s[first] + sessions[first].duration_s:
        text = f"{first} and {last} are no ranks of one job: {last} began after {first} had ended"
        raise NncfToolsError(text, remedy="compare")


def _run(name: str, session: Session, at_s: float) -> RankRun:
    samples = session.samples
    time_s, rss = np.empty(0), np.empty(0)
    if "rss" in samples:
        time_s, rss = decimated_with_gaps(samples.time_s, samples["rss"], session.sampler.spacing_s, _POINTS)
    return RankRun(
        name=name,
        start_s=at_s,
        **{field: getattr(session, field) for field in ("rank", "host", "duration_s", "finished", "exit")},
        peaks={metric: replace(moved(peak, at_s), process=None) for metric, peak in session.peaks.items()},
        cpu_s=cpu_s(session),
        time_s=(time_s + at_s).tolist(),
        rss=[None if isnan(value) else int(value) for value in rss.tolist()],
    )


def _peak(name: str, samples: Samples, runs: Sequence[RankRun]) -> Peak:
    peak = sampled_peak(name, samples)
    if peak.sampled is None or is_once_per_machine(name):
        return peak
    of_runs = [run.peaks[name] for run in runs if name in run.peaks]
    reached = [PeakCandidate(of.low or 0, of.low or 0, of.rose_from_s, of.rose_to_s) for of in of_runs]
    most = [run.peaks[name].high if name in run.peaks and run.finished is not False else None for run in runs]
    sums = MostHeld((run.start_s, end_of(run), size) for run, size in zip(runs, most, strict=True))
    return bracketed(peak, reached, sums.most())


def _sampler(every: Sequence[SamplerFacts]) -> SamplerFacts:
    """Return the total cost and samples of all ranks, and the worst of their punctuality."""
    return SamplerFacts(
        **_combined(sum, ("cpu_s", "peak_rss", "taken", "missed"), every),
        **_combined(max, ("interval_s", "achieved_interval_s", "longest_gap_s"), every),
        merged_s=max((facts.merged_s for facts in every if facts.merged_s is not None), default=None),
        source=" and ".join(sorted({facts.source for facts in every})),
    )


def _combined(combine: Callable[[Any], Any], names: Iterable[str], every: Sequence[object]) -> dict[str, Any]:
    """Return fields of several objects, each combined; a field is unknown if one of the objects does not know it."""
    fields = {name: [getattr(part, name) for part in every] for name in names}
    return {name: None if None in values else combine(values) for name, values in fields.items()}


def _totals(parts: Parts) -> dict[str, int | float | None]:
    """Return the sums of the counters; what is one figure per machine counts once per machine."""
    every = [session.totals for _, session in parts]
    machines = [[session.totals for _, session in machine] for machine in machines_of(parts)]
    sums: dict[str, int | float | None] = {}
    for name in dict.fromkeys(name for totals in every for name in totals):
        if is_once_per_machine(name):
            known = [[value for of in machine if (value := of.get(name)) is not None] for machine in machines]
            sums[name] = sum(map(max, filter(None, known))) if any(known) else None
        elif all(name in totals for totals in every):
            sums[name] = total([totals[name] for totals in every])
    return sums


def _processes(parts: Parts) -> Iterator[Process]:
    following = 0
    for at_s, session in parts:
        base, following = following, following + 1 + max((process.id for process in session.processes), default=0)
        for process in session.processes:
            yield replace(
                moved(process, at_s, ("start_s", "end_s", "counted_s", "peak_s")),
                id=base + process.id,
                parent=None if process.parent is None else base + process.parent,
                rises=[moved(rise, at_s, ("from_s", "to_s")) for rise in process.rises],
                series=None,
            )


def _missing(sessions: Iterable[Session]) -> Iterator[str]:
    ranks = [session.rank for session in sessions if session.rank is not None]
    size = max((rank.size or 0 for rank in ranks), default=0)
    present = {rank.number for rank in ranks if 0 <= rank.number < size}
    if missing := size - len(present):
        first = itertools.islice((number for number in range(size) if number not in present), _NAMED)
        which = ", ".join(map(str, first)) + (", …" if missing > _NAMED else "")
        yield f"{missing} of {size} ranks are missing: no recording of rank {which}, and sums do not count them"
    jobs = sorted({rank.job for rank in ranks})
    if len(jobs) > 1:
        yield f"the recordings are of different jobs: {', '.join(job or 'one without a name' for job in jobs)}"


def _recording_warnings(of: Named) -> Iterator[str]:
    """Yield each warning of the recordings once, with the names of those that have it unless all do."""
    names: dict[str, list[str]] = {}
    for name, session in of.items():
        for warning in of_recording(session):
            names.setdefault(warning, []).append(name)
    for warning, having in names.items():
        yield warning if len(having) == len(of) else f"{', '.join(having)}: {warning}"


def _left_out(of: Named, samples: Samples) -> Iterator[str]:
    """Name the metrics that some ranks recorded and others did not."""
    every = dict.fromkeys(name for session in of.values() for name in session.samples.metrics)
    left_out = [name for name in metrics.in_order(every) if name not in samples]
    everywhere = {name for name in left_out if all(name in session.samples for session in of.values())}
    has_sum = [name for name in left_out if not metrics.is_room(name) and metrics.unit_of(name) != "%"]
    partial = [name for name in has_sum if name not in everywhere]
    without_sum = [name for name in left_out if name not in partial and metrics.is_memory(name)]
    if partial:
        yield f"not recorded for every rank, so there is no sum: {', '.join(partial)}"
    if without_sum:
        yield f"ranks on one machine may share it, so there is no sum: {', '.join(without_sum)}"
