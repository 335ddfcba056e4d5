"""What a run is doing, and did, in memory that does not grow: the outermost operations, and those that are open.

``marks.resolving`` tells it exactly when the run has ended; this looks at each line once, when it comes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from nncftools.marks.entries import BEGIN, END
from nncftools.render.terminal.chart import Span
from nncftools.session.operations import with_ends

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.marks.entries import Entry
    from nncftools.session.session import Session

_AUTO = "auto"
_MOST = 400


class Operations(Protocol):
    """Who knows what a run is doing."""

    def outermost(self, now_s: float) -> Sequence[Span]:
        """Return the outermost operations up to now, in the order of their starts."""

    def current(self, now_s: float) -> Sequence[Span]:
        """Return what goes on, the outermost first."""


@dataclass
class _Open:
    span: Span
    op: int | None
    is_moment: bool
    is_outermost: bool


@dataclass
class Noted:
    """Operations as a marks log tells them, line by line."""

    _stacks: dict[tuple[int | None, int | None], list[_Open]] = field(default_factory=lambda: defaultdict(list))
    _ended: list[Span] = field(default_factory=list)

    def take(self, entry: Entry) -> None:
        """Take the next line; its time is in seconds from the start."""
        assert entry.start_s is not None
        thread = (None, None) if entry.pid is None else (entry.pid, entry.tid)
        stack = self._stacks[thread]
        if entry.event == END:
            place = next((place for place, frame in enumerate(stack) if frame.op == entry.op), None)
            if place is not None:
                self._close(stack, place, entry.start_s)
        else:
            if entry.source != _AUTO:
                while stack and stack[-1].is_moment:
                    self._close(stack, len(stack) - 1, entry.start_s)
            span = Span(entry.name, max(0.0, entry.start_s), entry.end_s, entry.kind)
            outermost = not any(self._stacks.values())
            if entry.end_s is None and entry.count == 1 and entry.depth is None:
                stack.append(_Open(span, entry.op, entry.event != BEGIN, outermost))
            elif outermost and not entry.depth:
                self._keep(span)
        if not stack:
            del self._stacks[thread]

    def process_ended(self, pid: int, at_s: float) -> None:
        """End what a process did that is gone."""
        for thread in [thread for thread in self._stacks if thread[0] == pid]:
            self._close(self._stacks.pop(thread), 0, at_s)

    def _close(self, stack: list[_Open], place: int, at_s: float) -> None:
        for frame in stack[place:]:
            if frame.is_outermost:
                self._keep(replace(frame.span, end_s=max(at_s, frame.span.start_s)))
        del stack[place:]

    def _keep(self, span: Span) -> None:
        before = self._ended[-1] if self._ended else None
        if before is not None and before.name == span.name and len(self._ended) > _MOST // 2:
            self._ended[-1] = replace(before, end_s=span.end_s)  # calls of one function in a row, drawn as one
        else:
            self._ended.append(span)
        if len(self._ended) > _MOST:
            shortest = min(self._ended, key=lambda span: (span.end_s or span.start_s) - span.start_s)
            self._ended.remove(shortest)

    def _frames(self) -> list[_Open]:
        return [frame for stack in self._stacks.values() for frame in stack]

    def outermost(self, now_s: float) -> Sequence[Span]:
        """Return the outermost operations up to now, in the order of their starts."""
        going_on = [frame.span for frame in self._frames() if frame.is_outermost]
        return sorted([*self._ended, *going_on], key=lambda span: span.start_s) if now_s >= 0 else []

    def current(self, now_s: float) -> Sequence[Span]:
        """Return what goes on, the outermost first; of several threads what began last."""
        frames = [frame for frame in self._frames() if frame.span.start_s <= now_s + 1]
        return [frame.span for frame in sorted(frames, key=lambda frame: frame.span.start_s)]


class Told:
    """Operations of a run that has ended, told up to a moment of it."""

    def __init__(self, session: Session) -> None:
        """Take a session's marks."""
        self._spans = [
            (mark.depth, Span(mark.name, mark.start_s, end_s, mark.kind))
            for mark, end_s in with_ends(session.marks, session)
        ]

    def outermost(self, now_s: float) -> Sequence[Span]:
        """Return the outermost operations up to now, in the order of their starts."""
        begun = [span for depth, span in self._spans if depth == 0 and span.start_s <= now_s]
        return [span if (span.end_s or 0) <= now_s else replace(span, end_s=None) for span in begun]

    def current(self, now_s: float) -> Sequence[Span]:
        """Return what goes on, the outermost first."""
        return [span for _, span in self._spans if span.start_s <= now_s < (span.end_s or 0)]
