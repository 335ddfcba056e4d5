"""What runs are compared by: peaks, times, sizes and counters, by the names that gates use, and the code that grew.

A difference says by how much a figure changed, and whether that is more than noise. Of code, it says which function
held more, or less, at the peak of one run than at that of another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from statistics import median
from typing import NamedTuple

from nncftools import metrics
from nncftools.analysis.build_up import NOT_SEEN, PROGRAM, SEEN, SHARED, BuildUp, Part
from nncftools.analysis.code_places import (
    OWN,
    PYTHON,
    imported_package,
    is_own,
    library_text,
    package_of,
    place_labels,
    short_file,
)
from nncftools.analysis.frames import IMPORTS, LABELS, SHARED_PAGES, WITHOUT_STACK, Node, tree_of
from nncftools.session.model import Frame

DURATION = "duration"
CPU_TIME = "cpu"
MODEL_SIZE = "model_size"
PEAK = "peak_"
"""Before the name of a memory metric."""


@dataclass(frozen=True)
class Figure:
    """What is compared: its name in a gate, its label, and its unit (``"B"``, ``"s"`` or ``""``)."""

    name: str
    label: str
    unit: str

    @property
    def is_peak(self) -> bool:
        """Whether it is the peak of a memory metric."""
        return self.name.startswith(PEAK)


_OF_EVERY_RUN = {
    DURATION: Figure(DURATION, "Duration", "s"),
    CPU_TIME: Figure(CPU_TIME, "CPU time", "s"),
    MODEL_SIZE: Figure(MODEL_SIZE, "Model size", "B"),
}


@lru_cache(maxsize=1024)
def figure_of(name: str) -> Figure | None:
    """Return the figure of this name; None for an unknown name."""
    if name in _OF_EVERY_RUN:
        return _OF_EVERY_RUN[name]
    if (metric := metrics.of(name.removeprefix(PEAK))) is None:
        return None
    if name.startswith(PEAK):
        return Figure(name, f"Peak {metric.label}", metric.unit) if metric.is_memory else None
    is_compared = metric.is_counter and metric.per_operation and metric.family != metrics.CPU_TIME
    return Figure(name, metric.short_label, metric.unit) if is_compared else None


def in_order(names: Iterable[str]) -> list[str]:
    """Return names of figures once each, in the order of display: peaks, duration, CPU time, counters."""
    known = dict.fromkeys(names)
    peaks = metrics.in_order(name.removeprefix(PEAK) for name in known if name.startswith(PEAK))
    counters = metrics.in_order(name for name in known if not name.startswith(PEAK) and name not in _OF_EVERY_RUN)
    return [*(PEAK + name for name in peaks), *(name for name in _OF_EVERY_RUN if name in known), *counters]


_EVERY = in_order([*map(PEAK.__add__, metrics.MEMORY), *_OF_EVERY_RUN, *metrics.METRICS])
FIGURES = [name for name in _EVERY if figure_of(name)]
"""The names of all figures except those of single devices."""


class Value(NamedTuple):
    """One figure of one run, in bytes or seconds."""

    low: float
    """The figure; for a peak, the lower end of its bracket."""
    high: float | None = None
    """The upper end of the bracket; None without a bracket, and for an unknown one."""


Values = dict[str, Value]


def recorded(figures: Iterable[Values]) -> Sequence[str]:
    """Return the names of figures that one of several runs has, in the order of display."""
    return _cached_order(tuple(dict.fromkeys(name for of in figures for name in of)))


@lru_cache(maxsize=1024)
def _cached_order(names: tuple[str, ...]) -> Sequence[str]:
    return tuple(in_order(names))


def known_figure(name: str) -> Figure:
    """Return the figure of a name that there is."""
    figure = figure_of(name)
    assert figure is not None
    return figure


SIGNIFICANT = 0.05
"""Up to this p, the difference exceeds the spread."""
_LEAST = {"B": (0.01, 1 << 20), "s": (0.05, 0.1), "": (0.05, 1.0)}
"""By unit: a change below this share of the figure, or below this amount, is noise, however often it was measured."""


class Side(NamedTuple):
    """One figure of one run or group."""

    values: Sequence[float]
    """One for each run in which the figure is known."""
    high: float | None = None
    """The median of the upper ends of the brackets; None when one is unknown."""

    @property
    def median(self) -> float:
        """The median of the runs; of one run its value."""
        return median(self.values)


@dataclass(frozen=True)
class Difference:
    """One figure on both sides."""

    figure: Figure
    base: Side
    new: Side
    p: float | None = None
    """The probability of ranks at least as uneven by chance (exact Mann-Whitney test); None for one run each."""

    @property
    def change(self) -> float:
        """How much larger the figure of ``new`` is, by medians."""
        return self.new.median - self.base.median

    @property
    def percent(self) -> float | None:
        """The change in per cent of ``base``; None when that is zero."""
        return self.change / self.base.median * 100 if self.base.median else None

    @property
    def is_within_brackets(self) -> bool:
        """Whether the brackets overlap, so that the real peaks may be equal."""
        base, new = self.base, self.new
        if base.high is None or new.high is None or not self.change:
            return False
        return max(base.median, new.median) <= min(base.high, new.high)

    @property
    def stands_out(self) -> bool:
        """Whether the change is more than noise.

        It is large enough to matter, the brackets do not overlap, and between groups it is beyond the spread.
        """
        share, least = _LEAST[self.figure.unit]
        if abs(self.change) < max(least, share * abs(self.base.median)) or self.is_within_brackets:
            return False
        return self.is_beyond_spread is not False

    @property
    def is_beyond_spread(self) -> bool | None:
        """Whether the difference exceeds the spread; None for one run each.

        Where the groups are too small to show that, no run of one side lies between those of the other.
        """
        if self.p is None or smallest_p(len(self.base.values), len(self.new.values)) <= SIGNIFICANT:
            return self.exceeds_spread
        return max(min(self.base.values), min(self.new.values)) > min(max(self.base.values), max(self.new.values))

    @property
    def exceeds_spread(self) -> bool | None:
        """Whether the difference is larger than the spread of the runs explains; None for one run each."""
        return None if self.p is None else self.p <= SIGNIFICANT


def differences(base: Sequence[Values], new: Sequence[Values]) -> dict[str, Difference]:
    """Return the figures that both sides have, by name; a side is one run or several."""
    known = {}
    for name in recorded([*base, *new]):
        sides = [[values[name] for values in group if name in values] for group in (base, new)]
        if all(sides):
            of_base, of_new = map(_side, sides)
            is_of_runs = len(of_base.values) == len(of_new.values) == 1
            p = None if is_of_runs else p_value(of_base.values, of_new.values)
            known[name] = Difference(known_figure(name), of_base, of_new, p)
    return known


def _side(values: Sequence[Value]) -> Side:
    lows, highs = zip(*values, strict=True)
    return Side(lows, None if None in highs else median(highs))


def p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Return how likely ranks at least as uneven as these are, if both groups come from one distribution.

    This is the two-sided test of Mann and Whitney (Ann. Math. Statist. 18 (1947) 50-60), exact even with ties. It
    counts all ways to deal the observed mid-ranks to groups of these sizes, by the shift algorithm of Streitberg and
    Röhmel (Statistical Software Newsletter 12 (1986) 10-17). Neither group may be empty.
    """
    import numpy as np  # 70 ms that a comparison of two runs can do without

    _, places, counts = np.unique([*first, *second], return_inverse=True, return_counts=True)
    ranks = (2 * np.cumsum(counts) - counts + 1)[places].tolist()  # twice the mid-ranks: whole numbers
    size, total = len(first), len(ranks)
    ways = np.zeros((size + 1, sum(ranks) + 1))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, :-rank]
    expected = size * (total + 1)
    uneven = abs(np.arange(ways.shape[1]) - expected) >= abs(sum(ranks[:size]) - expected)
    return float(ways[size, uneven].sum() / comb(total, size))


