"""Which code held more, or less, at the peak of one run than at that of another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from nncftools.analysis.build_up import NOT_SEEN, SEEN, BuildUp
from nncftools.analysis.code_places import OWN, PYTHON, package_of, short_file
from nncftools.analysis.frames import Node, place_labels, tree_of
from nncftools.session.model import Frame

CodePath = tuple[tuple[str, str], ...]
"""Functions with their files, the outermost first. It is the same in another environment, and after lines moved. A
program without Python has its name and an empty text; so has memory without a stack."""
_SCRIPT = ("the script", "")
_SITE, _STANDARD = "/site-packages/", "/lib/python3/"
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
            code, below = (child.program or child.text, ""), sizes[above].below
            held = HeldSize(child.size, child.size, child.size)
            if child.frame is not None:
                code = child.frame.function, _file(child.frame.file)
                held = HeldSize(child.size, child.certain, child.certain + below, below + _anywhere_in(child))
            here = (*above, code)
            before = sizes.get(here, HeldSize())  # a file of the same name in another folder
            sizes[here] = HeldSize(*map(sum, zip(before, held, strict=True)))
            waiting.append((here, child))
    return sizes


def _anywhere_in(node: Node) -> int:
    """Return the bytes that certainly belong to a place, and to no function that it called with certainty."""
    of_children = sum(child.certain for child in node.children.values() if child.kind == SEEN)
    return node.certain - node.own_certain - of_children


def _file(file: str) -> str:
    """Return a file by a name that is the same in any environment: of the program its own, else from the package on."""
    folder = {OWN: "", PYTHON: _STANDARD}.get(package_of(file), _SITE)
    return f"{folder}{short_file(file)}" if folder else file.rpartition("/")[2]


@dataclass
class _Change:
    """A place in the runs of both sides."""

    path: CodePath
    runs: tuple[Sequence[HeldSize], Sequence[HeldSize]]
    children: list[_Change] = field(default_factory=list)
    largest: float = 0.0
    """The largest change here or below: what grew in one place may have shrunk in another."""

    def __post_init__(self) -> None:
        self.base, self.new = (HeldSize(*map(median, zip(*runs, strict=True))) for runs in self.runs)

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
    if len({_script(run) for run in (*base, *new)}) > 1:
        base, new = ([_renamed(run) for run in runs] for runs in (base, new))
    root = _Change((), ([run[()] for run in base], [run[()] for run in new]))
    changes: dict[CodePath, _Change] = {(): root}
    for path in dict.fromkeys(path for run in (*base, *new) for path in run if path):
        above = changes[path[:-1]]
        of_base, of_new = (
            [run.get(path, HeldSize(high=of.below, below=of.below)) for run, of in zip(*sides, strict=True)]
            for sides in zip((base, new), above.runs, strict=True)
        )
        changes[path] = _Change(path, (of_base, of_new))
        above.children.append(changes[path])
    for change in reversed(changes.values()):
        change.largest = max([abs(change.change), *(child.largest for child in change.children)])
    whole = max(sum(of.base.size for of in root.children), sum(of.new.size for of in root.children))
    largest = sorted(_divided(root, whole * _LEAST_CHANGE), key=lambda of: -abs(of.change))[:most]
    labels = iter(place_labels([[Frame(*code, 0) for code in of.path] for of in largest if of.path[-1][1]]))
    stacks = []
    for of in largest:
        function, file = of.path[-1]
        label = next(labels) if file else function
        stacks.append(GrownStack(label, function, short_file(file), of.base.size, of.new.size, of.is_within_bounds))
    return stacks


def _script(run: Sizes) -> CodePath:
    """Return the outermost function that holds most of a run, if it is a module's: the script that was started."""
    largest = max((path for path in run if len(path) == 1), key=lambda path: run[path].size, default=())
    return largest if largest and largest[0][0] == "<module>" else ()


def _renamed(run: Sizes) -> Sizes:
    """Return a run whose script has no name: code below two scripts is the same code."""
    script = _script(run)
    return {(_SCRIPT, *path[1:]) if script and path[:1] == script else path: held for path, held in run.items()}


def _divided(root: _Change, least: float) -> Iterator[_Change]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        large = [child for child in node.children if child.largest >= least]
        explained = sum(child.change for child in large)
        changed = sum(abs(child.change) for child in large)
        unsure = sum(abs(child.change) for child in large if child.is_within_bounds)
        is_explained = large and abs(node.change - explained) <= max(abs(node.change), changed) * (1 - _EXPLAINED)
        if node is root or (is_explained and (node.is_within_bounds or unsure * 2 <= changed)):
            waiting += large
        elif abs(node.change) >= least:
            yield node
