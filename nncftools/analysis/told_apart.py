"""Names without the beginning that they share with others: what is left tells them apart."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_STRONG, _ANY = re.compile("[./:]+ *"), re.compile("[./:_ -]+")
"""Where a name can be cut: between its parts, and between words."""
_LEAST = 6
"""Characters: less of a name says too little."""


def told_apart(names: Iterable[str]) -> dict[str, str]:
    """Return each name without the beginning that it shares with others: ``…layer_3.mlp``.

    The longest beginning is left out with which every rest is still unlike the end of any other name. It ends between
    two parts of a name (``.``, ``/``, ``:``), or between two words where names have no such parts in common.
    """
    every = list(dict.fromkeys(names))
    found: dict[str, str] = {}
    for separators in (_STRONG, _ANY):
        left = [name for name in every if name not in found]
        found |= _without_beginnings(left, every, separators)
    return {name: found.get(name, name) for name in every}


def _without_beginnings(names: Sequence[str], every: Sequence[str], separators: re.Pattern[str]) -> dict[str, str]:
    """Return those of ``names`` that can lose a beginning."""
    ends: dict[str, int] = {}
    families: dict[str, list[str]] = {}
    for name in every:
        for at in _cuts(name, separators):
            ends[name[at:]] = ends.get(name[at:], 0) + 1
    for name in names:
        for at in _cuts(name, separators):
            families.setdefault(name[:at], []).append(name)
    lost = {
        beginning
        for beginning, family in families.items()
        if len(family) > 1
        and all(len(name) - len(beginning) >= _LEAST and ends[name[len(beginning) :]] == 1 for name in family)
    }
    found = {}
    for name in names:
        at = max((at for at in _cuts(name, separators) if name[:at] in lost), default=0)
        if at > 1:
            found[name] = f"…{name[at:]}"
    return found


def _cuts(name: str, separators: re.Pattern[str]) -> Iterator[int]:
    return (match.end() for match in separators.finditer(name))
