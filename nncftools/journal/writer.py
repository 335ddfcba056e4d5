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
_EACH = b'{"each"'
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
        self._has_said = False
        self._lost_before = 0
        self._lost_from_s: float | None = None
        self.lost = 0
        """Samples that could not be written."""
        self.longest_lost_s = 0.0
        """The longest time from a first to a last lost sample."""
        self.rows = 0
        """Samples so far, with those that were lost."""

    def sample(self, row: Row) -> None:
        """Append one sample, with the lines since the last one, in one write."""
        time_s, values, each = row
        self.rows += 1
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
        if self._trouble and data:
            self._kept = b""
            self.tell_lost()
            self._trouble = ""
            self._lost_from_s = None
        return True

    def tell_lost(self) -> None:
        """Append a warning of the samples that were lost since the last one."""
        lost, self._lost_before = self.lost - self._lost_before, self.lost
        if lost:
            told = "1 sample is lost" if lost == 1 else f"{lost:,} samples are lost"
            self.line("warning", f"the journal could not be written for a while ({self._trouble}): {told}")

    @property
    def unwritten(self) -> str:
        """The lines that still wait for the disk."""
        return self._kept.decode()

    def _keep(self, data: bytes, written: int, error: OSError) -> None:
        """Keep what a failed write left; of a line that was half written, that half is taken back."""
        whole = data.rfind(b"\n", 0, written) + 1
        if data.startswith(_EACH, whole):  # belongs to the sample before it
            whole = data.rfind(b"\n", 0, whole - 1) + 1
        if written > whole:
            try:
                os.ftruncate(self._file, os.fstat(self._file).st_size - (written - whole))
            except OSError:  # the reader leaves out the half line
                data = data[:whole] + b"\n" + data[whole:]
        if whole:
            self._lost_from_s = None
        data = data[whole:]
        self._kept = data if len(data) <= KEPT_MOST else self._without_samples(data, KEPT_MOST // 2)
        self._trouble = self._trouble or os.strerror(error.errno or 0)
        if not self._has_said:
            self._has_said = True
            self._say(f"the journal cannot be written: {self._trouble}; trying again")

    def _without_samples(self, data: bytes, most: int) -> bytes:
        """Return lines without the oldest samples, as many as are needed to hold at most ``most`` bytes."""
        left = []
        length = len(data)
        is_dropped = False
        for line in data.splitlines(keepends=True):
            if line.startswith(b"["):
                is_dropped = length > most
                if is_dropped:
                    self._lose(float(line[1 : line.index(b",")]))
            if is_dropped and line.startswith((b"[", _EACH)):  # what each process held goes with its sample
                length -= len(line)
            else:
                left.append(line)
        return b"".join(left)

    def _lose(self, time_s: float) -> None:
        self.lost += 1
        if self._lost_from_s is None:
            self._lost_from_s = time_s
        self.longest_lost_s = max(self.longest_lost_s, time_s - self._lost_from_s)
