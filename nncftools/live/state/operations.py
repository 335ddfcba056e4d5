"""The operations of a run in bounded memory: the outermost ones, and those that are open.

``marks.resolving`` computes them exactly when the run has ended; this looks at each line once, when it arrives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nncftools.marks.entries import AUTO, END
from nncftools.marks.nesting import Nesting
from nncftools.render.terminal_plot import Span
from nncftools.session.operations import with_ends

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.marks.entries import Entry
    from nncftools.marks.nesting import Open
    from nncftools.session.session import Session

_MOST = 400


@dataclass
class _Shown:
    span: Span
    is_outermost: bool


class LiveOperations:
    """Operations of a run that goes on, from the lines of its marks log."""

    def __init__(self) -> None:
        """Begin without operations."""
        self._nesting: Nesting[_Shown] = Nesting()
        self._ended: list[Span] = []

    def take(self, entry: Entry) -> None:
        """Take the next line; its time is in seconds from the start."""
        assert entry.start_s is not None
        if entry.event == END:
            self._close(self._nesting.end(entry), entry.start_s)
            return
        place = self._nesting.begin(entry)
        self._close([place.ended] if place.ended else [], entry.start_s)
        span = Span(entry.name, max(0.0, entry.start_s), entry.end_s, entry.kind)
        around = (one for one in self._nesting.every() if entry.source == AUTO or one.entry.pid != entry.pid)
        outermost = place.outer is None and next(around, None) is None
        if entry.end_s is None and entry.count == 1 and entry.depth is None:
            self._nesting.open(entry, place, _Shown(span, outermost))
        elif outermost and not entry.depth:
            self._keep(span)

    def process_ended(self, pid: int, at_s: float) -> None:
        """End the operations of a process that has ended."""
        self._close(self._nesting.end_process(pid), at_s)

    def _close(self, ended: Sequence[Open[_Shown]], at_s: float) -> None:
        for one in ended:
            if one.what.is_outermost:
                self._keep(replace(one.what.span, end_s=max(at_s, one.what.span.start_s)))

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
        current = [one.what.span for one in self._nesting.every() if one.what.is_outermost]
        return sorted([*self._ended, *current], key=lambda span: span.start_s) if now_s >= 0 else []

    def current(self, now_s: float) -> Sequence[Span]:
        """Return the open operations of all threads, in the order of their starts."""
        spans = [one.what.span for one in self._nesting.every()]
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
