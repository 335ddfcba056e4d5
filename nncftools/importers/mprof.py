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
from typing import Any

from nncftools.importers.source import Head, Source
from nncftools.importers.table import Children, RowLog, words
from nncftools.intake import LARGEST_PID, LATEST_S, is_pid
from nncftools.session.model import Mark
from nncftools.session.samples import TIME
from nncftools.session.session import Session
from nncftools.units import MemoryUnit

_HEAD = re.compile(
    rb"(CMDLINE .|MEM -?[\d.]+ [\d.]+(\n|$)|CHLD \d+ [\d.]+ [\d.]+(\n|$)|FUNC .+( [\d.]+){4}( \d+)?(\n|$))"
)
_COMMAND = b"%d" % LARGEST_PID
"""The PID of ``MEM``, the command itself: no kernel gives it."""
_MAX_CALLS = 10_000
_LONGEST_LIST = 1 << 16
"""A longer one is text: of 400 KB, a list takes 240 MB while it is parsed."""


def recognises(head: Head) -> bool:
    """Return whether the first line is one of mprof's."""
    return _HEAD.match(head.text) is not None


def read(source: Source) -> Session:
    """Return the session of the log; memory is assumed to be RSS, mprof's default. Raises SessionFileError."""
    return _Log(source).read()


class _Log(RowLog):
    """A row is PID, MiB and Unix seconds."""

    recorder = "mprof"
    unit = MemoryUnit.MiB.factor
    is_unix = True
    others = (
        r"CMDLINE (?P<command>.*)|"
        r"FUNC \.?(?P<name>.+?) -?\d+\.\d+ (?P<start>\d+\.\d+) -?\d+\.\d+ (?P<end>\d+\.\d+)( (?P<level>\d{1,4}))?"
    )

    def __init__(self, source: Source) -> None:
        super().__init__(source, ("pid", "rss", TIME))
        self._command: list[str] = []
        self._calls: list[tuple[float, float, int, str]] = []
        self._calls_left_out = 0

    def reset(self) -> None:
        super().reset()
        self._children = Children()
        self._sample: tuple[float, float] | None = None
        """Time and value of the last ``MEM``; its children may follow."""
        self._has_children = False
        self._children_mib = 0.0
        self._children_exceeded_mem = False
        self._unread_children = 0

    def parse(self, text: bytes) -> dict[str, Any]:
        if not text.startswith((b"MEM ", b"CHLD ")) or b"-" in text:
            raise ValueError("a line of CMDLINE, MEM, CHLD or FUNC, and numbers from 0 on, expected")
        return super().parse(text.replace(b"MEM", _COMMAND).removeprefix(b"CHLD "))

    def take(self, row: dict[str, Any]) -> None:
        pid, size, time_s = row.values()
        if pid == int(_COMMAND):
            self._end_sample()
            self._sample = time_s, size
            if self._has_children:
                self._children.take(None, time_s, size)
        elif self._sample is None:
            self.source.problems.warn("children (CHLD) before the first sample (MEM) were left out")
        elif pid == 0:
            self._unread_children += 1
        else:
            if not self._has_children:  # so far, the samples are those of the command
                before = self.table.columns()
                for sample_s, rss in (*zip(before[TIME], before["rss"], strict=True), self._sample):
                    self._children.take(None, sample_s, rss, self._command)
            self._has_children = True
            self._children.take(int(pid), self._sample[0], size)
            self._children_mib += size

    def _end_sample(self) -> None:
        """Add the last ``MEM`` with the children that followed it."""
        if self._sample is not None:
            time_s, size = self._sample
            self.table.append((time_s, size + self._children_mib))
            self._children_exceeded_mem |= self._children_mib > size
            self._children_mib = 0.0

    def take_other(self, found: dict[str, str], number: int) -> None:
        if "command" in found:
            if "command" in self.found:
                self.begin_again(number)
            self.found.update(found)
            self._command = _words(found["command"].strip())
            return
        start, end = float(found["start"]), float(found["end"])
        heapq.heappush(self._calls, (end - start, start, int(found.get("level", 0)), found["name"]))
        if len(self._calls) > _MAX_CALLS:
            heapq.heappop(self._calls)
            self._calls_left_out += 1

    def known(self) -> dict[str, Any]:
        self._end_sample()
        begin = self.began or 0.0
        self._warn()
        marks = [  # those of this recording, sorted by start; the file may hold older ones
            Mark(name=name, start_s=max(0.0, start - begin), end_s=start + lasted - begin, depth=level, source="mprof")
            for lasted, start, level, name in sorted(self._calls, key=lambda call: call[1:3])
            if lasted >= 0 and begin <= start + lasted <= LATEST_S
        ]
        pid = self.found.get("command", "").strip()
        return {
            "command": [] if is_pid(pid) else self._command,
            "attached_to": int(pid) if is_pid(pid) else None,
            "processes": self._children.processes(self.table.last_s, self.unit),
            "marks": marks,
            "duration_s": max([self.table.last_s, *(mark.end_s or 0.0 for mark in marks)]),
        }

    def _warn(self) -> None:
        warn = self.source.problems.warn
        if self._has_children and not self._children_exceeded_mem:
            twice = "if mprof also ran with --include-children, MEM includes the children already"
            warn(f"RSS is the sum of the command (MEM) and its children (CHLD); {twice}, and they are counted twice")
        if self._unread_children:
            warn(f"mprof could not read all children (CHLD 0) {self._unread_children:,} times: RSS is a lower bound")
        self._children.warn(self.source.problems)
        if self._calls_left_out:
            warn(f"only the {_MAX_CALLS:,} longest calls (FUNC) are kept, {self._calls_left_out:,} were left out")


def _words(text: str) -> list[str]:
    """Return the words of a command; ``mprof attach`` writes a list of them."""
    if text.startswith("[") and len(text) <= _LONGEST_LIST:
        try:
            listed = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            listed = None
        if isinstance(listed, list) and all(isinstance(word, str) for word in listed):
            return listed
    return words(text)
