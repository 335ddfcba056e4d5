"""Which code held more, or less, at the peak of one run than at that of another."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from nncftools.analysis.build_up import INHERITED, NOT_SEEN
from nncftools.analysis.code_places import PROGRAM, PYTHON, package_of, short_file
from nncftools.analysis.frame_tree import tree_of
from nncftools.analysis.telling import place_labels
from nncftools.session.snapshots import Frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from nncftools.analysis.build_up import BuildUp
    from nncftools.analysis.frame_tree import Node

Place = tuple[tuple[str, str], ...]
"""Functions with their files, the outermost first: the same in another environment or at other lines. What has no stack
is the kind of it and an empty text."""
_SITE, _STANDARD = "/site-packages/", "/lib/python3/"
_SMALLEST = 0.005
_LEAST_CHANGE = 0.01
_EXPLAINED = 0.7
_WORDS = {NOT_SEEN: "not seen", INHERITED: "shared with a parent process, counted again"}


class GrownStack(NamedTuple):
    """A place in the code and the bytes that it held at both peaks; of groups, the medians."""

    label: str
    function: str
    file: str
    """From the package on; empty for what has no stack."""
    base: float
    new: float

    @property
    def change(self) -> float:
        """How much more it held in ``new``."""
        return self.new - self.base


def places(build_up: BuildUp) -> dict[Place, int]:
    """Return the bytes of each function at its place in the stacks, without those that hold less than 0.5 %."""
    root = tree_of(build_up)
    found: dict[Place, int] = {}
    waiting: list[tuple[Place, Node]] = [((), root)]
    while waiting:
        above, node = waiting.pop()
        for child in node.children.values():
            if child.size >= root.size * _SMALLEST:
                frame = child.frame
                here = (*above, (child.kind, "") if frame is None else (frame.function, _file(frame.file)))
                found[here] = found.get(here, 0) + child.size
                waiting.append((here, child))
    return found


def _file(file: str) -> str:
    """Return a file as it is called in any environment: the program's own by its name, others from the package on."""
    folder = {PROGRAM: "", PYTHON: _STANDARD}.get(package_of(file), _SITE)
    return f"{folder}{short_file(file)}" if folder else file.rpartition("/")[2]


@dataclass
class _Change:
    base: float = 0.0
    new: float = 0.0
    children: dict[tuple[str, str], _Change] = field(default_factory=dict)
    largest: float = 0.0
    """The largest change here or below: what grew in one place may have shrunk in another."""

    @property
    def change(self) -> float:
        return self.new - self.base


def grown(base: Sequence[Mapping[Place, int]], new: Sequence[Mapping[Place, int]], most: int) -> list[GrownStack]:
    """Return the ``most`` places that changed most, the largest change first; they do not overlap.

    A place is divided into its parts as long as a few of these explain most of its change.
    """
    root = _Change()
    nodes = [root]
    for place in dict.fromkeys(place for run in (*base, *new) for place in run):
        node = root
        for code in place:
            if code not in node.children:
                node.children[code] = _Change()
                nodes.append(node.children[code])
            node = node.children[code]
        node.base, node.new = (median(run.get(place, 0) for run in runs) for runs in (base, new))
    root.base = sum(child.base for child in root.children.values())
    root.new = sum(child.new for child in root.children.values())
    for node in reversed(nodes):
        node.largest = max([abs(node.change), *(child.largest for child in node.children.values())])
    least = max(root.base, root.new) * _LEAST_CHANGE
    found = sorted(_divided(root, least), key=lambda item: -abs(item[1].change))[:most]
    labels = _labels([place for place, _ in found])
    return [
        GrownStack(label, place[-1][0] if place[-1][1] else label, short_file(place[-1][1]), node.base, node.new)
        for label, (place, node) in zip(labels, found, strict=True)
    ]


def _divided(root: _Change, least: float) -> Iterator[tuple[Place, _Change]]:
    waiting: list[tuple[Place, _Change]] = [((), root)]
    while waiting:
        place, node = waiting.pop()
        large = [(code, child) for code, child in node.children.items() if child.largest >= least]
        explained = sum(child.change for _, child in large)
        amount = max(abs(node.change), sum(abs(child.change) for _, child in large))
        if not place or (large and abs(node.change - explained) <= amount * (1 - _EXPLAINED)):
            waiting += [((*place, code), child) for code, child in large]
        elif abs(node.change) >= least:
            yield place, node


def _labels(found: Sequence[Place]) -> list[str]:
    stacks = [[Frame(function, file, 0) for function, file in place if file] for place in found]
    labels = iter(place_labels([stack for stack in stacks if stack]))
    return [
        next(labels) if stack else _WORDS.get(place[0][0], place[0][0])
        for place, stack in zip(found, stacks, strict=True)
    ]
