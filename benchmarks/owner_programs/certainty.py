"""Compare the sizes of functions and lines in a recording with what they really held."""

from __future__ import annotations

import math
import pathlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from benchmarks.owner_programs.generator import MIB
from benchmarks.owner_programs.recording import Place, Taken, Truth, own_place
from nncftools.analysis.build_up import BuildUp, of_peak
from nncftools.analysis.frames import Node, tree_of
from nncftools.session.model import Frame
from nncftools.session.peak_place import span_of
from nncftools.session.session import Session

_AROUND_NS = 20_000_000
"""The helper and the sampler read RSS at other moments than the program."""
_CLOSE, _CLOSE_BYTES = 0.1, 8 * MIB
"""A size is right if it differs by at most this share, or by this much."""
_SMALL = 16 * MIB
"""Functions and lines with less, by the truth and by the answer, are not judged."""
_ENTRY = Place("main.py", 0, "<module>")
"""All of the main thread is in it."""

Stack = Sequence[Place]


class Size(NamedTuple):
    """What a function or a line holds, in bytes, by the recording and by the truth."""

    place: Place
    said: float
    certain: float
    held: float
    most: float
    """It holds at most this: the moment of the peak is not known exactly."""
    rose: float
    """What it holds by the rule for freed memory: a level belongs to the allocation that rose to it last."""

    @property
    def excess(self) -> float:
        """Return the bytes that are wrongly certain."""
        return max(0.0, self.certain - self.most)

    @property
    def excess_by_rule(self) -> float:
        """Return the bytes that are wrongly certain by the rule for freed memory, too."""
        return max(0.0, self.certain - max(self.most, self.rose))

    @property
    def is_held(self) -> bool:
        """Return whether the recording says what is held."""
        return _is_close(self.said, self.held)

    @property
    def is_risen(self) -> bool:
        """Return whether the recording says what rose there."""
        return _is_close(self.said, self.rose)

    @property
    def is_large(self) -> bool:
        """Return whether the size is judged."""
        return max(self.said, self.held, self.rose) >= _SMALL


class Sizes(NamedTuple):
    """The sizes of a program at its peak."""

    functions: list[Size]
    lines: list[Size]
    certain: float
    """The share of the peak whose innermost own function is certain."""
    is_largest_right: bool


def _is_close(said: float, size: float) -> bool:
    return abs(said - size) <= max(_CLOSE_BYTES, _CLOSE * size)


def sizes_of(session: Session, truth: Truth, folder: pathlib.Path) -> Sizes | None:
    """Return the sizes of functions and lines at the peak; None without stacks."""
    peak, found = session.peaks.get("rss"), of_peak(session)
    span_s = None if peak is None else span_of(peak)
    if found is None or span_s is None or session.start.monotonic_ns is None:
        return None
    from_ns, to_ns = (round(second * 1e9) + session.start.monotonic_ns for second in span_s)
    at_ns = round(found.at_s * 1e9) + session.start.monotonic_ns
    window = (min(from_ns, at_ns) - _AROUND_NS, max(to_ns, at_ns) + _AROUND_NS)
    living = list(living_in(truth, window, found.size))
    risen = list(rises(truth, window))

    def compare(keys: Callable[[Stack], set[Place]], *, by_line: bool) -> list[Size]:
        said = _said(tree_of(found, by_line=by_line), folder, by_line=by_line)
        held, rose = _sums(living, keys), _sums(risen, keys)
        places = sorted({*said, *held, *rose} - {_ENTRY})
        return [Size(place, *said[place], *held[place], rose[place][1]) for place in places]

    functions = compare(lambda stack: {place.code for place in stack}, by_line=False)
    lines = compare(set, by_line=True)
    innermost = _sums(living, lambda stack: {stack[-1].code})
    return Sizes(functions, lines, *_innermost(found, innermost, folder))


