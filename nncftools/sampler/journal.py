"""The journal: append-only JSON Lines, one ``write`` per line, readable after any kill.

A line is either a list (a sample: seconds since the start, then one value per column, null for unknown) or an object
with one key that says what it is: ``start``, ``process`` (fields of one process, by ``id``; later lines add to earlier
ones), ``warning`` or ``end``. The first line is the header that the starter wrote.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.sampler.plan import Plan

NULL = "null"


class Journal:
    """An open journal file that belongs to this sampler for as long as it lives."""

    def __init__(self, path: str) -> None:
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

    def sample(self, time_s: float, values: Sequence[float | None]) -> None:
        """Append one sample line."""
        texts = [NULL if value is None else str(value) for value in values]
        self._append(f"[{time_s:.6f},{','.join(texts)}]\n".encode())

    def event(self, key: str, value: object) -> None:
        """Append one line that is not a sample."""
        self._append(json.dumps({key: value}, separators=(",", ":")).encode() + b"\n")

    def _append(self, line: bytes) -> None:
        written = os.write(self._file, line)
        while written != len(line):
            try:
                written += os.write(self._file, line[written:])
            except OSError:
                os.ftruncate(self._file, os.fstat(self._file).st_size - written)
                raise