def smallest_p(first: int, second: int) -> float:
    """Return the smallest p that groups of these sizes can reach: when every value of one is above all of the other."""
    return min(1.0, 2 / comb(first + second, first))


Code = tuple[str, str]
"""A function and its file. The file is the same in another environment. A program without Python has its name and an
empty text; so has memory without a stack."""
CodePath = tuple[Code, ...]
"""A function of the user's own code, and below it those of libraries; lines do not matter. Code that no own code called
has all its callers."""
_EXPRESSION = ".<locals>.<"
"""What follows is a lambda or a comprehension: it is part of the function around it."""
_SITE, _STANDARD = "/site-packages/", "/lib/python3/"
_PLAIN = {
    WITHOUT_STACK[NOT_SEEN]: "code that no stack shows",
    WITHOUT_STACK[SHARED]: LABELS[SHARED_PAGES],
}
_SMALLEST = 0.005
"""A place that holds less, as a share of the peak, is not compared."""
_LEAST_CHANGE = 0.01
"""A smaller change, as a share of the larger peak, is none."""
_EXPLAINED = 0.7
"""A place is divided if its parts explain this much of its change."""


class HeldSize(NamedTuple):
    """What a place held, in bytes: the likely size, and its bounds."""

    size: float = 0.0
    low: float = 0.0
    """What certainly belongs there."""
    high: float = 0.0
    """What may belong there: also what belongs to callers with certainty and to no function in them, and the unseen."""
    below: float = 0.0
    """What may belong to a place in it that was not seen."""


