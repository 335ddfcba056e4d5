"""Where the program stood when memory last grew, from the log of the helper process while it is written.

The helper looks at a process only when it has grown. So the last look is that of the process that grew last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nncftools.analysis.frames import most_telling
from nncftools.journal.lines import SnapshotLine
from nncftools.session.model import Frame

if TYPE_CHECKING:
    from nncftools.journal.lines import Look
    from nncftools.redaction import Redaction

_FRAME, _STACK, _LOOK = b'{"frame"', b'{"stack"', b'{"look"'
_MOST = 50_000
"""Frames, stacks and processes; with more, the view names no new code: so many take some 30 MiB."""
_WRONG = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LookupError, TypeError, ValueError)


class Growth(NamedTuple):
    """The frame that tells most about where a process grew."""

    frame: Frame
    at_ns: int
    """When it was seen, in CLOCK_MONOTONIC."""


class GrowthLog:
    """Takes the lines of the log in their order."""

    def __init__(self, redaction: Redaction) -> None:
        """Hide secrets in file names."""
        self._redaction = redaction
        self._frames: list[Frame] = []
        self._stacks: list[list[int]] = []
        self._stood: dict[int, dict[int, int]] = {}
        """By process and thread: the stack at the last look."""
        self._is_lost = False
        self.last: Growth | None = None
        """None until growth was seen."""

    def take(self, data: bytes) -> None:
        """Take complete lines; after a damaged frame or stack, nothing more is taken."""
        for text in data.split(b"\n"):
            if self._is_lost or not text.startswith((_FRAME, _STACK, _LOOK)):
                continue
            try:
                self._take(msgspec.json.decode(text, type=SnapshotLine))
            except _WRONG:
                self._is_lost = not text.startswith(_LOOK)

    def _take(self, line: SnapshotLine) -> None:
        if "frame" in line:
            _, function, file, number = line["frame"]
            self._frames.append(Frame(function, self._redaction.text(file), number))
        elif "stack" in line:
            self._stacks.append(line["stack"][1])
        elif "look" in line:
            self._take_look(line["look"])
        self._is_lost = max(len(self._frames), len(self._stacks), len(self._stood)) > _MOST

    def _take_look(self, line: Look) -> None:
        stood = self._stood.setdefault(line["process"], {})
        before = dict(stood)
        for thread, stack in line["stacks"].items():
            if stack is None:
                stood.pop(thread, None)
            else:
                stood[thread] = stack
        faults = line["faults"]
        busiest = max(stood, key=lambda one: faults.get(one, 0), default=None)
        if busiest is None or (len(stood) > 1 and not faults.get(busiest)):
            return
        stack = stood[busiest]
        if self._has_returned(before.get(busiest), stack):
            stack = before[busiest]
        frame = most_telling([self._frames[place] for place in self._stacks[stack]])
        if frame is not None and (self.last is None or line["t_ns"] >= self.last.at_ns):
            self.last = Growth(frame, line["t_ns"])

    def _has_returned(self, before: int | None, now: int) -> bool:
        """Return whether the functions of a stack had called others in the one before: those made memory grow."""
        if before is None:
            return False
        called, left = ([self._frames[place].code for place in self._stacks[stack]] for stack in (before, now))
        return called[: len(left)] == left
