"""Opens any file as a session: our own, a journal, or another recorder's log.

A log is read as its head, then whole lines in pieces, in bounded memory for any size; what was unusable is counted.
"""

from __future__ import annotations

import importlib
import io
import os
import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from nncftools import intake
from nncftools.errors import SessionFileError, UsageError
from nncftools.importers import IMPORTERS
from nncftools.intake import Progress, WrongValueError
from nncftools.redaction import Redaction
from nncftools.session import session
from nncftools.session.session import Session, check
from nncftools.units import not_one_of

_HEAD = 1 << 16
_LONGEST_LINE = 4 << 20
"""Twenty thousand processes in one line of con-duct."""
_SHOWN = 60
_COARSE_S = 0.05


class Head(NamedTuple):
    """The beginning of a file, from which importers recognise it."""

    name: str
    """The file's name, without ``.gz``."""
    text: bytes
    """At most 64 KiB, decompressed, with Unix line ends; cut off anywhere."""

    def line(self, number: int) -> bytes:
        """Return a line by number, from 0; empty after the last one."""
        return next(iter(self.text.split(b"\n", number + 1)[number : number + 1]), b"")


class Line(NamedTuple):
    """A line of a file that is not blank, without its end."""

    number: int
    text: bytes
    is_whole: bool = True
    """False for a last line without a line break."""


class Problems:
    """Counts the lines and samples of a log that could not be used."""

    def __init__(self) -> None:
        """Start without problems."""
        self.first_unreadable = ""
        """The first unreadable line, and why; empty when all are readable."""
        self._first_left_out = ""
        self._unreadable = self._left_out = 0
        self._warnings: dict[str, None] = {}

    def unreadable(self, line: Line, why: object) -> None:
        """Count an unreadable line; one that is not whole is the last, and only cut off."""
        if not line.is_whole:
            self.warn("the last line is cut off: it was left out")
            return
        self.first_unreadable = self.first_unreadable or f"line {line.number}: {shown(line.text)}: {why}"
        self._unreadable += 1

    def went_back(self, number: int, before_s: float, after_s: float) -> None:
        """Count a sample that was left out because time goes back at this line; seconds since the start."""
        digits = 2 if before_s - after_s >= _COARSE_S else 6
        message = f"time goes back at line {number}, from {before_s:.{digits}f} s to {after_s:.{digits}f} s"
        self._first_left_out = self._first_left_out or message
        self._left_out += 1

    def warn(self, text: str) -> None:
        """Add a warning, unless it is already there."""
        self._warnings[text] = None

    def warnings(self) -> list[str]:
        """Return all warnings."""
        warnings = []
        if self._unreadable:
            lines = "1 line" if self._unreadable == 1 else f"{self._unreadable:,} lines"
            first = "" if self._unreadable == 1 else "the first is "
            warnings.append(f"{lines} could not be read, {first}{self.first_unreadable}")
        if self._left_out:
            counted = "1 sample was" if self._left_out == 1 else f"{self._left_out:,} samples were"
            warnings.append(f"{self._first_left_out}: {counted} left out")
        return [*warnings, *self._warnings]


class Source:
    """An open log; a context manager."""

    def __init__(self, path: pathlib.Path, progress: Progress | None = None) -> None:
        """Open a file or FIFO, also gzipped. Raises SessionFileError, OSError."""
        self.path = path
        self.problems = Problems()
        """What could not be read."""
        self.progress = progress
        self._file = intake.open_file(path)
        self._bytes = io.BufferedReader(intake.Counted(self._file, progress), _HEAD)
        try:
            begin = self._bytes.peek(_HEAD)[:_HEAD]
        except OSError:
            self._file.close()
            raise
        is_packed = begin.startswith(intake.GZIP)
        if is_packed:
            begin = intake.begin(begin, _HEAD)
        name = path.name.removesuffix(".gz") if is_packed else path.name
        self.is_utf_16 = begin.startswith(intake.UTF_16_MARKS)
        """What PowerShell's ``>`` writes."""
        self.head = Head(name, begin.removeprefix(intake.UTF_8_MARK).replace(b"\r\n", b"\n"))

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def as_session(self) -> Session:
        """Read it as our own session or journal. Raises SessionFileError."""
        intake.check_size(self._file, self.path)
        return Session.of(session.load_from(self._bytes, self.path))

    def lines(self) -> Iterator[Line]:
        """Yield all lines up to 4 MiB long, until the gzip data is damaged. Raises SessionFileError, OSError."""
        number = 1
        rest = b""
        is_too_long = False
        for piece in self._pieces():
            *texts, rest = (rest + piece).split(b"\n")
            for text in texts:
                if text and not text.isspace() and not is_too_long:
                    yield Line(number, text.removesuffix(b"\r"))
                is_too_long = False
                number += 1
            if len(rest) > _LONGEST_LINE or is_too_long:
                if not is_too_long:
                    self.problems.unreadable(Line(number, rest), f"longer than {_LONGEST_LINE >> 20} MiB")
                is_too_long = True
                rest = b""
        if rest and not rest.isspace():
            yield Line(number, rest.removesuffix(b"\r"), is_whole=False)

    def _pieces(self) -> Iterator[bytes]:
        try:
            yield from intake.pieces(self._bytes, self.path)
        except intake.DAMAGED as error:
            self.problems.warn(f"the gzip file is damaged or truncated, everything before that was read: {error}")


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
    if forced is not None and forced not in IMPORTERS:
        raise UsageError(not_one_of(forced, IMPORTERS))
    try:
        with Source(pathlib.Path(path), progress) as source:
            return _read(source, forced)
    except OSError as error:
        raise SessionFileError(f"{path}: cannot be read: {error.strerror or error}") from error


def _read(source: Source, forced: str | None) -> Session:
    path, text = source.path, source.head.text
    begins_an_object = text.lstrip().startswith(b"{")
    if forced is None and begins_an_object and _OURS.search(text):
        return source.as_session()
    if source.is_utf_16:
        mended = "in PowerShell: Get-Content LOG | Set-Content -Encoding utf8 NEW"
        raise SessionFileError(f"{path}: UTF-16, UTF-8 expected; {mended}")
    for name in [forced] if forced else IMPORTERS:
        importer = importlib.import_module(IMPORTERS[name])
        if not forced and not importer.recognises(source.head):
            continue
        imported: Session = importer.read(source)
        try:
            check(imported)
        except WrongValueError as error:
            raise SessionFileError(f"{path}: {error}") from error
        redaction = Redaction()  # other recorders store command lines as typed
        imported.command = redaction.words(imported.command)
        for process in imported.processes:
            process.command = redaction.words(process.command)
        return imported
    if begins_an_object or not text.strip():
        return source.as_session()  # its messages say what is missing
    why = f"neither a session nor a log that is recognised (line 1 is {shown(source.head.line(0))})"
    raise SessionFileError(f"{path}: {why}", remedy="importer")
