"""The files of a recording that runs, held by their descriptors."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import tempfile
from typing import TYPE_CHECKING

from nncftools.cli.destination import check_owner, session_stem
from nncftools.errors import UsageError
from nncftools.files import above_standard
from nncftools.journal import file as journal_file
from nncftools.marks.sidecars import SIDECARS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nncftools.cli.destination import Destination

_NEW_LOG = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


def claim_files(place: Destination) -> Claim:
    """Make journal and log of marks, which belong to this run alone from then on. Raises UsageError."""
    try:
        if place.folder is not None:
            check_owner(place.folder)
        journal = journal_file.create(place.journal, replace=place.force)
        try:
            if place.folder is None:
                for ending in SIDECARS:
                    place.session.with_name(session_stem(place.session) + ending).unlink(missing_ok=True)
            return Claim(place, journal)
        except OSError:
            journal_file.remove(place.journal, journal)
            os.close(journal)
            raise
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"option {place.option}: cannot write {str(place.journal)!r}: {reason}") from error


class Claim:
    """The files of a recording that runs, by their descriptors: whatever becomes of the paths, these are ours."""

    def __init__(self, place: Destination, journal: int) -> None:
        """Open the journal once more to be read: what is locked goes to the sampler. Raises OSError."""
        self._place = place
        self.locked = journal
        """The locked, append-only descriptor for the sampler; -1 once it has it."""
        with contextlib.ExitStack() as stack:
            self.journal = stack.enter_context(journal_file.reader(place.journal, journal))
            self._folder = above_standard(os.open(place.session.parent, _FOLDER))
            stack.callback(os.close, self._folder)
            self._real = _named(self._folder, place.session.parent).resolve()
            self.marks = above_standard(os.open(place.marks, _NEW_LOG, journal_file.PRIVATE))
            stack.pop_all()

    def hand_over(self) -> None:
        """Close our copy of what the sampler has: the lock is to end with it."""
        os.close(self.locked)
        self.locked = -1

    def read_marks(self) -> bytes:
        """Return what was appended to the log of marks."""
        with os.fdopen(os.dup(self.marks), "rb") as log:
            log.seek(0)
            return log.read()

    @contextlib.contextmanager
    def place(self) -> Iterator[Destination]:
        """Yield what is to be written, by a name that stays that of our folder while somebody may swap it.

        Raises OSError when it is not ours any more. A folder that the command has made anew is.
        """
        parent = self._place.session.parent
        parent.mkdir(parents=True, exist_ok=True)
        folder = above_standard(os.open(parent, _FOLDER))
        try:
            name, found = _named(folder, parent), os.fstat(folder)
            is_new = not os.path.samestat(found, os.fstat(self._folder))
            if is_new and (name.resolve() != self._real or found.st_uid not in {os.geteuid(), 0}):
                raise OSError(f"{parent} is another folder now")
            yield self._place.within(name)
        finally:
            os.close(folder)

    def surviving_journal(self) -> pathlib.Path:
        """Return where the journal lies: where its name leads elsewhere by now, a copy of it. Raises OSError."""
        path = self._place.journal
        if journal_file.leads_to(path, self.journal.fileno()):
            return path
        copy = pathlib.Path(tempfile.mkdtemp(prefix="nncf-tools-"), path.name)
        self.journal.seek(0)
        with os.fdopen(journal_file.create(copy, replace=False), "wb") as file:
            shutil.copyfileobj(self.journal, file)
        return copy

    def hold(self) -> None:
        """Keep others from taking the journal for an abandoned one, once the sampler has ended."""
        journal_file.hold(self.journal.fileno())

    def remove(self) -> None:
        """Remove both files, once the session is written; what others have put in their place stays."""
        with contextlib.suppress(OSError):
            journal_file.remove(self._place.journal, self.journal.fileno())
        with contextlib.suppress(OSError):
            journal_file.remove(self._place.marks, self.marks)

    def abandon(self) -> None:
        """Leave nothing of a run that never began."""
        self.remove()
        if self._place.folder is not None:
            with contextlib.suppress(OSError):
                self._place.folder.rmdir()
                self._place.folder.parent.rmdir()  # only if this run made it: it holds nothing else then

    def close(self) -> None:
        """Let go of the files."""
        self.journal.close()
        os.close(self.marks)
        os.close(self._folder)
        if self.locked >= 0:
            self.hand_over()


def _named(folder: int, path: pathlib.Path) -> pathlib.Path:
    """Return a name of an open folder that leads to no other; where there is none, its path."""
    name = pathlib.Path(f"/proc/self/fd/{folder}")
    return name if name.exists() else path
