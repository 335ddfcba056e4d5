"""The measured values that ``compare`` compares, such as peaks, and the places in code whose memory changed.

A ``Figure`` is a kind of measured value, with the name that gates use. A gate is a limit such as ``peak_rss>+5%``. A
``Difference`` has the change of a measured value, and tells whether the change is more than noise. A ``GrownStack`` is
a place in the code (a function with its callers) that held more, or less, memory at the peak of a run than at the peak
of another run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from operator import add
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
from nncftools.analysis.operation import LazyMapping
from nncftools.session.model import Frame

DURATION = "duration"
CPU_TIME = "cpu"
MODEL_SIZE = "model_size"
HELD_AT_END = "held_at_end"
PEAK = "peak_"
"""The prefix of a peak's name: ``peak_rss`` is the peak of the metric ``rss``."""


@dataclass(frozen=True)
class Figure:
    """A kind of measured value to compare: the name in a gate, the label, and the unit.

    A gate is a limit such as ``peak_rss>+5%``. The unit is ``"B"`` (bytes), ``"s"`` (seconds) or ``""`` (a number).
    """

    name: str
    label: str
    unit: str

    @property
    def is_peak(self) -> bool:
        """Whether the value is the peak of a memory metric."""
        return self.name.startswith(PEAK)


_OF_EVERY_RUN = {
    DURATION: Figure(DURATION, "Duration", "s"),
    CPU_TIME: Figure(CPU_TIME, "CPU time", "s"),
    MODEL_SIZE: Figure(MODEL_SIZE, "Model size", "B"),
    HELD_AT_END: Figure(HELD_AT_END, "Held at the end", "B"),
}


@lru_cache(maxsize=1024)
def figure_of(name: str) -> Figure | None:
    """Return the name, label and unit of a measured value, such as ``peak_rss``; None if the name is unknown."""
    if name in _OF_EVERY_RUN:
        return _OF_EVERY_RUN[name]
    metric = metrics.of(name.removeprefix(PEAK))
    if metric is None:
        return None
    if name.startswith(PEAK):
        return Figure(name, f"Peak {metric.label}", metric.unit) if metric.is_memory else None
    is_compared = metric.is_counter and metric.per_operation and metric.family != metrics.CPU_TIME
    return Figure(name, metric.short_label, metric.unit) if is_compared else None


def in_order(names: Iterable[str]) -> list[str]:
    """Return each name of a measured value once, in the order of display: peaks, duration, CPU time, counters."""
    different = dict.fromkeys(names)
    peaks = [name for name in different if name.startswith(PEAK)]
    others = [name for name in different if name not in _OF_EVERY_RUN and not name.startswith(PEAK)]
    ordered = [PEAK + name for name in metrics.in_order(name.removeprefix(PEAK) for name in peaks)]
    ordered += [name for name in _OF_EVERY_RUN if name in different]
    return ordered + metrics.in_order(others)


_PEAKS = [PEAK + name for name in metrics.MEMORY]
_EVERY = in_order([*_PEAKS, *_OF_EVERY_RUN, *metrics.METRICS])
FIGURES = [name for name in _EVERY if figure_of(name)]
"""The names of all measured values that can be compared. Values of a particular device, such as the memory of a certain
GPU, are left out.
"""


class Value(NamedTuple):
    """A measured value of a run: bytes, seconds or a number."""

    low: float
    """The value. If only two bounds of a peak are known, the lower bound."""
    high: float | None = None
    """The upper bound of a peak. None if the exact peak is known, if no upper bound is known, or if the value is not a
    peak.
    """


Values = dict[str, Value]


def list_recorded(runs: Iterable[Values]) -> Sequence[str]:
    """Return the names of the measured values that any of several runs has, in the order of display."""
    names = dict[str, Value]()
    for values in runs:
        names |= values
    return _cached_order(tuple(names))


@lru_cache(maxsize=1024)
def _cached_order(names: tuple[str, ...]) -> Sequence[str]:
    return tuple(in_order(names))


