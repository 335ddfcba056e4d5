"""Marks into a session: from the log of a recording, and from sidecar files."""

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
from nncftools.session.operations import in_order, with_ends
from nncftools.units import seconds_text

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterable, Sequence

    from nncftools.session.session import Session

_SIDECAR = "sidecar"


def take_log(session: Session, data: bytes, name: str) -> int:
    """Give ``session`` the marks and models that a marks log noted; return how many Python programs could mark theirs.

    Lines that cannot be read are left out, and counted in the session's warnings.
    """
    entries: list[Entry] = []
    wrong = []
    for row in rows(data, name, session.start):
        if row.entry is None:
            wrong.append(f"{row.place} ({row.wrong})")
        else:
            entries.append(row.entry)
    told = {entry.warning: None for entry in entries if entry.warning is not None}
    session.warnings += told
    if wrong:
        count = "1 mark" if len(wrong) == 1 else f"{len(wrong):,} marks"
        session.warnings.append(f"{count} could not be read, the first is {wrong[0]} of {name}")
    session.marks = _within(resolve((entry for entry in entries if entry.is_operation), session), session)
    session.models = saved_models(entries)
    return sum(entry.python is not None for entry in entries)


def take_own(session: Session, data: bytes, name: str, pid: int) -> None:
    """Give a recording that a program made of itself the marks of that program and its descendants."""
    members = {pid, *(process.pid for process in session.processes)}
    found = (row.entry for row in rows(data, name, session.start) if row.entry is not None)
    own = (entry for entry in found if entry.is_operation and entry.pid in members and (entry.start_s or 0) >= 0)
    session.marks = _within(resolve(own, session), session)


def _within(marks: Iterable[Mark], session: Session) -> list[Mark]:
    """Return what happened during the recording; what began before it begins with it.

    A line of output was written before the command's end, however late it was read.
    """
    return [
        replace(mark, start_s=min(max(0.0, mark.start_s), session.duration_s))
        for mark in marks
        if (mark.start_s <= session.duration_s or mark.source == OUTPUT) and (mark.end_s is None or mark.end_s >= 0)
    ]


def of_sidecar(path: pathlib.Path, session: Session) -> list[Mark]:
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
            raise NncfToolsError(f"{path}: {row.place}: {row.wrong}")
        entries.append(replace(row.entry, source=row.entry.source or _SIDECAR))
    marks = resolve((entry for entry in entries if entry.is_operation), session)
    for mark in marks:
        if not 0 <= mark.start_s <= session.duration_s:
            raise NncfToolsError(
                f"{path}: {mark.name!r} begins at {mark.start_s:,.3f} s, which is not within the recording "
                f"({seconds_text(session.duration_s)})"
            )
    return marks


def put_around(session: Session, outer: Sequence[Mark]) -> None:
    """Add operations to a session; those that it has already are inside of them."""
    spans = with_ends(outer, session)

    def levels_at(at_s: float) -> int:
        around = (mark.depth + 1 for mark, end_s in spans if mark.start_s <= at_s < end_s)
        return max(around, default=0)

    inner = [replace(mark, depth=mark.depth + levels_at(mark.start_s)) for mark in session.marks]
    session.marks = in_order([*outer, *inner])


def write_sidecar(marks: Iterable[Mark], path: pathlib.Path) -> None:
    """Write operations as a sidecar, one a line, so that they can be edited. Raises OSError."""
    lines = [msgspec.json.encode(_said(mark)).decode() for mark in marks]
    with replacing(path) as beside:
        beside.write_text("[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n", encoding="utf-8")


def _said(mark: Mark) -> dict[str, object]:
    """Return the fields of a mark that say something."""
    always = ("name", "start_s", "end_s", "depth", "pid")
    said = {}
    for field in msgspec.structs.fields(Mark):
        value = getattr(mark, field.name)
        if field.name in always or value != field.default:
            said[field.name] = value
    return said