Sizes = Mapping[CodePath, HeldSize]


class GrownStack(NamedTuple):
    """A place in the code and the bytes that it held at both peaks; of groups, the medians."""

    label: str
    owner: str
    """The function of the user's own code; where there is none, the same as ``label``."""
    function: str
    file: str
    """From the package on; empty for what has no stack."""
    base: float
    new: float
    is_within_bounds: bool
    """Whether both may have held the same: not all of it is certain."""

    @property
    def change(self) -> float:
        """How much more it held in ``new``."""
        return self.new - self.base


def places(build_up: BuildUp) -> dict[CodePath, HeldSize]:
    """Return what each function held at its place in the stacks, without those that held less than 0.5 %."""
    build_up = build_up._replace(parts=[_from_own_code(part) for part in build_up.parts])
    root = tree_of(build_up, by_line=False)
    root.certain = build_up.sum_of(SEEN)
    unseen = build_up.sum_of(NOT_SEEN)
    sizes: dict[CodePath, HeldSize] = {(): HeldSize(below=unseen + _anywhere_in(root))}
    waiting: list[tuple[CodePath, Node]] = [((), root)]
    while waiting:
        above, node = waiting.pop()
        for child in node.children.values():
            if child.size < root.size * _SMALLEST:
                continue
            name, below = child.program or child.text, sizes[above].below
            code = _PLAIN.get(name, name), ""
            held = HeldSize(child.size, child.size, child.size)
            if child.frame is not None:
                code = child.frame.function.partition(_EXPRESSION)[0], _file(child.frame.file)
                held = HeldSize(child.size, child.certain, child.certain + below, below + _anywhere_in(child))
            here = (*above, code)
            before = sizes.get(here, HeldSize())  # a comprehension, or a file of the same name in another folder
            sizes[here] = HeldSize(*map(sum, zip(before, held, strict=True)))
            waiting.append((here, child))
    return sizes


def _from_own_code(part: Part) -> Part:
    """Return a part whose stack begins at its deepest frame of own code; imports are like a program."""
    if part.is_start or (part.kind == SEEN and imported_package(part.stack)):
        return Part(part.size, PROGRAM, part.process, program=LABELS[IMPORTS])
    own = next((place for place in range(len(part.stack) - 1, -1, -1) if is_own(part.stack[place].file)), 0)
    return part._replace(stack=part.stack[own:], certain=max(0, part.certain - own))


def _anywhere_in(node: Node) -> int:
    """Return the bytes that certainly belong to a place, and to no function that it called with certainty."""
    of_children = sum(child.certain for child in node.children.values() if child.kind == SEEN)
    return node.certain - node.own_certain - of_children


def _file(file: str) -> str:
    """Return a file by a name that is the same in any environment: of own code its own, else from the package on."""
    folder = {OWN: "/", PYTHON: _STANDARD}.get(package_of(file), _SITE)
    return file.rpartition("/")[2] if is_own(file) else f"{folder}{short_file(file)}"


