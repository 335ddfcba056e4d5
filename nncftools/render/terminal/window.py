"""The part of a run that a chart shows."""

from __future__ import annotations

from typing import NamedTuple


class Window(NamedTuple):
    """The visible part of a run, and its number of columns."""

    begin_s: float
    end_s: float
    columns: int
    now_s: float
    """Up to when something is known."""

    def column(self, at_s: float) -> int:
        """Return the column of a moment."""
        part = (at_s - self.begin_s) / (self.end_s - self.begin_s)
        return min(max(int(part * self.columns), 0), self.columns - 1)
