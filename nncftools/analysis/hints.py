"""What to know before trusting a figure, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from nncftools.analysis.peak_text import where_reached
from nncftools.analysis.summary import largest_process, pss_near_peak, taken
from nncftools.metrics import in_order, is_counter
from nncftools.session.readings import rss_error
from nncftools.session.session import Session
from nncftools.units import MemoryUnit, seconds_text

_MANY_MISSED = 0.05
_DISK_WAS_FULL = "the journal could not be written"
"""The beginning of the warning that explains missing samples."""
_NAMED = 3
_NEAR, _NOTICEABLE = 0.02, 2 << 20
"""A peak between two samples is worth a warning when it exceeds all samples by this share and by so many bytes."""
_MUCH_SHARED = 1.1
_LARGE_ERROR = 0.01
"""Of the RSS peak: an error of RSS that is larger is worth a warning."""
_TRACKER = "multiprocessing.resource_tracker"
"""It ends just after its program."""


def hints(session: Session, unit: MemoryUnit) -> list[str]:
    """Return the session's own warnings and those that follow from its figures."""
    return [
        *(session.warnings if session.ranks else of_recording(session)),
        *_at_the_limit(session),
        *_shared_pages(session, unit),
        *_counted_often(session, unit),
        *_between_samples(session, unit),
        *_off(session, unit),
        *_unknown_counters(session),
    ]


def of_recording(session: Session) -> list[str]:
    """Return the warnings of one recording by itself, which also hold when it is merged with others."""
    return [*session.warnings, *_survivors(session), *_missed(session)]


def _at_the_limit(session: Session) -> Iterator[str]:
    reached = session.limit_reached
    if reached is not None and (where := where_reached(session, reached.rss, reached.at_s)):
        yield f"--max-memory was exceeded {where}, at {seconds_text(reached.at_s)}"


def _shared_pages(session: Session, unit: MemoryUnit) -> Iterator[str]:
    """Forked copies share pages with their parent, and the sum of RSS counts these pages once per process."""
    peak = session.peaks.get("rss")
    largest = largest_process(session)
    if peak is None or peak.sampled is None or peak.at_s is None or largest is None:
        return
    spans = [
        (process.start_s or 0, inf if process.end_s is None else process.end_s)
        for process in session.processes
        if process.forked_copy
    ]
    copies = sum(begin_s <= peak.at_s < end_s for begin_s, end_s in spans)
    if copies and peak.sampled > largest.size:
        are_copies = "is a forked copy" if copies == 1 else "are forked copies"
        text = f"forked copies share pages: {copies} of the processes at the RSS peak {are_copies} of their parent"
        sums = "the sum counts shared pages once for each"
        yield f"{text}, and {sums}; the largest single process held {unit.label(largest.size)}"


def _counted_often(session: Session, unit: MemoryUnit) -> Iterator[str]:
    """If PSS was recorded, compare it with the RSS of the same sample; advise only if that is near the RSS peak."""
    near = pss_near_peak(session)
    if near is None:
        return
    rss, pss = unit.label(near.rss), unit.label(near.pss)
    if not near.is_at_peak:
        text = f"PSS was not counted near the RSS peak: the nearest time is {seconds_text(near.distance_s)} away"
        yield f"{text}, when RSS was {rss}; raise --pss-budget"
    elif near.rss > near.pss * _MUCH_SHARED:
        text = f"RSS counts shared pages once for each process: near its peak, when RSS was {rss}, PSS was {pss}"
        yield f"{text}; to size a machine, take PSS"


def _between_samples(session: Session, unit: MemoryUnit) -> Iterator[str]:
    peak = session.peaks.get("rss")
    if peak is None or peak.sampled is None or peak.low is None:
        return
    if peak.low <= peak.sampled + max(peak.sampled * _NEAR, _NOTICEABLE):
        return
    process = next((process for process in session.processes if process.id == peak.process), None)
    whose = "" if process is None or len(session.processes) == 1 else f" of {process.name or '?'} (pid {process.pid})"
    proven = f"the kernel's high-water mark{whose} proves {unit.label(peak.low)}"
    sample = f"the largest sample is {unit.label(peak.sampled)} at {seconds_text(peak.at_s)}"
    yield f"the RSS peak came and went between two samples: {proven}, {sample}"


def _off(session: Session, unit: MemoryUnit) -> Iterator[str]:
    peak, error = session.peaks.get("rss"), rss_error(session.host)
    if peak is None or peak.low is None or error <= peak.low * _LARGE_ERROR:
        return
    host, most = session.host, f"RSS on this machine may be off by up to {unit.label(error)} for each process"
    why = f"Linux {host.release} leaves out what each of {host.cpus} CPUs has not added yet"
    yield f"{most}: {why}; 6.16 and later are exact"


def _survivors(session: Session) -> Iterator[str]:
    if not session.finished or session.attached_to is not None:
        return
    left = [
        process for process in session.processes if process.end_s is None and _TRACKER not in " ".join(process.command)
    ]
    if left and left[0].id != 0:
        named = ", ".join(f"{process.name} (pid {process.pid})" for process in left[:_NAMED])
        more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        yield f"still running when the command ended, and not recorded further: {named}{more}"


def _missed(session: Session) -> Iterator[str]:
    facts = session.sampler
    missed = facts.missed or 0
    due = missed + taken(session)
    if missed <= due * _MANY_MISSED or any(text.startswith(_DISK_WAS_FULL) for text in session.warnings):
        return
    gap_s = facts.longest_gap_s or 0.0
    lost = f"{missed:,} of {due:,} samples were missed"
    if facts.interval_s and missed - gap_s / facts.interval_s <= due * _MANY_MISSED:
        yield f"{lost}, in one gap of {seconds_text(gap_s)}: the run was suspended, or the machine slept or was busy"
    else:
        yield f"{lost}, the longest gap is {seconds_text(gap_s)}: use a longer --interval or leave a core free"


def _unknown_counters(session: Session) -> Iterator[str]:
    unknown = [name for name in in_order(session.totals) if session.totals[name] is None and is_counter(name)]
    if unknown:
        why = "the figures of at least one process could not be read (another user's, or not supported by the system)"
        yield f"unknown: {', '.join(unknown)}; {why}"
