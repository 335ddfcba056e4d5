"""Recordings of the ranks of one job, put together to one session."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np

from nncftools import metrics
from nncftools.analysis.clocks import starts
from nncftools.analysis.hints import of_recording
from nncftools.analysis.rank_columns import is_once_per_machine, machines_of, summed
from nncftools.analysis.series import drawn
from nncftools.analysis.summary import cpu_s, largest_rank
from nncftools.errors import NncfToolsError
from nncftools.metrics import is_memory
from nncftools.session.model import Exit, Host, Mark, Peak, Process, RankRun, SamplerFacts, Start
from nncftools.session.operations import ends, in_order
from nncftools.session.peaks import HIGH_WATER_MARK, SAMPLED, largest_sum
from nncftools.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from nncftools.analysis.rank_columns import Parts
    from nncftools.session.samples import Samples

    Named = Mapping[str, Session]

_Number = TypeVar("_Number", int, float, int | float)
_POINTS = 2000
_NAMED = 10


def merged(sessions: Named) -> Session:
    """Return what recordings of one job, by the names of their files, amount to.

    Memory is the sum of what the ranks held at the same time, each by its last sample; ``system`` counts a machine
    once. Raises NncfToolsError for two recordings of one rank, for one that does not say when it began, and for one
    that was put together already.
    """
    _check(sessions)
    names = {file: _name(file, session) for file, session in sessions.items()}
    order = sorted(sessions, key=lambda file: (_number(sessions[file]), file))
    of = {names[file]: sessions[file] for file in order}
    found = starts(of)
    at_s = found.at_s
    parts = [(at_s[name], session) for name, session in of.items()]
    samples = summed(parts)
    runs = [_run(name, session, at_s[name]) for name, session in of.items()]
    first = min(of, key=lambda name: at_s[name])
    worst = largest_rank(runs)
    return Session(
        tool_version=of[first].tool_version,
        name=next((session.name for session in of.values()), ""),
        command=next((session.command for session in of.values()), []),
        cwd=next((session.cwd for session in of.values()), ""),
        ranks=runs,
        start=Start(utc=of[first].start.utc, utc_error_s=of[first].start.utc_error_s),
        duration_s=max(begin_s + session.duration_s for begin_s, session in parts),
        finished=_all_finished(session.finished for session in of.values()),
        exit=_exit(of.values()),
        host=_host(parts),
        sampler=_sampler([session.sampler for session in of.values()]),
        samples=samples,
        from_zero=any(session.from_zero for session in of.values()),
        totals=_totals(parts),
        peaks={name: _peak(name, samples, runs) for name in samples.metrics if is_memory(name)},
        processes=list(_processes(parts)),
        marks=[] if worst is None else list(_marks(of[worst.name], at_s[worst.name])),
        models=[model for session in of.values() for model in session.models],
        warnings=[
            *found.warnings,
            *_missing(of.values()),
            *_left_out(of, samples),
            *_told(of),
            *_whose_operations(of, worst),
        ],
    )


def _name(file: str, session: Session) -> str:
    return file if session.rank is None else f"rank {session.rank.number}"


def _number(session: Session) -> float:
    return np.inf if session.rank is None else session.rank.number


def _check(sessions: Named) -> None:
    seen: dict[int, str] = {}
    for file, session in sessions.items():
        if session.ranks:
            raise NncfToolsError(f"{file} was put together from {len(session.ranks)} recordings: name those themselves")
        if session.rank is None:
            continue
        before = seen.setdefault(session.rank.number, file)
        if before != file:
            raise NncfToolsError(
                f"{before} and {file} are both of rank {session.rank.number}: name the recordings of one job"
            )


def _run(name: str, session: Session, at_s: float) -> RankRun:
    samples = session.samples
    time_s, rss = np.empty(0), np.empty(0)
    if "rss" in samples:
        time_s, rss = drawn(samples.time_s, samples["rss"], session.sampler.spacing_s, _POINTS)
    return RankRun(
        name=name,
        rank=session.rank,
        host=session.host,
        start_s=at_s,
        duration_s=session.duration_s,
        finished=session.finished,
        exit=session.exit,
        peaks={metric: _later(peak, at_s) for metric, peak in session.peaks.items()},
        cpu_s=cpu_s(session),
        time_s=(time_s + at_s).tolist(),
        rss=[None if isnan(value) else int(value) for value in rss.tolist()],
    )


def _later(peak: Peak, by_s: float) -> Peak:
    return msgspec.structs.replace(peak, at_s=None if peak.at_s is None else peak.at_s + by_s)


def _peak(name: str, samples: Samples, runs: Sequence[RankRun]) -> Peak:
    figures = samples.figures(name)
    if not figures.known:
        return Peak(sampled=None, at_s=None, low=None)
    sampled = int(figures.highest)
    of_ranks = [run.peaks[name] for run in runs if name in run.peaks]
    lows = [] if is_once_per_machine(name) else [peak.low for peak in of_ranks if peak.low is not None]
    high = None if is_once_per_machine(name) else _together(name, runs)
    low = max([sampled, *lows])
    return Peak(
        sampled=sampled,
        at_s=samples.time_s[samples[name].index(figures.highest)],
        low=low,
        high=None if high is None else max(high, low),
        low_from=SAMPLED if low == sampled else HIGH_WATER_MARK,
    )


def _together(name: str, runs: Sequence[RankRun]) -> int | None:
    """Return the largest sum of what ranks that ran at the same time can have held; None when unknown of one."""
    held: list[tuple[float, float, int]] = []
    for run in runs:
        peak = run.peaks.get(name)
        if peak is None or peak.high is None or run.finished is False:
            return None
        held.append((run.start_s, run.start_s + run.duration_s, peak.high))
    return largest_sum(held)


def _all_finished(every: Iterable[bool | None]) -> bool | None:
    known = set(every)
    return False if False in known else None if None in known else True


def _exit(sessions: Iterable[Session]) -> Exit | None:
    """Return how the first rank that failed ended, else the common end, as far as it is known."""
    every = [session.exit for session in sessions]
    failed = [end for end in every if end is not None and (end.code or end.signal is not None)]
    return failed[0] if failed else None if None in every else every[0]


def _host(parts: Parts) -> Host:
    """Return the machine, or what several amount to."""
    hosts = [machine[0][1].host for machine in machines_of(parts)]
    if len(hosts) == 1:
        return hosts[0]
    return Host(
        name=f"{len(hosts)} machines",
        cpus=_total([host.cpus for host in hosts]),
        memory=_total([host.memory for host in hosts]),
    )


def _sampler(every: Sequence[SamplerFacts]) -> SamplerFacts:
    """Return costs and samples of all, and the worst of their punctuality; what is unknown of one is unknown."""
    return SamplerFacts(
        cpu_s=_total([facts.cpu_s for facts in every]),
        peak_rss=_total([facts.peak_rss for facts in every]),
        interval_s=_longest([facts.interval_s for facts in every]),
        achieved_interval_s=_longest([facts.achieved_interval_s for facts in every]),
        taken=_total([facts.taken for facts in every]),
        merged_s=max((facts.merged_s for facts in every if facts.merged_s is not None), default=None),
        missed=_total([facts.missed for facts in every]),
        longest_gap_s=_longest([facts.longest_gap_s for facts in every]),
        source=" and ".join(sorted({facts.source for facts in every})),
    )


def _total(values: Sequence[_Number | None]) -> _Number | None:
    """Return the sum, None when one is unknown."""
    known = [value for value in values if value is not None]
    return sum(known[1:], start=known[0]) if known and len(known) == len(values) else None


def _longest(values: Sequence[float | None]) -> float | None:
    """Return the largest, None when one is unknown."""
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def _totals(parts: Parts) -> dict[str, int | float | None]:
    """Return the counters of all; what is one figure of a machine counts once for each machine."""
    every = [session.totals for _, session in parts]
    found = {name: _total([totals[name] for totals in every]) for name in every[0] if all(name in of for of in every)}
    for name in {name for totals in every for name in totals if is_once_per_machine(name)}:
        machines = [[session.totals.get(name) for _, session in machine] for machine in machines_of(parts)]
        known = [[value for value in machine if value is not None] for machine in machines]
        found[name] = _total([max(machine) for machine in known if machine])
    return found


def _processes(parts: Parts) -> Iterator[Process]:
    """Yield all processes, numbered anew."""
    taken = 0
    for at_s, session in parts:
        base, taken = taken, taken + 1 + max((process.id for process in session.processes), default=0)
        for process in session.processes:
            yield msgspec.structs.replace(
                process,
                id=base + process.id,
                parent=None if process.parent is None else base + process.parent,
                start_s=None if process.start_s is None else process.start_s + at_s,
                end_s=None if process.end_s is None else process.end_s + at_s,
                series=None,
            )


def _marks(session: Session, at_s: float) -> Iterator[Mark]:
    marks = in_order(session.marks)
    for mark, end_s in zip(marks, ends(marks, session), strict=True):
        yield msgspec.structs.replace(mark, start_s=mark.start_s + at_s, end_s=end_s + at_s)


def _missing(sessions: Iterable[Session]) -> Iterator[str]:
    ranks = [session.rank for session in sessions if session.rank is not None]
    size = max((rank.size or 0 for rank in ranks), default=0)
    missing = sorted(set(range(size)) - {rank.number for rank in ranks})
    if missing:
        which = ", ".join(map(str, missing[:_NAMED])) + (", …" if len(missing) > _NAMED else "")
        yield f"{len(missing)} of {size} ranks: no recording of rank {which} is among these, and sums are without"
    jobs = sorted({rank.job for rank in ranks})
    if len(jobs) > 1:
        yield f"the recordings are of different jobs: {', '.join(job or 'one without a name' for job in jobs)}"


def _told(of: Named) -> Iterator[str]:
    """Yield each warning of a recording once, with whose it is."""
    told: dict[str, list[str]] = {}
    for name, session in of.items():
        for warning in of_recording(session):
            told.setdefault(warning, []).append(name)
    for warning, names in told.items():
        yield warning if len(names) == len(of) else f"{', '.join(names)}: {warning}"


def _left_out(of: Named, samples: Samples) -> Iterator[str]:
    """Name the metrics that some ranks recorded and others did not."""
    every = {name for session in of.values() for name in session.samples.metrics}
    left_out = [name for name in metrics.in_order(every) if name not in samples]
    if left_out:
        yield f"not recorded of every rank, so there is no sum: {', '.join(left_out)}"


def _whose_operations(of: Named, worst: RankRun | None) -> Iterator[str]:
    if worst is not None and of[worst.name].marks:
        yield f"operations are those of {worst.name}, which held most; memory, CPU and I/O beside them are of all ranks"
