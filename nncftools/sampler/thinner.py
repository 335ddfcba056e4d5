"""Limits the rows of a long recording: above a limit, neighbours merge into buckets (``nncftools.journal.writing``)."""

from __future__ import annotations

from nncftools.journal.writing import kept_of_bucket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nncftools.journal.writing import Row

_UNKNOWN = float("nan")


class Thinner:
    """Writes all rows up to a limit, then the extremes of buckets whose size doubles again and again.

    A recording of T samples leaves about ``limit * (1 + log2(T / limit) / 2)`` rows.
    """

    def __init__(self, limit: int, gauges: Sequence[int], write: Callable[[Row], None]) -> None:
        """Merge above ``limit`` rows; ``gauges`` are the positions of the values whose extremes are kept."""
        self._gauges = gauges
        self._write = write
        self._kept_most = 2 * len(gauges) + 1
        self._size = 1
        self._left = limit
        self._limit = limit
        self._bucket: list[Row] = []

    def add(self, row: Row) -> None:
        """Add the next row."""
        if self._size == 1 and self._left > 1:
            self._left -= 1
            self._write(row)
            return
        if self._size == 1:
            self._write_kept(row)
            return
        self._bucket.append(row)
        if len(self._bucket) >= self._size:
            self.flush()

    def flush(self) -> None:
        """Write the rows to keep of the bucket that is being filled."""
        bucket, self._bucket = self._bucket, []
        if not bucket:
            return
        gauges = [
            [_UNKNOWN if (value := values[gauge]) is None else value for _, values, _ in bucket]
            for gauge in self._gauges
        ]
        for place in kept_of_bucket(gauges, 0, len(bucket)):
            self._write_kept(bucket[place])

    def _write_kept(self, row: Row) -> None:
        self._write(row)
        self._left -= 1
        if self._left <= 0:
            self._size = 2 * self._kept_most if self._size == 1 else 2 * self._size
            self._left = max(1, self._limit // 2)