def known_figure(name: str) -> Figure:
    """Return the name, label and unit of a measured value, such as ``peak_rss``.

    Raises AssertionError if the name is unknown.
    """
    figure = figure_of(name)
    assert figure is not None
    return figure


SIGNIFICANT = 0.05
"""If the p-value is at most this value, the difference of two sides counts as beyond the spread of their runs."""
_LEAST = {
    "B": (0.01, 1 << 20),
    "s": (0.05, 0.1),
    "": (0.05, 1.0),
}
"""Limits by unit: ``{unit: (share, amount)}``. A change below this share of the value, or below this amount, is noise.
This also applies if many runs show the same change.
"""


class Side(NamedTuple):
    """A measured value on one side of a comparison. A side is a run, or a group of runs."""

    values: Sequence[float]
    """The value in each run of the side. Runs without the value are left out."""
    high: float | None = None
    """The median of the upper bounds of the runs' peaks; None if any upper bound is unknown."""

    @property
    def median(self) -> float:
        """The median of the values of the runs."""
        return median(self.values)


class Difference(NamedTuple):
    """The values of the same kind on both sides of a comparison: in ``base`` and in ``new``."""

    figure: Figure
    base: Side
    new: Side
    p: float | None = None
    """The p-value of the exact Mann-Whitney test: the probability that chance alone makes two sides differ at least as
    much as these two sides. None for single runs."""

    @property
    def change(self) -> float:
        """The change of the median from ``base`` to ``new``."""
        return self.new.median - self.base.median

    @property
    def percent(self) -> float | None:
        """The change in per cent of ``base``; None if ``base`` is zero."""
        return self.change / self.base.median * 100 if self.base.median else None

    @property
    def is_within_brackets(self) -> bool:
        """Whether the brackets (the ranges from lower to upper bound) overlap, so that the real peaks may be equal."""
        if self.base.high is None or self.new.high is None or not self.change:
            return False
        highest_low = max(self.base.median, self.new.median)
        return highest_low <= min(self.base.high, self.new.high)

    @property
    def stands_out(self) -> bool:
        """Whether the change is more than noise.

        The change must be large enough to matter. The brackets of the two peaks (from lower to upper bound) must not
        overlap. Between groups, the change must also be beyond the spread of the runs.
        """
        share, least = _LEAST[self.figure.unit]
        least = max(least, share * abs(self.base.median))
        if abs(self.change) < least or self.is_within_brackets:
            return False
        return self.is_beyond_spread is not False

    @property
    def is_beyond_spread(self) -> bool | None:
        """Whether the difference is beyond the spread of the runs; None for single runs.

        The Mann-Whitney test decides. If the groups are too small for this test, the ranges of the two sides must not
        overlap.
        """
        can_be_significant = smallest_p(len(self.base.values), len(self.new.values)) <= SIGNIFICANT
        if self.p is None or can_be_significant:
            return self.exceeds_spread
        highest_low = max(min(self.base.values), min(self.new.values))
        return highest_low > min(max(self.base.values), max(self.new.values))

    @property
    def exceeds_spread(self) -> bool | None:
        """Whether the Mann-Whitney test finds a difference beyond the spread of the runs; None for single runs."""
        return None if self.p is None else self.p <= SIGNIFICANT


def find_differences(base: Sequence[Values], new: Sequence[Values]) -> Mapping[str, Difference]:
    """Return the differences of the measured values that both sides have: ``{name: difference}``.

    A side is a run, or a group of runs.
    """
    new_names = list_recorded(new)
    common = [name for name in list_recorded(base) if name in new_names]

    def compute(name: str) -> Difference:
        base_side = _make_side([values[name] for values in base if name in values])
        new_side = _make_side([values[name] for values in new if name in values])
        p = None
        if len(base_side.values) > 1 or len(new_side.values) > 1:
            p = p_value(base_side.values, new_side.values)
        return Difference(known_figure(name), base_side, new_side, p)

    return LazyMapping(common, compute)


def _make_side(values: Sequence[Value]) -> Side:
    if len(values) == 1:
        return Side((values[0].low,), values[0].high)
    highs = [value.high for value in values if value.high is not None]
    high = median(highs) if len(highs) == len(values) else None
    return Side([value.low for value in values], high)


