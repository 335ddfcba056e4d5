"""The operations of the page: those of the view's levels, numbered as in every output, and those inside of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nncftools.analysis.timeline import timeline
from nncftools.render.operations import listed

if TYPE_CHECKING:
    from nncftools.render.operations import Listed
    from nncftools.session.session import Session

_MOST_LEVELS = 8
_MOST_NESTED = 2000
"""Of operations in all levels: with more, the innermost levels are left out."""


def with_inner_levels(session: Session, depth: int) -> list[Listed]:
    """Return the operations of ``depth`` levels and of those below them.

    Operations of deeper levels are numbered inside of the operation around them: ``3.1``. They have a colour of their
    own only if no operation of the outer levels has their name.
    """
    outer = listed(timeline(session.operations, depth), session)
    deepest = _deepest(session, depth)
    if deepest == depth:
        return outer
    fills = {one.operation.name: one.fill for one in outer}
    found: list[Listed] = []
    above: list[str] = []
    inside: list[int] = []
    number = 0
    for one in listed(timeline(session.operations, deepest), session):
        level = one.operation.depth
        del above[level:], inside[level + 1 :]
        inside += [0] * (level + 1 - len(inside))
        inside[level] += 1
        is_outer = level < depth
        number += is_outer
        label = f"{number}" if is_outer or not above else f"{above[-1]}.{inside[level]}"
        above += [label] * (level + 1 - len(above))
        found.append(replace(one, label=label, fill=fills.get(one.operation.name, one.fill)))
    return found


def _deepest(session: Session, depth: int) -> int:
    """Return how many levels are not too many."""
    counts = [0] * _MOST_LEVELS
    for operation in session.operations:
        if operation.depth < _MOST_LEVELS:
            counts[operation.depth] += 1
    levels = max((level + 1 for level, count in enumerate(counts) if count), default=0)
    while levels > depth and sum(counts[:levels]) > _MOST_NESTED:
        levels -= 1
    return max(levels, depth)
