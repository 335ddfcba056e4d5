"""The few frames of a stack that tell a reader where it is, and a name for each place that holds memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nncftools.analysis.code_places import (
    PROGRAM,
    PYTHON,
    brief_label,
    is_machinery,
    module_of,
    package_of,
    shared_depth,
)
from nncftools.analysis.frame_tree import holders, unseen_below
from nncftools.analysis.peak_text import SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nncftools.analysis.build_up import Part
    from nncftools.analysis.frame_tree import Node
    from nncftools.session.model import Frame

FOLDED = "…"
_BELOW = "in calls not seen, from "


class Holder(NamedTuple):
    """A place in the code that holds a large part of the memory, in bytes."""

    size: int
    certain: int
    """The part of ``size`` that certainly belongs there."""
    label: str


def stack_text(stack: Sequence[Frame]) -> str:
    """Return a stack by its telling frames: ``export.py:12 main › … › torch/jit/_trace.py:455 _check_trace``.

    These are the innermost frame of the program itself, the one that called the library in which it stands (or the
    entry into that library), and the innermost one. It is empty for a stack without frames.
    """
    shown = _without_machinery(stack)
    return _joined(shown, _telling(shown))


def most_telling(stack: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame that is not of the standard library, if there is one; None for an empty stack."""
    shown = _without_machinery(stack)
    known = (frame for frame in reversed(shown) if package_of(frame.file) != PYTHON)
    return next(known, shown[-1] if shown else None)


def held_by(root: Node, most: int) -> list[Holder]:
    """Return the ``most`` places with the most bytes, the largest first; no two have the same label."""
    known = [(path[-1].size, path[-1].certain, path, "") for path in holders(root)]
    within = {id(path[-1]) for _, _, path, _ in known}
    unseen = [
        (path[-1].deeper, 0, path, _BELOW)
        for path in unseen_below(root)
        if not any(id(node) in within for node in path)
    ]
    largest = sorted([*known, *unseen], key=lambda found: -found[0])[:most]
    stacks = [[frame for node in path if (frame := node.place) is not None] for _, _, path, _ in largest]
    labels = place_labels(stacks)
    return [
        Holder(size, certain, f"{prefix}{label}")
        for (size, certain, _, prefix), label in zip(largest, labels, strict=True)
    ]


def place_labels(stacks: Sequence[Sequence[Frame]]) -> list[str]:
    """Return a name for the innermost frame of each stack, with its caller in another library.

    If the names are the same, the first frame in which the stacks differ is added.
    """
    shown = [_without_machinery(stack) for stack in stacks]
    labels = [_joined(stack, _holding(stack)) for stack in shown]
    for label in {label for label in labels if labels.count(label) > 1}:
        same = [place for place, one in enumerate(labels) if one == label]
        depth = _shared([shown[place] for place in same])
        for place in same:
            stack = shown[place]
            labels[place] = _joined(stack, sorted({min(depth, len(stack) - 1), *_holding(stack)}), is_whole=True)
    return labels


def branch_text(chain: Sequence[Frame], before: Frame | None) -> str:
    """Return functions that call each other, the outermost first, by a few frames; ``before`` calls them."""
    places = sorted({0, *_telling(chain)})
    return _joined(chain, places, before=before)


def running_text(top: Part) -> str:
    """Return where the program stood, or the two places if it is one of them, the deeper one of one stack first."""
    here, there = (_without_machinery(stack) for stack in (top.stack, top.other))
    if not here or not there or here[-1].code == there[-1].code:
        return stack_text(here or there)
    if len(there) > len(here) and _shared([here, there]) == len(here):
        here, there = there, here
    return f"{stack_text(here)}, or {brief_label(there[-1], here[-1])}"


def _without_machinery(stack: Iterable[Frame]) -> list[Frame]:
    return [frame for frame in stack if not is_machinery(frame)]


def _telling(stack: Sequence[Frame]) -> list[int]:
    """Return the places of the telling frames."""
    if not stack:
        return []
    innermost, first = len(stack) - 1, _entry(stack)
    if package_of(stack[first].file) == PROGRAM:
        return [max(0, innermost - 1), innermost] if innermost else [0]
    own = max((place for place, frame in enumerate(stack) if _is_own(frame)), default=None)
    if own is None:
        own = _end_of_first_package(stack)
    return sorted({own, first if own >= first - 1 else first - 1, innermost})


def _holding(stack: Sequence[Frame]) -> list[int]:
    """Return the places of the innermost frame, and of its caller in another package; of an import, the first one."""
    if not stack:
        return []
    innermost, first = len(stack) - 1, _entry(stack)
    if module_of(stack[first]):
        return sorted({first, innermost})
    caller = stack[first - 1]
    is_telling = first > 0 and (package_of(caller.file) != PROGRAM or _is_own(caller))
    return [first - 1, innermost] if is_telling else [innermost]


def _entry(stack: Sequence[Frame]) -> int:
    """Return the place of the first frame of the library that the innermost frame is in, or works for."""
    packages = [package_of(frame.file) for frame in stack]
    place = len(stack) - 1
    while place and packages[place] == PYTHON:
        place -= 1
    package = packages[place]
    while place and packages[place - 1] in {package, PYTHON}:
        place -= 1
    while place < len(stack) - 1 and packages[place] == PYTHON != package:
        place += 1
    return place


def _is_own(frame: Frame) -> bool:
    """Return whether a frame is of the program itself; the few lines that pip writes to start a tool are not."""
    name = frame.file.rpartition("/")[2]
    return package_of(frame.file) == PROGRAM and not (frame.function == "<module>" and "." not in name)


def _end_of_first_package(stack: Sequence[Frame]) -> int:
    """Return the place of the last frame of the outermost library."""
    packages = [package_of(frame.file) for frame in stack]
    first = next((place for place, package in enumerate(packages) if package not in {PROGRAM, PYTHON}), 0)
    while first < len(stack) - 1 and packages[first + 1] in {packages[first], PYTHON}:
        first += 1
    return first


def _shared(stacks: Iterable[Sequence[Frame]]) -> int:
    """Return how many outer frames all stacks share."""
    return shared_depth(*([frame.code for frame in stack] for stack in stacks))


def _joined(
    stack: Sequence[Frame], places: Sequence[int], *, is_whole: bool = False, before: Frame | None = None
) -> str:
    """Return frames as one text, with a sign for those in between, unless ``is_whole``; ``before`` precedes them."""
    words: list[str] = []
    last: int | None = None
    for place in places:
        if last is not None and place > last + 1 and not is_whole:
            words.append(FOLDED)
        words.append(brief_label(stack[place], before))
        before, last = stack[place], place
    return SEPARATOR.join(words)
