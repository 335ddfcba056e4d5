"""Whether a disk was full: by an exception, by the free bytes that were seen, or by what the run wrote."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from nncftools.limits.verdict import CERTAIN, DISK_FULL, LIKELY, POSSIBLE
from nncftools.session.model import DISK
from nncftools.text import printable
from nncftools.units import seconds_text

if TYPE_CHECKING:
    from nncftools.limits.case import Case
    from nncftools.limits.verdict import Verdict
    from nncftools.session.model import FileSystem, SessionData

_LEAST, _LEAST_SHARE = 1 << 20, 0.005
_MOST_OF = 0.9


def judge(case: Case) -> Verdict | None:
    """Return which program failed because a disk was full; None for none."""
    failure = case.failure(DISK)
    death = case.death_by(signal.SIGBUS)
    if not (case.has_failed or death is not None):
        return None
    full = fullest(case.session)
    if failure is not None:
        process = case.process_of(failure.pid)
        return case.verdict(
            DISK_FULL,
            CERTAIN if failure.fatal else LIKELY,
            f"{case.who(process)} failed because a disk was full ({printable(failure.error)})",
            failure.at_s,
            process=process,
            evidence=["the exception, as the hook of `profile` saw it", *([] if full is None else [_room(case, full)])],
        )
    if full is not None:
        return case.verdict(
            DISK_FULL,
            LIKELY,
            f"{case.who(case.command)} failed after the disk of {place(full)} was full",
            case.end_s if death is None else death.at_s,
            process=case.command,
            evidence=[_room(case, full)],
        )
    written = case.session.totals.get("write_chars") or 0
    tight = [one for one in case.session.file_systems if one.first and written >= one.first * _MOST_OF]
    if not tight:
        return None
    one = min(tight, key=lambda one: one.first or 0)
    return case.verdict(
        DISK_FULL,
        POSSIBLE,
        f"{case.who(case.command)} failed, and the disk of {place(one)} may have been full",
        case.end_s,
        process=case.command,
        evidence=[f"it wrote {case.size(written)}, and {case.size(one.first or 0)} were free at first"],
    )


def fullest(session: SessionData) -> FileSystem | None:
    """Return the file system that had the least room, if that was next to nothing."""
    known = [one for one in session.file_systems if one.lowest is not None]
    one = min(known, key=lambda one: one.lowest or 0, default=None)
    return one if one is not None and (one.lowest or 0) <= max(_LEAST, (one.size or 0) * _LEAST_SHARE) else None


def place(file_system: FileSystem) -> str:
    """Return a file system as part of a sentence."""
    role = " (TMPDIR)" if file_system.role == "TMPDIR" else ""
    return f"{printable(file_system.path)}{role}"


def _room(case: Case, one: FileSystem) -> str:
    lowest = case.size(one.lowest) if one.lowest else "nothing"
    return f"free on {place(one)}: {case.size(one.first or 0)} at first, {lowest} at {seconds_text(one.lowest_s)}"
