"""Adds marks to a session: from the log of a recording, and from sidecar files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from nncftools.errors import NncfToolsError
from nncftools.files import replacing
from nncftools.marks.entries import Entry, rows
from nncftools.marks.line import OUTPUT
from nncftools.marks.models import saved_models
from nncftools.marks.resolving import resolve
from nncftools.session.model import Mark
from nncftools.session.operations import ends, in_order
from nncftools.units import seconds_text

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterable, Sequence

    from nncftools.session.session import Session

_SIDECAR = "sidecar"


def take_log(session: Session, data: bytes, name: str) -> int:
    """Add the marks and saved models of a marks log to ``session``; return the number of Pythons that the hook ran in.

    Unreadable lines are left out and counted in the session's warnings.
    """
    entries: list[Entry] = []
    wrong = []
    for row in rows(data, name, session.start):
        if row.entry is None:
            wrong.append(f"{row.place} ({row.problem})")
        else:
            entries.append(row.entry)
    warnings = {entry.warning: None for entry in entries if entry.warning is not None}
    session.warnings += warnings
    if wrong:
        count = "1 mark" if len(wrong) == 1 else f"{len(wrong):,} marks"
        session.warnings.append(f"{count} could not be read, the first is {wrong[0]} of {name}")
    session.marks = _within(resolve((entry for entry in entries if entry.is_operation), session), session)
    session.models = saved_models(entries)
    return sum(entry.python is not None for entry in entries)


def take_own(session: Session, data: bytes, name: str, pid: int) -> None:
    """Add the marks of a program that records itself, and of its descendants."""
    members = {pid, *(process.pid for process in session.processes)}
    found = (row.entry for row in rows(data, name, session.start) if row.entry is not None)
    own = (entry for entry in found if entry.is_operation and entry.pid in members and (entry.start_s or 0) >= 0)
    session.marks = _within(resolve(own, session), session)


def _within(marks: Iterable[Mark], session: Session) -> list[Mark]:
    """Return the marks that overlap the recording; a start before the recording is clipped to 0.

    A line of output was written before the command ended, even when it was read later.
    """
    return [
        replace(mark, start_s=min(max(0.0, mark.start_s), session.duration_s))
        for mark in marks
        if (mark.start_s <= session.duration_s or mark.source == OUTPUT) and (mark.end_s is None or mark.end_s >= 0)
    ]


def read_sidecar(path: pathlib.Path, session: Session) -> list[Mark]:
    """Return the operations of a sidecar file.

    Raises NncfToolsError, which names the file, the row and what was expected.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NncfToolsError(f"{path}: cannot be read: {error.strerror or error}") from error
    entries = []
    for row in rows(data, path.name, session.start):
        if row.entry is None:
            raise NncfToolsError(f"{path}: {row.place}: {row.problem}")
        entries.append(replace(row.entry, source=row.entry.source or _SIDECAR))
    marks = resolve((entry for entry in entries if entry.is_operation), session)
    for mark in marks:
        if not 0 <= mark.start_s <= session.duration_s:
            raise NncfToolsError(
                f"{path}: {mark.name!r} begins at {mark.start_s:,.3f} s, which is not within the recording "
                f"({seconds_text(session.duration_s)})"
            )
    return marks


def add_enclosing(session: Session, outer: Sequence[Mark]) -> None:
    """Add operations to a session; existing operations that start within one become nested in it."""
    spans = in_order(outer)
    until = ends(spans, session)

    def depth_at(at_s: float) -> int:
        enclosing = (mark.depth + 1 for mark, end_s in zip(spans, until, strict=True) if mark.start_s <= at_s < end_s)
        return max(enclosing, default=0)

    inner = [replace(mark, depth=mark.depth + depth_at(mark.start_s)) for mark in session.marks]
    session.marks = in_order([*spans, *inner])


def write_sidecar(marks: Iterable[Mark], path: pathlib.Path) -> None:
    """Write operations as a sidecar, one per line, so that they are easy to edit. Raises OSError."""
    lines = [msgspec.json.encode(_fields(mark)).decode() for mark in marks]
    with replacing(path) as beside:
        beside.write_text("[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n", encoding="utf-8")


def _fields(mark: Mark) -> dict[str, object]:
    """Return the fields of a mark to write: some always, the others when they differ from their default."""
    always = ("name", "start_s", "end_s", "depth", "pid")
    fields = {}
    for field in msgspec.structs.fields(Mark):
        value = getattr(mark, field.name)
        if field.name in always or value != field.default:
            fields[field.name] = value
    return fields
