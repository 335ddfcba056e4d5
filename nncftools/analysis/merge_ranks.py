"""Recordings of the ranks of one job, merged into one session."""

from __future__ import annotations

import itertools
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from nncftools import metrics
from nncftools.analysis.clocks import start_times
from nncftools.analysis.hints import of_recording
from nncftools.analysis.rank_columns import is_once_per_machine, machines_of, summed
from nncftools.analysis.series import decimated_with_gaps
from nncftools.analysis.summary import cpu_s, failed_in_order, largest_rank
from nncftools.errors import NncfToolsError
from nncftools.metrics import is_memory
from nncftools.session.model import Exit, Host, Mark, Peak, Process, RankRun, SamplerFacts, Start
from nncftools.session.operations import with_ends
from nncftools.session.peaks import MostHeld, Reached, bracketed, moved, sampled_peak
from nncftools.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from nncftools.analysis.rank_columns import Parts
    from nncftools.session.samples import Samples

    Named = Mapping[str, Session]

_POINTS = 2000
_NAMED = 10


def merged(sessions: Named) -> Session:
    """Return one session for the recordings of a job, which are given by the names of their files.

    Memory is the sum of what the ranks held at the same time, each by its last sample. ``system`` counts once per
    machine. Raises NncfToolsError for two recordings of one rank, for one without a start time, for one that was
    merged already, and for runs without a rank that ran one after the other.
    """
    _check(sessions)
    order = sorted(sessions, key=lambda file: (_number(sessions[file]), file))
    of = {_name(file, sessions[file]): sessions[file] for file in order}
    at_s, clock_warnings = start_times(of)
    _check_together(of, at_s)
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
        exit=_exit(runs),
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
            *clock_warnings,
            *_missing(of.values()),
            *_left_out(of, samples),
            *_recording_warnings(of),
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
            raise NncfToolsError(f"{file} was merged from {len(session.ranks)} recordings: name those instead")
        if session.rank is not None and (before := seen.setdefault(session.rank.number, file)) != file:
            raise NncfToolsError(
                f"{before} and {file} are both of rank {session.rank.number}: name the recordings of one job"
            )


def _check_together(sessions: Named, at_s: Mapping[str, float]) -> None:
    """Raise NncfToolsError for recordings that no launcher numbered and that ran one after the other."""
    if any(session.rank is not None for session in sessions.values()):
        return
    first = min(sessions, key=lambda name: at_s[name] + sessions[name].duration_s)
    last = max(sessions, key=lambda name: at_s[name])
    if at_s[last] >= at_s[first] + sessions[first].duration_s:
        raise NncfToolsError(
            f"{first} and {last} are no ranks of one job: {last} began after {first} had ended", mended_by="compare"
        )


