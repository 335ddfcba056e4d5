"""Counters as a session keeps them: totals since its start that never fall."""

from __future__ import annotations

from nncftools.metrics import is_counter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class Counters:
    """The counters among the columns of a row.

    A sum falls for a moment between the end of a process and the time when the kernel adds its figures to its parent's;
    the total then keeps its last level. Unknown values stay unknown.
    """

    def __init__(self, columns: Sequence[str], *, from_now: bool, besides: Collection[str] = ()) -> None:
        """Count from zero; with ``from_now``, subtract the values of the first row, which are from before the start.

        The columns ``besides`` these are totals already.
        """
        self._places = [place for place, name in enumerate(columns) if is_counter(name) and name not in besides]
        self._from_now = from_now
        self._before: list[float | None] = [0] * len(columns)
        self._reached: list[float] = [0] * len(columns)

    def settle(self, row: list[float | None]) -> None:
        """Replace the counters of a row, which are sums over the processes, by totals."""
        if self._from_now:
            self._from_now = False
            self._before = list(row)
        reached = self._reached
        for place in self._places:
            value, before = row[place], self._before[place]
            if value is None or before is None:
                row[place] = None
                continue
            row[place] = reached[place] = max(reached[place], value - before)

    def only(self, row: Sequence[float | None]) -> list[float | None]:
        """Return the row with None for every gauge."""
        return [value if place in self._places else None for place, value in enumerate(row)]
