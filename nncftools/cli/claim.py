"""The files of a running recording, held open by descriptor."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import BinaryIO

from nncftools.cli.destination import Destination, check_owner, session_stem
from nncftools.errors import UsageError
from nncftools.files import above_standard
from nncftools.journal import reading
from nncftools.journal.reading import SIDECARS

_NEW_LOG = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


def claim_files(place: Destination, *, snapshots: bool) -> RecordingFiles:
    """Create the journal, the marks log and, on request, the log of the helper, for this run alone.

    Raises UsageError.
    """
    try:
        if place.folder is not None:
            check_owner(place.folder)
        journal = reading.create(place.journal, replace=place.force)
        try:
            if place.folder is None:
                for ending in SIDECARS:
                    place.session.with_name(session_stem(place.session) + ending).unlink(missing_ok=True)
                place.snapshots.unlink(missing_ok=True)
            return RecordingFiles(place, journal, snapshots=snapshots)
        except OSError:
            reading.remove(place.journal, journal)
            os.close(journal)
            raise
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"option {place.option}: cannot write {str(place.journal)!r}: {reason}") from error


class RecordingFiles:
    """The files of a running recording, by descriptor: they stay ours even if their paths are moved or removed."""

    def __init__(self, place: Destination, journal: int, *, snapshots: bool) -> None:
        """Open the journal a second time, for reading; the locked descriptor goes to the sampler. Raises OSError."""
        self._place = place
        self.locked = journal
        """The locked, append-only descriptor for the sampler; -1 after the hand-over."""
        with contextlib.ExitStack() as stack:
            self.journal = stack.enter_context(reading.reader(place.journal, journal))
            self._folder = above_standard(os.open(place.session.parent, _FOLDER))
            stack.callback(os.close, self._folder)
            self._real = _named(self._folder, place.session.parent).resolve()
            self.marks = above_standard(os.open(place.marks, _NEW_LOG, reading.PRIVATE))
            stack.callback(os.close, self.marks)
            self.snapshots: int | None = None
            """The descriptor of the helper's log; None without one."""
            if snapshots:
                self.snapshots = above_standard(os.open(place.snapshots, _NEW_LOG, reading.PRIVATE))
            stack.pop_all()

    def hand_over(self) -> None:
        """Close our copy of the sampler's descriptor, so that the lock ends with the sampler."""
        os.close(self.locked)
        self.locked = -1

    def open_marks(self) -> BinaryIO:
        """Return the marks log, at its beginning."""
        return _opened(self.marks)

    def read_snapshots(self) -> bytes:
        """Return the content of the helper's log; empty without one."""
        if self.snapshots is None:
            return b""
        with _opened(self.snapshots) as log:
            return log.read()

    @contextlib.contextmanager
    def place(self) -> Iterator[Destination]:
        """Yield the files to write, by a path that leads to our folder even if another one takes its place.

        A folder that the command removed and made again counts as ours. Raises OSError for any other folder.
        """
        parent = self._place.session.parent
        parent.mkdir(parents=True, exist_ok=True)
        folder = above_standard(os.open(parent, _FOLDER))
        try:
            name, status = _named(folder, parent), os.fstat(folder)
            is_new = not os.path.samestat(status, os.fstat(self._folder))
            if is_new and (name.resolve() != self._real or status.st_uid not in {os.geteuid(), 0}):
                raise OSError(f"{parent} is another folder now")
            yield self._place.within(name)
        finally:
            os.close(folder)

    def surviving_journal(self) -> pathlib.Path:
        """Return the journal's path, or that of a new copy if its name now leads to another file. Raises OSError."""
        path = self._place.journal
        if reading.leads_to(path, self.journal.fileno()):
            return path
        import shutil
        import tempfile

        copy = pathlib.Path(tempfile.mkdtemp(prefix="nncf-tools-"), path.name)
        self.journal.seek(0)
        with os.fdopen(reading.create(copy, replace=False), "wb") as file:
            shutil.copyfileobj(self.journal, file)
        return copy

    def hold(self) -> None:
        """Lock the journal after the sampler has ended, so that others do not take it for an abandoned one."""
        reading.hold(self.journal.fileno())

    def remove(self) -> None:
        """Remove the logs after the session is written; files that others put in their place stay."""
        logs = {self._place.journal: self.journal.fileno(), self._place.marks: self.marks}
        if self.snapshots is not None:
            logs[self._place.snapshots] = self.snapshots
        for path, descriptor in logs.items():
            with contextlib.suppress(OSError):
                reading.remove(path, descriptor)

    def abandon(self) -> None:
        """Remove all files of a run that never started."""
        self.remove()
        if self._place.folder is not None:
            with contextlib.suppress(OSError):
                self._place.folder.rmdir()
                self._place.folder.parent.rmdir()  # succeeds only if it is empty: then this run made it

    def close(self) -> None:
        """Close all descriptors."""
        self.journal.close()
        os.close(self.marks)
        if self.snapshots is not None:
            os.close(self.snapshots)
        os.close(self._folder)
        if self.locked >= 0:
            self.hand_over()


def _opened(descriptor: int) -> BinaryIO:
    log = os.fdopen(os.dup(descriptor), "rb")
    log.seek(0)
    return log


def _named(folder: int, path: pathlib.Path) -> pathlib.Path:
    """Return the path of an open folder through its descriptor; without /proc, its ordinary path."""
    name = pathlib.Path(f"/proc/self/fd/{folder}")
    return name if name.exists() else path