def _run(name: str, session: Session, at_s: float) -> RankRun:
    samples = session.samples
    time_s, rss = np.empty(0), np.empty(0)
    if "rss" in samples:
        time_s, rss = decimated_with_gaps(samples.time_s, samples["rss"], session.sampler.spacing_s, _POINTS)
    return RankRun(
        name=name,
        rank=session.rank,
        host=session.host,
        start_s=at_s,
        duration_s=session.duration_s,
        finished=session.finished,
        exit=session.exit,
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
    reached = [Reached(of.low or 0, of.low or 0, of.rose_from_s, of.rose_to_s) for of in of_runs]
    held = MostHeld((run.start_s, run.start_s + run.duration_s, _most(name, run)) for run in runs)
    return bracketed(peak, reached, held.most())


def _most(name: str, run: RankRun) -> int | None:
    """Return the most that a rank can have held; None for unknown."""
    return run.peaks[name].high if name in run.peaks and run.finished is not False else None


def _all_finished(every: Iterable[bool | None]) -> bool | None:
    known = set(every)
    return False if False in known else None if None in known else True


def _exit(runs: Sequence[RankRun]) -> Exit | None:
    """Return how the first rank that failed ended, or else the end of all, if it is known."""
    failed = failed_in_order(runs)
    return failed[0].exit if failed else None if any(run.exit is None for run in runs) else runs[0].exit


def _host(parts: Parts) -> Host:
    """Return the machine, or the sum of several."""
    hosts = [machine[0][1].host for machine in machines_of(parts)]
    if len(hosts) == 1:
        return hosts[0]
    return Host(name=f"{len(hosts)} machines", **_combined(sum, ("cpus", "memory"), hosts))


def _sampler(every: Sequence[SamplerFacts]) -> SamplerFacts:
    """Return the total cost and samples of all ranks, and the worst of their punctuality."""
    return SamplerFacts(
        **_combined(sum, ("cpu_s", "peak_rss", "taken", "missed"), every),
        **_combined(max, ("interval_s", "achieved_interval_s", "longest_gap_s"), every),
        merged_s=max((facts.merged_s for facts in every if facts.merged_s is not None), default=None),
        source=" and ".join(sorted({facts.source for facts in every})),
    )


def _combined(combine: Callable[[Any], Any], names: Iterable[str], every: Sequence[object]) -> dict[str, Any]:
    """Return fields of several objects, each combined; one that is unknown for any of them is unknown."""
    fields = {name: [getattr(one, name) for one in every] for name in names}
    return {name: None if None in values else combine(values) for name, values in fields.items()}


def _totals(parts: Parts) -> dict[str, int | float | None]:
    """Return the sums of the counters; what is one figure per machine counts once per machine."""
    every = [session.totals for _, session in parts]
    machines = [[session.totals for _, session in machine] for machine in machines_of(parts)]
    found: dict[str, int | float | None] = {}
    for name in dict.fromkeys(name for totals in every for name in totals):
        if is_once_per_machine(name):
            known = [[value for of in machine if (value := of.get(name)) is not None] for machine in machines]
            found[name] = sum(map(max, filter(None, known))) if any(known) else None
        elif all(name in totals for totals in every):
            values = [value for totals in every if (value := totals[name]) is not None]
            found[name] = sum(values) if len(values) == len(every) else None
    return found


def _processes(parts: Parts) -> Iterator[Process]:
    """Yield all processes with new numbers."""
    following = 0
    for at_s, session in parts:
        base, following = following, following + 1 + max((process.id for process in session.processes), default=0)
        for process in session.processes:
            yield replace(
                process,
                id=base + process.id,
                parent=None if process.parent is None else base + process.parent,
                start_s=None if process.start_s is None else process.start_s + at_s,
                end_s=None if process.end_s is None else process.end_s + at_s,
                counted_s=None if process.counted_s is None else process.counted_s + at_s,
                peak_s=None if process.peak_s is None else process.peak_s + at_s,
                rises=[replace(rise, from_s=rise.from_s + at_s, to_s=rise.to_s + at_s) for rise in process.rises],
                series=None,
            )


def _marks(session: Session, at_s: float) -> Iterator[Mark]:
    for mark, end_s in with_ends(session.marks, session):
        yield replace(mark, start_s=mark.start_s + at_s, end_s=end_s + at_s)


def _missing(sessions: Iterable[Session]) -> Iterator[str]:
    ranks = [session.rank for session in sessions if session.rank is not None]
    size = max((rank.size or 0 for rank in ranks), default=0)
    present = {rank.number for rank in ranks if 0 <= rank.number < size}
    missing = size - len(present)
    if missing:
        first = itertools.islice((number for number in range(size) if number not in present), _NAMED)
        which = ", ".join(map(str, first)) + (", …" if missing > _NAMED else "")
        yield f"{missing} of {size} ranks are missing: no recording of rank {which}, and sums do not count them"
    jobs = sorted({rank.job for rank in ranks})
    if len(jobs) > 1:
        yield f"the recordings are of different jobs: {', '.join(job or 'one without a name' for job in jobs)}"


def _recording_warnings(of: Named) -> Iterator[str]:
    """Yield each warning of a recording once, with the recordings that have it unless all do."""
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
    partial = [
        name
        for name in left_out
        if not metrics.is_room(name) and not all(name in session.samples for session in of.values())
    ]
    without_sum = [name for name in left_out if name not in partial and metrics.is_memory(name)]
    if partial:
        yield f"not recorded for every rank, so there is no sum: {', '.join(partial)}"
    if without_sum:
        yield f"ranks on one machine may share it, so there is no sum: {', '.join(without_sum)}"


def _whose_operations(of: Named, worst: RankRun | None) -> Iterator[str]:
    if worst is not None and of[worst.name].marks:
        text = f"operations come from {worst.name}, which has the highest peak"
        yield f"{text}; their memory, CPU and I/O are those of all ranks"
