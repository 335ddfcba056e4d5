"""A recording of this process whose samples can be read while it goes on."""

from __future__ import annotations

import json
import os
import select
import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nncftools.api.recorder import Recorder
from nncftools.marks import line

if TYPE_CHECKING:
    from collections.abc import Iterator

_SOURCE = "pytest"
_NO_MARK = "\n"
"""Whatever is written to the marks log is answered by a sample; an empty line marks nothing."""
_OWN = "the test's own"
_CHUNK = 1 << 16
_LOOK_EVERY_S = 0.001
_NANOSECONDS = 1_000_000_000


@dataclass
class Row:
    """One sample of the process tree."""

    at_ns: int
    """On CLOCK_MONOTONIC."""
    rss: int
    """Of all processes together, in bytes."""
    processes: int
    each: bytes = b""
    """The RSS of every process, as it stands in the journal."""


class Tap(Recorder):
    """Records RSS, of every process too."""

    def __init__(self, interval_s: float) -> None:
        """Plan to take a sample every ``interval_s`` seconds. Raises ValueError unless it is from 1 ms to a year."""
        super().__init__(["rss"], interval_s)
        self._plan = {**self._plan, "per_process": True}
        columns = self._plan["columns"]
        self._places = 1 + columns.index("rss"), 1 + columns.index("processes")
        self._file = -1
        self._offset = 0
        self._start_ns = 0
        self._commands: dict[int, str] = {}
        self.sampler_pid: int | None = None
        self.latest: Row | None = None
        """The last sample that was read."""

    def start(self) -> None:
        """Start; return when the first sample is taken. Raises NncfToolsError."""
        super().start()
        self._file = os.open(self._journal, os.O_RDONLY)
        for _ in self.rows():  # who samples, and since when
            pass

    def drop(self) -> None:
        """End the recording without a session, which takes 0.1 s to read; does nothing when none runs."""
        if self.is_running:
            self._clear()

    def _clear(self) -> None:
        super()._clear()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @property
    def lives(self) -> bool:
        """Whether the sampler still records."""
        return self.is_running and not select.select([self._status], [], [], 0)[0]

    def begin(self, name: str) -> int:
        """Mark the begin of an operation; return its number."""
        number = next(line.operations)
        self._mark(line.begin(number, line.described(name, _SOURCE), time.monotonic_ns()))
        return number

    def end(self, number: int, error: str | None) -> None:
        """Mark its end; ``error`` names an exception."""
        self._mark(line.end(number, time.monotonic_ns(), error))

    def _mark(self, text: str) -> None:
        if self._marks is not None:
            line.append(os.fsencode(self._marks), text)

    def rows_to_now(self, within_s: float) -> Iterator[Row]:
        """Yield the samples that were recorded since the last call, and ask and wait for one of now."""
        at_ns = time.monotonic_ns()
        until_ns = at_ns + round(within_s * _NANOSECONDS)
        yield from self.rows()
        while (self.latest is None or self.latest.at_ns < at_ns) and time.monotonic_ns() < until_ns and self.lives:
            self._mark(_NO_MARK)  # again and again: the sampler rests after each
            time.sleep(_LOOK_EVERY_S)
            yield from self.rows()

    def rows(self) -> Iterator[Row]:
        """Yield the samples that were recorded since the last call."""
        row: Row | None = None
        for text in self._lines():
            if text.startswith(b"["):
                if row is not None:
                    yield row
                row = self._row(text)
                self.latest = row or self.latest
            elif row is not None and text.startswith(b'{"each":'):
                row.each = text
            elif text.startswith((b'{"process":', b'{"start":')):
                self._learn(**json.loads(text))
        if row is not None:
            yield row

    def largest_process(self, row: Row) -> tuple[str, int] | None:
        """Return command and RSS of the largest process of a sample, None when they are unknown."""
        each: dict[str, int] = json.loads(row.each)["each"] if row.each else {}
        number = max(each, key=each.__getitem__, default=None)
        if number is None:
            return None
        return (_OWN if int(number) == 0 else self._commands.get(int(number), "")), each[number]

    def _lines(self) -> Iterator[bytes]:
        """Yield the whole lines that were appended; a piece at a time, for this is the process that is measured."""
        while self._file >= 0 and (data := os.pread(self._file, _CHUNK, self._offset)):
            end = data.rfind(b"\n") + 1
            if not end and len(data) < _CHUNK:
                return
            self._offset += end or len(data)  # a line that is longer than a piece is left out
            yield from data[:end].splitlines()

    def _row(self, text: bytes) -> Row | None:
        """Return a sample, None where its RSS is unknown."""
        values = json.loads(text)
        rss, processes = (values[place] for place in self._places)
        return None if rss is None else Row(self._start_ns + round(values[0] * _NANOSECONDS), rss, processes or 0)

    def _learn(self, start: dict[str, Any] | None = None, process: dict[str, Any] | None = None) -> None:
        if start is not None:
            self._start_ns, self.sampler_pid = start["monotonic_ns"], start["sampler_pid"]
        if process is not None and process.get("command"):
            self._commands[process["id"]] = shlex.join(process["command"])
