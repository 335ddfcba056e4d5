"""The plan of a recording, the selection of samples to keep, and the writer of the journal.

The writer calls ``write`` once per sample, so that a kill leaves only whole lines.

If a recording gets too long, neighbouring samples are grouped into buckets. Each bucket keeps the samples with the
smallest and the largest value of each memory metric, and the last sample. So every row of the journal is a real sample
at the time of that sample, and no peak is lost.

This module runs in the sampler, so the module needs only the standard library and little memory.
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
    """A sample: seconds since the start, a value per column, and ``{process id: rss}`` (empty unless requested)."""

GROUP = "control group"
THROTTLE = "control group, memory.high"
"""The limit ``memory.high``. If the limit is exceeded, the kernel slows the processes down but does not kill them."""
ADDRESS_SPACE = "RLIMIT_AS"
"""Limit on the address space of a process. If the limit is reached, allocations fail (getrlimit(2))."""
DATA = "RLIMIT_DATA"
"""Limit on the data of a process. If the limit is reached, allocations fail (getrlimit(2))."""


MOST_OF_TABLES = 4 << 20
"""Largest size in bytes of all line tables in the log of stacks and mappings. A line table maps bytecode to line
numbers."""


class Plan:
    """The settings of a recording. A plain class, because ``dataclasses`` would cost the sampler 1.5 MiB."""

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
        """The metrics to record. The values of a sample have the same order."""
        self.pid = pid
        """The PID to attach to; None if the recording starts a command."""
        self.interval_s = interval_s
        """Seconds between samples. A late sample does not delay the next samples."""
        self.duration_s = duration_s
        """Seconds after which sampling stops, while the command continues; None: sample until the end."""
        self.children = children
        """Whether to record descendants, too."""
        self.wait_all = wait_all
        """Whether to continue after the end of the command, until the last descendant has ended."""
        self.per_process = per_process
        """Whether to record the RSS of every process at every sample."""
        self.max_samples = max_samples
        """If a recording has more samples, neighbouring samples are merged."""
        self.source = source
        """Where the sampler reads values: ``proc`` (files in /proc) or ``psutil`` (the Python package)."""
        self.limit = limit
        """A limit on the total RSS in bytes, and the action (``warn`` or ``kill``) if a sample exceeds the limit. None:
        no limit."""
        self.redact = None if redact is None else list(redact)
        """Regular expressions of texts to hide, in addition to texts that look like secrets. None: hide nothing."""
        self.slow_share = slow_share
        """Largest share of the time, from 0 to 1, that reading PSS and USS may take."""
        self.file_systems = [list(pair) for pair in file_systems]
        """File systems whose free space is recorded: pairs of a role and a folder, such as ``["TMPDIR", "/tmp"]``."""

    def fields(self) -> PlanFields:
        """Return the plan as JSON fields."""
        fields: PlanFields = {**vars(self)}  # type: ignore[typeddict-item] # the same keys
        return fields


def format_span(from_s: float, to_s: float) -> dict[str, float]:
    """Return a time span as fields of a journal line: ``{"from_s": 1.0, "to_s": 2.5}``."""
    return {"from_s": round(from_s, 6), "to_s": round(to_s, 6)}


class Counters:
    """Turns counters, which are sums over the running processes, into totals that never fall.

    When a process ends, the sum falls for a moment, until the kernel adds the process's counters to the parent's
    counters. During that moment, the total keeps the last value. Unknown values stay unknown.
    """

    def __init__(self, columns: Sequence[str], *, from_now: bool, besides: Collection[str] = ()) -> None:
        """``columns`` are the names of a row's values. Counters in ``besides`` are totals already, and are not changed.

        If ``from_now`` is true, the counters of the first row began before the start of the recording. The values of
        the first row are then subtracted from every row.
        """
        counters = {name for name in columns if is_counter(name) and name not in besides}
        self._positions = [position for position, name in enumerate(columns) if name in counters]
        self._from_now = from_now
        self._offsets: list[float | None] = [0] * len(columns)
        self._totals: list[float] = [0] * len(columns)

    def settle(self, row: list[float | None]) -> None:
        """Replace the counters of a row by totals, in place."""
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
"""When a recording has more rows than the limit, about one of 8 later rows is written, then one of 16, and so on."""
PROCESSES_OF_ROW = 16
DEVICES_OF_ROW = 32
"""A row with this many device columns, or with ``PROCESSES_OF_ROW`` processes, counts as two rows, because the row
takes about twice the space of a small row."""


class Thinner:
    """Writes all rows up to a limit. Later rows are grouped into buckets; only the extremes of a bucket are written.

    The buckets double in size as the recording grows: of T samples, about ``limit * (1 + log2(T / limit) / 8)`` rows
    are written. A row with the RSS of many processes, or with many devices, counts as several rows, so that no session
    becomes too large to read.
    """

    devices = 0
    """Number of device columns. Values of devices are not in the rows."""
    _size = 1

    def __init__(self, limit: int, write: Callable[[SampleRow], None]) -> None:
        """Write all rows up to ``limit`` rows; merge later rows."""
        self.gauges: Sequence[int] = ()
        """Indexes of the memory metrics in a row. Each bucket keeps the rows with their extremes."""
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
        """Write the rows to keep from the current bucket, and start the next bucket."""
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
    """Return the indexes of the rows to keep from the bucket ``begin`` to ``end - 1``, in time order.

    These are the last row and, for each gauge, the rows with the smallest and the largest value. Among equal values,
    the first row counts. A gauge is a column of values, with NaN for unknown.
    """
    rows = {end - 1}
    for gauge in gauges:
        values = gauge[begin:end]
        total = sum(values)  # only NaN differs from itself; importing math would cost the sampler 44 KiB
        numbers = values if total == total else [value for value in values if value == value]  # noqa: PLR0124
        if numbers:
            rows.add(begin + values.index(min(numbers)))
            rows.add(begin + values.index(max(numbers)))
    return sorted(rows)


_NULL = "null"


_EACH = b'{"each"'
_LONGEST_WAIT_S = 0.1
MAX_KEPT = 1 << 20
"""Largest number of bytes that wait while the disk is full. If more bytes wait, the oldest samples are dropped."""


class Writer:
    """Appends lines to a journal through an open descriptor. No other recording writes to this file.

    Lines that cannot be written, for instance to a full disk, are kept for the next flush. If too many lines wait,
    samples are dropped; ``lost`` counts the dropped samples.
    """

    _write_at_s = 0.0
    is_urgent = False
    """Whether a queued line must be written with the next sample, even if no value has changed."""
    _text = ""
    _unwritten = b""
    _trouble = ""
    _has_warned = False
    _reported = 0
    """Number of lost samples that the warnings so far have reported."""
    _lost_from_s: float | None = None
    lost = 0
    """Number of samples that could not be written."""
    longest_lost_s = 0.0
    """Longest gap: seconds from the first to the last sample of a series of lost samples."""
    rows = 0
    """Number of samples so far, including lost samples."""

    def __init__(self, descriptor: int, warn: Callable[[str], object] = str) -> None:
        """Append to ``descriptor``, opened with O_APPEND. ``warn`` is called with a message if writing fails."""
        self._file = descriptor
        self._warn = warn
        self._lines: list[str] = []
        self._values: Sequence[float | None] = ()
        self._repeats_s: list[float] = []
        """Times of samples that are not queued yet, because no value has changed since the last queued sample."""

    def sample(self, row: SampleRow) -> None:
        """Append a sample and all queued lines by a single ``write``.

        If no value has changed, the sample may wait for up to 0.1 s, because a kill would lose no new value.
        """
        time_s, values, each = row
        self.rows += 1
        if values is self._values and not (each or self.is_urgent) and time_s < self._write_at_s:
            self._repeats_s.append(time_s)
            return
        self._queue_repeats()
        if values != self._values:  # if all processes sleep, no value changes
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
        """Queue the line ``{key: value}`` for the next ``flush``."""
        self._queue_repeats()
        text = json.dumps({key: value}, separators=(",", ":"))
        self._lines.append(f"{text}\n")
        self.is_urgent = True

    def flush(self) -> bool:
        """Write the queued lines; return whether all lines are written. A failed write leaves no partial line."""
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
        """The lines that could not be written so far."""
        return self._unwritten.decode()

    def _keep(self, data: bytes, written: int, error: OSError) -> None:
        """Keep the lines that were not written; truncate the file to remove a partial line."""
        end = data.rfind(b"\n", 0, written) + 1
        if data.startswith(_EACH, end):  # this line has the RSS of the last sample's processes: write both again
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
        """Drop the oldest unwritten samples until at most ``limit`` bytes are left; keep all other lines."""
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
            if is_dropped and line.startswith((b"[", _EACH)):  # the RSS of each process belongs to the sample
                length -= len(line)
            else:
                lines.append(line)
        self._unwritten = b"".join(lines)
