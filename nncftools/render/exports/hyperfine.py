"""Runs in the format of ``hyperfine --export-json`` of version 1, which many scripts read."""

from __future__ import annotations

from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from nncftools.render.view import command_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nncftools.render.view import View
    from nncftools.session.session import Session

_KILLED = 128
"""Added to a signal's number, as hyperfine and shells do."""


class Timing(NamedTuple):
    """The figures of one run in hyperfine's export; seconds and bytes, None for unknown."""

    duration_s: float
    user_s: float | None
    system_s: float | None
    peak_rss: int | None
    exit_code: int | None


def report(session: Session, view: View) -> str:
    """Return the session as one command with one run; all in seconds and bytes."""
    return document([result(view.title or command_text(session), [timing(session)])])


def timing(session: Session) -> Timing:
    """Return the figures of a run; the peak of RSS is the lower bound of its bracket."""
    peak, exit_ = None if session.from_zero else session.peaks.get("rss"), session.exit
    code = None if exit_ is None else exit_.code if exit_.signal is None else _KILLED + exit_.signal
    user_s, system_s = session.totals.get("cpu_user"), session.totals.get("cpu_system")
    return Timing(session.duration_s, user_s, system_s, None if peak is None else peak.low, code)


def result(command: str, runs: Sequence[Timing]) -> dict[str, Any]:
    """Return one command with its runs, of which there is at least one."""
    times = [run.duration_s for run in runs]
    sizes = [run.peak_rss for run in runs]
    return {
        "command": command,
        "mean": fmean(times),
        "stddev": stdev(times) if len(times) > 1 else None,
        "median": median(times),
        "user": _mean(run.user_s for run in runs),
        "system": _mean(run.system_s for run in runs),
        "min": min(times),
        "max": max(times),
        "times": times,
        **({} if None in sizes else {"memory_usage_byte": sizes}),
        "exit_codes": [run.exit_code for run in runs],
    }


def document(results: Sequence[dict[str, Any]]) -> str:
    """Return the export of several commands as JSON."""
    return msgspec.json.format(msgspec.json.encode({"results": results}), indent=2).decode() + "\n"


def _mean(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else fmean(value for value in known if value is not None)
