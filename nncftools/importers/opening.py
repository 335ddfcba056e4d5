"""Opens any file as a session: our own, a journal, or another recorder's log."""

from __future__ import annotations

import importlib
import pathlib
import re
from typing import TYPE_CHECKING, Protocol

from nncftools.errors import SessionFileError, UsageError
from nncftools.importers import IMPORTERS
from nncftools.importers.source import Source, shown
from nncftools.intake import WrongValueError
from nncftools.redaction import Redaction
from nncftools.session.session import check
from nncftools.units import not_one_of

if TYPE_CHECKING:
    import os

    from nncftools.importers.source import Head, Progress
    from nncftools.session.session import Session

_OURS = re.compile(rb'"format"\s*:\s*"nncf-tools-(session|journal)"')


class Importer(Protocol):
    """A module that reads the logs of one recorder."""

    def recognises(self, head: Head) -> bool:
        """Return whether a file with this head is such a log."""

    def read(self, source: Source) -> Session:
        """Return the session of the log. Raises SessionFileError when there is none."""


def read_session(path: str | os.PathLike[str], forced: str | None = None, progress: Progress | None = None) -> Session:
    """Return a session, a journal or another recorder's log, each also gzipped, as a session.

    ``forced`` names the importer; by default the content decides. ``progress`` is called often while an importer reads,
    with the bytes read and the total, None when that is unknown. Raises SessionFileError, which names the file, the
    line and what was expected, and UsageError for an unknown importer.
    """
    if forced is not None and forced not in IMPORTERS:
        raise UsageError(not_one_of(forced, IMPORTERS))
    with Source(pathlib.Path(path), progress) as source:
        begins_an_object = source.head.text.lstrip().startswith(b"{")
        if forced is None and begins_an_object and _OURS.search(source.head.text):
            return source.as_session()
        source.refuse_other_encodings()
        name = forced or next((name for name in IMPORTERS if _importer(name).recognises(source.head)), None)
        if name is not None:
            return _redacted(_checked(_importer(name).read(source), source.path))
        if begins_an_object or not source.head.text.strip():
            return source.as_session()  # its messages say what is missing
        raise SessionFileError(
            f"{path}: neither a session nor a log that is recognised (line 1 is {shown(source.head.line(0))})",
            mended_by="importer",
        )


def _checked(session: Session, path: pathlib.Path) -> Session:
    """Return the session of a log. Raises SessionFileError if something in it cannot be."""
    try:
        check(session)
    except WrongValueError as error:
        raise SessionFileError(f"{path}: {error}", mended_by=error.mended_by) from error
    return session


def _redacted(session: Session) -> Session:
    """Hide what looks like a secret: other recorders store command lines as typed."""
    redaction = Redaction()
    session.command = redaction.words(session.command)
    for process in session.processes:
        process.command = redaction.words(process.command)
    return session


def _importer(name: str) -> Importer:
    module: Importer = importlib.import_module(IMPORTERS[name])
    return module
