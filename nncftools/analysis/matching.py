"""Which operations of several runs are the same one: by function and arguments, else by function, else by name."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    Key = Callable[["Function"], Hashable]


@dataclass(frozen=True)
class Function:
    """What an operation of a run called; empty where the operation was not marked by a call."""

    name: str = ""
    """The name of the operation, which others of the run may have, too."""
    call: str = ""
    arguments: str = ""
    signature: str = ""
    """Both as people read them."""


_KEYS: tuple[Key, ...] = (
    lambda of: (of.name, of.call, of.arguments),
    lambda of: (of.name, of.call),
    lambda of: of.name,
)
"""What must be equal, the strictest first."""


def matched(runs: Sequence[Mapping[str, Function]]) -> list[dict[int, str]]:
    """Return each operation as its name in the runs that have it, by the place of the run.

    ``runs`` are the operations of each run by their names, in the order of their starts. Where several are alike, the
    first is matched with the first. The result is in the order of the first run, then of what only later ones have.
    """
    found: list[dict[int, str]] = []
    for place, functions in enumerate(runs):
        waiting = list(functions)
        free = list(found)
        for key in _KEYS:
            waiting, free = _take(place, waiting, free, runs, key)
        found += ({place: name} for name in waiting)
    return found


def _take(
    place: int, names: Sequence[str], free: Sequence[dict[int, str]], runs: Sequence[Mapping[str, Function]], key: Key
) -> tuple[list[str], list[dict[int, str]]]:
    """Give operations of the run at ``place`` to those of earlier runs with the same key; return what is left."""
    by_key: dict[Hashable, deque[dict[int, str]]] = {}
    for one in free:
        for like in dict.fromkeys(key(runs[run][name]) for run, name in one.items()):
            by_key.setdefault(like, deque()).append(one)
    left = []
    for name in names:
        alike = by_key.get(key(runs[place][name]), deque())
        while alike and place in alike[0]:
            alike.popleft()
        if alike:
            alike.popleft()[place] = name
        else:
            left.append(name)
    return left, [one for one in free if place not in one]
