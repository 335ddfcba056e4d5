"""The rows of a marks log or sidecar, from JSON, JSON Lines or CSV, and which operation each belongs to.

``Nesting`` finds the open operation around a new one, and what it ends: one rule for sessions, limits and live view.

- A line that names the operation around it in its context (``in``) is inside of that one; any other line is inside of
  what is open on its thread. A call that the hook marked is around all that its thread begins meanwhile.
- A moment is open until the next line of its profiler by hand, on its thread and inside of the same operation. Inside
  of it are calls that the hook marks, and what profilers mark that marked nothing before. A line of output with the
  same name, such as the next one of a progress bar, does not end it.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count
from typing import Any, BinaryIO, Generic, TypeVar

import msgspec

from nncftools import intake
from nncftools.errors import NncfToolsError
from nncftools.intake import UTF_8_MARK, Count, Pid, Seconds, Size, Whole
from nncftools.marks.line import OUTPUT
from nncftools.session.model import OwnMemory, Start

AUTO = "auto"
"""The source of a call that the hook marked."""
BEGIN = "begin"
END = "end"
EXEC = "exec"
"""Of an entry that ends all operations of a process: it runs another program since then. No line has it."""
LOST = "lost"
"""Of a line that says how many lines of its process are missing since then."""


class Entry(msgspec.Struct, kw_only=True):
    """One row: a moment, a whole operation, or the begin or end of one; docs/marks.md defines the keys."""

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
    total_ns: Whole | None = None
    longest_ns: Whole | None = None
    total_s: Seconds | None = None
    longest_s: Seconds | None = None
    rss: Whole | None = None
    """What its process read at this line, in bytes; None for unknown."""
    high_water_mark: Size | None = None
    descendants: list[tuple[Whole, Whole]] | None = None
    """PID and RSS of each; None when there were too many."""
    listed: bool = False
    """Whether ``descendants`` contains all children of the children."""
    devices: list[tuple[str, str, Whole, Whole]] | None = None
    """Of each GPU torch's name, its UUID, what torch's allocator had given out, and the most so far."""
    own: OwnMemory | None = None
    """What was read at this line, and what the tree held: not a key of a file."""
    own_start: OwnMemory | None = None
    own_end: OwnMemory | None = None
    error: str | None = None
    saved: str | None = None
    saved_size: Whole | None = None
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
        """Whether all that its thread begins before its end is inside of it; otherwise it belongs to a context."""
        return self.within is None or (self.source == AUTO and not self.later)

    @property
    def may_go_on(self) -> bool:
        """Whether others may be inside of it: not if its line has a depth, or counts several calls."""
        return self.count == 1 and self.depth is None

    @property
    def is_operation(self) -> bool:
        """Whether this describes an operation, as opposed to a note from the hook."""
        return self.warning is None and self.python is None and self.failure is None and self.lost is None

    def timed(self, start: Start) -> Entry:
        """Set ``start_s`` and ``end_s`` to seconds from the session's start, and return this. Raises ValueError."""
        if not self.is_operation:
            self.start_s = max(0.0, ((self.t_ns or 0) - (start.monotonic_ns or 0)) / 1e9)
            return self
        if self.event not in {None, BEGIN, END}:
            raise ValueError(f'`event`: "{BEGIN}" or "{END}" expected, found {self.event!r}')
        if not self.name and self.event != END:
            raise ValueError("a `name` of at least one character expected")
        if self.event is not None and (self.op is None or self.pid is None):
            raise ValueError(f"`op` and `pid`, two whole numbers, expected with `event` {self.event!r}")
        start_s = _seconds(start, self.start_s, self.start, self.t_ns)
        if start_s is None:
            times = "`start_s` (seconds from the start), `start` (the same, or ISO 8601 with zone)"
            raise ValueError(f"{times} or `t_ns` (CLOCK_MONOTONIC) expected")
        end_s = _seconds(start, self.end_s, self.end, self.end_ns)
        last_s = start_s if end_s is None else end_s
        if not -intake.LATEST_S <= start_s <= last_s <= intake.LATEST_S:
            expected = "a start and an end that is not before it, in seconds up to 10^10,"
            raise ValueError(f"{expected} expected, found {start_s:g} and {last_s:g}")
        self.start_s = start_s
        self.end_s = end_s
        if self.total_ns is not None and self.longest_ns is not None:
            self.total_s = self.total_ns / 1e9
            self.longest_s = self.longest_ns / 1e9
        return self


