"""The operations of a run in bounded memory: the outermost ones, and those that are open.

``marks.resolving`` computes them exactly when the run has ended; this looks at each line once, when it arrives.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from nncftools.marks.entries import BEGIN, END
from nncftools.render.terminal.bands import Span
from nncftools.session.operations import with_ends

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.marks.entries import Entry
    from nncftools.session.session import Session

_AUTO = "auto"
_MOST = 400


@dataclass
class _Open:
    span: Span
    op: int | None
    is_moment: bool
    is_outermost: bool


@dataclass
class LiveOperations:
    """Operations of a run that goes on, from the lines of its marks log."""

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
        """End the operations of a process that has ended."""
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

    def outermost(self, now_s: float) -> Sequence[Span]:
        """Return the outermost operations up to now, in the order of their starts."""
        current = [frame.span for stack in self._stacks.values() for frame in stack if frame.is_outermost]
        return sorted([*self._ended, *current], key=lambda span: span.start_s) if now_s >= 0 else []

    def current(self, now_s: float) -> Sequence[Span]:
        """Return the open operations of all threads, in the order of their starts."""
        spans = [frame.span for stack in self._stacks.values() for frame in stack]
        return sorted((span for span in spans if span.start_s <= now_s + 1), key=lambda span: span.start_s)


class RecordedOperations:
    """Operations of a run that has ended, up to a moment of it."""

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
        """Return the open operations, the outermost first."""
        return [span for _, span in self._spans if span.start_s <= now_s < (span.end_s or 0)]
