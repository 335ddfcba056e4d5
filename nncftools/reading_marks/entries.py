"""Reads the rows of a marks log or sidecar (JSON, JSON Lines or CSV), and finds the operation that encloses each row.

A moment is an operation without an end row. For each new row, ``Nesting`` finds the enclosing open operation, and the
operations that end because of the row. Sessions, limits and the live view use the same rules:

- A row that names an outer operation (``in``) is inside that operation. Any other row is inside the innermost operation
  of the thread. If the hook (``sitecustomize.py`` in the program) marked a call, everything that the thread begins
  during the call is inside the call.
- A moment ends at the user's next mark with the same profiler, on the same thread and inside the same operation. Calls
  that the hook marks are inside the moment. Marks of another profiler are inside, too, if that profiler began to mark
  later than the moment's profiler.
- A moment that began with a line of the command's output continues if the next mark is an output line with the same
  name, such as the next line of a progress bar.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, BinaryIO

import msgspec

from nncftools import intake
from nncftools.errors import NncfToolsError
from nncftools.intake import UTF_8_MARK, Count, Duration, Pid, Seconds, Size, Whole
from nncftools.marks.line import OUTPUT
from nncftools.session.model import OwnMemory, Start

AUTO = "auto"
"""The ``source`` of a row about a function call that was marked automatically, without a mark in the program's code."""
BEGIN = "begin"
END = "end"
EXEC = "exec"
"""An event that ends all operations of a process, because the process runs another program now (exec). Files never
contain this event.
"""
LOST = "lost"
"""The event of an entry that counts the missing rows of a process."""


class Entry(msgspec.Struct, kw_only=True):
    """A row of a marks log or sidecar; docs/operations.md defines the keys.

    A row is a whole operation, the begin of an operation, the end of an operation, or a mark with a name and one time.
    With the last kind, the operation ends at the next mark.
    """

    name: str = ""
    start_s: Seconds | None = None
    end_s: Seconds | None = None
    start: str | None = None
    end: str | None = None
    t_ns: Whole | None = None
    end_ns: Whole | None = None
    event: str | None = None
    op: Whole | None = None
    within: Whole | None = msgspec.field(default=None, name="in")
    later: bool = False
    profiler: Whole | None = None
    inside: Whole | None = None
    depth: Count | None = None
    pid: Pid | None = None
    tid: Pid | None = None
    kind: str | None = None
    call: str | None = None
    arguments: str | list[str] | None = None
    source: str | None = None
    step: bool = False
    count: Size = 1
    total_ns: Size | None = None
    longest_ns: Size | None = None
    total_s: Duration | None = None
    longest_s: Duration | None = None
    rss: Size | None = None
    """RSS of the process at this row, in bytes; None if unknown."""
    high_water_mark: Size | None = None
    descendants: list[tuple[Pid, Size]] | None = None
    """(PID, RSS in bytes) of each descendant; None if unknown, for example because there were too many."""
    listed: bool = False
    """Whether ``descendants`` includes the children of children."""
    devices: list[tuple[str, str, Size, Size]] | None = None
    """Tuples for the GPUs: torch's name, UUID, the bytes in use by torch's allocator, and the highest value so far."""
    own: OwnMemory | None = None
    """Memory of the process and of the process tree at this row; None if unknown. The memory is computed after the row
    was read: no row in a file has this key."""
    own_start: OwnMemory | None = None
    own_end: OwnMemory | None = None
    error: str | None = None
    saved: str | None = None
    saved_size: Size | None = None
    rt_info: str | None = None
    warning: str | None = None
    python: str | None = None
    ended: bool = False
    program: Whole | None = None
    failure: str | None = None
    cause: str | None = None
    device: str | None = None
    fatal: bool = False
    lost: Whole | None = None
    cut: Whole = 0

    @property
    def is_of_thread(self) -> bool:
        """Whether the operation encloses all rows of the thread, not only rows of the same context (contextvars)."""
        return self.within is None or (self.source == AUTO and not self.later)

    @property
    def may_go_on(self) -> bool:
        """Whether other operations can be inside. They cannot if the row has a depth, or counts several calls."""
        return self.count == 1 and self.depth is None

    @property
    def is_operation(self) -> bool:
        """Whether this row describes an operation; any other row is a note from the hook."""
        return self.warning is None and self.python is None and self.failure is None and self.lost is None

    def set_times(self, start: Start) -> None:
        """Set ``start_s`` and ``end_s`` to seconds from the session's start. Raises ValueError."""
        if not self.is_operation:
            since_ns = (self.t_ns or 0) - (start.monotonic_ns or 0)
            self.start_s = max(0.0, since_ns / 1e9)
            return
        if self.event not in {None, BEGIN, END}:
            raise ValueError(f'`event`: "{BEGIN}" or "{END}" expected, found {self.event!r}')
        if not self.name and self.event != END:
            raise ValueError("a non-empty `name` expected")
        if self.event is not None and (self.op is None or self.pid is None):
            raise ValueError(f"`op` and `pid`, two whole numbers, expected with `event` {self.event!r}")
        start_s = _seconds(start, self.start_s, self.start, self.t_ns)
        if start_s is None:
            times = "`start_s` (seconds from the start), `start` (seconds, or ISO 8601 with zone)"
            raise ValueError(f"{times} or `t_ns` (CLOCK_MONOTONIC) expected")
        end_s = _seconds(start, self.end_s, self.end, self.end_ns)
        last_s = start_s if end_s is None else end_s
        if not -intake.LATEST_S <= start_s <= last_s <= intake.LATEST_S:
            expected = "`end` at or after `start`, in seconds up to 10^10,"
            raise ValueError(f"{expected} expected, found {start_s:g} and {last_s:g}")
        self.start_s = start_s
        self.end_s = end_s
        if self.total_ns is not None and self.longest_ns is not None:
            self.total_s = self.total_ns / 1e9
            self.longest_s = self.longest_ns / 1e9


