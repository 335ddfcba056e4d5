"""Appends lines to a journal: one ``write`` per tick, so that any kill leaves whole lines.

Runs in the sampler: the standard library only, small in memory.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Row = tuple[float, Sequence[float | None], dict[int, int]]
    """Seconds since the start, a value per column, and the RSS of every process where that is kept."""

NULL = "null"
KEPT_MOST = 1 << 20
"""Bytes that wait for a disk that is full; beyond that, samples are lost, the oldest first."""


class Writer:
    """Writes to an open descriptor that belongs to this recording alone.

    What cannot be written (a full disk) is kept and tried again with the next flush. Samples that had to be dropped
    are a gap: ``lost`` counts them.
    """

    def __init__(self, descriptor: int, say: Callable[[str], object] = str) -> None:
        """Append to ``descriptor``, opened with O_APPEND; ``say`` tells the user that the disk fails."""
        self._file = descriptor
        self._say = say
        self._lines: list[str] = []
        self._values: Sequence[float | None] = ()
        self._text = ""
        self._kept = b""
        self._trouble = ""
        self._lost_from_s: float | None = None
        self.lost = 0
        """Samples that could not be written."""
        self.longest_lost_s = 0.0
        """The longest time from a first to a last lost sample."""

    def sample(self, row: Row) -> None:
        """Append one sample, with the lines since the last one, in one write."""
        time_s, values, each = row
        if values != self._values:  # of processes that sleep, nothing changes
            self._values = values
            self._text = ",".join([NULL if value is None else str(value) for value in values])
        self._lines.append(f"[{time_s:.6f},{self._text}]\n")
        if each:
            self.line("each", each)
        self.flush()

    def line(self, key: str, value: object) -> None:
        """Append one line that is not a sample, with the next ``flush``."""
        self._lines.append(json.dumps({key: value}, separators=(",", ":")) + "\n")

    def flush(self) -> bool:
        """Write what was appended; return whether all is written. A write that fails leaves no half line."""
        data = self._kept + "".join(self._lines).encode()
        self._lines = []
        written = 0
        try:
            while written != len(data):
                written += os.write(self._file, data[written:])
        except OSError as error:
            self._keep(data, written, error)
            return False
        if self._kept:
            self._kept = b""
            self._recover()
        return True

    def drop_samples(self) -> None:
        """Give up the samples that still wait, at the end of the recording."""
        self._kept = self._without_samples(self._kept, 0)

    def _keep(self, data: bytes, written: int, error: OSError) -> None:
        """Keep what a failed write left; a part that was written is taken back."""
        if written:
            try:
                os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            except OSError:  # the reader leaves out the half line
                data = b"\n" + data
        self._kept = data if len(data) <= KEPT_MOST else self._without_samples(data, KEPT_MOST // 2)
        if not self._trouble:
            self._trouble = os.strerror(error.errno or 0)
            self._say(f"the journal cannot be written: {self._trouble}; trying again")

    def _without_samples(self, data: bytes, most: int) -> bytes:
        """Return lines without the oldest samples, as many as are needed to hold at most ``most`` bytes."""
        left = []
        length = len(data)
        for line in data.splitlines(keepends=True):
            is_sample = line.startswith(b"[")
            if length <= most or not (is_sample or line.startswith(b'{"each"')):
                left.append(line)
                continue
            length -= len(line)
            if is_sample:
                self._lose(float(line[1 : line.index(b",")]))
        return b"".join(left)

    def _lose(self, time_s: float) -> None:
        self.lost += 1
        if self._lost_from_s is None:
            self._lost_from_s = time_s
        self.longest_lost_s = max(self.longest_lost_s, time_s - self._lost_from_s)

    def _recover(self) -> None:
        trouble, self._trouble = self._trouble, ""
        if self._lost_from_s is not None:
            self._lost_from_s = None
            text = f"the journal could not be written for a while ({trouble}): {self.lost:,} samples are lost"
            self.line("warning", text)
