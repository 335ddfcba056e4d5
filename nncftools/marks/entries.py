"""The rows of a marks log or sidecar, read from JSON, JSON Lines or CSV."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import msgspec

from nncftools import intake
from nncftools.errors import NncfToolsError
from nncftools.intake import UTF_8_MARK
from nncftools.session.model import OwnMemory, Start
from nncftools.session.readings import Reading

AUTO = "auto"
"""The source of a call that the hook marked."""
BEGIN = "begin"
END = "end"
LOST = "lost"
"""Of a line that says how many lines of its process are missing since then."""


class Entry(msgspec.Struct, kw_only=True):
    """One row: a moment, a whole operation, or the begin or end of one; docs/marks.md defines the keys."""

    name: str = ""
    start_s: float | None = None
    end_s: float | None = None
    start: str | None = None
    end: str | None = None
    t_ns: int | None = None
    end_ns: int | None = None
    event: str | None = None
    op: int | None = None
    within: int | None = msgspec.field(default=None, name="in")
    later: bool = False
    profiler: int | None = None
    inside: int | None = None
    depth: int | None = None
    pid: int | None = None
    tid: int | None = None
    kind: str | None = None
    call: str | None = None
    arguments: str | list[str] | None = None
    source: str | None = None
    step: bool = False
    count: int = 1
    total_ns: int | None = None
    longest_ns: int | None = None
    total_s: float | None = None
    longest_s: float | None = None
    rss: int | None = None
    high_water_mark: int | None = None
    faults: int | None = None
    descendants: list[tuple[int, int]] | None = None
    listed: bool = False
    own: OwnMemory | None = None
    """What was read at this line, and what the tree held: not a key of a file."""
    own_start: OwnMemory | None = None
    own_end: OwnMemory | None = None
    error: str | None = None
    saved: str | None = None
    saved_size: int | None = None
    rt_info: str | None = None
    warning: str | None = None
    python: str | None = None
    failure: str | None = None
    cause: str | None = None
    fatal: bool = False
    lost: int | None = None
    cut: int = 0

    @property
    def reading(self) -> Reading:
        """What the process held when it wrote this line."""
        return Reading(**{name: getattr(self, name) for name in Reading.__struct_fields__})

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
            return self
        if self.event not in {None, BEGIN, END}:
            raise ValueError(f'`event`: "{BEGIN}" or "{END}" expected, found {self.event!r}')
        if not self.name and self.event != END:
            raise ValueError("a `name` of at least one character expected")
        if self.event is not None and (self.op is None or self.pid is None):
            raise ValueError(f"`op` and `pid`, two whole numbers, expected with `event` {self.event!r}")
        start_s = _seconds(start, self.start_s, self.start, self.t_ns)
        if start_s is None:
            expected = "`start_s` (seconds from the start), `start` (ISO 8601 with zone) or `t_ns` (CLOCK_MONOTONIC)"
            raise ValueError(f"{expected} expected")
        end_s = _seconds(start, self.end_s, self.end, self.end_ns)
        if end_s is not None and end_s < start_s:
            raise ValueError(f"it ends before it begins: {start_s:g} s to {end_s:g} s")
        self.start_s, self.end_s = start_s, end_s
        return self


def _seconds(start: Start, seconds: float | None, moment: str | None, t_ns: int | None) -> float | None:
    """Return the first time that is given, in seconds from the start; None when none is. Raises ValueError."""
    if seconds is not None:
        return seconds
    if moment is not None:
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

    Raises NncfToolsError when it is neither JSON, JSON Lines nor CSV.
    """
    for position, entry_of, row in _raw_rows(file, name):
        try:
            entry = entry_of(row)
            intake.check(entry)
            entry = entry.timed(start)
            for key, at_s in (("start_s", entry.start_s), ("end_s", entry.end_s)):
                if at_s is not None:
                    intake.check(at_s, f"$.{key}", key)
            yield Row(position, entry)
        except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
            yield Row(position, None, str(error))


_FROM_JSON = msgspec.json.Decoder(Entry).decode


def _raw_rows(file: BinaryIO, name: str) -> Iterator[tuple[str, Callable[[Any], Entry], Any]]:
    """Yield where each row is, what makes an entry of it, and its raw content."""
    if name.endswith(".csv"):
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
        for number, line in enumerate(file, start=1):
            text = (line if number > 1 else line.removeprefix(UTF_8_MARK)).strip()
            if text:
                yield f"line {number}", _FROM_JSON, text


def _cells(file: BinaryIO, name: str) -> Iterator[tuple[str, Callable[[Any], Entry], Any]]:
    import csv

    text = io.TextIOWrapper(file, "utf-8-sig", errors="replace", newline="")
    try:
        for number, cells in enumerate(csv.DictReader(text), start=2):
            named = {key: cell for key, cell in cells.items() if key and cell}
            yield f"line {number}", lambda row: msgspec.convert(row, Entry, strict=False), named
    except csv.Error as error:
        raise NncfToolsError(f"{name}: not CSV: {error}") from error
