"""The plan of a recording, the rows to keep, and the writer of the journal.

The writer makes one ``write`` per tick: a kill leaves only whole lines.

A recording that grows too long is cut into buckets of neighbouring rows. Each bucket keeps the rows with the smallest
and the largest value of each gauge, and the last row. So every row is a real sample with the time of that sample, and
no peak is lost.

This module runs in the sampler, and needs only the standard library and little memory.
"""

from __future__ import annotations

import json
import os

from nncftools.metrics import is_counter

TYPE_CHECKING = False

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Collection, Sequence

    from nncftools.journal.reading import MemoryLimit, PlanFields

    SampleRow = tuple[float, Sequence[float | None], dict[int, int]]
    """Seconds since the start, a value per column, and the RSS of every process if that is recorded."""

GROUP = "control group"
THROTTLE = "control group, memory.high"
"""Above this limit, the kernel slows processes down and does not kill them."""
ADDRESS_SPACE = "RLIMIT_AS"
"""Above this limit, allocations fail (getrlimit(2))."""
DATA = "RLIMIT_DATA"
"""Above this limit, too, allocations fail. Journals and sessions use these names of limits."""


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
        """A limit for the column ``rss``, checked at each sample."""
        self.redact = None if redact is None else list(redact)
        """Regular expressions of text to hide, besides text that looks like a secret; None hides nothing at all."""
        self.slow_share = slow_share
        """The share of the time that reading PSS and USS may take."""
        self.file_systems = [list(pair) for pair in file_systems]
        """The file systems whose free bytes are watched: pairs of a role, such as ``TMPDIR``, and a folder."""

    def fields(self) -> PlanFields:
        """Return the plan as JSON fields."""
        fields: PlanFields = {**vars(self)}  # type: ignore[typeddict-item] # the same keys
        return fields


def format_span(from_s: float, to_s: float) -> dict[str, float]:
    """Return two times as the keys of a journal line."""
    return {"from_s": round(from_s, 6), "to_s": round(to_s, 6)}


class Counters:
    """Turns the counters of a row, sums over the processes, into totals that never fall.

    A sum falls for a moment between the end of a process and the time when the kernel adds the figures of the process
    to the parent. The total then keeps the last level. Unknown values stay unknown.
    """

    def __init__(self, columns: Sequence[str], *, from_now: bool, besides: Collection[str] = ()) -> None:
        """Count from zero; with ``from_now``, subtract the first row, which has the counts from before the start.

        The columns ``besides`` are not sums but totals already.
        """
        counters = {name for name in columns if is_counter(name) and name not in besides}
        self._positions = [position for position, name in enumerate(columns) if name in counters]
        self._from_now = from_now
        self._offsets: list[float | None] = [0] * len(columns)
        self._totals: list[float] = [0] * len(columns)

    def settle(self, row: list[float | None]) -> None:
        """Replace the sums of a row by totals."""
        if self._from_now:
            self._from_now = False
            self._offsets = list(row)
        totals = self._totals
        for column in self._positions:
            value = row[column]
            offset = self._offsets[column]
            if value is None or offset is None:
                row[column] = None
            else:
                row[column] = totals[column] = max(totals[column], value - offset)


_UNKNOWN = float("nan")
COARSER = 8
"""Above the limit, the number of rows falls by this factor."""
PROCESSES_OF_ROW = 16
DEVICES_OF_ROW = 32
"""This many processes, or columns of devices, take as much room in a session as a row without them."""


