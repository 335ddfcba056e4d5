"""Stacks over time as slices: how long a frame was seen at its place in the stack of a thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from nncftools.analysis.code_places import is_machinery, module_of, shared_depth
from nncftools.render.stacks import place_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from nncftools.session.model import Frame, Snapshots, WatchedProcess

HOLDS_S = 0.6
"""A stack is drawn until the next look at the process, but not longer than this."""
MOST_SLICES = 50_000


class StackSlice(NamedTuple):
    """A frame that was seen at one place of a stack from one look to another one, in seconds since the start."""

    frame: Frame
    """With the line of the first look."""
    from_s: float
    to_s: float
    looks: int
    """How many looks saw it."""

    @property
    def name(self) -> str:
        """The function, or the module that is imported."""
        module = module_of(self.frame)
        return f"import {module}" if module else self.frame.function or "?"

    @property
    def place(self) -> str:
        """File and line."""
        return place_text(self.frame)


@dataclass
class _Open:
    """A frame that is on the stack."""

    frame: Frame
    from_s: float
    looks: int = 1


def slices_by_thread(watched: WatchedProcess, snapshots: Snapshots) -> dict[int, list[StackSlice]]:
    """Return the slices of each thread that had a Python stack, by its ID: nested or disjoint ones."""
    stacks = [
        [frame for place in stack if not is_machinery(frame := snapshots.frames[place])] for stack in snapshots.stacks
    ]
    threads = sorted({thread.thread for look in watched.looks for thread in look.threads if thread.stack is not None})
    return {thread: list(_slices(_seen(watched, thread, stacks))) for thread in threads}


def longest(slices: Iterable[StackSlice], most: int) -> set[StackSlice]:
    """Return the longest slices: what encloses one of them is among them."""
    return set(sorted(slices, key=lambda one: one.from_s - one.to_s)[:most])


def _seen(
    watched: WatchedProcess, thread: int, stacks: Sequence[Sequence[Frame]]
) -> Iterator[tuple[float, float, Sequence[Frame]]]:
    """Yield from when to when each look of a thread holds, and the frames that it saw."""
    times = [look.time_s for look in watched.looks]
    last_s = max([*times[-1:], *watched.time_s[-1:]], default=0.0)
    for look, next_s in zip(watched.looks, [*times[1:], last_s], strict=True):
        stack = next((one.stack for one in look.threads if one.thread == thread), None)
        yield look.time_s, min(next_s, look.time_s + HOLDS_S), () if stack is None else stacks[stack]


def _slices(seen: Iterable[tuple[float, float, Sequence[Frame]]]) -> Iterator[StackSlice]:
    """Yield a slice for each frame; it ends where a look no longer sees it, or where none holds."""
    open_frames: list[_Open] = []
    until_s = 0.0
    for from_s, to_s, frames in seen:
        same = 0
        if from_s <= until_s:
            same = shared_depth([one.frame.code for one in open_frames], [frame.code for frame in frames])
        yield from _closed(open_frames[same:], min(from_s, until_s))
        del open_frames[same:]
        for one in open_frames:
            one.looks += 1
        open_frames += [_Open(frame, from_s) for frame in frames[same:]]
        until_s = to_s
    yield from _closed(open_frames, until_s)


def _closed(frames: Iterable[_Open], to_s: float) -> Iterator[StackSlice]:
    for one in frames:
        yield StackSlice(one.frame, one.from_s, to_s, one.looks)