def _seconds(start: Start, seconds: float | None, moment: str | None, t_ns: int | None) -> float | None:
    """Return the first of the three times that is not None, in seconds from ``start``; None if all are None.

    ``moment`` is a date and time, or a number of seconds. Raises ValueError.
    """
    if seconds is not None:
        return seconds
    if moment is not None:
        with contextlib.suppress(ValueError):
            return float(moment)
        at = intake.moment(moment)
        if start.utc is None:
            raise ValueError("a date and time cannot be used: the start of the session is unknown")
        return (at - intake.moment(start.utc)).total_seconds()
    if t_ns is None:
        return None
    if start.monotonic_ns is None:
        raise ValueError("`t_ns` cannot be used: the session has no start on CLOCK_MONOTONIC")
    return (t_ns - start.monotonic_ns) / 1e9


class Row(msgspec.Struct):
    """A row of a file; if the row is invalid, ``entry`` is None, and ``problem`` says why."""

    position: str
    """The position in the file, such as ``line 3``."""
    entry: Entry | None
    problem: str = ""


def read_rows(file: BinaryIO, name: str, start: Start) -> Iterator[Row]:
    """Yield the rows of a marks log or sidecar. If ``name`` ends in .csv, the file is CSV.

    The cells of a CSV file are separated by commas, semicolons or tabs. Raises NncfToolsError if the file is neither
    JSON, JSON Lines nor CSV.
    """
    for position, parse, text in _raw_rows(file, name):
        try:
            entry = parse(text)
            entry.set_times(start)
            yield Row(position, entry)
        except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
            yield Row(position, None, str(error))


_SEPARATORS = ",;\t"
_SECONDS = {"start_s", "end_s", "start", "end", "total_s", "longest_s"}
_FROM_JSON = msgspec.json.Decoder(Entry).decode
_LONGEST_LINE = 1 << 24
"""A longer line (in bytes) is read in parts of this size, and each part is an invalid row."""


