"""The rows of a marks log or sidecar, read from JSON, JSON Lines or CSV."""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING, Any

import msgspec

from nncftools.backports import moment_of
from nncftools.errors import NncfToolsError
from nncftools.session.model import OwnMemory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

    from nncftools.session.model import Start

BEGIN = "begin"
END = "end"
_TIME_EXPECTED = "`start_s` (seconds from the start), `start` (ISO 8601 with zone) or `t_ns` (CLOCK_MONOTONIC) expected"


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
    own_start: OwnMemory | None = None
    own_end: OwnMemory | None = None
    error: str | None = None
    saved: str | None = None
    rt_info: str | None = None
    warning: str | None = None
    python: str | None = None
    failure: str | None = None
    cause: str | None = None
    fatal: bool = False

    @property
    def own_memory(self) -> OwnMemory | None:
        """What the process held when it wrote this line."""
        if self.rss is None and self.high_water_mark is None:
            return None
        return OwnMemory(rss=self.rss, high_water_mark=self.high_water_mark)

    @property
    def is_operation(self) -> bool:
        """Whether this describes an operation, as opposed to a note from the hook."""
        return self.warning is None and self.python is None and self.failure is None

    def timed(self, start: Start) -> Self:
        """Return this with ``start_s`` and ``end_s`` in seconds from the session's start. Raises ValueError."""
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
            raise ValueError(_TIME_EXPECTED)
        end_s = _seconds(start, self.end_s, self.end, self.end_ns)
        if end_s is not None and end_s < start_s:
            raise ValueError(f"it ends before it begins: {start_s:g} s to {end_s:g} s")
        return msgspec.structs.replace(self, start_s=start_s, end_s=end_s)


def _seconds(start: Start, seconds: float | None, moment: str | None, t_ns: int | None) -> float | None:
    """Return the first time that is given, in seconds from the start; None when none is. Raises ValueError."""
    if seconds is not None:
        if not math.isfinite(seconds):
            raise ValueError(f"a number of seconds expected, found {seconds}")
        return seconds
    if moment is not None:
        at = moment_of(moment)
        if at.tzinfo is None:
            raise ValueError(f"a time with its zone expected, as in 2026-11-21T07:00:00+01:00, found {moment!r}")
        if start.utc is None:
            raise ValueError("a time of day cannot be used: the session does not say when it began")
        return (at - moment_of(start.utc)).total_seconds()
    if t_ns is None:
        return None
    if start.monotonic_ns is None:
        raise ValueError("`t_ns` cannot be used: the session does not say when it began on CLOCK_MONOTONIC")
    return (t_ns - start.monotonic_ns) / 1e9


class Row(msgspec.Struct):
    """A row as found; ``entry`` is None when it is invalid, and ``problem`` says why."""

    place: str
    entry: Entry | None
    problem: str = ""


def rows(data: bytes, name: str, start: Start) -> Iterator[Row]:
    """Yield the rows of a marks log or sidecar; a ``name`` that ends in .csv means CSV.

    Raises NncfToolsError when it is neither JSON, JSON Lines nor CSV.
    """
    for place, row in _raw_rows(data, name):
        try:
            yield Row(place, msgspec.convert(row(), Entry, strict=not name.endswith(".csv")).timed(start))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            yield Row(place, None, str(error))


def _raw_rows(data: bytes, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the place of each row, and a function that returns its raw content."""
    if name.endswith(".csv"):
        text = io.StringIO(data.decode("utf-8-sig", errors="replace"), newline="")
        for number, cells in enumerate(csv.DictReader(text), start=2):
            yield f"line {number}", lambda cells=cells: {key: cell for key, cell in cells.items() if key and cell}
    elif data.lstrip()[:1] == b"[":
        try:
            for number, item in enumerate(msgspec.json.decode(data, type=list[Any])):
                yield f"at `$[{number}]`", lambda item=item: item
        except msgspec.DecodeError as error:
            raise NncfToolsError(f"{name}: not a list of marks: {error}") from error
    else:
        for number, line in enumerate(data.splitlines(), start=1):
            if line.strip():
                yield f"line {number}", lambda line=line: msgspec.json.decode(line)
