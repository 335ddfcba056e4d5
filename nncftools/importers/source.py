"""Opens any file as a session: our own, a journal, or another recorder's log.

A log is read as its head, then whole lines in pieces, in bounded memory for any size; what was unusable is counted.
"""

from __future__ import annotations

import functools
import importlib
import io
import os
import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from nncftools import intake
from nncftools.analysis.session import Session
from nncftools.errors import SessionFileError, UsageError
from nncftools.importers import IMPORTERS
from nncftools.intake import Progress, Redaction, WrongValueError
from nncftools.session import session
from nncftools.session.session import mend
from nncftools.units import not_one_of

_HEAD = 1 << 16
_LONGEST_LINE = 4 << 20
"""Twenty thousand processes in one line of con-duct."""
_SHOWN = 60


class LogLines(NamedTuple):
    """Some lines of a file, one after another, without their ends."""

    number: int
    """That of the first one, from 1."""
    texts: list[bytes]
    is_whole: bool = True
    """False for a last line without a line break."""


class Source:
    """An open log; a context manager."""

    def __init__(self, path: pathlib.Path, progress: Progress | None = None) -> None:
        """Open a file or FIFO, also gzipped. Raises SessionFileError."""
        self.path = path
        self.progress = progress
        self.first_left_out = ""
        """The first line that was left out, and why; empty when all were taken."""
        self._left_out = 0
        self._warnings: dict[str, None] = {}
        self._file = intake.open_file(path)
        self._bytes = io.BufferedReader(intake.Counted(self._file, progress), _HEAD)

    @functools.cached_property
    def head(self) -> bytes:
        """The beginning: at most 64 KiB, decompressed, with Unix line ends; cut off anywhere. Raises OSError."""
        begin = self._bytes.peek(_HEAD)[:_HEAD]
        if begin.startswith(intake.GZIP):
            begin = intake.begin(begin, _HEAD)
        return begin.removeprefix(intake.UTF_8_MARK).replace(b"\r\n", b"\n")

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def as_session(self) -> Session:
        """Read it as our own session or journal. Raises SessionFileError."""
        intake.check_size(self._file, self.path)
        return Session.of(session.load_from(self._bytes, self.path))

    def leave_out(self, number: int, text: bytes, why: object) -> None:
        """Count a line that is not used."""
        self.first_left_out = self.first_left_out or f"line {number}: {shown(text)}: {why}"
        self._left_out += 1

    def warn(self, text: str) -> None:
        """Add a warning, unless it is already there."""
        self._warnings[text] = None

    def warnings(self) -> list[str]:
        """Return all warnings."""
        left_out = [f"lines left out: {self._left_out:,}; the first is {self.first_left_out}"] if self._left_out else []
        return [*left_out, *self._warnings]

    def lines(self) -> Iterator[LogLines]:
        """Yield all lines, each up to 4 MiB, until the gzip data is damaged. Raises SessionFileError, OSError."""
        number = 1
        rest = b""
        try:
            for piece in intake.pieces(self._bytes, self.path):
                *texts, rest = (rest + piece).replace(b"\r\n", b"\n").split(b"\n")
                rest = rest[:_LONGEST_LINE]
                if texts:
                    yield LogLines(number, texts)
                    number += len(texts)
        except intake.DAMAGED as error:
            self.warn(f"the gzip file is damaged or truncated, everything before that was read: {error}")
        if rest and not rest.isspace():
            yield LogLines(number, [rest], is_whole=False)


def shown(line: bytes) -> str:
    """Return a line as a message quotes it: short, printable, in quotation marks."""
    return f"'{intake.shown(line[:_SHOWN].decode('utf-8', 'backslashreplace'))}'"


_OURS = re.compile(rb'"format"\s*:\s*"nncf-tools-(session|journal)"')


def read_session(path: str | os.PathLike[str], forced: str | None = None, progress: Progress | None = None) -> Session:
    """Return a session, a journal or another recorder's log, each also gzipped, as a session.

    ``forced`` names the importer; by default the content decides. ``progress`` is called often while an importer reads,
    with the bytes read and the total, None when that is unknown. Raises SessionFileError, which names the file, the
    line and what was expected, and UsageError for an unknown importer.
    """
    if forced == "prmon":
        raise UsageError("prmon was removed; write its figures as a CSV of psrecord, and use psrecord")
    if forced not in (None, *IMPORTERS):
        raise UsageError(not_one_of(str(forced), IMPORTERS))
    try:
        with Source(pathlib.Path(path), progress) as source:
            return _read(source, forced)
    except OSError as error:
        raise SessionFileError(f"{path}: cannot be read: {error.strerror or error}") from error


def _read(source: Source, forced: str | None) -> Session:
    path, head = source.path, source.head
    begins_an_object = head.lstrip().startswith(b"{")
    if forced is None and begins_an_object and _OURS.search(head):
        return source.as_session()
    for name, module in IMPORTERS.items():
        log = importlib.import_module(module).Log
        if name == forced or (forced is None and log.head.match(os.fsencode(path.name) + b"\n" + head)):
            return _checked(log(source).read(), path)
    if begins_an_object or not head.strip() or head.startswith(intake.UTF_16_MARKS):
        return source.as_session()  # its messages say what is missing
    raise SessionFileError(
        f"{path}: neither a session nor a log that is recognised (line 1 is {shown(head.splitlines()[0])})",
        remedy="importer",
    )


def _checked(session: Session, path: pathlib.Path) -> Session:
    """Return a session without secrets: other recorders store command lines as typed. Raises SessionFileError."""
    try:
        mend(session)
    except WrongValueError as error:
        raise SessionFileError(f"{path}: {error}") from error
    redaction = Redaction()
    session.command = redaction.words(session.command)
    for process in session.processes:
        process.command = redaction.words(process.command)
    return session
