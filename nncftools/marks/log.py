"""Marks of one program, collected while it runs."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nncftools.session.model import Mark

_NANOSECONDS = 1e9


class _Entry:
    """A mark on CLOCK_MONOTONIC, as samples are."""

    __slots__ = ("depth", "end_ns", "name", "start_ns", "thread")

    def __init__(self, name: str, depth: int) -> None:
        self.name = name
        self.depth = depth
        self.thread = threading.get_ident()
        self.start_ns = time.monotonic_ns()
        self.end_ns: int | None = None


class MarkLog:
    """Operations in the order of their starts; each thread nests its own."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._open = threading.local()

    def mark(self, name: str) -> None:
        """Begin an operation that the next mark on its level ends, or the end of what it is inside of."""
        entry = _Entry(name, self._depth)
        for before in reversed(self._entries):
            if before.thread == entry.thread and before.depth == entry.depth:
                before.end_ns = before.end_ns or entry.start_ns
                break
        self._entries.append(entry)

    @contextlib.contextmanager
    def operation(self, name: str) -> Iterator[None]:
        """Name what is done in a ``with`` block; exceptions pass through, and end it."""
        entry = _Entry(name, self._depth)
        self._entries.append(entry)
        self._open.depth = entry.depth + 1
        try:
            yield
        finally:
            self._open.depth = entry.depth
            entry.end_ns = time.monotonic_ns()
            self._end_inside(entry)

    def _end_inside(self, outer: _Entry) -> None:
        for entry in reversed(self._entries):
            if entry is outer:
                return
            if entry.thread == outer.thread and entry.end_ns is None:
                entry.end_ns = outer.end_ns

    @property
    def _depth(self) -> int:
        depth: int = getattr(self._open, "depth", 0)
        return depth

    def marks(self, zero_ns: int) -> list[Mark]:
        """Return the marks, in seconds since ``zero_ns`` on CLOCK_MONOTONIC."""
        from nncftools.session.model import Mark

        return [
            Mark(
                name=entry.name,
                start_s=max(0.0, (entry.start_ns - zero_ns) / _NANOSECONDS),
                end_s=None if entry.end_ns is None else (entry.end_ns - zero_ns) / _NANOSECONDS,
                depth=entry.depth,
                pid=os.getpid(),
                source="api",
            )
            for entry in self._entries
        ]