def _seconds(start: Start, seconds: float | None, moment: str | None, t_ns: int | None) -> float | None:
    """Return the first time that is given, in seconds from the start; None when none is. Raises ValueError.

    A ``moment`` that is a number is seconds, too.
    """
    if seconds is not None:
        return seconds
    if moment is not None:
        with contextlib.suppress(ValueError):
            return float(moment)
        at = intake.moment(moment)
        if start.utc is None:
            raise ValueError("a time of day cannot be used: the session does not say when it began")
        return (at - intake.moment(start.utc)).total_seconds()
    if t_ns is None:
        return None
    if start.monotonic_ns is None:
        raise ValueError("`t_ns` cannot be used: the session does not say when it began on CLOCK_MONOTONIC")
    return (t_ns - start.monotonic_ns) / 1e9


class Row(msgspec.Struct):
    """A row; ``entry`` is None when it is invalid, and ``problem`` says why."""

    position: str
    """Where it is, such as ``line 3``."""
    entry: Entry | None
    problem: str = ""


def rows(file: BinaryIO, name: str, start: Start) -> Iterator[Row]:
    """Yield the rows of a marks log or sidecar, read one by one; a ``name`` that ends in .csv means CSV.

    The cells of a CSV file are separated by commas, semicolons or tabs. Raises NncfToolsError when the file is neither
    JSON, JSON Lines nor CSV.
    """
    for position, entry_of, row in _raw_rows(file, name):
        try:
            yield Row(position, entry_of(row).timed(start))
        except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
            yield Row(position, None, str(error))


_SEPARATORS = ",;\t"
_SECONDS = ("start_s", "end_s", "start", "end", "total_s", "longest_s")
_FROM_JSON = msgspec.json.Decoder(Entry).decode


_LONGEST_LINE = 1 << 24
"""A longer line comes in parts, and none of them is JSON."""


def _raw_rows(file: BinaryIO, name: str) -> Iterator[tuple[str, Callable[[Any], Entry], Any]]:
    """Yield where each row is, what makes an entry of it, and its raw content."""
    if name.lower().endswith(".csv"):
        yield from _cells(file, name)
        return
    first = file.read(100)
    file.seek(-len(first), os.SEEK_CUR)
    if first.removeprefix(UTF_8_MARK).lstrip()[:1] == b"[":
        try:
            items = msgspec.json.decode(file.read().removeprefix(UTF_8_MARK), type=list[msgspec.Raw])
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise NncfToolsError(f"{name}: not a list of marks: {error}") from error
        for number, item in enumerate(items):
            yield f"at `$[{number}]`", _FROM_JSON, item
    else:
        for number, line in enumerate(iter(partial(file.readline, _LONGEST_LINE), b""), start=1):
            text = (line if number > 1 else line.removeprefix(UTF_8_MARK)).strip()
            if text:
                yield f"line {number}", _FROM_JSON, text


def _cells(file: BinaryIO, name: str) -> Iterator[tuple[str, Callable[[Any], Entry], Any]]:
    import csv

    text = io.TextIOWrapper(file, "utf-8-sig", errors="replace", newline="")
    header = text.readline()
    first_line = 2
    if header.startswith("sep="):  # Excel's line with the separator
        header = text.readline()
        first_line = 3
    separator = max(_SEPARATORS, key=header.count)
    table = csv.DictReader(chain([header], text), delimiter=separator, skipinitialspace=True)
    try:
        for number, cells in enumerate(table, first_line):
            named = {key: cell for key, cell in cells.items() if key and cell}
            if separator != ",":  # of a spreadsheet that writes 1,5 for 1.5
                named |= {key: named[key].replace(",", ".") for key in _SECONDS if key in named}
            yield f"line {number}", lambda row: msgspec.convert(row, Entry, strict=False), named
    except csv.Error as error:
        raise NncfToolsError(f"{name}: not CSV: {error}") from error


Number = int | None
_What = TypeVar("_What")


