"""A recording of this process whose samples can be read while it runs."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from nncftools.api.recorder import Recorder
from nncftools.journal import reading
from nncftools.journal.lines import Line
from nncftools.journal.reading import Tail
from nncftools.marks import line
from nncftools.redaction import Redaction

_NO_MARK = "\n"
"""Any write to the marks log triggers a sample; an empty line is no mark."""
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
    each: dict[int, int] = field(default_factory=dict)
    """RSS by process ID within the recording."""


class Tap(Recorder):
    """Records RSS, in total and per process."""

    def __init__(self, interval_s: float) -> None:
        """Prepare to sample every ``interval_s`` seconds. Raises ValueError unless it is from 1 ms to a year."""
        super().__init__(["rss"], interval_s)
        self._plan.per_process = True
        columns = self._plan.columns
        self._places = 1 + columns.index("rss"), 1 + columns.index("processes")
        self._tail: Tail | None = None
        self._start_ns = 0
        self._commands: dict[int, str] = {}
        self._redaction = Redaction()
        self.sampler_pid: int | None = None
        self.latest: Row | None = None
        """The last sample read."""

    def start(self) -> None:
        """Start, and return after the first sample. Raises NncfToolsError."""
        super().start()
        self._tail = Tail(reading.reader(self._journal), str(self._journal))
        for _ in self.rows():  # reads the start line: the sampler's PID and the start time
            pass

    def drop(self) -> None:
        """End the recording without reading the session (0.1 s); does nothing if none is running."""
        if self.is_running:
            self._clear()

    def _clear(self) -> None:
        super()._clear()
        if self._tail is not None:
            self._tail.file.close()
            self._tail = None

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
        until_ns = at_ns + round(within_s * _NANOSECONDS)
        yield from self.rows()
        while (self.latest is None or self.latest.at_ns < at_ns) and time.monotonic_ns() < until_ns and self.is_alive:
            self._mark(_NO_MARK)  # repeatedly, because the sampler pauses after each
            time.sleep(_LOOK_EVERY_S)
            yield from self.rows()

    def rows(self) -> Iterator[Row]:
        """Yield the samples since the last call."""
        if self._tail is None:
            return
        for chunk in self._tail.read():
            for text in chunk.lines:
                self._learn(text)
            each = dict(chunk.each)
            for sample in chunk.samples:
                row = self._row(sample, each)
                if row is not None:
                    self.latest = row
                    yield row

    def largest_process(self, row: Row) -> tuple[str, int] | None:
        """Return command and RSS of the largest process in a sample; None if unknown."""
        number = max(row.each, key=row.each.__getitem__, default=None)
        if number is None:
            return None
        return ("the test's own" if number == 0 else self._commands.get(number, "")), row.each[number]

    def _row(self, sample: Sequence[float | None], each: dict[float, dict[int, int]]) -> Row | None:
        """Return a sample; None if its RSS is unknown."""
        rss, processes = (sample[place] for place in self._places)
        time_s = sample[0] or 0.0
        if rss is None:
            return None
        at_ns = self._start_ns + round(time_s * _NANOSECONDS)
        return Row(at_ns, int(rss), int(processes or 0), each.get(time_s, {}))

    def _learn(self, found: Line) -> None:
        if "start" in found:
            self._start_ns, self.sampler_pid = found["start"]["monotonic_ns"], found["start"].get("sampler_pid")
        if found.get("process", {}).get("command"):
            process = found["process"]
            self._commands[process["id"]] = shlex.join(self._redaction.words(process["command"]))
