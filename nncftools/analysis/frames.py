"""The build-up of a peak as a tree of frames: the few places that hold most, and their names.

A stack is named by the few frames that tell a reader where it is. The tree as rows shows where it branches, and what
holds the memory there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nncftools.analysis.build_up import CERTAIN, EITHER, INHERITED, NOT_SEEN, BuildUp, Part
from nncftools.analysis.code_places import PROGRAM, PYTHON, brief_label, is_machinery, module_of, package_of
from nncftools.analysis.peak_text import SEPARATOR
from nncftools.analysis.rise_owners import shared_depth
from nncftools.session.model import Frame

_SMALL = 0.05
"""A smaller part of the peak has no line of its own."""
_MOSTLY = 0.7
"""If the parts of a place hold this much of it, they are named and the place is not."""
_CERTAIN = 0.6
"""A place is called certain if this much of it is, and uncertain if the rest is."""


WITHOUT_STACK = {NOT_SEEN: "not seen", INHERITED: "shared with a parent process, at most"}
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
        if part.kind == EITHER and part.shared == len(part.stack) != len(part.other):  # only what two stacks share
            node.deeper += part.size
    return root


def holders(root: Node) -> list[Sequence[Node]]:
    """Return the places that hold most, the largest first: each as the path of nodes to it from the outermost one.

    They do not overlap. A place is divided into its parts as long as a few of these hold most of it. What was taken in
    functions that were not seen does not count. A place stays whole if it is certain and its parts are not.
    """
    least = root.size * _SMALL
    paths = [path for path in _divided(root, least) if path[-1].kind not in {NOT_SEEN, INHERITED}]
    return sorted(paths, key=lambda path: -path[-1].size)


def unseen_below(root: Node) -> list[Sequence[Node]]:
    """Return the paths to functions that called others which were not seen, and which took a large part: ``deeper``."""
    least = root.size * _SMALL
    paths: list[Sequence[Node]] = []
    waiting: list[list[Node]] = [[child] for child in root.children.values()]
    while waiting:
        path = waiting.pop()
        if path[-1].deeper >= least:
            paths.append(path)
        waiting += [[*path, child] for child in path[-1].children.values() if child.size >= least]
    return paths


def _divided(root: Node, least: float) -> Iterator[list[Node]]:
    """Yield the paths to the places. There is no recursion: stacks may be as deep as Python allows."""
    waiting: list[tuple[list[Node], Node]] = [([], root)]
    while waiting:
        path, node = waiting.pop()
        large = [child for child in node.children.values() if child.size >= least]
        certain, size = sum(child.certain for child in large), sum(child.size for child in large)
        seen_below = node.size - node.deeper
        hold_most = bool(large) and size >= seen_below * _MOSTLY
        lose_certainty = node.certain >= node.size * _CERTAIN and certain < size * (1 - _CERTAIN)
        if not path or (hold_most and not lose_certainty):
            waiting += [([*path, child], child) for child in large]
        elif seen_below >= least:
            yield path


def certain_at_places(build_up: BuildUp) -> int:
    """Return the bytes that certainly belong to a place of ``holders``, or outside of these, to a stack."""
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


FOLDED = "…"
_BELOW = "in calls not seen, from "


class CodeShare(NamedTuple):
    """A place in the code that holds a large part of the memory, in bytes."""

    size: int
    certain: int
    """The part of ``size`` that certainly belongs there."""
    label: str


def stack_text(stack: Sequence[Frame]) -> str:
    """Return a stack by the frames that say most: ``export.py:12 main › … › torch/jit/_trace.py:455 _check_trace``.

    These are the innermost frame of the program itself, the call of the library that the innermost frame is in (or the
    entry into that library), and the innermost frame. The text is empty for a stack without frames.
    """
    shown = _without_machinery(stack)
    return _joined(shown, _best_frames(shown))


def best_frame(stack: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame that is not of the standard library, if there is one; None for an empty stack."""
    shown = _without_machinery(stack)
    known = (frame for frame in reversed(shown) if package_of(frame.file) != PYTHON)
    return next(known, shown[-1] if shown else None)


def held_by(root: Node, most: int) -> list[CodeShare]:
    """Return the ``most`` places with the most bytes, the largest first; no two have the same label."""
    known = [(path[-1].size, path[-1].certain, path, "") for path in holders(root)]
    within = {id(path[-1]) for _, _, path, _ in known}
    outside = (path for path in unseen_below(root) if not any(id(node) in within for node in path))
    unseen = [(path[-1].deeper, 0, path, _BELOW) for path in outside]
    largest = sorted([*known, *unseen], key=lambda holder: -holder[0])[:most]
    stacks = [[frame for node in path if (frame := node.place) is not None] for _, _, path, _ in largest]
    both = zip(largest, place_labels(stacks), strict=True)
    return [CodeShare(size, certain, f"{prefix}{label}") for (size, certain, _, prefix), label in both]


def place_labels(stacks: Sequence[Sequence[Frame]]) -> list[str]:
    """Return a name for the innermost frame of each stack, with its caller in another library.

    If the names are the same, the first frame in which the stacks differ is added.
    """
    shown = [_without_machinery(stack) for stack in stacks]
    labels = [_joined(stack, _holding(stack)) for stack in shown]
    for label in {label for label in labels if labels.count(label) > 1}:
        same = [index for index, other in enumerate(labels) if other == label]
        depth = shared_depth(*([frame.code for frame in shown[index]] for index in same))
        for index in same:
            stack = shown[index]
            labels[index] = _joined(stack, sorted({min(depth, len(stack) - 1), *_holding(stack)}), whole=True)
    return labels


