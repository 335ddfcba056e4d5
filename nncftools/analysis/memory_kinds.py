"""What the memory near a moment was: anonymous, files by name, libraries, by the mappings that were read nearest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import astuple

from nncftools.session.model import MappingGroup, MappingsMoment, SessionData

_FAR_S = 10.0
"""Mappings that were read this long before or after the peak are as unlike it as those of twice its size."""
_SAME_SIZE, _SAME_TIME_S = 0.02, 0.2
"""Mappings that are nearer than both are those of the moment: reading them takes up to 0.1 s."""
_OTHER_SIZE = 0.25
_MOST = 0.5
_WEIGHTS = ".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".onnx_data", ".onnx.data"
"""The endings of files with the weights of a model."""


class Kinds(NamedTuple):
    """The resident memory of the largest processes at one moment, in bytes."""

    at_s: float
    total: int
    """The RSS of all processes."""
    groups: Sequence[MappingGroup]
    """Each kind, and each large file, once for all processes; the largest first."""
    is_of_moment: bool
    """Whether it is so near to the moment asked for that it stands for it."""
    is_other_memory: bool
    """Whether there was so much more or less memory that it says nothing about that moment."""

    @property
    def not_read(self) -> int:
        """The bytes of processes whose mappings were not read."""
        return max(0, self.total - sum(group.rss for group in self.groups))


def near(session: SessionData, at_s: float, size: int) -> Kinds | None:
    """Return what memory was near a moment at which RSS was ``size`` bytes; None when no mappings were read."""
    moments = session.snapshots.mappings if session.snapshots is not None else []
    if not moments or size <= 0:
        return None

    def distance(moment: MappingsMoment) -> float:
        far_s = abs(moment.time_s - at_s)
        return abs(moment.total - size) / size + (far_s / _FAR_S if far_s > _SAME_TIME_S else 0.0)

    best = min(moments, key=distance)
    off, far_s = abs(best.total - size), abs(best.time_s - at_s)
    is_of_moment = off <= size * _SAME_SIZE and far_s <= _SAME_TIME_S
    return at(best)._replace(is_of_moment=is_of_moment, is_other_memory=off > size * _OTHER_SIZE)


def at(moment: MappingsMoment) -> Kinds:
    """Return what memory was at a moment at which mappings were read."""
    sums: dict[tuple[str, str], list[int]] = {}
    for kind, file, *sizes in (astuple(group) for process in moment.processes for group in process.groups):
        sums[kind, file] = [sum(both) for both in zip(sums.get((kind, file), [0] * len(sizes)), sizes, strict=True)]
    groups = sorted((MappingGroup(*key, *sizes) for key, sizes in sums.items()), key=lambda group: -group.rss)
    total = max(moment.total, sum(group.rss for group in groups))  # it may grow between the helper's poll and this
    return Kinds(moment.time_s, total, groups, is_of_moment=True, is_other_memory=False)


def file_held(session: SessionData, at_s: float, size: int, file_size: int) -> str:
    """Return the path of the mapped file that most of ``file_size`` bytes of files are pages of.

    They are a part of ``size`` bytes of RSS at a moment. Of the files, and of all libraries together, that hold at
    least half of the bytes, the one nearest in size counts. Empty if that is no single file, or if no mappings were
    read near the moment.
    """
    kinds = near(session, at_s, size)
    if kinds is None or kinds.is_other_memory or file_size <= 0:
        return ""
    large = [group for group in kinds.groups if group.pages_of_file >= file_size * _MOST]
    nearest = min(large, key=lambda group: abs(group.pages_of_file - file_size), default=None)
    return "" if nearest is None else nearest.file


def is_weights(path: str) -> bool:
    """Return whether the name of a file ends like those of the weights of models."""
    return path.lower().endswith(_WEIGHTS)