def _raw_rows(file: BinaryIO, name: str) -> Iterator[tuple[str, Callable[[Any], Entry], Any]]:
    """Yield position, parser and raw content of each row."""
    if name.lower().endswith(".csv"):
        yield from _cells(file, name)
        return
    first = file.read(100)
    file.seek(-len(first), os.SEEK_CUR)
    if first.removeprefix(UTF_8_MARK).lstrip().startswith(b"["):
        try:
            content = file.read().removeprefix(UTF_8_MARK)
            items = msgspec.json.decode(content, type=list[msgspec.Raw])
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise NncfToolsError(f"{name}: not a list of marks: {error}") from error
        for number, item in enumerate(items):
            yield f"at `$[{number}]`", _FROM_JSON, item
    else:
        lines = iter(partial(file.readline, _LONGEST_LINE), b"")
        for number, line in enumerate(lines, start=1):
            text = line.strip() if number > 1 else line.removeprefix(UTF_8_MARK).strip()
            if text:
                yield f"line {number}", _FROM_JSON, text


def _cells(file: BinaryIO, name: str) -> Iterator[tuple[str, Callable[[Any], Entry], Any]]:
    import csv

    text = io.TextIOWrapper(file, "utf-8-sig", errors="replace", newline="")
    header = text.readline()
    first_line = 2
    if header.startswith("sep="):  # Excel writes a first line with the separator
        header = text.readline()
        first_line = 3
    separator = max(_SEPARATORS, key=header.count)
    table = csv.DictReader(chain([header], text), delimiter=separator, skipinitialspace=True)
    try:
        columns = list(filter(None, table.fieldnames or ()))
        if len({*columns}) < len(columns):
            raise NncfToolsError(f"{name}: line {first_line - 1}: a column is named twice")
        for number, cells in enumerate(table, first_line):
            named = {key: cell for key, cell in cells.items() if key and cell}
            if separator != ",":  # a comma may be the decimal point: 1,5
                for key in named.keys() & _SECONDS:
                    named[key] = named[key].replace(",", ".")
            yield f"line {number}", partial(msgspec.convert, type=Entry, strict=False), named
    except csv.Error as error:
        raise NncfToolsError(f"{name}: not CSV: {error}") from error


Number = int | None
Key = tuple[Number, Number]


class Open:
    """An operation that is open: the operation has begun and, up to the current row, not ended."""

    payload: Any
    """Data that the caller of ``Nesting.open`` stores with the operation."""
    key: Key
    siblings: dict[Key, Open]
    """The dictionary of ``Nesting`` that contains this operation. The key is the attribute ``key``."""
    on_thread: dict[int, Open]
    """The dictionary of the operation's thread that contains this operation. The key is the attribute ``number``."""

    def __init__(self, entry: Entry, outer: Open | None, bound: Open | None) -> None:
        """``outer`` is the enclosing operation in the same process; None if there is no enclosing operation.

        ``bound`` matters only for an operation without an end row. The operation ends at the next mark, or earlier:
        when the operation ``bound`` ends. None: only the next mark or the end of the process ends the operation.
        """
        self.entry = entry
        self.outer = outer
        self.bound = bound
        self.number = 0
        """The number of operations that were opened before this operation."""
        self.moments: dict[Key, Open] = {}
        """Open operations without an end row. Each operation ends at the next mark, or earlier: when this operation
        ends. The format is ``{(thread ID, profiler): operation}``."""

    @property
    def is_moment(self) -> bool:
        """Whether the operation has no end row, and ends at the next mark."""
        return self.entry.event is None

    @property
    def outwards(self) -> Iterator[Open]:
        """Yield this operation and all enclosing operations, from the inside to the outside."""
        operation: Open | None = self
        while operation is not None:
            yield operation
            operation = operation.outer


