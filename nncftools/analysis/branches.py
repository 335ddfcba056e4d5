"""The tree of a build-up as a few rows: where it branches, and what holds the memory there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nncftools.analysis.frame_tree import WITHOUT_STACK
from nncftools.analysis.telling import branch_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.analysis.frame_tree import Node
    from nncftools.session.model import Frame

_ALMOST_ALL = 0.99
_LESS_CERTAIN = 0.2


class Branch(NamedTuple):
    """A row: functions that call each other and hold the same memory, in bytes."""

    depth: int
    size: int
    certain: int | None
    """The part of ``size`` that certainly belongs there; None where nothing was seen."""
    label: str


def branches(root: Node, share: float, most: int) -> tuple[list[Branch], int]:
    """Return rows that hold at least ``share`` of the whole, each above its parts, and the number of those left out.

    Of more than ``most`` rows, the smallest are left out. A part that is nearly all of its caller is in its row.
    """
    least = root.size * share
    every = list(_below(root, 0, least, None))
    if len(every) > most:
        least = sorted((row.size for row in every), reverse=True)[most - 1]
        kept = [row for row in every if row.size >= least][:most]
        return kept, len(every) - len(kept)
    return every, 0


def _below(node: Node, depth: int, least: float, before: Frame | None) -> Iterator[Branch]:
    smaller, count = 0, 0
    if node.deeper >= least and node.deeper:
        yield Branch(depth, node.deeper, None, "in calls that were not seen")
    for child in node.sorted_children:
        if child.size < least or not child.size:
            smaller, count = smaller + child.size, count + 1
            continue
        if child.kind:
            yield Branch(depth, child.size, None, WITHOUT_STACK.get(child.kind, child.kind))
            continue
        chain = _chain(child)
        places = [place for one in chain if (place := one.place) is not None]
        yield Branch(depth, child.size, chain[-1].certain, branch_text(places, before))
        yield from _below(chain[-1], depth + 1, least, places[-1])
    if smaller >= least and count:
        yield Branch(depth, smaller, None, f"… {count:,} smaller")


def _chain(node: Node) -> Sequence[Node]:
    """Return a node, and below it those that hold nearly the same memory, about as certainly."""
    chain = [node]
    while True:
        largest = max(chain[-1].children.values(), key=lambda child: child.size, default=None)
        if largest is None or largest.size < node.size * _ALMOST_ALL or largest.kind:
            return chain
        if largest.certain < node.certain - node.size * _LESS_CERTAIN:
            return chain
        chain.append(largest)
