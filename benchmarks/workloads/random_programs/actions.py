"""What a program does, one action after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias


class Pause(NamedTuple):
    """Sleep."""

    ms: float


class Begin(NamedTuple):
    """Enter an operation."""

    name: str
    is_bare: bool
    """Whether no process but the own one is read beside the mark: the next action follows as fast as in any program."""


class End(NamedTuple):
    """Leave the innermost operation."""

    is_bare: bool


class Moment(NamedTuple):
    """Mark an operation that lasts until the next mark."""

    name: str
    is_bare: bool


class Take(NamedTuple):
    """Take memory."""

    area: int
    mebibytes: int
    kind: str


class Free(NamedTuple):
    """Give memory back."""

    area: int


class Spawn(NamedTuple):
    """Start a small program that takes memory, holds it and ends."""

    child: int
    mebibytes: int
    kind: str
    before_ms: int
    hold_ms: int
    is_freed: bool
    """Whether it frees its memory before it ends."""


class Wait(NamedTuple):
    """Wait for the end of a child."""

    child: int


class Short(NamedTuple):
    """Run a program that does nothing."""


class Fork(NamedTuple):
    """Fork a process that does some actions and ends."""

    child: int
    actions: Sequence[Action]


class Orphan(NamedTuple):
    """Have a process whose parent ends at once."""

    number: int
    does: Sequence[Action] | Spawn


class Start(NamedTuple):
    """Start a thread."""

    thread: int
    actions: Sequence[Action]


class Join(NamedTuple):
    """Wait for the end of a thread."""

    thread: int


Action: TypeAlias = "Pause | Begin | End | Moment | Take | Free | Spawn | Wait | Short | Fork | Orphan | Start | Join"


def lines(actions: Sequence[Action], indent: str = "") -> Iterator[str]:
    """Yield actions as lines of text."""
    for action in actions:
        inner: Sequence[Action] = ()
        words = []
        for name, value in action._asdict().items():
            if isinstance(value, Sequence) and not isinstance(value, (str, Spawn)):
                inner = value
            else:
                words.append(f"{name}={value}")
        yield f"{indent}{type(action).__name__} {' '.join(words)}".rstrip()
        yield from lines(inner, indent + "  ")
