"""What a command needs before it starts, and whether that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nncftools.limits.needs import needs
from nncftools.units import MemoryUnit, brief_size, part_text, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from nncftools.limits.available import Available
    from nncftools.limits.file_systems import Room
    from nncftools.session.model import SessionData


class Requirement(NamedTuple):
    """What a command needs, in bytes."""

    memory: int
    disks: Mapping[str, int]
    """By role of a file system (``nncftools.session.model.FileSystem``): what it had less during an earlier run."""
    is_bound: bool = False
    """Whether it needs more memory than that: the earlier run did not end by itself."""


def of_session(session: SessionData) -> Requirement | None:
    """Return what a command needed in an earlier run; None when the least memory that it needs was not recorded."""
    found = needs(session)
    if found is None:
        return None
    used = {one.role: one.first - one.lowest for one in session.file_systems if one.first and one.lowest is not None}
    return Requirement(found.floor, {role: size for role, size in used.items() if size > 0}, found.is_bound)


def shortage(memory: int, rooms: Sequence[Room], available: Available) -> str:
    """Return what is missing, with the figures; empty when all fits, as far as is known."""
    return "; ".join([*_of_memory(memory, available), *_of_disks(rooms)])


def _of_memory(needed: int, available: Available) -> Iterator[str]:
    least = available.least
    if least is not None and needed > least:
        yield f"{_against(needed, least, 'of memory is needed', 'is available')} ({', '.join(_parts(available))})"


def _parts(available: Available) -> Iterator[str]:
    known = (
        ("machine", available.machine, available.machine_size),
        ("control group", available.group, available.group_limit),
    )
    for name, size, of in known:
        if size is not None:
            yield f"{name}: {brief_size(size) if of is None else part_text(size, of)}"


def _of_disks(rooms: Sequence[Room]) -> Iterator[str]:
    for room in rooms:
        if room.needed > room.free:
            where = f"of disk at {printable(room.folder)!r} is needed"
            yield _against(room.needed, room.free, where, "is free")


def _against(needed: int, there: int, needed_text: str, there_text: str) -> str:
    """Return two sizes as text, so exactly that they differ."""
    sizes = brief_size(needed), brief_size(there)
    if sizes[0] == sizes[1]:
        sizes = MemoryUnit.MiB.label(needed), MemoryUnit.MiB.label(there)
    return f"{sizes[0]} {needed_text}, {sizes[1]} {there_text}"
