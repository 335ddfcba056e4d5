"""What memory consisted of at the moments at which mappings were read: the groups of all processes, summed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.session.model import SessionData
    from nncftools.session.snapshots import MappingsMoment

ANONYMOUS, FILE, OTHER_FILES, LIBRARIES, STACK, SHARED = (
    *("anonymous", "file", "other_files", "libraries", "stack", "shared"),
)
NOT_READ = "not_read"
"""The memory of processes whose mappings were not read."""


class MemoryKind(NamedTuple):
    """Resident pages of one kind at one moment, of all processes, in bytes."""

    kind: str
    file: str
    """The path of the file, of the kind ``file``; else empty."""
    size: int
    clean: int | None
    """Of it, what the kernel can drop and read again; None when it is unknown."""
    copied: int | None
    """Of a mapped file: private copies of its pages; None when it is unknown."""


class KindsMoment(NamedTuple):
    """What memory consisted of at one moment: ``kinds``, the largest first, sum to ``total`` bytes or to a bit more."""

    time_s: float
    total: int
    """RSS of all processes."""
    kinds: Sequence[MemoryKind]


def kinds_over_time(session: SessionData) -> list[KindsMoment]:
    """Return every moment at which mappings were read, in time order; none where none were read."""
    found = () if session.snapshots is None else session.snapshots.mappings
    return sorted((_summed(moment) for moment in found), key=lambda moment: moment.time_s)


def kinds_at_largest(session: SessionData) -> KindsMoment | None:
    """Return the moment with the most memory of those at which mappings were read; None where none were read."""
    return max(kinds_over_time(session), key=lambda moment: moment.total, default=None)


def _summed(moment: MappingsMoment) -> KindsMoment:
    sums: dict[tuple[str, str], tuple[int, int, int]] = {}
    for process in moment.processes:
        for group in process.groups:
            size, clean, copied = sums.get((group.kind, group.file), (0, 0, 0))
            key = group.kind, group.file
            sums[key] = (size + group.rss, clean + group.clean, copied + group.anonymous)
    kinds = [
        MemoryKind(kind, file, size, clean, copied if _is_of_files(kind) else 0)
        for (kind, file), (size, clean, copied) in sums.items()
    ]
    rest = moment.total - sum(kind.size for kind in kinds)
    if rest > 0:
        kinds.append(MemoryKind(NOT_READ, "", rest, None, None))
    return KindsMoment(moment.time_s, moment.total, sorted(kinds, key=lambda kind: -kind.size))


def _is_of_files(kind: str) -> bool:
    return kind in {FILE, OTHER_FILES, LIBRARIES}
