"""Reads a journal, and the log of marks beside it, while others append to them; nothing is parsed twice."""

from __future__ import annotations

import contextlib
import os
import shlex
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from nncftools.errors import SessionFileError
from nncftools.live.operations import Noted
from nncftools.live.run import Facts, Run
from nncftools.marks.entries import rows as entries_of
from nncftools.marks.sidecars import MARKS_ENDING
from nncftools.render.view import printable
from nncftools.session.header import FORMAT
from nncftools.session.model import Exit, Host, Start

if TYPE_CHECKING:
    import pathlib

    from numpy.typing import NDArray

JOURNAL_ENDING = ".journal.jsonl"
_CHUNK = 1 << 20


class _Header(msgspec.Struct, kw_only=True):
    format: str
    name: str = ""
    command: list[str] = []
    host: Host
    plan: dict[str, Any]


class _End(msgspec.Struct, kw_only=True):
    error: str | None = None
    exit: Exit | None = None


class _Event(msgspec.Struct, kw_only=True):
    start: dict[str, Any] | None = None
    process: dict[str, Any] | None = None
    each: dict[int, int] | None = None
    end: _End | None = None


class _Lines:
    """The whole lines that were appended to a file since the last look; the beginning of one waits for its rest."""

    def __init__(self, path: pathlib.Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self._offset = 0

    @property
    def descriptor(self) -> int:
        return self._descriptor

    def next(self) -> list[bytes]:
        """Return the next lines, of at most 1 MiB; none when there is no more."""
        os.lseek(self._descriptor, self._offset, os.SEEK_SET)
        data = os.read(self._descriptor, _CHUNK)
        end = data.rfind(b"\n") + 1
        if not end and len(data) == _CHUNK:  # no line is that long: look for its end further on
            self._offset += len(data)
            return [b""]
        self._offset += end
        return data[:end].splitlines()

    def close(self) -> None:
        os.close(self._descriptor)


class Follower:
    """What a journal tells of a run, up to where it was last read."""

    def __init__(self, journal: pathlib.Path) -> None:
        """Read the first line. Raises SessionFileError when it is not a journal's, OSError."""
        self._lines = _Lines(journal)
        self._marks_path = journal.with_name(journal.name.removesuffix(JOURNAL_ENDING) + MARKS_ENDING)
        self._marks: _Lines | None = None
        self._start: Start | None = None
        self._noted = Noted()
        self.error: str | None = None
        """Why the command never began."""
        lines = self._lines.next()
        try:
            self.run = Run(_facts(lines[0] if lines else b""), self._noted)
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
            self.close()
            raise SessionFileError(f"{journal}: line 1 is not the header of a journal: {error}") from error
        self._take(lines[1:])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files."""
        self._lines.close()
        if self._marks is not None:
            self._marks.close()

    @property
    def begun(self) -> bool:
        """Whether the command was started."""
        return self._start is not None

    def read(self) -> None:
        """Read what was appended since the last time."""
        while lines := self._lines.next():
            self._take(lines)
        self._read_marks()

    def recorder_lives(self) -> bool:
        """Return whether the sampler still holds its lock on the journal; before it has it, it is taken to live."""
        if self._start is None or os.name == "nt":
            return not self.run.ended
        import fcntl

        try:
            fcntl.flock(self._lines.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return not self.run.ended
        fcntl.flock(self._lines.descriptor, fcntl.LOCK_UN)
        return False

    def _take(self, lines: list[bytes]) -> None:
        samples = [line for line in lines if line.startswith(b"[")]
        self._take_samples(samples)
        for line in lines:
            if line.startswith(b"{"):
                with contextlib.suppress(
                    msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError, ValueError
                ):
                    self._take_event(msgspec.json.decode(line, type=_Event))

    def _take_samples(self, lines: list[bytes]) -> None:
        if not lines:
            return
        try:
            values = _as_table(lines, 1 + len(self.run.facts.columns))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            if len(lines) > 1:  # what cannot be right is looked for by halves
                middle = len(lines) // 2
                self._take_samples(lines[:middle])
                self._take_samples(lines[middle:])
            return
        self.run.take_rows(values[:, 0], values[:, 1:])

    def _take_event(self, event: _Event) -> None:
        if event.start is not None:
            self._start = Start(utc=event.start["utc"], monotonic_ns=event.start["monotonic_ns"])
        if event.process is not None:
            self.run.take_process(event.process)
        for number, rss in (event.each or {}).items():
            if number in self.run.processes:
                self.run.processes[number].rss = rss
        if event.end is not None:
            self.run.ended = True
            self.run.exit = event.end.exit
            self.error = event.end.error

    def _read_marks(self) -> None:
        if self._start is None:
            return
        if self._marks is None:
            try:
                self._marks = _Lines(self._marks_path)
            except OSError:
                return
        while lines := self._marks.next():
            for row in entries_of(b"\n".join(lines), MARKS_ENDING, self._start):
                if row.entry is not None and row.entry.is_operation:
                    self._noted.take(row.entry)


def _as_table(lines: list[bytes], width: int) -> NDArray[np.float64]:
    """Return sample lines as rows; raise ValueError or MsgspecError when one of them cannot be right."""
    rows = msgspec.json.decode(b"[" + b",".join(lines) + b"]", type=list[list[float | None]])
    values = np.array(rows, dtype=np.float64)
    if values.shape != (len(lines), width) or np.isnan(values[:, 0]).any():
        raise ValueError("a figure too many or too few, or a sample without its time")
    return values


def _facts(line: bytes) -> Facts:
    """Return what a journal's first line says; raise ValueError, KeyError or MsgspecError when it is not one."""
    header = msgspec.json.decode(line, type=_Header)
    if header.format != FORMAT:
        raise ValueError(f"{FORMAT!r} expected")
    pid = header.plan.get("pid")
    text = printable(shlex.join(header.command)) or printable(header.name)
    return Facts(
        command=text or f"process {pid}",
        columns=[str(name) for name in header.plan["columns"]],
        interval_s=float(header.plan["interval_s"]),
        host=header.host,
        attached_to=pid,
    )
