"""``mprof run`` of memory-profiler (0.61): lines that begin with a word.

``CMDLINE`` command; ``MEM`` MiB and Unix seconds; ``CHLD`` PID, MiB and Unix seconds of each child, after the ``MEM``
of the same sample (``--multiprocess``; PID 0: some of the children could not be read); ``FUNC`` name, MiB and Unix
seconds at its begin and at its end, and how deep it was called. ``FUNC`` lines are written when the program ends, while
``MEM`` lines wait for fifty of their kind: they may come first.
"""

from __future__ import annotations

import ast
import heapq
import re
from typing import TYPE_CHECKING

from nncftools.importers.children import Children, words
from nncftools.importers.merged import Table
from nncftools.importers.row_log import LATEST_S, RowLog
from nncftools.importers.session import session_of
from nncftools.session.model import Mark
from nncftools.session.samples import TIME
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.importers.source import Head, Source
    from nncftools.session.session import Session

_WORDS = (b"MEM ", b"CHLD ")
_OF_COMMAND = -1.0
_LINE = re.compile(rb"CMDLINE .|MEM -?[\d.]+ [\d.]+$|CHLD \d+ [\d.]+ [\d.]+$|FUNC .+( [\d.]+){4}( \d+)?$")
_FUNCTION = re.compile(
    r"FUNC (?P<name>.+?) -?\d+\.\d+ (?P<start>\d+\.\d+) -?\d+\.\d+ (?P<end>\d+\.\d+)(?: (?P<level>\d{1,4}))?"
)
_MOST_CALLS = 10_000
_LONGEST_PID = 18


def recognises(head: Head) -> bool:
    """Return whether the first line is one of mprof's."""
    return _LINE.match(head.line(0)) is not None


def read(source: Source) -> Session:
    """Return what the log holds; its memory is taken for RSS, mprof's default. Raises SessionFileError."""
    log = _Log(source)
    log.read()
    return log.session()


class _Log(RowLog):
    """A row is a PID, MiB and Unix seconds; the PID is -1 where the line is ``MEM``, of the command itself."""

    time_at = 2
    lowest = _OF_COMMAND

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.width = 3
        self._command: str | None = None
        self._calls: list[tuple[float, float, str, int]] = []
        self._calls_left_out = 0
        self.forget()

    def forget(self) -> None:
        self._table = Table(["rss"])
        self._children = Children()
        self._sample: tuple[float, float] | None = None
        """The last ``MEM``, its time first; children may follow."""
        self._of_children = 0.0
        self._held_more_than_all = False
        self._not_all = 0

    def numbers_of(self, text: bytes) -> bytes:
        lines = text.count(b"\n") + (not text.endswith(b"\n"))
        rows = text.startswith(_WORDS) + sum(text.count(b"\n" + word) for word in _WORDS)
        if rows != lines or b"-" in text:
            raise ValueError("a line of CMDLINE, MEM, CHLD or FUNC, and numbers from 0 on, expected")
        return text.replace(b"MEM ", b"-1 ").replace(b"CHLD ", b"")

    def take(self, columns: Sequence[list[float]]) -> None:
        pids, memory, times = columns
        if pids.count(_OF_COMMAND) < len(pids) or self._children:
            self._take_each(pids, memory, times)
            return
        self._end_sample()
        self._sample = times.pop(), memory.pop()
        self._table.extend({TIME: times, "rss": memory})

    def _take_each(self, pids: Sequence[float], memory: Sequence[float], times: Sequence[float]) -> None:
        for pid, value, time in zip(pids, memory, times, strict=True):
            if pid == _OF_COMMAND:
                self._end_sample()
                self._sample = time, value
            elif self._sample is None:
                self._source.problems.say("children (CHLD) before the first sample (MEM) were left out")
            elif pid == 0:
                self._not_all += 1
            else:
                if not self._children:
                    self._take_command_alone()
                self._children.take(int(pid), self._sample[0], value)
                self._of_children += value

    def _take_command_alone(self) -> None:
        """Take the samples before the first child as those of the first process, the command."""
        command, _ = _command(self._command or "")
        before = self._table.columns()
        for sample in zip(before[TIME], before["rss"], strict=True):
            self._children.take(None, *sample, command)
        if self._sample is not None and not self._children:
            self._children.take(None, *self._sample, command)

    def _end_sample(self) -> None:
        """Take the last ``MEM`` with the children that followed it."""
        if self._sample is None:
            return
        time, memory = self._sample
        self._table.append((time, memory + self._of_children))
        if self._children:
            self._children.take(None, time, memory)
        self._held_more_than_all |= self._of_children > memory
        self._of_children = 0.0
        self._sample = None

    def take_line(self, number: int, line: bytes, /) -> bool:
        text = line.decode("utf-8", "backslashreplace")
        if text.startswith("CMDLINE "):
            if self._command is not None:
                self._end_sample()
                self.begin_again(number)
            self._command = text.removeprefix("CMDLINE ").strip()
            return True
        return self._take_call(text)

    def _take_call(self, text: str) -> bool:
        found = _FUNCTION.fullmatch(text)
        if found is None:
            return False
        start, end = float(found["start"]), float(found["end"])
        if not start <= end <= LATEST_S:
            return False
        call = (end - start, start, found["name"].removeprefix("."), int(found["level"] or 0))
        if len(self._calls) < _MOST_CALLS:
            heapq.heappush(self._calls, call)
        else:
            heapq.heappushpop(self._calls, call)
            self._calls_left_out += 1
        return True

    def session(self) -> Session:
        self._end_sample()
        self._tell()
        command, attached_to = _command(self._command or "")
        begin = self.begin_s or 0.0
        marks = self._marks(begin)
        return session_of(
            self._source,
            "mprof",
            self._table,
            unit=MemoryUnit.MiB.factor,
            zero=begin,
            began=self.begin_s,
            command=command,
            attached_to=attached_to,
            processes=self._children.processes(self._table.last_s, unit=MemoryUnit.MiB.factor, zero=begin),
            marks=marks,
            duration_s=max([self._table.last_s - begin, *(mark.end_s or 0.0 for mark in marks)]),
        )

    def _marks(self, begin: float) -> list[Mark]:
        """Return the calls of the recording, in the order of their starts; there may be older ones in the file."""
        return [
            Mark(
                name=name,
                start_s=max(0.0, start - begin),
                end_s=start + lasted - begin,
                depth=level,
                source="mprof",
            )
            for lasted, start, name, level in sorted(self._calls, key=lambda call: (call[1], call[3]))
            if start + lasted >= begin
        ]

    def _tell(self) -> None:
        say = self._source.problems.say
        if self._children and not self._held_more_than_all:
            say(
                "RSS is the sum of the command (MEM) and its children (CHLD); if mprof ran with --include-children as "
                "well, MEM held the children already, and they count twice"
            )
        if self._not_all:
            say(f"mprof could not read all children (CHLD 0) {self._not_all:,} times: RSS is at least what it says")
        self._children.tell(self._source.problems)
        if self._calls_left_out:
            say(f"of the calls (FUNC) the {_MOST_CALLS:,} longest are told, {self._calls_left_out:,} are left out")


def _command(text: str) -> tuple[list[str], int | None]:
    """Return the command, and the PID if that is all that is known of it."""
    if text.isdecimal() and len(text) <= _LONGEST_PID:
        return [], int(text)
    if text.startswith("["):  # attached by name
        try:
            listed = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            listed = None
        if isinstance(listed, list) and all(isinstance(word, str) for word in listed):
            return listed, None
    return words(text), None