@dataclass(eq=False, slots=True)
class Open(Generic[_What]):
    """An operation, or moment, that may go on."""

    entry: Entry
    outer: Open[_What] | None
    """What it is inside of, in its process."""
    bound: Open[_What] | None
    """The operation that ends it if it is a moment: of its own profiler, of any if it has none, or a call that the hook
    marked. None for the process."""
    what: _What = field(init=False)
    """What the user of ``Nesting`` keeps of it."""
    number: int = field(default=0, init=False)
    """How many were opened before it."""
    moments: dict[tuple[Number, Number], Open[_What]] = field(default_factory=dict, init=False)
    """By thread and profiler: those that end with it."""
    key: tuple[Number, Number] = field(init=False)
    beside: dict[tuple[Number, Number], Open[_What]] = field(init=False)
    """All of its kind, by their keys, while they are open."""
    on_thread: dict[int, Open[_What]] = field(init=False)
    """All of its kind that its thread began, by their numbers."""

    @property
    def is_moment(self) -> bool:
        """Whether it is one that the next line ends."""
        return self.entry.event is None

    @property
    def outwards(self) -> Iterator[Open[_What]]:
        """It and all that are around it."""
        operation: Open[_What] | None = self
        while operation is not None:
            yield operation
            operation = operation.outer


@dataclass(eq=False, slots=True)
class _Thread(Generic[_What]):
    """What was begun on one thread and is open, in order, by its number."""

    stacked: dict[int, Open[_What]] = field(default_factory=dict)
    """Operations around all that the thread begins meanwhile."""
    others: dict[int, Open[_What]] = field(default_factory=dict)
    """Operations that belong to a context."""
    moments: dict[int, Open[_What]] = field(default_factory=dict)

    def every(self) -> Iterator[Open[_What]]:
        return chain(self.stacked.values(), self.others.values(), self.moments.values())

    def innermost(self) -> Open[_What] | None:
        return _latest(*map(_last, (self.stacked, self.others, self.moments)))


_MOST_PROFILERS = 100_000


