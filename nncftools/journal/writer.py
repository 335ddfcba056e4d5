"""Appends lines to a journal: one ``write`` per tick, so that a kill leaves only whole lines.

Runs in the sampler: the standard library only, small in memory.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Row = tuple[float, Sequence[float | None], dict[int, int]]
    """Seconds since the start, a value per column, and the RSS of every process if that is recorded."""

NULL = "null"
_EACH = b'{"each"'
_LONGEST_WAIT_S = 0.1
MAX_KEPT = 1 << 20
"""Bytes that may wait for a full disk; beyond that, the oldest samples are dropped."""


class Writer:
    """Writes to an open descriptor that belongs to this recording alone.

    Lines that cannot be written (full disk) are kept and retried at the next flush. Dropped samples are a gap; ``lost``
    counts them.
    """

    def __init__(self, descriptor: int, say: Callable[[str], object] = str) -> None:
        """Append to ``descriptor``, opened with O_APPEND; ``say`` shows the user that the disk fails."""
        self._file = descriptor
        self._say = say
        self._lines: list[str] = []
        self._values: Sequence[float | None] = ()
        self._again: list[float] = []
        """The times of samples that have the same values as the last one in ``_lines``."""
        self._write_at_s = 0.0
        self.is_urgent = False
        """Whether a line waits."""
        self._text = ""
        self._kept = b""
        self._trouble = ""
        self._has_notified = False
        self._lost_before = 0
        self._lost_from_s: float | None = None
        self.lost = 0
        """Samples that could not be written."""
        self.longest_lost_s = 0.0
        """The longest time from a first to a last lost sample."""
        self.rows = 0
        """Samples so far, including lost ones."""

    def sample(self, row: Row) -> None:
        """Append one sample, and what waits since the last write, in one write.

        A sample that repeats the values of the one before may wait for a moment: a kill then loses no value.
        """
        time_s, values, each = row
        self.rows += 1
        if values is self._values and not (each or self.is_urgent) and time_s < self._write_at_s:
            self._again.append(time_s)
            return
        self._take_again()
        if values != self._values:  # values of sleeping processes do not change
            self._text = ",".join([NULL if value is None else str(value) for value in values])
        self._values = values
        self._lines.append(f"[{time_s:.6f},{self._text}]\n")
        if each:
            self.line("each", each)
        self._write_at_s = time_s + _LONGEST_WAIT_S
        self.flush()

    def _take_again(self) -> None:
        """Queue the samples that repeat the values of the one before."""
        if self._again:
            self._lines += [f"[{time_s:.6f},{self._text}]\n" for time_s in self._again]
            self._again = []

    def line(self, key: str, value: object) -> None:
        """Queue one line that is not a sample for the next ``flush``."""
        self._take_again()
        self._lines.append(json.dumps({key: value}, separators=(",", ":")) + "\n")
        self.is_urgent = True

    def flush(self) -> bool:
        """Write the queued lines; return whether all are written. A failed write leaves no partial line."""
        self.is_urgent = False
        self._take_again()
        data = self._kept + "".join(self._lines).encode()
        self._lines = []
        written = 0
        try:
            while written != len(data):
                written += os.write(self._file, data[written:])
        except OSError as error:
            self._keep(data, written, error)
            return False
        if self._trouble and data:
            self._kept = b""
            self.warn_of_lost()
            self._trouble = ""
            self._lost_from_s = None
        return True

    def warn_of_lost(self) -> None:
        """Queue a warning with the number of samples lost since the last warning."""
        lost, self._lost_before = self.lost - self._lost_before, self.lost
        if lost:
            count = "1 sample is lost" if lost == 1 else f"{lost:,} samples are lost"
            self.line("warning", f"the journal could not be written for a while ({self._trouble}): {count}")

    @property
    def unwritten(self) -> str:
        """The lines that still wait for the disk."""
        return self._kept.decode()

    def _keep(self, data: bytes, written: int, error: OSError) -> None:
        """Keep what a failed write left; truncate the file to remove a partial line."""
        whole = data.rfind(b"\n", 0, written) + 1
        if data.startswith(_EACH, whole):  # belongs to the sample before it
            whole = data.rfind(b"\n", 0, whole - 1) + 1
        if written > whole:
            try:
                os.ftruncate(self._file, os.fstat(self._file).st_size - (written - whole))
            except OSError:  # the reader skips the partial line
                data = data[:whole] + b"\n" + data[whole:]
        if whole:
            self._lost_from_s = None
        data = data[whole:]
        self._kept = data if len(data) <= MAX_KEPT else self._without_samples(data, MAX_KEPT // 2)
        self._trouble = self._trouble or os.strerror(error.errno or 0)
        if not self._has_notified:
            self._has_notified = True
            self._say(f"the journal cannot be written: {self._trouble}; trying again")

    def _without_samples(self, data: bytes, most: int) -> bytes:
        """Return the lines without as many of the oldest samples as needed to fit ``most`` bytes."""
        left = []
        length = len(data)
        is_dropped = False
        for line in data.splitlines(keepends=True):
            if line.startswith(b"["):
                is_dropped = length > most
                if is_dropped:
                    self._lose(float(line[1 : line.index(b",")]))
            if is_dropped and line.startswith((b"[", _EACH)):  # the RSS of each process is dropped with its sample
                length -= len(line)
            else:
                left.append(line)
        return b"".join(left)

    def _lose(self, time_s: float) -> None:
        self.lost += 1
        if self._lost_from_s is None:
            self._lost_from_s = time_s
        self.longest_lost_s = max(self.longest_lost_s, time_s - self._lost_from_s)
