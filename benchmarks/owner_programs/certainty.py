"""Compare the sizes of functions and lines in a recording with what they really held.

A recording may name a range of lines, or a function without a line, where it does not know the line. Such an answer is
read as the fairest choice of single lines in it: its bytes go to the lines in it, in order, as far as these have more
than the recording says of them. Bytes that are left go to the line in it that has most, so none vanish. If no line in
it has any, the range itself is judged, as a wrong line. No line outside the range gets any of its bytes, and nothing
that is only said of a range is certain for a line.
"""

from __future__ import annotations

import math
import pathlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.owner_programs.at_peak import Holding, holdings_at
from benchmarks.owner_programs.generator import MIB
from benchmarks.owner_programs.recording import Place, Truth
from nncftools.analysis.build_up import BuildUp
from nncftools.analysis.code_places import last_line
from nncftools.analysis.frames import Node, tree_of
from nncftools.analysis.session import Session
from nncftools.session.model import Frame

_AROUND_NS = 20_000_000
"""The helper and the sampler read RSS at other moments than the program."""
_CLOSE, _CLOSE_BYTES = 0.1, 8 * MIB
"""A size is right if it differs by at most this share, or by this much."""
_SMALL = 16 * MIB
"""Functions and lines with less, by the truth and by the answer, are not judged."""
_ENTRY = Place("main.py", 0, "<module>")
"""All of the main thread is in it."""

Bytes = Mapping[Place, float]


class Size(NamedTuple):
    """What a function or a line holds, in bytes, by the recording and by the truth."""

    place: Place
    named: float
    """What the recording says of it; of a line, without ranges."""
    said: float
    """The same with the bytes of ranges, given to lines by what they hold."""
    said_to_rise: float
    """The same with the bytes of ranges, given to lines by what rose there."""
    certain: float
    held: float
    most: float
    """It holds at most this: the moment of the peak is not known exactly."""
    rose: float
    """What rose there and is still there: memory that was freed, too, as long as the process keeps it."""

    @property
    def excess(self) -> float:
        """Return the bytes that are wrongly certain."""
        return max(0.0, self.certain - self.most)

    @property
    def excess_if_kept(self) -> float:
        """Return the bytes that are wrongly certain even if freed memory that the process keeps counts as held."""
        return max(0.0, self.certain - max(self.most, self.rose))

    @property
    def is_held(self) -> bool | None:
        """Return whether the recording says what is held; None if both are small."""
        return _is_close(self.said, self.held)

    @property
    def is_risen(self) -> bool | None:
        """Return whether the recording says what rose there; None if both are small."""
        return _is_close(self.said_to_rise, self.rose)

    @property
    def is_risen_by_line(self) -> bool | None:
        """Return the same without the bytes of ranges."""
        return _is_close(self.named, self.rose)


class Sizes(NamedTuple):
    """The sizes of a program at its peak."""

    functions: list[Size]
    lines: list[Size]
    certain: float
    """The share of the peak whose innermost own function is certain."""
    is_largest_right: bool


def _is_close(said: float, size: float) -> bool | None:
    """Return whether an answer is right; None if it is not judged, because both sizes are small."""
    return None if max(said, size) < _SMALL else abs(said - size) <= max(_CLOSE_BYTES, _CLOSE * size)


