"""The start times of recordings of one job, on one clock."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from nncftools.backports import moment_of
from nncftools.errors import NncfToolsError
from nncftools.units import seconds_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nncftools.session.session import Session

    Named = Mapping[str, Session]

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
                warnings.append(
                    f"the wall clock of {host} was set by {seconds_text(abs(apart_s))} between the starts of {first} "
                    f"and {name}: they are lined up by CLOCK_MONOTONIC"
                )
    zero = min(moments.values())
    at_s = {name: moments[name] - zero for name in sessions}
    return at_s, [*warnings, *_disagreeing(sessions), *_apart(at_s, sessions)]


def _machines(sessions: Named) -> list[dict[str, Session]]:
    """Return recordings by machine; one without a boot ID is a machine of its own."""
    found: dict[str, dict[str, Session]] = {}
    for name, session in sessions.items():
        is_known = session.host.boot_id and session.start.monotonic_ns is not None
        found.setdefault(session.host.boot_id if is_known else f"of {name}", {})[name] = session
    return list(found.values())


def _moment(name: str, session: Session) -> float:
    """Return the start in seconds of the wall clock."""
    utc = session.start.utc
    try:
        moment = moment_of(utc or "")
        return moment.replace(tzinfo=moment.tzinfo or dt.timezone.utc).timestamp()
    except ValueError:
        wrong = "has no start time" if utc is None else f"began at {utc!r}, which is not a time"
        raise NncfToolsError(f"{name}: {wrong}: it cannot be lined up with the others") from None


def _disagreeing(sessions: Named) -> Iterator[str]:
    """Warn if the clocks of several machines may not agree."""
    machines = [next(iter(machine.values())) for machine in _machines(sessions)]
    if len(machines) == 1:
        return
    unsynchronized = [session.host.name or "unknown host" for session in machines if session.start.utc_error_s is None]
    if unsynchronized:
        yield (
            f"the clocks may not be comparable: nothing, such as NTP, synchronizes that of "
            f"{', '.join(sorted(set(unsynchronized)))}; recordings and their sum may be shifted"
        )
        return
    errors_s = sorted((session.start.utc_error_s or 0.0 for session in machines), reverse=True)
    intervals = (session.sampler.interval_s or session.sampler.achieved_interval_s or 0.0 for session in machines)
    if errors_s[0] + errors_s[1] > max(intervals):
        yield (
            f"the clocks of the machines may differ by {seconds_text(errors_s[0] + errors_s[1])}, more than the "
            f"interval: recordings may be shifted against each other by that much"
        )


def _apart(at_s: Mapping[str, float], sessions: Named) -> Iterator[str]:
    """Name the recordings that overlap with no other one."""
    spans = {name: (begin_s, begin_s + sessions[name].duration_s) for name, begin_s in at_s.items()}
    alone = [
        name
        for name, (begin_s, end_s) in spans.items()
        if all(last_s < begin_s or end_s < first_s for other, (first_s, last_s) in spans.items() if other != name)
    ]
    if alone and len(spans) > 1:
        yield (
            f"by the wall clock nothing else ran at the time of {', '.join(alone)}: the clocks differ, or these are "
            f"not parts of one job (`nncf-tools compare` compares runs)"
        )
