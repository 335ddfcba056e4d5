"""Reads the text of lines of code at the end of a recording.

A text is kept only if it is the text that ran, and if the user who ran it may read it. A measured program can name any
file as its code, and other users can put links and pipes where a file was.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Callable, Collection
from math import inf
from pathlib import PurePosixPath
from typing import NamedTuple

from nncftools.intake import moment
from nncftools.redaction import Redaction
from nncftools.session.model import Process, SessionData, Snapshots
from nncftools.units import shortened

_MOST_FILES = 200
_MOST_LINES = 2_000
_LARGEST = 8 << 20
_LONGEST = 160
_LONGEST_READ = 2_000
"""Bytes of a line."""
_MOST_STEPS = 400
"""Folders and links on the way to a file."""
_PRECISION_S = 0.02
"""The kernel rounds the start of a process and the time of a change down to a tick of up to 10 ms."""


class Code(NamedTuple):
    """The lines of a file that were in stacks, and the processes that ran them."""

    lines: set[int]
    users: set[int | None]
    starts_s: set[float]
    """When the programs began, in seconds since the start of the session; -inf if unknown."""


def take_sources(session: SessionData, redaction: Redaction, is_own: Callable[[str], bool]) -> None:
    """Put the texts of lines into the snapshots of a session; ``is_own`` tells the files of the user's own code."""
    snapshots = session.snapshots or Snapshots()
    own = [number for number, frame in enumerate(snapshots.frames) if is_own(frame.file)][:_MOST_LINES]
    processes: dict[int | None, Process] = {process.id: process for process in session.processes}
    first_s = min([process.start_s or 0.0 for process in session.processes], default=-inf)
    codes: dict[str, Code] = {}
    for watched in snapshots.processes:
        start_s = _start_s(processes.get(watched.process), watched.user, first_s)
        for number in watched.frames(snapshots.stacks).intersection(own):
            frame = snapshots.frames[number]
            code = codes.setdefault(frame.file, Code(set(), set(), set()))
            # memory may be taken in the line between two that were seen
            code.lines.update((frame.line, frame.line + 1) if frame.line else ())
            code.users.add(watched.user)
            code.starts_s.add(start_s)
    for file in [*codes][:_MOST_FILES]:
        code = codes[file]
        with contextlib.suppress(OSError, ValueError, LookupError, SyntaxError):
            before_s = moment(session.start.utc or "").timestamp() + min(code.starts_s) + _PRECISION_S
            content = _content(file, code.users, before_s)
            snapshots.sources[file] = _texts(content, code.lines, redaction)


def _start_s(process: Process | None, user: int | None, first_s: float) -> float:
    """Return when the program of a process began; -inf if unknown, or if a path may lead it to another file now."""
    if process is None or user is None or (process.apart and user in {0, os.geteuid()}):
        return -inf
    if process.forked_copy or process.parent is None:  # it runs code that an earlier process has read
        return first_s
    return process.start_s or first_s


def _content(path: str, users: set[int | None], before_s: float) -> bytes:
    """Return a file that was not changed after a moment, and that all users may read. Raises OSError, ValueError."""
    with contextlib.ExitStack() as opened, open(_opened(path, users, opened), "rb") as file:
        content = file.read(_LARGEST)
        status = os.fstat(file.fileno())
    if max(status.st_mtime, status.st_ctime) > before_s:
        raise OSError
    return content


def _opened(path: str, users: set[int | None], opened: contextlib.ExitStack) -> int:
    """Return a descriptor of the file. Every folder on the way is held open: nobody can put a link in its place."""
    trusted = {0, os.geteuid()}
    names = [*PurePosixPath(path).parts[::-1]]
    folder = -1  # where a relative path is not found
    for _ in range(_MOST_STEPS):
        found = os.open(names.pop(), os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
        opened.callback(os.close, found)
        status = os.fstat(found)
        if stat.S_ISLNK(status.st_mode) and status.st_uid in trusted | users:
            names += PurePosixPath(os.readlink("", dir_fd=found)).parts[::-1]
        elif not all(_may_use(status, user) for user in users - trusted):
            raise PermissionError
        elif stat.S_ISDIR(status.st_mode):
            folder = found
        elif stat.S_ISREG(status.st_mode) and not names and 0 < status.st_size <= _LARGEST:
            return os.open(f"/proc/self/fd/{found}", os.O_NONBLOCK)
        else:
            break
    raise OSError


def _may_use(status: os.stat_result, user: int | None) -> bool:
    """Return whether a user may read a file, or enter a folder; a permission of groups does not count."""
    permission = stat.S_IXOTH if stat.S_ISDIR(status.st_mode) else stat.S_IROTH
    return bool(status.st_mode & (permission << 6 if status.st_uid == user else permission))


def _texts(content: bytes, lines: Collection[int], redaction: Redaction) -> dict[int, str]:
    """Return the texts of lines by number. Raises SyntaxError, LookupError, ValueError for an unknown encoding."""
    from tokenize import detect_encoding

    encoding, _ = detect_encoding(io.BytesIO(content).readline)
    texts: dict[int, str] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        if number in lines:
            text = line[:_LONGEST_READ].decode(encoding, "replace").encode(errors="replace").decode()
            texts[number] = shortened(redaction.code(" ".join(text.split())), _LONGEST)
    return texts
