"""A recording of this process whose samples can be read while it runs."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from nncftools.api.recorder import Recorder
from nncftools.journal import reading
from nncftools.marks import line
from nncftools.session.recording import Recording


@dataclass
class Row:
    """One sample of the process tree."""

    at_ns: int
    """On CLOCK_MONOTONIC."""
    rss: int
    """Of all processes together, in bytes."""
    processes: int
    each: dict[int, int] = field(default_factory=dict)
    """RSS by process ID within the recording."""


class LiveReader(Recorder):
    """Records RSS, in total and per process."""

    def __init__(self, interval_s: float) -> None:
        """Prepare to sample every ``interval_s`` seconds. Raises ValueError unless it is from 1 ms to a year."""
        super().__init__(["rss"], interval_s)
        self._plan.per_process = True
        columns = self._plan.columns
        self._places = 1 + columns.index("rss"), 1 + columns.index("processes")
        self._file: BinaryIO | None = None
        self._recording: Recording | None = None
        self._commands: dict[int, str] = {}
        self.latest: Row | None = None
        """The last sample read."""

    def start(self) -> None:
        """Start, and return after the first sample. Raises NncfToolsError."""
        super().start()
        self._file = reading.reader(self._journal)
        self._recording = Recording(self._file, str(self._journal))
        for _ in self.rows():  # reads the start line: the sampler's PID and the start time
            pass

    def drop(self) -> None:
        """End the recording without reading the session (0.1 s); does nothing if none is running."""
        if self.is_running:
            self._clear()

    def _clear(self) -> None:
        super()._clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def sampler_pid(self) -> int | None:
        """The sampler's PID; None for unknown."""
        start = None if self._recording is None else self._recording.start
        return None if start is None else start.get("sampler_pid")

    @property
    def is_alive(self) -> bool:
        """Whether the sampler is still recording."""
        return self.is_running and self._sampler is not None and not self._sampler.has_news(0)

    def begin(self, name: str) -> int:
        """Mark the start of an operation; return its number."""
        number = next(line.operations)
        self._mark(line.begin(number, line.common_members(name, "pytest"), time.monotonic_ns()))
        return number

    def end(self, number: int, error: str | None) -> None:
        """Mark the end of an operation; ``error`` names an exception."""
        self._mark(line.end(number, time.monotonic_ns(), error))

    def _mark(self, text: str) -> None:
        if self._marks is not None:
            line.append(os.fsencode(self._marks), text)

    def rows_to_now(self, within_s: float) -> Iterator[Row]:
        """Yield the samples since the last call, then request a current one and wait up to ``within_s`` for it."""
        at_ns = time.monotonic_ns()
        until_ns = at_ns + round(within_s * 1e9)
        yield from self.rows()
        while (self.latest is None or self.latest.at_ns < at_ns) and time.monotonic_ns() < until_ns and self.is_alive:
            self._mark("\n")  # any write triggers a sample; repeatedly, because the sampler pauses after each
            time.sleep(0.001)
            yield from self.rows()

    def rows(self) -> Iterator[Row]:
        """Yield the samples since the last call."""
        if self._file is None or self._recording is None:
            return
        for chunk in self._recording.read():
            for text in chunk.lines:
                if command := text.get("process", {}).get("command"):
                    self._commands[text["process"]["id"]] = shlex.join(command)
            start_ns = 0 if self._recording.start is None else self._recording.start["monotonic_ns"]
            each = dict(chunk.each)
            for sample in chunk.samples:
                rss, processes = (sample[place] for place in self._places)
                if rss is not None:
                    time_s = sample[0] or 0.0
                    at_ns = start_ns + round(time_s * 1e9)
                    self.latest = Row(at_ns, int(rss), int(processes or 0), each.get(time_s, {}))
                    yield self.latest

    def largest_process(self, row: Row) -> tuple[str, int] | None:
        """Return command and RSS of the largest process in a sample; None if unknown."""
        number = max(row.each, key=row.each.__getitem__, default=None)
        if number is None:
            return None
        return ("the test's own" if number == 0 else self._commands.get(number, "")), row.each[number]
