"""The journal: append-only JSON Lines, one ``write`` per tick, readable after any kill.

A line is either a list (a sample: seconds since the start, then one value per column, null for unknown) or an object
with one key that says what it is: ``start``, ``process`` (fields of one process, by ``id``; later lines add to earlier
ones), ``each`` (RSS by ``id`` at the sample of the line before), ``warning`` or ``end``. The first line is the header
that the starter wrote.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.sampler.plan import Plan
    from nncftools.sampler.thinner import Row

NULL = "null"


class Journal:
    """An open journal file that belongs to this sampler for as long as it lives."""

    def __init__(self, path: str) -> None:
        self._lines: list[str] = []
        self._values: Sequence[float | None] = ()
        self._text = ""
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0))
        self._lock()

    def _lock(self) -> None:
        """Hold a lock while recording, so that a reader can tell a running recording from a dead one."""
        try:
            import fcntl
        except ImportError:  # Windows
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # a file system without locks
            return

    def plan(self) -> Plan:
        """Return the plan from the header line."""
        with os.fdopen(os.dup(self._file), "rb") as lines:
            header = json.loads(lines.readline())
        plan: Plan = header["plan"]
        return plan

    def sample(self, row: Row) -> None:
        """Append one sample, with the events since the last one, in one write."""
        time_s, values, each = row
        if values != self._values:  # of processes that sleep, nothing changes
            self._values = values
            self._text = ",".join([NULL if value is None else str(value) for value in values])
        self._lines.append(f"[{time_s:.6f},{self._text}]\n")
        if each:
            self.event("each", each)
        self.flush()

    def event(self, key: str, value: object) -> None:
        """Append one line that is not a sample, with the next ``flush``."""
        self._lines.append(json.dumps({key: value}, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        """Write what was appended. Raises OSError, and then leaves no half line."""
        lines, self._lines = self._lines, []
        data = "".join(lines).encode()
        written = 0
        while written != len(data):
            try:
                written += os.write(self._file, data[written:])
            except OSError:
                os.ftruncate(self._file, os.fstat(self._file).st_size - written)
                raise
