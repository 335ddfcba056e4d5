"""Any number of rows, in bounded memory: beyond a limit, neighbours are merged; no peak is lost."""

from __future__ import annotations

from array import array
from operator import sub
from typing import TYPE_CHECKING

from nncftools.metrics import is_memory
from nncftools.session.merging import kept_rows
from nncftools.session.samples import TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_ROWS = 1_000_000
"""The most rows that a session holds."""
_BATCH = 100_000
"""New rows are merged in batches of at least this many."""

Columns = dict[str, "array[float]"]


class Merged:
    """Columns that keep all rows at first, and half as many after each ``halve``.

    All rows count alike, early or late: every bucket holds the same number of original rows.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Start without rows; ``names`` are metrics; a time column is added."""
        self.new: Columns = {name: array("d") for name in (TIME, *names)}
        """Rows since the last ``settle``; append to all columns or none."""
        self._kept: Columns = {name: array("d") for name in self.new}
        self._kept_per_bucket = 2 * sum(is_memory(name) for name in self.new) + 1
        self._bucket = 0
        """Original rows per bucket; 0: not merged."""
        self._settled = 0
        """Original rows before the new ones."""

    def __len__(self) -> int:
        return len(self._kept[TIME]) + len(self.new[TIME])

    def settle(self) -> None:
        """Merge the new rows as the earlier ones were merged."""
        rows = len(self.new[TIME])
        new = self._merged(self.new, rows) if self._bucket else self.new
        for name, column in self._kept.items():
            column.extend(new[name])
        self._settled += rows
        self.new = {name: array("d") for name in self._kept}

    def halve(self) -> None:
        """Keep half of the rows."""
        self.settle()
        self._bucket = 2 * (self._bucket or self._kept_per_bucket)
        self._kept = self._merged(self._kept, self._settled)

    def is_bucket_full(self) -> bool:
        """Whether there are enough new rows to merge."""
        return len(self.new[TIME]) >= max(_BATCH, self._bucket)

    def _merged(self, columns: Columns, rows: int) -> Columns:
        """Return the rows to keep of columns that hold this many original rows."""
        gauges = [column for name, column in columns.items() if is_memory(name)]
        kept = kept_rows(gauges, len(columns[TIME]), round(rows / self._bucket) * self._kept_per_bucket)
        return {name: array("d", map(column.__getitem__, kept)) for name, column in columns.items()}

    def columns(self) -> Columns:
        """Return all rows that were kept."""
        self.settle()
        return self._kept


class Table(Merged):
    """The samples of a log as they are read, with their count and longest gap."""

    def __init__(self, names: Iterable[str]) -> None:
        """Start without rows; ``names`` are metrics; a time column is added."""
        super().__init__(names)
        self.taken = 0
        """The number of samples before merging."""
        self.longest_gap_s: float | None = None
        self._last: list[float] = []

    @property
    def last_s(self) -> float:
        """The time of the last row; 0 when there is none."""
        return self._last[0] if self._last else 0.0

    def extend(self, columns: Mapping[str, list[float]]) -> None:
        """Add rows: columns of equal length, times ascending."""
        for name, column in self.new.items():
            column.fromlist(columns[name])
        self.taken += len(columns[TIME])
        times = [*self._last, *columns[TIME]]
        self._take_gap(max(map(sub, times[1:], times), default=0.0))
        self._last = times[-1:]
        self._bound()

    def append(self, row: Sequence[float]) -> None:
        """Add one row: the time, then the metrics in their order."""
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
            if len(self) > MAX_ROWS:
                self.halve()

    def columns(self) -> Columns:
        """Return all rows that were kept, at most as many as a session holds."""
        if len(self) > MAX_ROWS:
            self.halve()
        return super().columns()
