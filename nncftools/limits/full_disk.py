"""Whether a disk was full: by an exception, by the free bytes that were seen, or by what the run wrote."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from nncftools.limits.verdict import DISK_FULL, LIKELY, POSSIBLE
from nncftools.session.model import DISK
from nncftools.units import printable, seconds_text

if TYPE_CHECKING:
    from nncftools.limits.case import Case
    from nncftools.limits.verdict import Verdict
    from nncftools.session.model import FileSystem, SessionData

_LEAST, _MOST, _LEAST_SHARE = 1 << 20, 16 << 20, 0.005
_FELL = 1 << 20
"""Room that was gone before the run says nothing."""
_MOST_OF = 0.9


def judge(case: Case) -> Verdict | None:
    """Return which program failed because a disk was full, by its exception; None for none."""
    full = fullest(case.session)
    room = [] if full is None else [_room(case, full)]
    return case.by_exception(DISK, DISK_FULL, "failed because a disk was full", room)


def judge_by_room(case: Case) -> Verdict | None:
    """Return whether the command probably failed because a disk was full."""
    death = case.death_by(signal.SIGBUS, of_command=True)
    if case.has_other_reason or not (case.has_failed or death is not None):
        return None
    at_s = case.end_s if death is None else death.at_s
    full = fullest(case.session)
    if full is not None:
        text = f"{case.who(case.command)} failed after the disk of {place(full)} was full"
        return case.verdict(DISK_FULL, LIKELY, text, at_s, process=case.command, evidence=[_room(case, full)])
    written = case.session.totals.get("write_chars") or 0
    tight = [one for one in case.session.file_systems if one.first and written >= one.first * _MOST_OF]
    if not tight:
        return None
    one = min(tight, key=lambda one: one.first or 0)
    text = f"{case.who(case.command)} failed, and the disk of {place(one)} may have been full"
    evidence = [f"it wrote {case.size(written)}, and {case.size(one.first or 0)} were free at first"]
    return case.verdict(DISK_FULL, POSSIBLE, text, at_s, process=case.command, evidence=evidence)


def fullest(session: SessionData) -> FileSystem | None:
    """Return the file system that had the least room, if that came to next to nothing during the run."""
    known = [one for one in session.file_systems if one.size and one.first and one.lowest is not None]
    one = min(known, key=lambda one: one.lowest or 0, default=None)
    if one is None:
        return None
    lowest, first = one.lowest or 0, one.first or 0
    next_to_nothing = max(_LEAST, min(_MOST, (one.size or 0) * _LEAST_SHARE))
    return one if lowest <= next_to_nothing and first - lowest >= _FELL else None


def place(file_system: FileSystem) -> str:
    """Return a file system as part of a sentence."""
    role = " (TMPDIR)" if file_system.role == "TMPDIR" else ""
    return f"{printable(file_system.path)}{role}"


def _room(case: Case, one: FileSystem) -> str:
    lowest = case.size(one.lowest) if one.lowest else "nothing"
    return f"free on {place(one)}: {case.size(one.first or 0)} at first, {lowest} at {seconds_text(one.lowest_s)}"
