"""Merges the recordings of the ranks of a job into a single session.

The ranks are the processes that work on a job together. A column of the session is the sum over the ranks at the same
time, on a common clock.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from nncftools import metrics
from nncftools.analysis.operation import sum_all
from nncftools.analysis.peaks import is_once_per_machine, peaks, shift_moments
from nncftools.analysis.session import Session
from nncftools.analysis.summary import (
    GAP,
    SELDOM,
    cpu_s,
    decimated_with_gaps,
    failed_in_order,
    largest_rank,
    of_recording,
)
from nncftools.backports import moment_of
from nncftools.errors import NncfToolsError
from nncftools.metrics import is_counter, is_memory
from nncftools.session.model import Device, Host, Mark, Process, RankRun, SamplerFacts, Start
from nncftools.session.nesting import add_ends
from nncftools.session.samples import TIME, Samples, select_rows
from nncftools.units import seconds_text

Column = NDArray[np.float64]
Parts = Sequence[tuple[float, Session]]
"""The start (seconds since the first start) and the recording of each rank."""
Named = Mapping[str, Session]

_MOST_ROWS = 1_000_000


def _sum_samples(parts: Parts) -> Samples:
    """Return the sums of all metrics at every moment at which a rank took a sample.

    If there are very many moments, neighbouring moments are merged.
    """
    times = [_times_of(session, at_s) for at_s, session in parts]
    moments = np.unique(np.concatenate(times))
    names = [name for name in _names_of(session for _, session in parts) if _has_sum(parts, name)]
    columns = {name: _sum_column(parts, name, moments) for name in names if is_memory(name)}
    if len(moments) > _MOST_ROWS:
        gauges = [_to_array(values) for values in columns.values()]
        rows = select_rows(gauges, len(moments), _MOST_ROWS)
        moments = moments[rows]
        columns = {name: values[rows] for name, values in columns.items()}
    for name in names:
        if name not in columns:
            columns[name] = _sum_column(parts, name, moments)
    columns[TIME] = moments
    return Samples({name: _to_array(values) for name, values in columns.items()})


def _times_of(session: Session, at_s: float) -> Column:
    return np.asarray(session.samples.time_s) + at_s


def _names_of(sessions: Iterable[Session]) -> list[str]:
    names = dict[str, None]()
    for session in sessions:
        names |= dict.fromkeys(session.samples.metrics)
    return list(names)


def _has_sum(parts: Parts, name: str) -> bool:
    """Return whether the sum of a metric makes sense, and no rank or machine lacks the metric."""
    metric = metrics.of(name)
    by_machine = [any(name in session.samples for _, session in machine) for machine in _group_by_machine(parts)]
    if metric is not None and metric.scope == metrics.DEVICE and metric.merging != metrics.NEVER:
        return any(by_machine)  # a machine may lack the device
    if is_once_per_machine(name):
        return all(by_machine)
    is_summed = metric is None or metric.merging != metrics.NEVER or len(by_machine) == len(parts)
    return is_summed and all(name in session.samples for _, session in parts)


def _to_array(values: Column) -> array[float]:
    return array("d", values.tobytes())


def _sum_column(parts: Parts, name: str, moments: Column) -> Column:
    """Return the sum of a metric at moments of the job; NaN if a rank does not know the metric.

    A rank without a device uses nothing on the device. A figure that belongs to the whole machine comes from the first
    rank of the machine that knows the figure.
    """
    having = [part for part in parts if name in part[1].samples]
    if not is_once_per_machine(name):
        return _add_changes(having, name, moments)
    machines = []
    for machine in _group_by_machine(having):
        values, *others = [_add_changes([part], name, moments) for part in machine]
        for other in others:
            values = np.where(np.isnan(values), other, values)
        machines.append(values)
    return np.asarray(np.sum(machines, axis=0))


def _add_changes(parts: Parts, name: str, moments: Column) -> Column:
    changes = [_find_changes(session, name, at_s) for at_s, session in parts]
    times = np.concatenate([change.times for change in changes])
    order = np.argsort(times, kind="stable")
    counts = np.searchsorted(times[order], moments, side="right")

    def sum_until(values: Sequence[Column]) -> Column:
        sums = np.cumsum(np.concatenate(values)[order])
        return np.append(0.0, sums)[counts]

    sums = sum_until([change.growth for change in changes])
    sums[sum_until([change.unknown for change in changes]) > 0] = np.nan
    return sums


def _group_by_machine(parts: Parts) -> list[Parts]:
    """Group recordings by machine: by boot ID, or by name if a recording of another tool has no boot ID."""
    have_boots = all(session.host.boot_id for _, session in parts)
    machines: dict[str, list[tuple[float, Session]]] = {}
    for at_s, session in parts:
        machine = session.host.boot_id if have_boots else session.host.name
        machines.setdefault(machine, []).append((at_s, session))
    return list(machines.values())


class _Changes(NamedTuple):
    """The changes of a metric of a rank."""

    times: Column
    growth: Column
    unknown: Column
    """1 where the metric becomes unknown, -1 where the metric is known again."""


def _find_changes(session: Session, name: str, at_s: float) -> _Changes:
    """Return the changes of a metric of a rank whose recording began at ``at_s``.

    The value of a sample is valid until the next sample. Before and after the run, a gauge is 0, and a counter keeps
    its value. After a recording that broke off, everything is unknown.
    """
    values = np.asarray(session.samples[name])
    time_s = _times_of(session, at_s)
    last_s = max(at_s + session.duration_s, time_s.max(initial=0.0))
    end_s = np.nextafter(last_s, np.inf)
    is_known = ~np.isnan(values)
    longest_s = GAP * (session.sampler.spacing_s or np.inf)
    if is_known.sum() < len(is_known) * SELDOM:  # a figure with a longer interval, such as PSS
        longest_s = np.inf
    values = values[is_known]
    time_s = time_s[is_known]
    begins = np.append(at_s, time_s)
    ends = np.append(time_s, end_s)
    is_gap = ends - begins > longest_s if len(time_s) else np.array([True])
    gap_begins = begins + longest_s
    gap_begins[0] = at_s
    gap_begins = gap_begins[is_gap]
    outside_s = [end_s]
    outside = [float(session.finished is False)]
    if is_once_per_machine(name):
        outside_s = [-np.inf, time_s[0] if len(time_s) else at_s, end_s]
        outside = [1.0, -1.0, 1.0]
    last = 0.0 if is_counter(name) or not len(values) else -values[-1]
    growth = np.concatenate([np.diff(values, prepend=0.0), [last]])
    gaps = np.ones(len(gap_begins))
    unknown = np.concatenate([gaps, -gaps, outside])
    return _Changes(
        times=np.concatenate([time_s, [end_s], gap_begins, ends[is_gap], outside_s]),
        growth=np.append(growth, np.zeros(len(unknown))),
        unknown=np.append(np.zeros(len(growth)), unknown),
    )


_NANOSECONDS = 1e9
_SET_S = 0.5
"""Seconds. The wall clock and CLOCK_MONOTONIC measure the time between the starts of two recordings. If the results
differ by more, the wall clock was set in between."""


def start_times(sessions: Named) -> tuple[dict[str, float], list[str]]:
    """Return the starts of recordings in seconds since the first start, and warnings of possible errors.

    On one machine, CLOCK_MONOTONIC decides. Between machines, the wall clock decides. Raises NncfToolsError if a
    recording has no start time.
    """
    moments: dict[str, float] = {}
    warnings: list[str] = []
    machines = _group_by_clock(sessions)
    for machine in machines:
        first = min(machine, key=lambda name: machine[name].start.monotonic_ns or 0)
        first_ns = machine[first].start.monotonic_ns or 0
        for name, session in machine.items():
            later_s = ((session.start.monotonic_ns or 0) - first_ns) / _NANOSECONDS
            moments[name] = _moment_of(first, machine[first]) + later_s
            apart_s = abs(_moment_of(name, session) - moments[name])
            if apart_s > _SET_S:
                host = session.host.name or "one machine"
                text = f"the wall clock of {host} was set by {seconds_text(apart_s)} between the starts of {first}"
                warnings.append(f"{text} and {name}: both recordings are aligned by CLOCK_MONOTONIC")
    zero = min(moments.values())
    at_s = {name: moments[name] - zero for name in sessions}
    firsts = [next(iter(machine.values())) for machine in machines]
    return at_s, [*warnings, *_warn_of_clocks(firsts), *_warn_of_lone(at_s, sessions)]


def _group_by_clock(sessions: Named) -> list[dict[str, Session]]:
    """Group recordings by machine. A recording without a boot ID is a group of its own."""
    machines: dict[str, dict[str, Session]] = {}
    for name, session in sessions.items():
        is_known = session.host.boot_id and session.start.monotonic_ns is not None
        machines.setdefault(session.host.boot_id if is_known else f"of {name}", {})[name] = session
    return list(machines.values())


def _moment_of(name: str, session: Session) -> float:
    if session.start.utc is None:
        raise NncfToolsError(f"{name}: has no start time, so it cannot be aligned with the others")
    return moment_of(session.start.utc).timestamp()


def _warn_of_clocks(sessions: Sequence[Session]) -> Iterator[str]:
    """Warn if the clocks of several machines possibly differ; ``sessions`` has a recording from each machine."""
    if len(sessions) == 1:
        return
    unsynchronized = {session.host.name or "unknown host" for session in sessions if session.start.utc_error_s is None}
    if unsynchronized:
        why = f"no time service such as NTP synchronizes the clock of {', '.join(sorted(unsynchronized))}"
        yield f"the clocks may not be comparable: {why}; recordings and their sum may be shifted"
        return
    errors_s = sorted(session.start.utc_error_s or 0.0 for session in sessions)
    most_s = errors_s[-1] + errors_s[-2]
    intervals = [session.sampler.interval_s or session.sampler.achieved_interval_s or 0.0 for session in sessions]
    if most_s > max(intervals):
        text = f"the clocks of the machines may differ by {seconds_text(most_s)}, more than the sampling interval"
        yield f"{text}: recordings may be shifted by this time"


def _warn_of_lone(at_s: Mapping[str, float], sessions: Named) -> Iterator[str]:
    """Warn of each recording during which no other recording ran."""
    end_s = {name: begin_s + sessions[name].duration_s for name, begin_s in at_s.items()}
    lone = []
    for name in at_s:
        begun = {other for other in at_s if at_s[other] <= end_s[name]}
        ended = {other for other in at_s if end_s[other] < at_s[name]}
        if begun - ended == {name}:
            lone.append(name)
    if lone and len(at_s) > 1:
        text = f"by the wall clock nothing else ran at the time of {', '.join(lone)}: the clocks differ"
        yield f"{text}, or these are not parts of one job (`nncf-tools compare` compares runs)"


_POINTS = 2000
_NAMED = 10


def merge_ranks(sessions: Named) -> Session:
    """Return a single session for the recordings of a job; the keys of ``sessions`` are names of files.

    Memory is the sum over the ranks at each moment, with the last sample of each rank. ``system`` counts once per
    machine. Raises NncfToolsError if two recordings have the same rank, if a recording has no start time, if a
    recording was merged already, and if recordings without a rank ran one after the other.
    """
    _check(sessions)
    by_name = _name_ranks(sessions)
    at_s, clock_warnings = start_times(by_name)
    _check_together(by_name, at_s)
    parts = [(at_s[name], session) for name, session in by_name.items()]
    samples = _sum_samples(parts)
    runs = [_make_run(name, session, at_s[name]) for name, session in by_name.items()]
    first = by_name[min(by_name, key=lambda name: at_s[name])]
    hosts = [machine[0][1].host for machine in _group_by_machine(parts)]
    machines = Host(name=f"{len(hosts)} machines", **_combine(sum, ("cpus", "memory"), hosts))
    marks: list[Mark] = []
    finished = {run.finished for run in runs}
    devices = dict[str, Device]()
    for _, recording in parts:
        devices |= {device.device: device for device in recording.devices}
    warnings = [*clock_warnings, *_warn_of_missing(by_name.values()), *_warn_of_left_out(by_name, samples)]
    warnings += _recording_warnings(by_name)
    worst = largest_rank(runs)
    if worst is not None and by_name[worst.name].marks:
        text = f"operations are from {worst.name}, which has the highest peak"
        warnings.append(f"{text}; memory, CPU and I/O of each operation are sums over all ranks")
        for mark, end_s in add_ends(by_name[worst.name].marks, by_name[worst.name]):
            ended = replace(mark, end_s=end_s)
            marks.append(shift_moments(ended, worst.start_s, ("start_s", "end_s")))
    session = Session(
        tool_version=first.tool_version,
        name=parts[0][1].name,
        command=parts[0][1].command,
        cwd=parts[0][1].cwd,
        ranks=runs,
        start=Start(utc=first.start.utc, utc_error_s=first.start.utc_error_s),
        duration_s=max(run.start_s + run.duration_s for run in runs),
        finished=next(value for value in (False, None, True) if value in finished),
        host=hosts[0] if len(hosts) == 1 else machines,
        sampler=_combine_samplers([session.sampler for session in by_name.values()]),
        samples=samples,
        from_zero=any(session.from_zero for session in by_name.values()),
        totals=_sum_totals(parts),
        processes=list(_renumber_processes(parts)),
        devices=list(devices.values()),
        marks=marks,
        models=list(itertools.chain.from_iterable(session.models for session in by_name.values())),
        warnings=warnings,
    )
    failed = failed_in_order(runs)
    if failed:
        session.exit = failed[0].exit
    elif all(run.exit is not None for run in runs):
        session.exit = runs[0].exit
    session.peaks = peaks(session)
    return session


def _name_ranks(sessions: Named) -> dict[str, Session]:
    """Return recordings by the names of their ranks, sorted by rank.

    Recordings without a rank come last, sorted by file name.
    """
    numbered = {}
    others = {}
    for file in sorted(sessions):
        session = sessions[file]
        if session.rank is None:
            others[file] = session
        else:
            numbered[session.rank.number] = session
    return {f"rank {number}": numbered[number] for number in sorted(numbered)} | others


def _check(sessions: Named) -> None:
    files: dict[int, str] = {}
    for file, session in sessions.items():
        if session.ranks:
            raise NncfToolsError(f"{file} was merged from {len(session.ranks)} recordings: name the recordings instead")
        if session.rank is None:
            continue
        number = session.rank.number
        if number in files:
            raise NncfToolsError(f"{files[number]} and {file} are both rank {number}: name the recordings of one job")
        files[number] = file


def _check_together(sessions: Named, at_s: Mapping[str, float]) -> None:
    """Raise NncfToolsError if recordings have no rank numbers and ran one after the other."""
    if any(session.rank is not None for session in sessions.values()):
        return
    first = min(sessions, key=lambda name: at_s[name] + sessions[name].duration_s)
    last = max(sessions, key=lambda name: at_s[name])
    if at_s[last] >= at_s[first] + sessions[first].duration_s:
        text = f"{first} and {last} are not ranks of one job: {last} began after {first} had ended"
        raise NncfToolsError(text, remedy="compare")


def _make_run(name: str, session: Session, at_s: float) -> RankRun:
    samples = session.samples
    time_s = np.empty(0)
    rss = np.empty(0)
    if "rss" in samples:
        time_s, rss = decimated_with_gaps(samples.time_s, samples["rss"], session.sampler.spacing_s, _POINTS)
    values: list[int | None] = [None] * len(rss)
    for index in np.flatnonzero(~np.isnan(rss)):
        values[index] = int(rss[index])
    own_peaks = {}
    for metric, peak in session.peaks.items():
        own_peaks[metric] = replace(shift_moments(peak, at_s), process=None)
    return RankRun(
        name=name,
        start_s=at_s,
        rank=session.rank,
        host=session.host,
        duration_s=session.duration_s,
        finished=session.finished,
        exit=session.exit,
        peaks=own_peaks,
        cpu_s=cpu_s(session),
        time_s=(time_s + at_s).tolist(),
        rss=values,
    )


def _combine_samplers(samplers: Sequence[SamplerFacts]) -> SamplerFacts:
    """Return the facts of all samplers together: sums of the costs and the samples, and the largest intervals."""
    merged_s = [facts.merged_s for facts in samplers if facts.merged_s is not None]
    return SamplerFacts(
        **_combine(sum, ("cpu_s", "peak_rss", "taken", "missed"), samplers),
        **_combine(max, ("interval_s", "achieved_interval_s", "longest_gap_s"), samplers),
        merged_s=max(merged_s, default=None),
        source=" and ".join(sorted({facts.source for facts in samplers})),
    )


def _combine(combine: Callable[[Any], Any], names: Iterable[str], parts: Sequence[object]) -> dict[str, Any]:
    """Return the fields ``names`` of several objects, each combined to a single value.

    If a field of an object is None, the combined field is None.
    """
    fields = {}
    for name in names:
        values = [getattr(part, name) for part in parts]
        fields[name] = None if None in values else combine(values)
    return fields


def _sum_totals(parts: Parts) -> dict[str, int | float | None]:
    """Return the sums of the counters. A figure that belongs to the whole machine counts once per machine."""
    machines = [[session.totals for _, session in machine] for machine in _group_by_machine(parts)]
    every = list(itertools.chain.from_iterable(machines))
    sums: dict[str, int | float | None] = {}
    for name in itertools.chain.from_iterable(every):
        if is_once_per_machine(name):
            is_known = any(totals.get(name) is not None for totals in every)
            largest = [max(totals.get(name) or 0 for totals in machine) for machine in machines]
            sums[name] = sum(largest) if is_known else None
        elif name not in sums and all(name in totals for totals in every):
            sums[name] = sum_all([totals[name] for totals in every])
    return sums


def _renumber_processes(parts: Parts) -> Iterator[Process]:
    base = 0
    for at_s, session in parts:
        for process in session.processes:
            yield replace(
                shift_moments(process, at_s, ("start_s", "end_s", "counted_s", "peak_s")),
                id=base + process.id,
                parent=None if process.parent is None else base + process.parent,
                rises=[shift_moments(rise, at_s, ("from_s", "to_s")) for rise in process.rises],
                series=None,
            )
        base += 1 + max((process.id for process in session.processes), default=0)


def _warn_of_missing(sessions: Iterable[Session]) -> Iterator[str]:
    ranks = [session.rank for session in sessions if session.rank is not None]
    size = max((rank.size or 0 for rank in ranks), default=0)
    present = {rank.number for rank in ranks}
    missing = size - sum(0 <= number < size for number in present)
    if missing:
        first = itertools.islice((number for number in range(size) if number not in present), _NAMED)
        numbers = ", ".join(map(str, first)) + (", …" if missing > _NAMED else "")
        yield f"{missing} of {size} ranks are missing in all sums: there is no recording of rank {numbers}"
    jobs = sorted({rank.job for rank in ranks})
    if len(jobs) > 1:
        yield f"the recordings are of different jobs: {', '.join(job or 'a job without a name' for job in jobs)}"


def _recording_warnings(sessions: Named) -> Iterator[str]:
    """Yield each warning of the recordings once.

    If only some recordings have the warning, their names are before the warning.
    """
    names: dict[str, list[str]] = {}
    for name, session in sessions.items():
        for warning in of_recording(session):
            names.setdefault(warning, []).append(name)
    for warning, having in names.items():
        yield warning if len(having) == len(sessions) else f"{', '.join(having)}: {warning}"


def _warn_of_left_out(sessions: Named, samples: Samples) -> Iterator[str]:
    """Warn of metrics that have no sum."""
    partial = []
    without_sum = []
    for name in metrics.in_order(_names_of(sessions.values())):
        if name in samples:
            continue
        is_everywhere = all(name in session.samples for session in sessions.values())
        has_sum = not metrics.is_room(name) and metrics.unit_of(name) != "%"
        if has_sum and not is_everywhere:
            partial.append(name)
        elif is_memory(name):
            without_sum.append(name)
    if partial:
        yield f"not recorded for every rank, so there is no sum: {', '.join(partial)}"
    if without_sum:
        yield f"there is no sum, because ranks on one machine may share the memory: {', '.join(without_sum)}"