def sizes_of(session: Session, found: BuildUp, truth: Truth) -> Sizes | None:
    """Return the sizes of functions and lines at the peak; None if its moment is unknown."""
    peak = session.peaks.get("rss")
    span_s = None if peak is None else peak.span_s
    if span_s is None or session.start.monotonic_ns is None:
        return None
    from_ns, to_ns, at_ns = (round(second * 1e9) + session.start.monotonic_ns for second in (*span_s, found.at_s))
    window = (min(from_ns, at_ns) - _AROUND_NS, max(to_ns, at_ns) + _AROUND_NS)
    holdings = list(holdings_at(truth, window, found.size))
    folder = pathlib.Path(session.cwd)

    def compare(keys: Callable[[Sequence[Place]], set[Place]], *, by_line: bool) -> list[Size]:
        named, certain = _said(tree_of(found, by_line=by_line), folder, by_line=by_line)
        held = _sums(holdings, keys, "held")
        most = _sums(holdings, keys, "most")
        rose = _sums(holdings, keys, "rose")
        said, to_rise = named, named
        if by_line:
            said, to_rise = give_ranges(named, held), give_ranges(named, rose)
        places = sorted({*said, *to_rise, *held, *rose} - {_ENTRY})
        columns = (named, said, to_rise, certain, held, most, rose)
        return [Size(place, *(column.get(place, 0.0) for column in columns)) for place in places]

    functions = compare(lambda stack: {place.code for place in stack}, by_line=False)
    lines = compare(set, by_line=True)
    innermost = _sums(holdings, lambda stack: {stack[-1].code}, "held")
    return Sizes(functions, lines, *_innermost(found, innermost, folder))


def _sums(holdings: Sequence[Holding], keys: Callable[[Sequence[Place]], set[Place]], figure: str) -> Bytes:
    sums: defaultdict[Place, float] = defaultdict(float)
    for holding in holdings:
        for key in keys(holding.stack):
            sums[key] += getattr(holding, figure)
    return sums


def give_ranges(said: Bytes, truth: Bytes) -> Bytes:
    """Return what is said of lines, with the bytes of each range given to the lines in it: the module says how."""
    sizes = defaultdict(float, {place: size for place, size in said.items() if not place.is_range})
    for span in sorted((place for place in said if place.is_range), key=lambda place: place.length):
        left = said[span]
        lines = sorted(line for line in truth if span.covers(line))
        for line in lines:
            given = min(left, max(0.0, truth[line] - sizes[line]))
            sizes[line] += given
            left -= given
        sizes[max(lines, key=truth.__getitem__, default=span)] += left
    return sizes


def place_of(frame: Frame, folder: pathlib.Path) -> Place | None:
    """Return the place of a frame of the program's own files; None for any other frame."""
    path = pathlib.Path(frame.file)
    if path.parent not in {folder, pathlib.Path()} or path.name in {"", "truth.py"} or frame.file.startswith("<"):
        return None
    return Place(path.name, frame.line, frame.function, last_line(frame))


def _said(root: Node, folder: pathlib.Path, *, by_line: bool) -> tuple[Bytes, Bytes]:
    """Return the size of each place in the tree, and how much of it is certain; a recursion counts once."""
    sizes: defaultdict[Place, float] = defaultdict(float)
    certain: defaultdict[Place, float] = defaultdict(float)
    waiting: list[tuple[Node, frozenset[Place]]] = [(root, frozenset())]
    while waiting:
        node, around = waiting.pop()
        place = None if node.frame is None else place_of(node.frame, folder)
        if place is not None:
            key = place if by_line else place.code
            if key not in around:
                sizes[key] += node.size
                certain[key] += 0 if key.is_range and by_line else node.certain
            around |= {key}
        waiting += [(child, around) for child in node.children.values()]
    return sizes, certain


def _innermost(found: BuildUp, truth: Bytes, folder: pathlib.Path) -> tuple[float, bool]:
    """Return the share of the peak whose innermost own function is certain, and whether the largest holder is right."""
    certain, said = 0, defaultdict[Place, int](int)
    for part in found.parts:
        places = [place_of(frame, folder) for frame in part.stack]
        depth = max((depth for depth, place in enumerate(places) if place), default=None)
        if depth is not None:
            place = places[depth]
            assert place is not None
            said[place.code] += part.size
            certain += part.size if part.certain > depth else 0
    largest = max(said, key=said.__getitem__, default=_ENTRY)
    most = max(truth.values(), default=math.inf)
    return certain / found.size, truth.get(largest, 0.0) >= most - max(_CLOSE_BYTES, _CLOSE * most)