class _Thread:
    """The open operations that a thread began, in order of start: ``{Open.number: operation}``."""

    def __init__(self) -> None:
        self.stacked: dict[int, Open] = {}
        """Open operations. All later rows of the thread are inside these operations."""
        self.others: dict[int, Open] = {}
        """Open operations that belong to a context (contextvars), such as an asyncio task. Only rows of the same
        context can be inside."""
        self.moments: dict[int, Open] = {}

    def every(self) -> Iterator[Open]:
        for operations in self.stacked, self.others, self.moments:
            yield from operations.values()

    def innermost(self) -> Open | None:
        return _latest(map(_last, (self.stacked, self.others, self.moments)))


_MOST_PROFILERS = 100_000


class Nesting:
    """Tracks the open operations of a run. The rows of the marks log are passed in order."""

    def __init__(self) -> None:
        """Start without open operations."""
        self.open_count = 0
        """The number of open operations."""
        self._numbered: dict[Key, Open] = {}
        """Open operations that have an end row: ``{(PID, op): operation}``. The begin row and the end row have the same
        ``op``, a number."""
        self._moments: dict[Number, dict[Key, Open]] = {}
        """Open operations without an end row. Only the next mark or the end of the process ends them. The format is
        ``{PID: {(thread ID, profiler): operation}}``."""
        self._threads: dict[Number, dict[Number, _Thread]] = {}
        """The threads with open operations: ``{PID: {thread ID: thread}}``."""
        self._profilers: dict[Key, int] = {}
        """Profilers in the order of their first marks: ``{(PID, profiler): position}``."""
        self._opened = 0

    def begin(self, entry: Entry) -> tuple[Open, Open | None]:
        """Return the operation that an entry begins, and the open operation that the entry ends (or None).

        If the entry only repeats an open operation, such as the next line of a progress bar, return that operation and
        None.
        """
        operation = self._operation_around(entry)
        bound = _bound(operation, entry)
        ended = None
        if entry.source != AUTO:
            if len(self._profilers) < _MOST_PROFILERS:
                self._profilers.setdefault((entry.pid, entry.profiler), len(self._profilers))
            moments = self._moments.get(entry.pid, {}) if bound is None else bound.moments
            ended = moments.get((entry.tid, entry.profiler))
            if ended is not None:
                is_output = entry.source == OUTPUT == ended.entry.source
                if is_output and entry.name == ended.entry.name:
                    return ended, None
                self._close(ended)
        return Open(entry, self._moment_in(operation, entry) or operation, bound), ended

    def open(self, opened: Open, payload: object) -> Open | None:
        """Add an open operation.

        If an earlier open operation has the same number, close and return the earlier operation.
        """
        entry = opened.entry
        opened.payload = payload
        opened.number = self._opened
        self._opened += 1
        opened.key = entry.tid, entry.profiler
        if not opened.is_moment:
            opened.key = entry.pid, entry.op
            opened.siblings = self._numbered
        elif opened.bound is None:
            opened.siblings = self._moments.setdefault(entry.pid, {})
        else:
            opened.siblings = opened.bound.moments
        replaced = opened.siblings.get(opened.key)
        if replaced is not None:  # the process ended without an end row, and another process has the same PID
            self._close(replaced)
        opened.siblings[opened.key] = opened
        self.open_count += 1
        threads = self._threads.setdefault(entry.pid, {})
        thread = threads.setdefault(entry.tid, _Thread())
        if opened.is_moment:
            opened.on_thread = thread.moments
        else:
            opened.on_thread = thread.stacked if entry.is_of_thread else thread.others
        opened.on_thread[opened.number] = opened
        return replaced

    def end(self, entry: Entry) -> list[Open]:
        """Close and return the operations that an entry ends.

        An entry with the number ``op`` ends the operation with that number, and operations inside that have no end row.
        An entry with a profiler and without ``op`` ends all operations of the profiler that have no end row.
        """
        if not entry.op and entry.profiler is not None:
            moments = [opened for opened in self._in_process(entry.pid) if opened.is_moment]
            ended = [opened for opened in moments if opened.entry.profiler == entry.profiler]
        else:
            operation = self._numbered.get((entry.pid, entry.op))
            ended = [] if operation is None else [*operation.moments.values(), operation]
        for operation in ended:
            self._close(operation)
        return ended

    def end_process(self, pid: Number) -> list[Open]:
        """Close and return all operations of a process, when the process ended or began another program (exec)."""
        ended = list(self._in_process(pid))
        for operation in ended:
            self._close(operation)
        self._moments.pop(pid, None)
        return ended

    def lose(self, pid: Number) -> list[Open]:
        """Return the open operations of a process with missing rows, because the missing rows may have ended them.

        After this call, no new operation is nested in these operations. A later end row still ends them.
        """
        may_have_ended = list(self._in_process(pid))
        self._moments.pop(pid, None)
        self._threads.pop(pid, None)
        return may_have_ended

    def innermost(self, pid: Number, tid: Number = None) -> Open | None:
        """Return the open operation that a process, or a thread of the process, began last; None if there is none."""
        threads = self._threads.get(pid, {})
        if tid is not None:
            return threads[tid].innermost() if tid in threads else None
        return _latest(thread.innermost() for thread in threads.values())

    def every(self) -> Iterator[Open]:
        """Yield all open operations."""
        for pid in self._threads:
            yield from self._in_process(pid)

    def _in_process(self, pid: Number) -> Iterator[Open]:
        for thread in self._threads.get(pid, {}).values():
            yield from thread.every()

    def _operation_around(self, entry: Entry) -> Open | None:
        thread = self._threads.get(entry.pid, {}).get(entry.tid)
        candidates = [] if thread is None else [_last(thread.stacked)]
        if entry.within:
            candidates.append(self._numbered.get((entry.pid, entry.within)))
        elif entry.within is None and thread is not None:
            candidates.append(_last(thread.others))
        return _latest(candidates)

    def _moment_in(self, operation: Open | None, entry: Entry) -> Open | None:
        """Return the innermost operation without an end row that is inside ``operation`` and encloses a new row.

        None if there is no such operation.
        """
        thread = self._threads.get(entry.pid, {}).get(entry.tid)
        if thread is None or not thread.moments:
            return None
        bounds = {None, *(operation.outwards if operation is not None else ())}
        order = self._order(entry)
        for moment in reversed(thread.moments.values()):
            if operation is not None and moment.number < operation.number:
                break
            # A moment encloses only moments of profilers that began to mark later.
            is_around = entry.source == AUTO or self._order(moment.entry) < order
            if is_around and moment.bound in bounds:
                return moment
        return None

    def _order(self, entry: Entry) -> int:
        return self._profilers.get((entry.pid, entry.profiler), _MOST_PROFILERS)

    def _close(self, operation: Open) -> None:
        entry = operation.entry
        self.open_count -= operation.siblings.pop(operation.key, None) is not None
        operation.on_thread.pop(operation.number, None)
        threads = self._threads.get(entry.pid, {})
        thread = threads.get(entry.tid)
        if thread is None:
            return
        if not (thread.stacked or thread.others or thread.moments):
            del threads[entry.tid]
        if not threads:
            del self._threads[entry.pid]
            self._moments.pop(entry.pid, None)


def _bound(operation: Open | None, entry: Entry) -> Open | None:
    """Return the innermost operation that has an end row and encloses a new operation; None if there is none.

    A new operation without an end row ends at the latest together with the returned operation. Operations of other
    profilers are skipped, except for calls that the hook (``sitecustomize.py`` in the program) marked. If the new
    operation has no profiler, no operation is skipped.
    """
    for outer in () if operation is None else operation.outwards:
        is_own = entry.profiler is None or outer.entry.source == AUTO or outer.entry.profiler == entry.profiler
        if is_own and not outer.is_moment:
            return outer
    return None


def _last(operations: dict[int, Open]) -> Open | None:
    return next(reversed(operations.values()), None)


def _latest(operations: Iterable[Open | None]) -> Open | None:
    return max(filter(None, operations), key=lambda operation: operation.number, default=None)
