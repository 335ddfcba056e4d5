"""``mprof run`` of memory-profiler (0.61): lines that begin with a keyword.

- ``CMDLINE``: the command;
- ``MEM``: MiB and Unix seconds;
- ``CHLD``: PID, MiB and Unix seconds of each child, after the ``MEM`` of the same sample (``--multiprocess``; PID 0:
  some children could not be read);
- ``FUNC``: name, MiB and Unix seconds at its start and at its end, and its call depth.

``FUNC`` lines are written when the program ends, while ``MEM`` lines are buffered, fifty at a time: ``FUNC`` may come
first.
"""

from __future__ import annotations

import ast
import heapq
import re
from collections.abc import Sequence
from typing import Any

from nncftools.importers.source import Head, Source
from nncftools.importers.table import Children, RowLog, words
from nncftools.intake import LARGEST_PID, LATEST_S, is_pid
from nncftools.session.model import Mark
from nncftools.session.samples import TIME
from nncftools.session.session import Session
from nncftools.units import MemoryUnit

_WORDS = (b"MEM ", b"CHLD ")
_OF_COMMAND = -1.0
_LINE = re.compile(rb"CMDLINE .|MEM -?[\d.]+ [\d.]+$|CHLD \d+ [\d.]+ [\d.]+$|FUNC .+( [\d.]+){4}( \d+)?$")
_FUNCTION = re.compile(
    r"FUNC (?P<name>.+?) -?\d+\.\d+ (?P<start>\d+\.\d+) -?\d+\.\d+ (?P<end>\d+\.\d+)(?: (?P<level>\d{1,4}))?"
)
_MAX_CALLS = 10_000
_LONGEST_LIST = 1 << 16
"""A longer one is text: of 400 KB, a list takes 240 MB while it is parsed."""


def recognises(head: Head) -> bool:
    """Return whether the first line is one of mprof's."""
    return _LINE.match(head.line(0)) is not None


def read(source: Source) -> Session:
    """Return the session of the log; memory is assumed to be RSS, mprof's default. Raises SessionFileError."""
    return _Log(source).read()


class _Log(RowLog):
    """A row is PID, MiB and Unix seconds; PID -1 stands for a ``MEM`` line, the command itself."""

    recorder = "mprof"
    unit = MemoryUnit.MiB.factor
    lowest = _OF_COMMAND

    def __init__(self, source: Source) -> None:
        super().__init__(source, ("pid", "rss", TIME))
        self._command: str | None = None
        self._calls: list[tuple[float, float, str, int]] = []
        self._calls_left_out = 0

    def reset(self) -> None:
        super().reset()
        self._children = Children()
        self._sample: tuple[float, float] | None = None
        """Time and value of the last ``MEM``; its children may follow."""
        self._children_mib = 0.0
        self._children_exceeded_mem = False
        self._unread_children = 0

    def numbers_of(self, text: bytes) -> bytes:
        lines = text.count(b"\n") + (not text.endswith(b"\n"))
        rows = text.startswith(_WORDS) + sum(text.count(b"\n" + word) for word in _WORDS)
        if rows != lines or b"-" in text:
            raise ValueError("a line of CMDLINE, MEM, CHLD or FUNC, and numbers from 0 on, expected")
        return text.replace(b"MEM ", b"-1 ").replace(b"CHLD ", b"")

    def take(self, columns: dict[str, list[float]]) -> None:
        pids, memory, times = columns.values()
        if pids.count(_OF_COMMAND) < len(pids) or self._children:
            self._take_each(pids, memory, times)
            return
        self._end_sample()
        self._sample = times.pop(), memory.pop()
        super().take(columns)

    def _take_each(self, pids: Sequence[float], memory: Sequence[float], times: Sequence[float]) -> None:
        for pid, value, time in zip(pids, memory, times, strict=True):
            if pid == _OF_COMMAND:
                self._end_sample()
                self._sample = time, value
            elif self._sample is None:
                self._source.problems.warn("children (CHLD) before the first sample (MEM) were left out")
            elif pid == 0:
                self._unread_children += 1
            elif pid > LARGEST_PID:
                self._source.problems.warn("children (CHLD) with impossible PIDs were left out")
            else:
                if not self._children:
                    self._take_command_alone()
                self._children.take(int(pid), self._sample[0], value)
                self._children_mib += value

    def _take_command_alone(self) -> None:
        """Use the samples before the first child as those of the first process, the command."""
        command, _ = _command(self._command or "")
        before = self.table.columns()
        for sample in zip(before[TIME], before["rss"], strict=True):
            self._children.take(None, *sample, command)
        if self._sample is not None and not self._children:
            self._children.take(None, *self._sample, command)

    def _end_sample(self) -> None:
        """Add the last ``MEM`` with the children that followed it."""
        if self._sample is None:
            return
        time, memory = self._sample
        self.table.append((time, memory + self._children_mib))
        if self._children:
            self._children.take(None, time, memory)
        self._children_exceeded_mem |= self._children_mib > memory
        self._children_mib = 0.0
        self._sample = None

    def take_line(self, number: int, line: bytes, /) -> bool:
        text = line.decode("utf-8", "backslashreplace")
        if text.startswith("CMDLINE "):
            if self._command is not None:
                self._end_sample()
                self.begin_again(number)
            self._command = text.removeprefix("CMDLINE ").strip()
            return True
        match = _FUNCTION.fullmatch(text)
        if match is None:
            return False
        start, end = float(match["start"]), float(match["end"])
        if not start <= end <= LATEST_S:
            return False
        call = (end - start, start, match["name"].removeprefix("."), int(match["level"] or 0))
        if len(self._calls) < _MAX_CALLS:
            heapq.heappush(self._calls, call)
        else:
            heapq.heappushpop(self._calls, call)
            self._calls_left_out += 1
        return True

    def known(self) -> dict[str, Any]:
        self._end_sample()
        self._warn()
        command, attached_to = _command(self._command or "")
        begin = self.begin_s or 0.0
        self.began = self.begin_s
        marks = [  # those of this recording, sorted by start; the file may hold older ones
            Mark(name=name, start_s=max(0.0, start - begin), end_s=start + lasted - begin, depth=level, source="mprof")
            for lasted, start, name, level in sorted(self._calls, key=lambda call: (call[1], call[3]))
            if start + lasted >= begin
        ]
        return {
            "zero": begin,
            "command": command,
            "attached_to": attached_to,
            "processes": self._children.processes(self.table.last_s, unit=self.unit, zero=begin),
            "marks": marks,
            "duration_s": max([self.table.last_s - begin, *(mark.end_s or 0.0 for mark in marks)]),
        }

    def _warn(self) -> None:
        warn = self._source.problems.warn
        if self._children and not self._children_exceeded_mem:
            twice = "if mprof also ran with --include-children, MEM includes the children already"
            warn(f"RSS is the sum of the command (MEM) and its children (CHLD); {twice}, and they are counted twice")
        if self._unread_children:
            warn(f"mprof could not read all children (CHLD 0) {self._unread_children:,} times: RSS is a lower bound")
        self._children.warn(self._source.problems)
        if self._calls_left_out:
            warn(f"only the {_MAX_CALLS:,} longest calls (FUNC) are kept, {self._calls_left_out:,} were left out")


def _command(text: str) -> tuple[list[str], int | None]:
    """Return the command, and the PID when only that is known."""
    if is_pid(text):
        return [], int(text)
    if text.startswith("[") and len(text) <= _LONGEST_LIST:  # attached by name
        try:
            listed = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            listed = None
        if isinstance(listed, list) and all(isinstance(word, str) for word in listed):
            return listed, None
    return words(text), None
