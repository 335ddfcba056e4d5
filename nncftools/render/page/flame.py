"""The data of the page's flame graph: the build-up of the RSS peak as a tree of frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from nncftools.analysis.build_up import CERTAIN, EITHER, INHERITED, NOT_SEEN, of_peak
from nncftools.analysis.code_places import module_of, package_of
from nncftools.analysis.frame_tree import Node, tree_of
from nncftools.render.colours import OTHER_PACKAGES, REST, package_fills
from nncftools.render.stacks import place_text
from nncftools.text import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.analysis.build_up import BuildUp
    from nncftools.render.colours import Fill
    from nncftools.render.view import View
    from nncftools.session.session import Session

_MOST_NODES = 1500
_SMALLEST = 0.0005
"""As a share of the peak: what is smaller is summed."""
_NAME = 120
_DIGITS = {1: 0}
"""Of sizes in bytes; others have one digit."""
_WITHOUT_STACK = {NOT_SEEN: "not seen", INHERITED: "shared with the parent process"}
_WHOLE = "RSS at its peak"


class _Box(NamedTuple):
    """A rectangle of the graph; sizes are in bytes."""

    parent: int | None
    """The number of the box that it is a part of."""
    name: str
    place: str
    size: int
    certain: int
    package: str | None
    """None for what is not a frame."""


def flame(session: Session, view: View) -> dict[str, Any] | None:
    """Return the tree as columns, the outermost box first; None when the session has no stacks of its peak."""
    build_up = of_peak(session)
    if build_up is None:
        return None
    boxes = list(_boxes(tree_of(build_up)))
    fills = _fills(boxes)
    places = {package: place for place, package in enumerate(fills)}
    factor = view.unit.factor
    return {
        "parent": [box.parent for box in boxes],
        "name": [box.name for box in boxes],
        "place": [box.place for box in boxes],
        "size": [box.size for box in boxes],
        "certain": [box.certain for box in boxes],
        "package": [None if box.package is None else places[box.package] for box in boxes],
        "packages": [_look(package, fill) for package, fill in fills.items()],
        "rest": {"colour": REST.colour, "ink": REST.ink},
        "unit": view.unit,
        "factor": factor,
        "digits": _DIGITS.get(factor, 1),
        "text": _text(build_up, view),
    }


def _look(package: str, fill: Fill) -> dict[str, Any]:
    name = shortened(printable(package), _NAME) or "the program itself"
    return {"name": name, "colour": fill.colour, "ink": fill.ink, "other": fill == OTHER_PACKAGES}


def _text(build_up: BuildUp, view: View) -> str:
    """Return in one sentence how much is known."""
    every = {
        CERTAIN: "{} certain",
        EITHER: "{} at the likelier of two places",
        NOT_SEEN: "{} not seen",
        INHERITED: "{} shared with a parent process",
    }
    sizes = ((build_up.sum_of(kind), text) for kind, text in every.items())
    known = ", ".join(text.format(view.unit.label(size)) for size, text in sizes if size)
    return f"Which code made memory rise to its peak of {view.unit.label(build_up.size)}: {known}."


def _boxes(root: Node) -> Iterator[_Box]:
    """Yield the boxes, each after the one that it is a part of; children that are too small are summed."""
    least = _least(root)
    numbers = 0
    waiting: list[tuple[Node, int | None]] = [(root, None)]
    while waiting:
        node, parent = waiting.pop()
        number = numbers
        numbers += 1
        yield _box(node, parent)
        small = [child for child in node.children.values() if child.size < least]
        if small:
            numbers += 1
            size, certain = sum(child.size for child in small), sum(child.certain for child in small)
            name = f"… {len(small):,} smaller" if len(small) > 1 else "… a smaller one"
            yield _Box(number, name, "", size, certain, None)
        waiting.extend((child, number) for child in reversed(node.sorted_children) if child.size >= least)


def _least(root: Node) -> float:
    """Return the smallest size that is drawn, so that there are not too many boxes."""
    sizes = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        sizes.append(node.size)
        waiting += node.children.values()
    sizes.sort(reverse=True)
    beyond = sizes[_MOST_NODES] + 1 if len(sizes) > _MOST_NODES else 0
    return max(root.size * _SMALLEST, beyond)


def _box(node: Node, parent: int | None) -> _Box:
    if node.frame is None or node.place is None:
        name = _WITHOUT_STACK.get(node.kind, _WHOLE)
        return _Box(parent, name, "", node.size, node.certain if parent is None else 0, None)
    module = module_of(node.frame)
    name = f"import {module}" if module else node.frame.function
    name = shortened(printable(name), _NAME) or "?"
    return _Box(parent, name, place_text(node.place), node.size, node.certain, package_of(node.frame.file))


def _fills(boxes: Sequence[_Box]) -> dict[str, Fill]:
    """Return the fill of each package, the one with the largest box first."""
    largest: dict[str, int] = {}
    for box in boxes:
        if box.package is not None:
            largest[box.package] = max(largest.get(box.package, 0), box.size)
    return package_fills(sorted(largest, key=lambda package: (-largest[package], package)))
