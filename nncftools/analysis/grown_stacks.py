"""Which code held more, or less, at the peak of one run than at that of another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from nncftools.analysis.build_up import EITHER, NOT_SEEN, BuildUp
from nncftools.analysis.code_places import PROGRAM, PYTHON, is_machinery, package_of, short_file
from nncftools.analysis.frames import WITHOUT_STACK, Node, place_labels, tree_of
from nncftools.session.model import Frame

CodePath = tuple[tuple[str, str], ...]
"""Functions with their files, the outermost first. It is the same in another environment, and after lines moved. Memory
without a stack has its kind and an empty text."""
_SITE, _STANDARD = "/site-packages/", "/lib/python3/"
_SMALLEST = 0.005
_LEAST_CHANGE = 0.01
_EXPLAINED = 0.7


class HeldSize(NamedTuple):
    """What a place held, in bytes: the likely size, and its bounds."""

    size: float = 0.0
    low: float = 0.0
    """What certainly belongs there."""
    high: float = 0.0
    """What may belong there: also the bytes of two places, and those that were not seen."""


Sizes = Mapping[CodePath, HeldSize]
_NOTHING = HeldSize()


class GrownStack(NamedTuple):
    """A place in the code and the bytes that it held at both peaks; of groups, the medians."""

    label: str
    function: str
    file: str
    """From the package on; empty for what has no stack."""
    base: float
    new: float
    is_within_bounds: bool
    """Whether both may have held the same: memory belongs to one of two stacks."""

    @property
    def change(self) -> float:
        """How much more it held in ``new``."""
        return self.new - self.base


def places(build_up: BuildUp) -> dict[CodePath, HeldSize]:
    """Return what each function held at its place in the stacks, without those that held less than 0.5 %."""
    root = tree_of(build_up)
    possible, unseen = _possible(root, build_up), build_up.sum_of(NOT_SEEN)
    sizes: dict[CodePath, HeldSize] = {}
    waiting: list[tuple[CodePath, Node]] = [((), root)]
    while waiting:
        above, node = waiting.pop()
        for child in node.children.values():
            if (most := child.size + possible.get(id(child), 0)) >= root.size * _SMALLEST:
                frame = child.frame
                here = (*above, (child.kind, "") if frame is None else (frame.function, _file(frame.file)))
                before = sizes.get(here, _NOTHING)
                low, high = (child.size, child.size) if child.kind else (child.certain, most + unseen)
                sizes[here] = HeldSize(before.size + child.size, before.low + low, before.high + high)
                waiting.append((here, child))
    return sizes


def _possible(root: Node, build_up: BuildUp) -> dict[int, int]:
    """Return by the ``id()`` of each node the bytes that may belong there; add the nodes that have only such bytes."""
    sizes: dict[int, int] = {}
    for part in build_up.parts:
        node = root
        for depth, frame in enumerate(part.other if part.kind == EITHER else ()):
            if not is_machinery(frame):
                node = node.children.setdefault(frame.code, Node(frame))
                if depth >= part.shared:
                    sizes[id(node)] = sizes.get(id(node), 0) + part.size
    return sizes


def _file(file: str) -> str:
    """Return a file by a name that is the same in any environment: of the program its own, else from the package on."""
    folder = {PROGRAM: "", PYTHON: _STANDARD}.get(package_of(file), _SITE)
    return f"{folder}{short_file(file)}" if folder else file.rpartition("/")[2]


@dataclass
class _Change:
    base: HeldSize = _NOTHING
    new: HeldSize = _NOTHING
    children: dict[tuple[str, str], _Change] = field(default_factory=dict)
    largest: float = 0.0
    """The largest change here or below: what grew in one place may have shrunk in another."""

    @property
    def change(self) -> float:
        return self.new.size - self.base.size

    @property
    def is_within_bounds(self) -> bool:
        return max(self.base.low, self.new.low) <= min(self.base.high, self.new.high)


def grown(base: Sequence[Sizes], new: Sequence[Sizes], most: int) -> list[GrownStack]:
    """Return the ``most`` places that changed most, the largest change first; they do not overlap.

    A place is divided into its parts as long as a few of these explain most of its change.
    """
    root = _Change()
    nodes = [root]
    for path in dict.fromkeys(path for run in (*base, *new) for path in run):
        node = root
        for code in path:
            if code not in node.children:
                node.children[code] = _Change()
                nodes.append(node.children[code])
            node = node.children[code]
        node.base, node.new = (_median([_size_at(run, path) for run in runs]) for runs in (base, new))
    for node in reversed(nodes):
        node.largest = max([abs(node.change), *(child.largest for child in node.children.values())])
    whole = (sum(getattr(child, side).size for child in root.children.values()) for side in ("base", "new"))
    least = max(whole) * _LEAST_CHANGE
    changes = sorted(_divided(root, least), key=lambda item: -abs(item[1].change))[:most]
    stacks = []
    for label, (path, node) in zip(_labels([path for path, _ in changes]), changes, strict=True):
        function, file = path[-1]
        names = label, function if file else label, short_file(file)
        stacks.append(GrownStack(*names, node.base.size, node.new.size, node.is_within_bounds))
    return stacks


def _size_at(run: Sizes, path: CodePath) -> HeldSize:
    """Return what a place held. One that was not seen may hold all that was not seen."""
    return run.get(path) or HeldSize(high=run.get(((NOT_SEEN, ""),), _NOTHING).size)


def _median(runs: Sequence[HeldSize]) -> HeldSize:
    return HeldSize(*(median(values) for values in zip(*runs, strict=True)))


def _divided(root: _Change, least: float) -> Iterator[tuple[CodePath, _Change]]:
    waiting: list[tuple[CodePath, _Change]] = [((), root)]
    while waiting:
        path, node = waiting.pop()
        large = [(code, child) for code, child in node.children.items() if child.largest >= least]
        explained = sum(child.change for _, child in large)
        changed = sum(abs(child.change) for _, child in large)
        unsure = sum(abs(child.change) for _, child in large if child.is_within_bounds)
        is_explained = large and abs(node.change - explained) <= max(abs(node.change), changed) * (1 - _EXPLAINED)
        if not path or (is_explained and (node.is_within_bounds or unsure * 2 <= changed)):
            waiting += [((*path, code), child) for code, child in large]
        elif abs(node.change) >= least:
            yield path, node


def _labels(paths: Sequence[CodePath]) -> list[str]:
    stacks = [[Frame(function, file, 0) for function, file in path if file] for path in paths]
    labels = iter(place_labels([stack for stack in stacks if stack]))
    return [
        next(labels) if stack else WITHOUT_STACK.get(path[0][0], path[0][0])
        for path, stack in zip(paths, stacks, strict=True)
    ]