class Thinner:
    """Writes all rows up to a limit; after that, the extremes of buckets, whose size doubles as the recording grows.

    A recording of T samples leaves about ``limit * (1 + log2(T / limit) / 8)`` rows. A row with the RSS of many
    processes, or with many devices, counts several times, so that no session grows too large to be read.
    """

    devices = 0
    """The number of columns of devices. Their readings are not in the rows."""
    _size = 1

    def __init__(self, limit: int, write: Callable[[SampleRow], None]) -> None:
        """Merge above ``limit`` rows."""
        self.gauges: Sequence[int] = ()
        """The positions of the values whose extremes are kept."""
        self._write = write
        self._room = limit
        self._limit = limit
        self._bucket: list[SampleRow] = []

    def add(self, row: SampleRow) -> None:
        """Add the next row."""
        if self._size == 1:
            self._write_row(row)
            return
        self._bucket.append(row)
        if len(self._bucket) >= self._size:
            self.flush()

    def flush(self) -> None:
        """Write the rows that the current bucket keeps."""
        bucket = self._bucket
        if not bucket:
            return
        self._bucket = []
        gauges = []
        for gauge in self.gauges:
            column = []
            for _, values, _ in bucket:
                value = values[gauge]
                column.append(_UNKNOWN if value is None else value)
            gauges.append(column)
        for number in select_extremes(gauges, 0, len(bucket)):
            self._write_row(bucket[number])

    def _write_row(self, row: SampleRow) -> None:
        self._write(row)
        self._room -= 1 + len(row[2]) // PROCESSES_OF_ROW + self.devices // DEVICES_OF_ROW
        if self._room <= 0:
            is_first = self._size == 1
            self._size *= COARSER * (2 * len(self.gauges) + 1) if is_first else 2
            self._room = max(1, self._limit // COARSER)


def select_extremes(gauges: Sequence[array[float] | list[float]], begin: int, end: int) -> list[int]:
    """Return the rows that a bucket keeps, in time order; among equal values, the first row.

    The bucket has the rows from ``begin`` to before ``end``. A gauge is a column of values, NaN where unknown.
    """
    rows = {end - 1}
    for gauge in gauges:
        values = gauge[begin:end]
        total = sum(values)  # only NaN is unequal to itself; importing math would cost the sampler 44 KiB
        numbers = values if total == total else [value for value in values if value == value]  # noqa: PLR0124
        if numbers:
            rows.add(begin + values.index(min(numbers)))
            rows.add(begin + values.index(max(numbers)))
    return sorted(rows)


_NULL = "null"


_EACH = b'{"each"'
_LONGEST_WAIT_S = 0.1
MAX_KEPT = 1 << 20
"""Bytes that may wait for a full disk; beyond that, the oldest samples are dropped."""


class Writer:
    """Writes to an open descriptor that belongs to this recording alone.

    Lines that cannot be written (full disk) are kept and retried at the next flush. Dropped samples are a gap; ``lost``
    counts them.
    """

    _write_at_s = 0.0
    is_urgent = False
    """Whether a queued line waits for the next flush."""
    _text = ""
    _unwritten = b""
    _trouble = ""
    _has_warned = False
    _reported = 0
    """The lost samples that a warning has counted."""
    _lost_from_s: float | None = None
    lost = 0
    """Samples that could not be written."""
    longest_lost_s = 0.0
    """The longest time from a first to a last lost sample."""
    rows = 0
    """Samples so far, including lost samples."""

    def __init__(self, descriptor: int, warn: Callable[[str], object] = str) -> None:
        """Append to ``descriptor``, opened with O_APPEND; ``warn`` tells the user that the disk fails."""
        self._file = descriptor
        self._warn = warn
        self._lines: list[str] = []
        self._values: Sequence[float | None] = ()
        self._repeats_s: list[float] = []
        """The times of samples that have the same values as the last sample in ``_lines``."""

    def sample(self, row: SampleRow) -> None:
        """Append a sample, and the lines that wait since the last write, in a single write.

        A sample with the values of the previous sample may wait for a moment, because a kill would lose no new value.
        """
        time_s, values, each = row
        self.rows += 1
        if values is self._values and not (each or self.is_urgent) and time_s < self._write_at_s:
            self._repeats_s.append(time_s)
            return
        self._queue_repeats()
        if values != self._values:  # values of sleeping processes do not change
            self._text = ",".join(map(str, values)).replace("None", _NULL)
        self._values = values
        self._lines.append(f"[{time_s:.6f},{self._text}]\n")
        if each:
            self.line("each", each)
        self._write_at_s = time_s + _LONGEST_WAIT_S
        self.flush()

    def _queue_repeats(self) -> None:
        if self._repeats_s:
            self._lines += [f"[{time_s:.6f},{self._text}]\n" for time_s in self._repeats_s]
            self._repeats_s = []

    def line(self, key: str, value: object) -> None:
        """Queue a line that is not a sample for the next ``flush``."""
        self._queue_repeats()
        text = json.dumps({key: value}, separators=(",", ":"))
        self._lines.append(f"{text}\n")
        self.is_urgent = True

    def flush(self) -> bool:
        """Write the queued lines; return whether all are written. A failed write leaves no partial line."""
        self.is_urgent = False
        self._queue_repeats()
        data = self._unwritten + "".join(self._lines).encode()
        self._lines = []
        written = 0
        try:
            while written != len(data):
                written += os.write(self._file, data[written:])
        except OSError as error:
            self._keep(data, written, error)
            return False
        if self._trouble and data:
            self._unwritten = b""
            self.warn_of_lost()
            self._trouble = ""
            self._lost_from_s = None
        return True

    def warn_of_lost(self) -> None:
        """Queue a warning with the number of samples lost since the last warning."""
        lost = self.lost - self._reported
        self._reported = self.lost
        if lost:
            count = "1 sample is lost" if lost == 1 else f"{lost:,} samples are lost"
            self.line("warning", f"the journal could not be written for a while ({self._trouble}): {count}")

    @property
    def unwritten(self) -> str:
        """The lines that still wait for the disk."""
        return self._unwritten.decode()

    def _keep(self, data: bytes, written: int, error: OSError) -> None:
        """Keep the lines that a failed write did not write; truncate the file to remove a partial line."""
        end = data.rfind(b"\n", 0, written) + 1
        if data.startswith(_EACH, end):  # belongs to the previous sample
            end = data.rfind(b"\n", 0, end - 1) + 1
        if written > end:
            try:
                os.ftruncate(self._file, os.fstat(self._file).st_size - (written - end))
            except OSError:  # the reader skips the partial line
                data = data[:end] + b"\n" + data[end:]
        if end:
            self._lost_from_s = None
        self._unwritten = data[end:]
        if len(self._unwritten) > MAX_KEPT:
            self._drop_samples(MAX_KEPT // 2)
        self._trouble = self._trouble or os.strerror(error.errno or 0)
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"the journal cannot be written: {self._trouble}; trying again")

    def _drop_samples(self, limit: int) -> None:
        """Drop the oldest unwritten samples until ``limit`` bytes are left; keep all other lines."""
        lines = []
        length = len(self._unwritten)
        is_dropped = False
        for line in self._unwritten.splitlines(keepends=True):
            if line.startswith(b"["):
                is_dropped = length > limit
                if is_dropped:
                    time_s = float(line[1 : line.index(b",")])
                    self.lost += 1
                    if self._lost_from_s is None:
                        self._lost_from_s = time_s
                    self.longest_lost_s = max(self.longest_lost_s, time_s - self._lost_from_s)
            if is_dropped and line.startswith((b"[", _EACH)):  # the RSS of each process is dropped with the sample
                length -= len(line)
            else:
                lines.append(line)
        self._unwritten = b"".join(lines)
