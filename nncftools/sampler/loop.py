"""The only loop, what wakes it between its deadlines, and what becomes of the rows that it takes.

- ``Loop``: absolute deadlines, ticks, and their punctuality; ``MarkWatch`` adds a sample when an operation is marked.
- ``Thinner``: above a limit of rows, neighbours merge into buckets (``nncftools.journal.writing``).
- ``Counters``: totals since the start that never fall.
- ``Schedule``: when other work than sampling is due.
- ``Stillness``: whether nothing has changed since a sample. The files of ``/proc`` are read all the same, but where
  their bytes are equal, all that follows from them is, too. A tree that sleeps or waits costs half as much in this
  way: at 10 ms, most of it is what the caches have lost since the sample before, so what matters is how much code runs
  at all.
"""

from __future__ import annotations

import os
import time

from nncftools.journal.writing import kept_of_bucket
from nncftools.metrics import is_counter

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from nncftools.journal.writing import Row
    from nncftools.sampler.tree import Process, Tree


NANOSECONDS = 1_000_000_000


class Loop:
    """Call ``tick`` on every deadline until ``step`` returns that the run is over.

    Deadlines are multiples of the interval from the start. A deadline that has already passed is counted as
    missed and never made up for.
    """

    def __init__(self, interval_s: float, duration_s: float | None) -> None:
        """Plan deadlines from now on (CLOCK_MONOTONIC); no tick comes after ``duration_s``."""
        self.start_ns = time.monotonic_ns()
        self._interval_ns = max(1, round(interval_s * NANOSECONDS))
        self._last_deadline = None if duration_s is None else int(duration_s * NANOSECONDS) // self._interval_ns
        self.sampling = True
        """Whether a deadline is still to come."""
        self._next = 0
        self._next_ns = self.start_ns
        self.missed = 0
        """Deadlines that passed without a tick."""
        self._longest_gap_ns = self._first_ns = self._latest_ns = 0

    def elapsed_s(self) -> float:
        """Return the seconds since the start."""
        return (time.monotonic_ns() - self.start_ns) / NANOSECONDS

    def stop(self) -> None:
        """Stop ticking."""
        self.sampling = False

    def close(self) -> None:
        """Count the deadlines that passed since the last tick; the one that is just due does not count."""
        if not self.sampling:
            return
        now_ns = time.monotonic_ns()
        trailing = self._due(now_ns, beyond=1) - self._next
        if trailing > 0:
            self.missed += trailing
            self._next += trailing
            self._longest_gap_ns = max(self._longest_gap_ns, now_ns - (self._latest_ns or self.start_ns))

    def punctuality(self, lost: int = 0, longest_lost_s: float = 0.0) -> dict[str, float | None]:
        """Return the number of ticks, and how far they kept their deadlines.

        The samples of ``lost`` ticks could not be written, over up to ``longest_lost_s`` seconds: they count as missed.
        """
        ticks = self._next - self.missed
        several = ticks > 1
        between_ns = (self._latest_ns - self._first_ns) / (ticks - 1) if several else 0
        gap_s = self._longest_gap_ns / NANOSECONDS
        if lost:
            gap_s = max(gap_s, longest_lost_s + 2 * self._interval_ns / NANOSECONDS)
            lost = min(lost, ticks)  # samples for marks, between the ticks, may be among them
        return {
            "achieved_interval_s": round(between_ns / NANOSECONDS, 9) if several else None,
            "taken": ticks - lost,
            "missed": self.missed + lost,
            "longest_gap_s": gap_s if several or gap_s else None,
        }

    def run(
        self, tick: Callable[[float], None], sleep: Callable[[float | None], bool], step: Callable[[], bool]
    ) -> None:
        """Tick and sleep until ``step`` returns False; it runs first, and after each sleep that returns True."""
        clock_ns, start_ns = time.monotonic_ns, self.start_ns
        has_news = True
        while not has_news or step():
            now_ns = clock_ns()
            if self.sampling and now_ns >= self._next_ns:
                self._note(now_ns)
                tick((now_ns - start_ns) / NANOSECONDS)
            if self.sampling:
                wait_ns = self._next_ns - clock_ns()
                has_news = sleep(wait_ns / NANOSECONDS if wait_ns > 0 else 0)
            elif not step():
                return
            else:
                has_news = sleep(None)

    def _due(self, now_ns: int, beyond: int = 0) -> int:
        """Return the number of the deadline that passed most recently, at most ``beyond`` after the last one."""
        passed = (now_ns - self.start_ns) // self._interval_ns
        return passed if self._last_deadline is None else min(passed, self._last_deadline + beyond)

    def _note(self, now_ns: int) -> None:
        """Count a tick; the next one comes at the deadline after this one, or after those that have passed since."""
        gap_ns, self._latest_ns = now_ns - self._latest_ns, now_ns
        if self._next == 0:
            self._first_ns = now_ns
        elif gap_ns > self._longest_gap_ns:
            self._longest_gap_ns = gap_ns
        self._next += 1
        self._next_ns += self._interval_ns
        if now_ns >= self._next_ns:
            late = self._due(now_ns) + 1 - self._next
            self.missed += late
            self._next += late
            self._next_ns += late * self._interval_ns
        if self._last_deadline is not None and self._next > self._last_deadline:
            self.sampling = False


_UNKNOWN = float("nan")
COARSER = 8
"""Above the limit, so many times fewer rows are kept."""
PROCESSES_OF_ROW, DEVICES_OF_ROW = 16, 32
"""So many processes, and so many columns of devices, take as much room in a session as a row without them."""


