"""The build-up of a peak as a tree of frames, and the few places in it that hold most."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nncftools.analysis.build_up import CERTAIN, EITHER, INHERITED, NOT_SEEN
from nncftools.analysis.code_places import is_machinery

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from nncftools.analysis.build_up import BuildUp, Part
    from nncftools.session.model import Frame

_SMALL = 0.05
"""A part of the peak that is smaller has no line of its own."""
_MOSTLY = 0.7
"""If the parts of a place hold this much of it, they are named instead of it."""
_CERTAIN = 0.6
"""A place is called certain if this much of it is, and uncertain if the rest is."""


WITHOUT_STACK = {NOT_SEEN: "not seen", INHERITED: "shared with a parent process at most, counted again"}
"""What has no stack, in words."""


@dataclass
class Node:
    """A function at its place in the stacks, with all that was taken in it and in what it called; bytes."""

    frame: Frame | None
    """The line is the one with the most bytes; None for the root, and for what has no stack."""
    kind: str = ""
    """``not_seen`` or ``inherited`` for what has no stack."""
    size: int = 0
    certain: int = 0
    """The part of ``size`` that certainly belongs here."""
    deeper: int = 0
    """The part of ``size`` that was taken in functions called from here, which were not seen."""
    children: dict[tuple[str, str], Node] = field(default_factory=dict)
    lines: dict[int, int] = field(default_factory=dict)
    """Bytes by line."""

    @property
    def sorted_children(self) -> list[Node]:
        """The parts, the largest first."""
        return sorted(self.children.values(), key=lambda node: -node.size)

    @property
    def place(self) -> Frame | None:
        """The frame, with the line that has the most bytes."""
        if self.frame is None or not self.lines:
            return self.frame
        line = max(self.lines, key=self.lines.__getitem__)
        return type(self.frame)(self.frame.function, self.frame.file, line)


def tree_of(build_up: BuildUp) -> Node:
    """Return the root of the tree; frames that only pass calls on are left out."""
    root = Node(None, size=build_up.size, certain=build_up.size)
    for part in build_up.parts:
        if not part.stack:
            root.children.setdefault((part.kind, ""), Node(None, part.kind)).size += part.size
            continue
        node = root
        for depth, frame in enumerate(part.stack):
            if is_machinery(frame):
                continue
            node = node.children.setdefault(frame.code, Node(frame))
            node.size += part.size
            node.lines[frame.line] = node.lines.get(frame.line, 0) + part.size
            if depth < part.shared:
                node.certain += part.size
        if _is_cut(part):
            node.deeper += part.size
    return root


def _is_cut(part: Part) -> bool:
    """Return whether a stack has only the frames that two different stacks share."""
    return part.kind == EITHER and part.shared == len(part.stack) != len(part.other)


def holders(root: Node) -> list[Sequence[Node]]:
    """Return the places that hold most, the largest first: each as the path of nodes to it from the outermost one.

    They do not overlap. A place is divided into its parts as long as a few of these hold most of it, apart from what
    was taken in functions that were not seen. It stays whole if it is certain and its parts are not.
    """
    least = root.size * _SMALL
    found = [path for path in _divided(root, least) if path[-1].kind not in {NOT_SEEN, INHERITED}]
    return sorted(found, key=lambda path: -path[-1].size)


def unseen_below(root: Node) -> list[Sequence[Node]]:
    """Return the paths to functions that called others, not seen, in which a large part was taken: ``deeper``."""
    least = root.size * _SMALL
    found: list[Sequence[Node]] = []
    waiting: list[list[Node]] = [[child] for child in root.children.values()]
    while waiting:
        path = waiting.pop()
        if path[-1].deeper >= least:
            found.append(path)
        waiting += [[*path, child] for child in path[-1].children.values() if child.size >= least]
    return found


def _divided(root: Node, least: float) -> Iterator[list[Node]]:
    """Yield the paths to the places; without recursion, because stacks may be as deep as Python allows."""
    waiting: list[tuple[list[Node], Node]] = [([], root)]
    while waiting:
        path, node = waiting.pop()
        large = [child for child in node.children.values() if child.size >= least]
        seen_below = node.size - node.deeper
        if not path or (_hold_most(large, seen_below) and not _lose_certainty(node, large)):
            waiting += [([*path, child], child) for child in large]
        elif seen_below >= least:
            yield path


def _hold_most(large: Sequence[Node], size: int) -> bool:
    return bool(large) and sum(child.size for child in large) >= size * _MOSTLY


def _lose_certainty(node: Node, large: Sequence[Node]) -> bool:
    """Return whether a place is mostly certain, and its parts are not."""
    certain, size = (sum(child.certain for child in large), sum(child.size for child in large))
    return node.certain >= node.size * _CERTAIN and certain < size * (1 - _CERTAIN)


def certain_at_places(build_up: BuildUp) -> int:
    """Return the bytes that certainly belong to the place that ``holders`` names, or if it is small, to a stack."""
    root = tree_of(build_up)
    places = {id(path[-1]) for path in holders(root)}
    return sum(part.size for part in build_up.parts if part.stack and _is_certain(part, root, places))


def _is_certain(part: Part, root: Node, places: Collection[int]) -> bool:
    node = root
    for depth, frame in enumerate(part.stack):
        if not is_machinery(frame):
            node = node.children[frame.code]
        if id(node) in places:
            return depth < part.shared
    return part.kind == CERTAIN
