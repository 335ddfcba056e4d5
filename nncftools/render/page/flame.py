"""The data of the page's flame graph: the build-up of the RSS peak as a tree of frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from nncftools.analysis.build_up import CERTAIN, EITHER, INHERITED, NOT_SEEN, of_peak
from nncftools.analysis.code_places import module_of, package_of
from nncftools.analysis.frames import Node, tree_of
from nncftools.render.colours import OTHER_PACKAGES, REST, package_fills
from nncftools.render.stacks import WITHOUT_STACK, place_text
from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.analysis.build_up import BuildUp
    from nncftools.render.colours import Fill
    from nncftools.render.view import View
    from nncftools.session.session import Session

_MOST_NODES = 1500
_SMALLEST = 0.002
"""As a share of the peak: what is smaller is summed."""
_NAME = 120
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
        "factor": view.unit.factor,
        "digits": view.unit.decimals,
        "text": _text(build_up, view),
    }


def _look(package: str, fill: Fill) -> dict[str, Any]:
    name = shortened(printable(package), _NAME) or "the program itself"
    return {"name": name, "colour": fill.colour, "ink": fill.ink, "other": fill == OTHER_PACKAGES}


def _text(build_up: BuildUp, view: View) -> str:
    """Return in one sentence how much is known."""
    every = {
        CERTAIN: "{} certain down to the innermost function",
        EITHER: "{} at the likelier of two places",
        NOT_SEEN: "{} not seen",
        INHERITED: "at most {} shared with a parent process",
    }
    sizes = ((build_up.sum_of(kind), text) for kind, text in every.items())
    known = ", ".join(text.format(view.unit.label(size)) for size, text in sizes if size)
    return f"Which code made memory rise to its peak of {view.unit.label(build_up.size)}: {known}."


def _boxes(root: Node) -> Iterator[_Box]:
    """Yield the boxes, each after the one that it is a part of; children that are not drawn are summed."""
    drawn = _drawn(root)
    numbers = 0
    waiting: list[tuple[Node, int | None]] = [(root, None)]
    while waiting:
        node, parent = waiting.pop()
        number = numbers
        numbers += 1
        yield _box(node, parent)
        children = node.sorted_children
        rest = [child for child in children if id(child) not in drawn]
        if rest:
            numbers += 1
            size, certain = sum(child.size for child in rest), sum(child.certain for child in rest)
            yield _Box(number, f"… {len(rest):,} more", "", size, certain, None)
        waiting.extend((child, number) for child in reversed(children) if id(child) in drawn)


def _drawn(root: Node) -> set[int]:
    """Return the ``id()`` of the nodes that are drawn: the largest, of equal ones the outermost."""
    found = []
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        if node.size >= root.size * _SMALLEST:
            found.append((-node.size, depth, id(node)))
            waiting += [(child, depth + 1) for child in node.children.values()]
    return {number for *_, number in sorted(found)[:_MOST_NODES]}


def _box(node: Node, parent: int | None) -> _Box:
    if node.frame is None or node.place is None:
        name = WITHOUT_STACK.get(node.kind, _WHOLE)
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
