"""``mprof run`` of memory-profiler (0.61): lines that begin with a keyword.

- ``CMDLINE``: the command;
- ``MEM``: MiB and Unix seconds;
- ``CHLD``: PID, MiB and Unix seconds of each child, after the ``MEM`` of the same sample (``--multiprocess``; PID 0:
  some children could not be read);
- ``FUNC``: name, MiB and Unix seconds at the start and at the end, and the call depth.

``FUNC`` lines are written when the program ends, while ``MEM`` lines are buffered, fifty at a time: ``FUNC`` may come
first.
"""

from __future__ import annotations

import heapq
import re
from math import inf
from typing import Any

from nncftools.importers.source import Columns, RowLog, Source, split_command
from nncftools.intake import LARGEST_PID, LATEST_S, is_pid
from nncftools.session.model import Mark
from nncftools.session.nesting import in_order
from nncftools.session.samples import TIME
from nncftools.units import MemoryUnit

_COMMAND = LARGEST_PID
"""The PID of ``MEM``, the command: no kernel gives this PID."""
_MAX_CALLS = 10_000


class Log(RowLog):
    """A row is PID, MiB and Unix seconds."""

    head = re.compile(
        rb".*\n(CMDLINE .|MEM -?[\d.]+ [\d.]+(\n|$)|CHLD \d+ [\d.]+ [\d.]+(\n|$)|FUNC .+( [\d.]+){4}( \d+)?(\n|$))"
    )
    recorder = "mprof"
    columns = ("pid", "rss", TIME)
    unit = MemoryUnit.MiB.factor
    start_s = inf
    first = "command"
    others = (
        r"CMDLINE (?P<command>.*)|"
        r"FUNC \.?(?P<name>.+?) -?\d+\.\d+ (?P<start>\d+\.\d+) -?\d+\.\d+ (?P<end>\d+\.\d+)( (?P<level>\d{1,4}))?"
    )

    def __init__(self, source: Source) -> None:
        """Read nothing yet. Calls may come first, and before the command."""
        super().__init__(source)
        self._calls: list[tuple[float, float, int, str]] = []
        self._unread_children = 0

    def parse(self, texts: list[bytes]) -> Columns:
        """Return ``MEM`` and ``CHLD`` lines as rows."""
        if not all(text.startswith((b"MEM ", b"CHLD ")) for text in texts):
            raise ValueError("a line of CMDLINE, MEM, CHLD or FUNC expected")
        command = b"%d" % _COMMAND
        texts = [text.replace(b"MEM", command) for text in texts]
        return super().parse([text.replace(b"CHLD", b"") for text in texts])

    def take(self, columns: Columns) -> None:
        """Add rows: most logs have no children."""
        if not self.children.tables and {*columns["pid"]} == {_COMMAND}:
            super().take(columns)
            return
        times, sizes = self.table.columns.values()
        for pid, size, time_s in zip(*columns.values(), strict=True):
            if pid == _COMMAND:
                super().take({"rss": [size], TIME: [time_s]})
                if self.children.tables:
                    self.children.extend(None, [time_s], [size])
            elif pid and self.table.taken:
                if not self.children.tables:  # all rows so far are rows of the command
                    self.children.extend(None, times, sizes, self._split_command())
                self.children.extend(int(pid), times[-1:], [size])
                sizes[-1] += size
            else:
                self._unread_children += 1

    def take_other(self, found: dict[str, str]) -> None:
        """Take the command, or a call."""
        if "command" in found:
            super().take_other(found)
            return
        start = float(found["start"])
        duration = float(found["end"]) - start
        level = int(found.get("level", 0))
        heapq.heappush(self._calls, (duration, start, level, found["name"]))
        if len(self._calls) > _MAX_CALLS:
            heapq.heappop(self._calls)

    def known(self) -> dict[str, Any]:
        """Return the command and the calls."""
        warn = self.source.warn
        if self.children.tables:
            warn(
                "RSS is the sum of the command (MEM) and its children (CHLD); if mprof also ran with "
                "--include-children, MEM includes the children already, and they are counted twice"
            )
        if self._unread_children:
            warn(f"children (CHLD) without a PID or a sample (MEM): {self._unread_children:,}; RSS is a lower bound")
        if len(self._calls) == _MAX_CALLS:
            warn(f"at most the {_MAX_CALLS:,} longest calls (FUNC) are kept")
        begin = self.began or 0.0
        marks = []
        duration_s = 0.0
        for duration, start, level, name in self._calls:
            end = start + duration
            if duration >= 0 and begin <= end <= LATEST_S:  # the file may have older calls
                duration_s = max(duration_s, end - begin)
                mark = Mark(
                    name=name,
                    start_s=max(0.0, start - begin),
                    end_s=end - begin,
                    depth=level,
                    source="mprof",
                )
                marks.append(mark)
        command = self._split_command()
        is_attached = len(command) == 1 and is_pid(command[0])
        return {
            "command": [] if is_attached else command,
            "attached_to": int(command[0]) if is_attached else None,
            "marks": in_order(marks),
            "duration_s": duration_s,
        }

    def _split_command(self) -> list[str]:
        """Return the words of the command; ``mprof attach`` writes a list of words."""
        text = self.found.get("command", "").strip()
        if text.startswith("['"):
            return [word.removesuffix(",") for word in split_command(text.strip("[]"))]
        return split_command(text)