def p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the probability that two groups of the same distribution differ at least as much as these groups.

    This is the two-sided test of Mann and Whitney (Ann. Math. Statist. 18 (1947) 50-60), exact even with ties. The test
    counts all ways to distribute the observed mid-ranks to groups of these sizes, by the shift algorithm of Streitberg
    and Röhmel (Statistical Software Newsletter 12 (1986) 10-17). Neither group may be empty.
    """
    import numpy as np  # the import takes 70 ms, and is not needed for single runs

    values = [*first, *second]
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (2 * np.cumsum(counts) - counts + 1)[places].tolist()  # doubled mid-ranks are whole numbers
    size = len(first)
    ways = np.zeros((size + 1, sum(ranks) + 1))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, :-rank]
    expected = size * (len(ranks) + 1)
    distances = abs(np.arange(ways.shape[1]) - expected)
    is_uneven = distances >= abs(sum(ranks[:size]) - expected)
    return float(ways[size, is_uneven].sum() / comb(len(ranks), size))


def smallest_p(first: int, second: int) -> float:
    """Return the smallest p-value that two groups of these sizes can have.

    The groups have this p-value if all values of a group exceed all values of the other group.
    """
    return min(1.0, 2 / comb(first + second, first))


Code = tuple[str, str]
"""A function and its file: ``(function, file)``. The file is shortened to a name that does not depend on the
environment. Memory without a stack has ``(label, "")``. A program that does not run Python has
``(name of the program, "")``.
"""
CodePath = tuple[Code, ...]
"""A function of the user's own code, and then the library functions that this function called, without line numbers. If
a stack has no own code, the path has all functions of the stack.
"""
_EXPRESSION = ".<locals>.<"
"""The text before the name of a lambda or a comprehension. Their memory counts as memory of the function around
them."""
_SITE = "/site-packages/"
_STANDARD = "/lib/python3/"
_PLAIN = {
    WITHOUT_STACK[NOT_SEEN]: "code that no stack shows",
    WITHOUT_STACK[SHARED]: LABELS[SHARED_PAGES],
}
_SMALLEST = 0.005
"""A function with a smaller share of the peak is not compared."""
_LEAST_CHANGE = 0.01
"""A change below this share of the larger peak is ignored."""
_EXPLAINED = 0.7
"""A function is replaced by the functions that it calls if the calls explain at least this share of the change of
memory.
"""


class HeldSize(NamedTuple):
    """The bytes that a function and its calls held: the likely size, a lower bound and an upper bound."""

    size: float = 0.0
    low: float = 0.0
    """The bytes that certainly belong to the function and its calls."""
    high: float = 0.0
    """The most bytes that may belong to the function and its calls. Some of these bytes may belong to a caller, or to
    code that no stack shows.
    """
    below: float = 0.0
    """The bytes that the function took in one of its calls of other functions. No stack shows in which call, so each of
    the called functions may own these bytes.
    """


Sizes = Mapping[CodePath, HeldSize]


class GrownStack(NamedTuple):
    """A function, with the bytes that the function and its calls held at the RSS peak on both sides of a comparison.

    If a side is a group of runs, the bytes are a median.
    """

    label: str
    owner: str
    """The label of the user's own function that led to this function; equal to ``label`` if there is no such function.
    """
    function: str
    file: str
    """The path of the file. In a library, the path begins with the package: ``torch/jit/_trace.py``. Empty for memory
    without a stack.
    """
    base: float
    new: float
    is_within_bounds: bool
    """Whether both sides of the comparison may have held the same number of bytes. This is possible if the owner of
    some memory is uncertain.
    """

    @property
    def change(self) -> float:
        """The growth from ``base`` to ``new``."""
        return self.new - self.base


def places(build_up: BuildUp) -> dict[CodePath, HeldSize]:
    """Return the bytes that each function in the stacks held: ``{path: sizes}``.

    Functions that held less than 0.5 % of the memory are left out.
    """
    parts = [_start_at_own(part) for part in build_up.parts]
    root = tree_of(build_up._replace(parts=parts), by_line=False)
    root.certain = build_up.sum_of(SEEN)
    unseen = build_up.sum_of(NOT_SEEN) + _unplaced_in(root)
    sizes: dict[CodePath, HeldSize] = {(): HeldSize(below=unseen)}
    waiting: list[tuple[CodePath, Node]] = [((), root)]
    while waiting:
        path, node = waiting.pop()
        for child in node.children.values():
            if child.size < root.size * _SMALLEST:
                continue
            if child.frame is None:
                name = child.program or child.text
                code = (_PLAIN.get(name, name), "")
                size = HeldSize(child.size, child.size, child.size)
            else:
                function = child.frame.function.partition(_EXPRESSION)[0]
                code = (function, _stable_file(child.frame.file))
                below = sizes[path].below
                size = HeldSize(child.size, child.certain, child.certain + below, below + _unplaced_in(child))
            child_path = (*path, code)
            # This path may exist already, for a comprehension or for a file of the same name in another folder.
            earlier = sizes.get(child_path, HeldSize())
            sizes[child_path] = HeldSize(*map(add, earlier, size))
            waiting.append((child_path, child))
    return sizes


def _start_at_own(part: Part) -> Part:
    """Return a part whose stack begins at the innermost frame of the user's own code.

    Memory of Python itself and of imports gets no stack. Instead, the result has the kind ``program`` and the fixed
    name ``Python and imports``, so all such memory is added up under this name.
    """
    if part.is_start or (part.kind == SEEN and imported_package(part.stack)):
        return Part(part.size, PROGRAM, part.process, program=LABELS[IMPORTS])
    depth = 0
    for index, frame in enumerate(part.stack):
        if is_own(frame.file):
            depth = index
    certain = max(0, part.certain - depth)
    return part._replace(stack=part.stack[depth:], certain=certain)


def _unplaced_in(node: Node) -> int:
    """Return the bytes that a node's function took by calling other functions that no stack shows.

    The result is the certain bytes of the node, minus the bytes of the node's function itself and of known calls.
    """
    in_children = sum(child.certain for child in node.children.values() if child.kind == SEEN)
    return node.certain - node.own_certain - in_children


def _stable_file(file: str) -> str:
    """Return a name of a file that is the same in every environment: own code by name, other code by package."""
    if is_own(file):
        return file.rpartition("/")[2]
    folder = {OWN: "/", PYTHON: _STANDARD}.get(package_of(file), _SITE)
    return f"{folder}{short_file(file)}"


def find_grown(base: Sequence[Sizes], new: Sequence[Sizes], most: int) -> list[GrownStack]:
    """Return the functions with the largest changes of memory, the largest change first; at most ``most`` functions.

    The memory of a function includes its calls. If the calls explain the change, the called functions are returned
    instead of the caller. No memory is counted twice.
    """
    reference = new[0]
    base = [_rename_scripts(run, reference) for run in base]
    new = [_rename_scripts(run, reference) for run in new]
    paths = dict[CodePath, HeldSize]()
    for run in (*base, *new):
        paths |= run
    base_sizes = _medians(base, paths)
    new_sizes = _medians(new, paths)
    changes = {path: _make_change(path, base_sizes[path], new_sizes[path]) for path in paths}

    def size_of(path: CodePath) -> float:
        return abs(changes[path].change)

    grown = sorted(_divide(changes), key=size_of, reverse=True)[:most]
    owners = [_owner_of(path) for path in grown]
    stacks = list(dict.fromkeys(owners))
    frames = [[Frame(*code, 0) for code in stack] for stack in stacks]
    labels = dict(zip(stacks, place_labels(frames), strict=True))
    labelled = []
    for owner, path in zip(owners, grown, strict=True):
        called = "" if path == owner else f" ({library_text(*path[-1])})"
        labelled.append(changes[path]._replace(label=f"{labels[owner]}{called}", owner=labels[owner]))
    return labelled


def _owner_of(path: CodePath) -> CodePath:
    """Return the first function of a call path if the function is the user's own code, or else the whole path."""
    return path[:1] if is_own(path[0][1]) else path