def grown(base: Sequence[Sizes], new: Sequence[Sizes], most: int) -> list[GrownStack]:
    """Return the ``most`` places that changed most, the largest change first; they do not overlap.

    A place is divided into its parts as long as a few of these explain most of its change.
    """
    base, new = ([_renamed(run, new[0]) for run in runs] for runs in (base, new))
    paths = list(dict.fromkeys(path for run in (*base, *new) for path in run))
    sides = zip(paths, _medians(base, paths), _medians(new, paths), strict=True)
    divided = _divided({path: _change(path, *sizes) for path, *sizes in sides})
    places = sorted(divided, key=lambda place: -abs(place[1].change))[:most]
    owners = [path[:1] if is_own(path[0][1]) else path for path, _ in places]
    stacks = list(dict.fromkeys(owners))
    frames = [[Frame(*code, 0) for code in stack] for stack in stacks]
    labels = dict(zip(stacks, place_labels(frames, is_short=True), strict=True))
    labelled = []
    for owner, (path, of) in zip(owners, places, strict=True):
        called = "" if path == owner else f" ({library_text(*path[-1])})"
        labelled.append(of._replace(label=f"{labels[owner]}{called}", owner=labels[owner]))
    return labelled


def _medians(runs: Sequence[Sizes], paths: Sequence[CodePath]) -> list[HeldSize]:
    """Return what each place held; a run without a place may have held there what was not seen in its caller."""
    every = [dict(run) for run in runs]
    for run in every:
        for path in paths:
            below = run[path[:-1]].below
            run.setdefault(path, HeldSize(high=below, below=below))
    return [HeldSize(*map(median, zip(*(run[path] for run in every), strict=True))) for path in paths]


def _change(path: CodePath, base: HeldSize, new: HeldSize) -> GrownStack:
    function, file = path[-1] if path else ("", "")
    is_within_bounds = max(base.low, new.low) <= min(base.high, new.high)
    return GrownStack("", "", function, short_file(file), base.size, new.size, is_within_bounds)


def _renamed(run: Sizes, reference: Sizes) -> Sizes:
    """Return a run whose own functions have the files of the reference: a script may have another name.

    A function that only one of them has is the one of the same name that only the other has; of several, the largest is
    the largest.
    """
    theirs = _only_in(reference, run)
    names = {path: theirs[key] for key, path in _only_in(run, reference).items() if key in theirs}
    return {(*names.get(path[:1], path[:1]), *path[1:]): held for path, held in run.items()}


def _only_in(run: Sizes, other: Sizes) -> dict[tuple[str, int], CodePath]:
    """Return the functions of scripts and of other own code that the other run lacks, by name and rank in size."""
    own = [path for path in run if len(path) == 1 and package_of(path[0][1]) == OWN and path not in other]
    ranks = Counter[str]()
    found: dict[tuple[str, int], CodePath] = {}
    for path in sorted(own, key=lambda path: -run[path].size):
        function = path[0][0]
        ranks[function] += 1
        found[function, ranks[function]] = path
    return found


def _divided(changes: Mapping[CodePath, GrownStack]) -> Iterator[tuple[CodePath, GrownStack]]:
    """Yield the places to name; callers come before what they call."""
    children = {path: list[CodePath]() for path in changes}
    largest = {path: abs(of.change) for path, of in changes.items()}  # what grew here may have shrunk below
    for path in reversed([path for path in changes if path]):
        children[path[:-1]].append(path)
        largest[path[:-1]] = max(largest[path[:-1]], largest[path])
    outermost = [changes[path] for path in children[()]]
    least = max(sum(of.base for of in outermost), sum(of.new for of in outermost)) * _LEAST_CHANGE
    waiting: list[CodePath] = [()]
    while waiting:
        path = waiting.pop()
        of, large = changes[path], [child for child in children[path] if largest[child] >= least]
        explained = sum(changes[child].change for child in large)
        changed = sum(abs(changes[child].change) for child in large)
        unsure = sum(abs(changes[child].change) for child in large if changes[child].is_within_bounds)
        is_explained = large and abs(of.change - explained) <= max(abs(of.change), changed) * (1 - _EXPLAINED)
        if not path or (is_explained and (of.is_within_bounds or unsure * 2 <= changed)):
            waiting += reversed(large)
        elif abs(of.change) >= least:
            yield path, of