def living_in(truth: Truth, window: tuple[int, int], peak: int) -> Iterator[tuple[Stack, float, float]]:
    """Yield the stacks of what lived in a time, with their bytes when most lived, and at most."""
    near = [taken for taken in truth.taken.values() if taken.from_ns <= window[1] and taken.ends_ns >= window[0]]
    changes = chain.from_iterable((taken.until_ns, taken.ends_ns - 1) for taken in near)
    moments = [*window, *(at_ns for at_ns in changes if window[0] < at_ns < window[1])]
    at_ns = max(moments, key=lambda at_ns: sum(_held(taken, at_ns) for taken in near))
    for taken in near:
        # during a call into a library, its temporary memory counts
        most = taken.size if taken.until_ns <= window[0] else max(taken.size, peak - taken.rss)
        yield taken.stack, _held(taken, at_ns), most


def _held(taken: Taken, at_ns: float) -> float:
    """Return the bytes that an allocation has at a moment; while it begins, a part of them."""
    if not taken.from_ns < at_ns < taken.ends_ns:
        return 0.0
    return taken.size * min(1.0, (at_ns - taken.from_ns) / (taken.until_ns - taken.from_ns))


def rises(truth: Truth, window: tuple[int, int]) -> Iterator[tuple[Stack, float, float]]:
    """Yield the stacks of what rose before a time and is left if the last rise always falls first."""
    for readings in truth.by_process().values():
        if readings[-1].at_ns < window[0] or readings[0].at_ns > window[1]:
            continue
        levels: list[tuple[str, float]] = []
        rss = 0
        for reading in readings:
            is_after = reading.at_ns > window[1]
            if is_after and not reading.taking:
                break
            grown, rss = reading.rss - rss, reading.rss
            if grown > 0:
                levels += _shares(truth, reading.taking, grown)
            _lower(levels, -grown)
            if is_after:
                break
        for token, size in levels:
            if token:
                yield truth.taken[token].stack, size, size


def _shares(truth: Truth, tokens: Sequence[str], size: float) -> list[tuple[str, float]]:
    """Return whose a rise is: that of the allocations under way, by their speed."""
    speeds = [
        1 + truth.taken[token].size / (truth.taken[token].until_ns - truth.taken[token].from_ns) for token in tokens
    ]
    return [(token, size * speed / sum(speeds)) for token, speed in zip(tokens, speeds, strict=True)] or [("", size)]


def _lower(levels: list[tuple[str, float]], size: float) -> None:
    while levels and size > 0:
        token, height = levels.pop()
        if height > size:
            levels.append((token, height - size))
        size -= height


def _sums(
    stacks: Iterable[tuple[Stack, float, float]], keys: Callable[[Stack], set[Place]]
) -> defaultdict[Place, tuple[float, float]]:
    sums: defaultdict[Place, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for stack, held, most in stacks:
        for key in keys(stack):
            sums[key] = (sums[key][0] + held, sums[key][1] + most)
    return sums


def _place(frame: Frame | None, folder: pathlib.Path) -> Place | None:
    return None if frame is None else own_place(frame.file, frame.function, frame.line, folder)


def _said(root: Node, folder: pathlib.Path, *, by_line: bool) -> defaultdict[Place, tuple[float, float]]:
    """Return the size of each place in the tree, and how much of it is certain; a recursion counts once."""
    sums: defaultdict[Place, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    waiting: list[tuple[Node, frozenset[Place]]] = [(root, frozenset())]
    while waiting:
        node, around = waiting.pop()
        place = _place(node.frame, folder)
        if place is not None:
            key = place if by_line else place.code
            if key not in around:
                sums[key] = (sums[key][0] + node.size, sums[key][1] + node.certain)
            around |= {key}
        waiting += [(child, around) for child in node.children.values()]
    return sums


def _innermost(
    found: BuildUp, truth: defaultdict[Place, tuple[float, float]], folder: pathlib.Path
) -> tuple[float, bool]:
    """Return the share of the peak whose innermost own function is certain, and whether the largest holder is right."""
    certain, said = 0, defaultdict[Place, int](int)
    for part in found.parts:
        places = [_place(frame, folder) for frame in part.stack]
        depth = max((depth for depth, place in enumerate(places) if place), default=None)
        if depth is not None:
            place = places[depth]
            assert place is not None
            said[place.code] += part.size
            certain += part.size if part.certain > depth else 0
    largest = max(said, key=said.__getitem__, default=_ENTRY)
    most = max((held for held, _ in truth.values()), default=math.inf)
    return certain / found.size, truth[largest][0] >= most - max(_CLOSE_BYTES, _CLOSE * most)