def running_text(top: Part) -> str:
    """Return where the program stood; of two possible places both, the deeper one first if one stack has both."""
    here, there = (_without_machinery(stack) for stack in (top.stack, top.other))
    if not here or not there or here[-1].code == there[-1].code:
        return stack_text(here or there)
    if len(there) > len(here) and shared_depth(*([frame.code for frame in stack] for stack in (here, there))) == len(
        here
    ):
        here, there = there, here
    return f"{stack_text(here)}, or {brief_label(there[-1], here[-1])}"


def _without_machinery(stack: Iterable[Frame]) -> list[Frame]:
    return [frame for frame in stack if not is_machinery(frame)]


def _best_frames(stack: Sequence[Frame]) -> list[int]:
    """Return the indexes of the frames that say most, as ``stack_text`` names them."""
    if not stack:
        return []
    innermost, first = len(stack) - 1, _entry(stack)
    if package_of(stack[first].file) == PROGRAM:
        return [max(0, innermost - 1), innermost] if innermost else [0]
    own = max((index for index, frame in enumerate(stack) if _is_own(frame)), default=None)
    if own is None:  # the last frame of the outermost library
        packages = [package_of(frame.file) for frame in stack]
        own = next((index for index, package in enumerate(packages) if package not in {PROGRAM, PYTHON}), 0)
        while own < len(stack) - 1 and packages[own + 1] in {packages[own], PYTHON}:
            own += 1
    return sorted({own, first if own >= first - 1 else first - 1, innermost})


def _holding(stack: Sequence[Frame]) -> list[int]:
    """Return the indexes of the innermost frame and its caller in another package; of an import, its first module."""
    if not stack:
        return []
    innermost, first = len(stack) - 1, _entry(stack)
    if module_of(stack[first]):
        return sorted({first, innermost})
    caller = stack[first - 1]
    is_telling = first > 0 and (package_of(caller.file) != PROGRAM or _is_own(caller))
    return [first - 1, innermost] if is_telling else [innermost]


def _entry(stack: Sequence[Frame]) -> int:
    """Return the index of the first frame of the library that the innermost frame is in, or works for."""
    packages = [package_of(frame.file) for frame in stack]
    index = len(stack) - 1
    while index and packages[index] == PYTHON:
        index -= 1
    package = packages[index]
    while index and packages[index - 1] in {package, PYTHON}:
        index -= 1
    while index < len(stack) - 1 and packages[index] == PYTHON != package:
        index += 1
    return index


def _is_own(frame: Frame) -> bool:
    """Return whether a frame is of the program itself, and not of the few lines that pip writes to start a tool."""
    name = frame.file.rpartition("/")[2]
    return package_of(frame.file) == PROGRAM and not (frame.function == "<module>" and "." not in name)


def _joined(stack: Sequence[Frame], indexes: Sequence[int], *, whole: bool = False, before: Frame | None = None) -> str:
    """Return some frames of a stack as one text. A sign stands for those left out, unless ``whole``."""
    words: list[str] = []
    last: int | None = None
    for index in indexes:
        if last is not None and index > last + 1 and not whole:
            words.append(FOLDED)
        words.append(brief_label(stack[index], before))
        before, last = stack[index], index
    return SEPARATOR.join(words)


_ALMOST_ALL = 0.99
_LESS_CERTAIN = 0.2


class TreeRow(NamedTuple):
    """A row: functions that call each other and hold the same memory, in bytes."""

    depth: int
    size: int
    certain: int | None
    """The part of ``size`` that certainly belongs there; None where nothing was seen."""
    label: str


def branches(root: Node, share: float, most: int) -> tuple[list[TreeRow], int]:
    """Return rows that hold at least ``share`` of the whole, each above its parts, and how many are left out.

    Of more than ``most`` rows, the smallest are left out. A function with nearly all of its caller shares its row.
    """
    least = root.size * share
    every = list(_below(root, 0, least, None))
    if len(every) > most:
        least = sorted((row.size for row in every), reverse=True)[most - 1]
        kept = [row for row in every if row.size >= least][:most]
        return kept, len(every) - len(kept)
    return every, 0


def _below(node: Node, depth: int, least: float, before: Frame | None) -> Iterator[TreeRow]:
    smaller, count = 0, 0
    if node.deeper >= least and node.deeper:
        yield TreeRow(depth, node.deeper, None, "in calls that were not seen")
    for child in node.sorted_children:
        if child.size < least or not child.size:
            smaller, count = smaller + child.size, count + 1
            continue
        if child.kind:
            yield TreeRow(depth, child.size, None, WITHOUT_STACK.get(child.kind, child.kind))
            continue
        chain = _chain(child)
        frames = [frame for callee in chain if (frame := callee.place) is not None]
        label = _joined(frames, sorted({0, *_best_frames(frames)}), before=before)
        yield TreeRow(depth, child.size, chain[-1].certain, label)
        yield from _below(chain[-1], depth + 1, least, frames[-1])
    if smaller >= least and count:
        yield TreeRow(depth, smaller, None, f"… {count:,} smaller")


def _chain(node: Node) -> Sequence[Node]:
    """Return a node and those below it that hold nearly the same memory with nearly the same certainty."""
    chain = [node]
    while True:
        largest = max(chain[-1].children.values(), key=lambda child: child.size, default=None)
        if largest is None or largest.size < node.size * _ALMOST_ALL or largest.kind:
            return chain
        if largest.certain < node.certain - node.size * _LESS_CERTAIN:
            return chain
        chain.append(largest)
