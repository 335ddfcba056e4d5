"""The data of the page's panel of what the memory was: bars at the moments at which mappings were read."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from nncftools.analysis.memory_kinds import Kinds, at
from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nncftools.render.view import View
    from nncftools.session.session import Session

_ANONYMOUS, _FILE, _OTHER_FILES, _LIBRARIES, _STACK, _SHARED = (
    *("anonymous", "file", "other_files", "libraries", "stack", "shared"),
)
_OTHER, _NOT_READ = "other", "not_read"
_MOST_FILES = 5
_SMALLEST = 0.01
"""As a share of the most memory: what is always smaller is summed."""
_NARROWEST, _WIDEST, _FILLED = 0.002, 0.008, 0.8
"""Of bars: as a share of the run, and of the time to the next bar."""
_NAME = 32
_FILE_COLOURS = ("#E69F00", "#F0E442", "#D55E00", "#332288", "#56B4E9")
_TEXTS = {
    _ANONYMOUS: ("anonymous", "#0072B2"),
    _LIBRARIES: ("libraries", "#009E73"),
    _SHARED: ("shared memory", "#CC79A7"),
    _OTHER_FILES: ("other files", "#9A9A9A"),
    _OTHER: ("other", "#BDBDBD"),
    _NOT_READ: ("processes that were not read", "#E3E3E3"),
}
_COPIED = "/"
"""The pattern of private copies of the pages of a file, in plotly's notation."""


class _Part(NamedTuple):
    """What is drawn in one colour."""

    kind: str
    file: str = ""
    is_copied: bool = False


def kinds(session: Session, view: View, length_s: float, factor: float) -> list[dict[str, Any]]:
    """Return the parts from the bottom up, each as bars with a legend; none where mappings were not read.

    Memory that counts from the first sample is not drawn: each part would have a zero of its own.
    """
    moments = [] if view.from_zero else _apart(_moments(session), length_s * _NARROWEST)
    if not moments:
        return []
    named = _large_files(moments)
    sizes = [_sizes(moment, named) for moment in moments]
    least = _SMALLEST * max(moment.total for moment in moments)
    large = {part for of in sizes for part, size in of.items() if size >= least or part.kind == _NOT_READ}
    small = {part for of in sizes for part in of} - large
    sizes = [_without(of, small) for of in sizes]
    times = [moment.at_s / factor for moment in moments]
    widths = [width / factor for width in _widths(moments, length_s)]
    digits = 3 if view.unit.factor > 1 else 0
    below = [0.0] * len(moments)
    found = []
    for part in _in_order(named):
        if any(part in of for of in sizes):
            y = [round(of.get(part, 0) / view.unit.factor, digits) for of in sizes]
            found.append({**_look(part, named), "x": times, "width": widths, "base": below, "y": y, "unit": view.unit})
            below = [round(one + other, digits) for one, other in zip(below, y, strict=True)]
    return found


def _moments(session: Session) -> list[Kinds]:
    """Return the moments at which mappings were read, in time order."""
    found = () if session.snapshots is None else session.snapshots.mappings
    return sorted(map(at, found), key=lambda moment: moment.at_s)


def _apart(moments: Sequence[Kinds], least_s: float) -> list[Kinds]:
    """Return moments that are so far apart; of two that are not, the one with more memory."""
    kept: list[Kinds] = []
    for moment in moments:
        if not kept or moment.at_s - kept[-1].at_s >= least_s:
            kept.append(moment)
        elif moment.total >= kept[-1].total:
            kept[-1] = moment
    return kept


def _large_files(moments: Iterable[Kinds]) -> dict[str, int]:
    """Return the largest files and their places among them."""
    largest: dict[str, int] = {}
    for moment in moments:
        for group in moment.groups:
            if group.kind == _FILE:
                largest[group.file] = max(largest.get(group.file, 0), group.rss)
    in_order = sorted(largest, key=lambda file: (-largest[file], file))
    return {file: place for place, file in enumerate(in_order[:_MOST_FILES])}


def _sizes(moment: Kinds, named: Mapping[str, int]) -> dict[_Part, int]:
    """Return the bytes of each part; a file has a part for what is its own and one for copies."""
    sizes: dict[_Part, int] = {}
    for group in moment.groups:
        if group.kind == _FILE and group.file in named:
            sizes[_Part(_FILE, group.file)] = group.rss - group.anonymous
            sizes[_Part(_FILE, group.file, is_copied=True)] = group.anonymous
            continue
        kind = {_FILE: _OTHER_FILES, _STACK: _OTHER}.get(group.kind, group.kind)
        part = _Part(kind if kind in _TEXTS else _OTHER)
        sizes[part] = sizes.get(part, 0) + group.rss
    if moment.not_read:
        sizes[_Part(_NOT_READ)] = moment.not_read
    return sizes


def _without(sizes: Mapping[_Part, int], small: set[_Part]) -> dict[_Part, int]:
    """Return the bytes of each part, those of ``small`` ones as one."""
    found = {part: size for part, size in sizes.items() if part not in small}
    rest = sum(size for part, size in sizes.items() if part in small)
    if rest:
        found[_Part(_OTHER)] = found.get(_Part(_OTHER), 0) + rest
    return found


def _in_order(named: Mapping[str, int]) -> list[_Part]:
    """Return all parts from the bottom up."""
    files = [_Part(_FILE, file, is_copied) for file in named for is_copied in (True, False)]
    return [_Part(_ANONYMOUS), *files, *map(_Part, (_OTHER_FILES, _LIBRARIES, _SHARED, _OTHER, _NOT_READ))]


def _look(part: _Part, named: Mapping[str, int]) -> dict[str, str]:
    if part.kind != _FILE:
        text, colour = _TEXTS[part.kind]
        return {"name": text, "colour": colour, "pattern": ""}
    name = shortened(printable(part.file.rpartition("/")[2]), _NAME)
    if part.is_copied:
        return {"name": f"copied from {name}", "colour": _FILE_COLOURS[named[part.file]], "pattern": _COPIED}
    return {"name": name, "colour": _FILE_COLOURS[named[part.file]], "pattern": ""}


def _widths(moments: Sequence[Kinds], length_s: float) -> list[float]:
    """Return how wide each bar is in seconds: bars do not touch."""
    times = [moment.at_s for moment in moments]
    gaps = [after - before for before, after in pairwise(times)]
    nearest = [min(pair) for pair in zip([length_s, *gaps], [*gaps, length_s], strict=True)]
    return [min(length_s * _WIDEST, gap * _FILLED) for gap in nearest]