class Nesting(Generic[_What]):
    """The open operations of a run; takes its lines one after the other."""

    def __init__(self) -> None:
        """Begin with nothing open."""
        self.open_count = 0
        """How many operations and moments are open."""
        self._numbered: dict[tuple[Number, Number], Open[_What]] = {}
        """Operations by process and ``op``."""
        self._moments: dict[Number, dict[tuple[Number, Number], Open[_What]]] = {}
        """By process: moments that end with it."""
        self._threads: dict[Number, dict[Number, _Thread[_What]]] = {}
        self._profilers: dict[tuple[Number, Number], int] = {}
        """By process and profiler: how many others of any process marked something before."""
        self._count = count()

    def begin(self, entry: Entry) -> tuple[Open[_What], Open[_What] | None]:
        """Return an operation that begins, and the moment that it ends, which is open no longer.

        Return the open moment itself if the entry repeats it.
        """
        operation = self._operation_around(entry)
        bound = self._bound(operation, entry)
        ended = None
        if entry.source != AUTO:
            if len(self._profilers) < _MOST_PROFILERS:
                self._profilers.setdefault((entry.pid, entry.profiler), len(self._profilers))
            moments = self._moments.get(entry.pid, {}) if bound is None else bound.moments
            ended = moments.get((entry.tid, entry.profiler))
            if ended is not None and entry.source == OUTPUT == ended.entry.source and entry.name == ended.entry.name:
                return ended, None
            if ended is not None:
                self._close(ended)
        return Open(entry, self._moment_in(operation, entry) or operation, bound), ended

    def open(self, opened: Open[_What], what: _What) -> Open[_What] | None:
        """Add an operation or moment that goes on; return an earlier one of its number, which is open no longer."""
        entry = opened.entry
        opened.what = what
        opened.number = next(self._count)
        if opened.is_moment:
            opened.key = entry.tid, entry.profiler
            opened.beside = self._moments.setdefault(entry.pid, {}) if opened.bound is None else opened.bound.moments
        else:
            opened.key = entry.pid, entry.op
            opened.beside = self._numbered
        before = opened.beside.get(opened.key)
        if before is not None:  # of a process that ended without ending it, and whose PID is another one's now
            self._close(before)
        opened.beside[opened.key] = opened
        self.open_count += 1
        threads = self._threads.setdefault(entry.pid, {})
        thread = threads.get(entry.tid)
        if thread is None:
            thread = threads[entry.tid] = _Thread()
        others = thread.stacked if entry.is_of_thread else thread.others
        opened.on_thread = thread.moments if opened.is_moment else others
        opened.on_thread[opened.number] = opened
        return before

    def end(self, entry: Entry) -> list[Open[_What]]:
        """Return what an end line ends: an operation after the moments in it, or all moments of a profiler."""
        if not entry.op and entry.profiler is not None:
            of_process = self._of_process(entry.pid)
            ended = [opened for opened in of_process if opened.is_moment and opened.entry.profiler == entry.profiler]
        else:
            operation = self._numbered.get((entry.pid, entry.op))
            ended = [] if operation is None else [*operation.moments.values(), operation]
        for operation in ended:
            self._close(operation)
        return ended

    def end_process(self, pid: Number) -> list[Open[_What]]:
        """Return what ends with a process, or with the program that it ran before exec."""
        ended = list(self._of_process(pid))
        for operation in ended:
            self._close(operation)
        self._moments.pop(pid, None)
        return ended

    def lose(self, pid: Number) -> list[Open[_What]]:
        """Return what is open in a process some of whose ends may be lost: nothing that begins is inside of it."""
        may_have_ended = list(self._of_process(pid))
        self._moments.pop(pid, None)
        self._threads.pop(pid, None)
        return may_have_ended

    def innermost(self, pid: Number, tid: Number = None) -> Open[_What] | None:
        """Return what began last of all that is open, in a process or on one of its threads."""
        threads = self._threads.get(pid, {})
        if tid is not None:
            return threads[tid].innermost() if tid in threads else None
        return _latest(*(thread.innermost() for thread in threads.values()))

    def every(self) -> Iterator[Open[_What]]:
        """Yield all open operations and moments."""
        for pid in self._threads:
            yield from self._of_process(pid)

    def _of_process(self, pid: Number) -> Iterator[Open[_What]]:
        for thread in self._threads.get(pid, {}).values():
            yield from thread.every()

    def _operation_around(self, entry: Entry) -> Open[_What] | None:
        thread = self._threads.get(entry.pid, {}).get(entry.tid)
        stacked, other = (None, None) if thread is None else (_last(thread.stacked), _last(thread.others))
        if entry.within is not None:
            other = self._numbered.get((entry.pid, entry.within)) if entry.within else None
        return _latest(stacked, other)

    def _bound(self, operation: Open[_What] | None, entry: Entry) -> Open[_What] | None:
        for outer in operation.outwards if operation is not None else ():
            is_own = entry.profiler is None or outer.entry.source == AUTO or outer.entry.profiler == entry.profiler
            if is_own and not outer.is_moment:
                return outer
        return None

    def _moment_in(self, operation: Open[_What] | None, entry: Entry) -> Open[_What] | None:
        """Return the open moment that is directly inside of an operation, and around a new line."""
        thread = self._threads.get(entry.pid, {}).get(entry.tid)
        if thread is None or not thread.moments:
            return None
        bounds = {None, *(operation.outwards if operation is not None else ())}
        order = self._profilers.get((entry.pid, entry.profiler), _MOST_PROFILERS)
        for moment in reversed(thread.moments.values()):
            if operation is not None and moment.number < operation.number:
                break
            is_before = self._profilers.get((moment.entry.pid, moment.entry.profiler), _MOST_PROFILERS) < order
            # Profilers that began to mark later are inside of others.
            if moment.bound in bounds and (is_before or entry.source == AUTO):
                return moment
        return None

    def _close(self, operation: Open[_What]) -> None:
        entry = operation.entry
        self.open_count -= operation.beside.pop(operation.key, None) is not None
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


def _last(of: dict[int, Open[_What]]) -> Open[_What] | None:
    return next(reversed(of.values())) if of else None


def _latest(*operations: Open[_What] | None) -> Open[_What] | None:
    latest = None
    for operation in operations:
        if operation is not None and (latest is None or operation.number > latest.number):
            latest = operation
    return latest
