"""What a sampler records (``Plan``), and how it writes it: one ``write`` per tick; a kill leaves only whole lines.

A recording that grows too long is cut into buckets of neighbouring rows. Each bucket keeps the rows with the smallest
and the largest value of each gauge, and its last row. So every row is a real sample with its time, and no peak is
lost.

Runs in the sampler: the standard library only, small in memory.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Sequence

    from nncftools.journal.reading import MemoryLimit, PlanFields

    SampleRow = tuple[float, Sequence[float | None], dict[int, int]]
    """Seconds since the start, a value per column, and the RSS of every process if that is recorded."""

GROUP = "control group"
THROTTLE = "control group, memory.high"
"""Above it, the kernel slows processes down and does not kill them."""
ADDRESS_SPACE = "RLIMIT_AS"
"""Above it and the next one, allocations fail (getrlimit(2))."""
DATA = "RLIMIT_DATA"
"""The kinds of memory limits, as journals and sessions name them."""


MOST_OF_TABLES = 4 << 20
"""Bytes of all line tables in the log of the helper."""


class Plan:
    """A requested recording. A plain class, because ``dataclasses`` would cost the sampler 1.5 MiB."""

    def __init__(  # noqa: PLR0913 — one parameter per key
        self,
        columns: Sequence[str],
        *,
        pid: int | None = None,
        interval_s: float = 0.1,
        duration_s: float | None = None,
        children: bool = True,
        wait_all: bool = False,
        per_process: bool = False,
        max_samples: int = 1_000_000,
        source: str = "proc",
        limit: MemoryLimit | None = None,
        redact: Sequence[str] | None = (),
        slow_share: float = 0.01,
        file_systems: Sequence[Sequence[str]] = (),
    ) -> None:
        self.columns = list(columns)
        """The metrics to record, in the order of a sample's values."""
        self.pid = pid
        """The process to attach to; None when a command is started."""
        self.interval_s = interval_s
        """Seconds between samples, on absolute deadlines."""
        self.duration_s = duration_s
        """Stop sampling after this many seconds; the command continues."""
        self.children = children
        """Whether descendants belong to the run."""
        self.wait_all = wait_all
        """Whether to record until the command's last descendant has ended."""
        self.per_process = per_process
        """Whether to keep the RSS of every process at every sample."""
        self.max_samples = max_samples
        """Beyond this number, neighbouring samples are merged."""
        self.source = source
        """The source of the figures: ``proc`` or ``psutil``."""
        self.limit = limit
        """Compared with the column ``rss`` at each sample."""
        self.redact = None if redact is None else list(redact)
        """Regular expressions of text to hide, besides what looks like a secret; None hides nothing at all."""
        self.slow_share = slow_share
        """The share of the time that reading PSS and USS may take."""
        self.file_systems = [list(pair) for pair in file_systems]
        """Whose free bytes to watch: for each its role, such as ``TMPDIR``, and one of its folders."""

    def fields(self) -> PlanFields:
        """Return the plan as JSON fields."""
        fields: PlanFields = {**vars(self)}  # type: ignore[typeddict-item] # the same keys
        return fields


def span(from_s: float, to_s: float) -> dict[str, float]:
    """Return two moments as a line has them."""
    return {"from_s": round(from_s, 6), "to_s": round(to_s, 6)}


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

    def sample(self, row: SampleRow) -> None:
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
        """Return the lines without the oldest samples, so many that the rest fits into ``most`` bytes."""
        left = []
        length = len(data)
        is_dropped = False
        for line in data.splitlines(keepends=True):
            if line.startswith(b"["):
                is_dropped = length > most
                if is_dropped:
                    time_s = float(line[1 : line.index(b",")])
                    self.lost += 1
                    self._lost_from_s = time_s if self._lost_from_s is None else self._lost_from_s
                    self.longest_lost_s = max(self.longest_lost_s, time_s - self._lost_from_s)
            if is_dropped and line.startswith((b"[", _EACH)):  # the RSS of each process is dropped with its sample
                length -= len(line)
            else:
                left.append(line)
        return b"".join(left)


def kept_of_bucket(gauges: Sequence[array[float] | list[float]], begin: int, end: int) -> list[int]:
    """Return the rows to keep of ``begin`` to before ``end``, in time order; of equal values the first row.

    A gauge is a column of values, NaN where unknown.
    """
    kept = {end - 1}
    for gauge in gauges:
        values = gauge[begin:end]
        total = sum(values)  # only NaN is unequal to itself; importing math would cost the sampler 44 KiB
        known = values if total == total else [value for value in values if value == value]  # noqa: PLR0124 — see above
        if known:
            kept |= {begin + values.index(min(known)), begin + values.index(max(known))}
    return sorted(kept)
