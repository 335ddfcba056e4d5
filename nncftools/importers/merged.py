"""Rows that may be without number, in bounded memory: beyond a limit, neighbours are merged and no peak is lost."""

from __future__ import annotations

from array import array
from operator import sub
from typing import TYPE_CHECKING

from nncftools.metrics import is_memory
from nncftools.session.samples import TIME, kept_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MOST_ROWS = 1_000_000
"""As many as a session holds."""
_TOGETHER = 100_000
"""New rows are merged when there are so many."""

Columns = dict[str, "array[float]"]


class Merged:
    """Columns of which all rows are kept at first, and half as many each time they are halved.

    All rows count alike, however early they came: buckets of neighbours are of as many rows everywhere.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Begin without rows; ``names`` are metrics, and the time is always there."""
        self.new: Columns = {name: array("d") for name in (TIME, *names)}
        """Rows that came since the last ``settle``; whoever appends to one column appends to all."""
        self._kept: Columns = {name: array("d") for name in self.new}
        self._most_of_bucket = 2 * sum(is_memory(name) for name in self.new) + 1
        self._bucket = 0
        """How many rows are merged; 0: none."""
        self._settled = 0
        """How many rows came before the new ones."""

    def __len__(self) -> int:
        return len(self._kept[TIME]) + len(self.new[TIME])

    def settle(self) -> None:
        """Merge the new rows as those before them were merged."""
        rows = len(self.new[TIME])
        new = self._merged(self.new, rows) if self._bucket else self.new
        for name, column in self._kept.items():
            column.extend(new[name])
        self._settled += rows
        self.new = {name: array("d") for name in self._kept}

    def halve(self) -> None:
        """Keep half of the rows."""
        self.settle()
        self._bucket = 2 * (self._bucket or self._most_of_bucket)
        self._kept = self._merged(self._kept, self._settled)

    def is_bucket_full(self) -> bool:
        """Whether there are enough new rows to be merged among themselves."""
        return len(self.new[TIME]) >= max(_TOGETHER, self._bucket)

    def _merged(self, columns: Columns, rows: int) -> Columns:
        """Return what is kept of columns that so many rows came to."""
        gauges = [column for name, column in columns.items() if is_memory(name)]
        kept = kept_rows(gauges, len(columns[TIME]), round(rows / self._bucket) * self._most_of_bucket)
        return {name: array("d", map(column.__getitem__, kept)) for name, column in columns.items()}

    def columns(self) -> Columns:
        """Return all rows that were kept."""
        self.settle()
        return self._kept


class Table(Merged):
    """The samples of a log as they come, with what is to be known of all of them."""

    def __init__(self, names: Iterable[str]) -> None:
        """Begin without rows; ``names`` are metrics, and the time is always there."""
        super().__init__(names)
        self.taken = 0
        """How many there were before neighbours were merged."""
        self.longest_gap_s: float | None = None
        self._last: list[float] = []

    @property
    def last_s(self) -> float:
        """The time of the last row; 0 when there is none."""
        return self._last[0] if self._last else 0.0

    def extend(self, columns: Mapping[str, list[float]]) -> None:
        """Take rows, all columns equally long and the time rising."""
        for name, column in self.new.items():
            column.fromlist(columns[name])
        self.taken += len(columns[TIME])
        times = [*self._last, *columns[TIME]]
        self._take_gap(max(map(sub, times[1:], times), default=0.0))
        self._last = times[-1:]
        self._bound()

    def append(self, row: Sequence[float]) -> None:
        """Take one row, the time first, then the metrics in their order."""
        for column, value in zip(self.new.values(), row, strict=True):
            column.append(value)
        self.taken += 1
        if self._last:
            self._take_gap(row[0] - self._last[0])
        self._last = [row[0]]
        self._bound()

    def _take_gap(self, gap: float) -> None:
        if self.taken > 1 and (self.longest_gap_s is None or gap > self.longest_gap_s):
            self.longest_gap_s = gap

    def _bound(self) -> None:
        """Merge when there are more rows than a session holds."""
        if self.is_bucket_full():
            self.settle()
            if len(self) > MOST_ROWS:
                self.halve()

    def columns(self) -> Columns:
        """Return all rows that were kept, at most as many as a session holds."""
        if len(self) > MOST_ROWS:
            self.halve()
        return super().columns()