class Thinner:
    """Writes all rows up to a limit, then the extremes of buckets whose size doubles again and again.

    A recording of T samples leaves about ``limit * (1 + log2(T / limit) / 8)`` rows. A row with the RSS of many
    processes, or with many devices, counts several times, so that no session grows too large to be read.
    """

    def __init__(self, limit: int, write: Callable[[Row], None]) -> None:
        """Merge above ``limit`` rows."""
        self.gauges: Sequence[int] = ()
        """The positions of the values whose extremes are kept."""
        self.devices = 0
        """The columns of devices, whose readings are no part of rows here."""
        self._write = write
        self._size = 1
        self._left = limit
        self._limit = limit
        self._bucket: list[Row] = []

    def add(self, row: Row) -> None:
        """Add the next row."""
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
        columns = [[values[gauge] for _, values, _ in bucket] for gauge in self.gauges]
        gauges = [[_UNKNOWN if value is None else value for value in column] for column in columns]
        for number in kept_of_bucket(gauges, 0, len(bucket)):
            self._write_kept(bucket[number])

    def _write_kept(self, row: Row) -> None:
        self._write(row)
        self._left -= 1 + len(row[2]) // PROCESSES_OF_ROW + self.devices // DEVICES_OF_ROW
        if self._left <= 0:
            self._size *= 2 if self._size > 1 else COARSER * (2 * len(self.gauges) + 1)
            self._left = max(1, self._limit // COARSER)


class Counters:
    """The counters among the columns of a row.

    A sum falls for a moment between the end of a process and the time when the kernel adds its figures to its parent's;
    the total then keeps its last level. Unknown values stay unknown.
    """

    def __init__(self, columns: Sequence[str], *, from_now: bool, besides: Collection[str] = ()) -> None:
        """Count from zero; with ``from_now``, subtract the values of the first row, which are from before the start.

        The columns ``besides`` these are totals already.
        """
        self._positions = [at for at, name in enumerate(columns) if is_counter(name) and name not in besides]
        self._from_now = from_now
        self._before: list[float | None] = [0] * len(columns)
        self._reached: list[float] = [0] * len(columns)

    def settle(self, row: list[float | None]) -> None:
        """Replace the counters of a row, which are sums over the processes, by totals."""
        if self._from_now:
            self._from_now = False
            self._before = list(row)
        reached = self._reached
        for column in self._positions:
            value, before = row[column], self._before[column]
            if value is None or before is None:
                row[column] = None
                continue
            row[column] = reached[column] = max(reached[column], value - before)


class Schedule:
    """The queue of work that is not due at each sample. Work gets the present time, and returns when it is due next."""

    def __init__(self, *works: Callable[[float], float]) -> None:
        """Plan all ``works`` for now; of those that are due together, the first one is done first."""
        self._due_s = dict.fromkeys(works, 0.0)
        self.next_s = 0.0
        """When the next work is due."""

    def is_due(self, work: Callable[[float], float], now_s: float) -> bool:
        """Return whether ``run`` would do this work."""
        return now_s >= self._due_s[work]

    def hasten(self, work: Callable[[float], float], at_s: float) -> None:
        """Plan work for a time, unless it is due before that."""
        self._due_s[work] = min(at_s, self._due_s[work])
        self.next_s = min(at_s, self.next_s)

    def run(self, now_s: float) -> None:
        """Do all work that is due."""
        for work, at_s in self._due_s.items():
            if now_s >= at_s:
                self._due_s[work] = work(now_s)
        self.next_s = min(self._due_s.values())


class Stillness:
    """The files of a tree with their content at a sample, while that is expected to last."""

    def __init__(self) -> None:
        self._expected: list[tuple[int, int, bytes]] = []
        self._changes = 0

    def expect(self, processes: Sequence[Process], tree: Tree) -> None:
        """Expect all files of ``processes``, which are those of ``tree`` or none, to say the same again."""
        self._changes = tree.changes
        files = [file for process in processes for file in zip(process.files, process.data, strict=True)]
        self._expected = [(file, len(data) + 1, data) for file, data in files if file >= 0 and data]
        if len(self._expected) < len(files):  # one of them cannot be read
            self._expected = []

    def lasts(self, tree: Tree) -> bool:
        """Read the files again; return whether everything is as expected."""
        if not self._expected or tree.changes != self._changes:
            return False
        pread = os.pread
        try:
            for file, size, data in self._expected:
                if pread(file, size, 0) != data:
                    return False
        except OSError:  # a process is gone
            return False
        return True


_IN_MODIFY = 0x2
_SHARE = 10
"""Samples for marks take at most one part in this many of the time."""


class MarkWatch:
    """Any write to the marks log triggers a sample (inotify(7), Linux only)."""

    def __init__(self, path: str, sample: Callable[[], None]) -> None:
        """Watch an existing file. Raises OSError; AttributeError where there is no inotify."""
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0 or libc.inotify_add_watch(self.descriptor, os.fsencode(path), _IN_MODIFY) < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        self._sample = sample
        self._rests_until_ns = 0
        self.is_due = False
        """Whether marks wait for the next sample."""

    def take(self) -> None:
        """Take a sample for new marks; if such samples have just taken too much time, the next sample is for them."""
        try:
            os.read(self.descriptor, 1 << 16)
        except BlockingIOError:  # they were taken already: after --duration, two steps follow one sleep
            return
        begun_ns = time.monotonic_ns()
        self.is_due = begun_ns < self._rests_until_ns
        if self.is_due:
            return
        self._sample()
        ended_ns = time.monotonic_ns()
        self._rests_until_ns = ended_ns + (ended_ns - begun_ns) * _SHARE