def _medians(runs: Sequence[Sizes], paths: Iterable[CodePath]) -> dict[CodePath, HeldSize]:
    """Return the median memory of each function over all runs: ``{path: sizes}``.

    A function may be missing in a run, because no stack shows the function. In this run, the likely size is 0 bytes.
    The upper bound is the memory that unknown calls of the caller took, because the function may be among these calls.
    """
    completed = [dict(run) for run in runs]
    for run in completed:
        for path in paths:
            below = run[path[:-1]].below
            run.setdefault(path, HeldSize(high=below, below=below))
    medians = {}
    for path in paths:
        sizes = zip(*(run[path] for run in completed), strict=True)
        medians[path] = HeldSize(*map(median, sizes))
    return medians


def _make_change(path: CodePath, base: HeldSize, new: HeldSize) -> GrownStack:
    function, file = path[-1] if path else ("", "")
    return GrownStack(
        label="",
        owner="",
        function=function,
        file=short_file(file),
        base=base.size,
        new=new.size,
        is_within_bounds=max(base.low, new.low) <= min(base.high, new.high),
    )


def _rename_scripts(run: Sizes, reference: Sizes) -> Sizes:
    """Rename the user's files to their names in the reference run: a script may have another name in each run.

    A function that only this run has is matched to a function of the same name that only the reference has. If several
    functions have this name, the functions with the most memory are matched first.
    """
    theirs = _own_by_name(reference, run)
    names = dict[CodePath, CodePath]()
    for name, functions in _own_by_name(run, reference).items():
        names.update(zip(functions, theirs[name], strict=False))
    renamed = {}
    for path, size in run.items():
        function = path[:1]
        renamed[names.get(function, function) + path[1:]] = size
    return renamed


def _own_by_name(run: Sizes, other: Sizes) -> defaultdict[str, list[CodePath]]:
    """Return the user's functions that the other run does not have: ``{name: paths}``.

    In each list of paths, the function with the most memory is first.
    """
    by_name = defaultdict[str, list[CodePath]](list)
    for path in sorted(run, key=lambda path: -run[path].size):
        function, file = path[-1] if path else ("", "")
        if len(path) == 1 and path not in other and package_of(file) == OWN:
            by_name[function].append(path)
    return by_name


def _divide(changes: Mapping[CodePath, GrownStack]) -> Iterator[CodePath]:
    """Yield the call paths of the functions to report.

    A function is replaced by the functions that it calls if the calls explain the change of the memory.
    """
    children = {path: list[CodePath]() for path in changes}
    largest = {path: abs(change.change) for path, change in changes.items()}
    for path in reversed([path for path in changes if path]):
        parent = path[:-1]
        children[parent].append(path)
        largest[parent] = max(largest[parent], largest[path])  # a place that grew may call functions that shrank
    outermost = [changes[path] for path in children[()]]
    base_size = sum(change.base for change in outermost)
    threshold = _LEAST_CHANGE * max(base_size, sum(change.new for change in outermost))
    waiting: list[CodePath] = [()]
    while waiting:
        path = waiting.pop()
        large = [child for child in children[path] if largest[child] >= threshold]
        parts = [changes[child] for child in large]
        if not path or (parts and _is_explained(changes[path], parts)):
            waiting += reversed(large)
        elif abs(changes[path].change) >= threshold:
            yield path


def _is_explained(place: GrownStack, parts: Sequence[GrownStack]) -> bool:
    """Return whether the calls in a place in the code explain how the memory of the place changed.

    ``parts`` are the calls. If ``place`` has certainly changed, at least half of the change in ``parts`` must be
    certain, too. A change is certain unless ``is_within_bounds``.
    """
    explained = sum(part.change for part in parts)
    changed = sum(abs(part.change) for part in parts)
    unsure = sum(abs(part.change) for part in parts if part.is_within_bounds)
    largest = max(abs(place.change), changed)
    if abs(place.change - explained) > largest * (1 - _EXPLAINED):
        return False
    return place.is_within_bounds or unsure * 2 <= changed
