"""Atomic file writes, and helpers for descriptors."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat

TYPE_CHECKING = False  # the sampler uses this module and does without typing
if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator
    from typing import BinaryIO


_STANDARD_ERROR = 2
_MOST_LINKS = 40
"""As many as Linux follows."""
FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_PERMISSIONS = 0o777
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[BinaryIO]:
    """Yield a binary file to write a whole output to: the one way to write one.

    A regular file is written beside its place, in the folder that is held open, and renamed at the end; an error
    leaves the earlier file, and the new file has the permissions of the earlier one. A descriptor, a device and a FIFO
    get the whole content at the end: see ``file_behind``.
    Raises OSError.
    """
    file = file_behind(path)
    if file is None:
        stream = _open_stream(path)
        try:
            content = io.BytesIO()
            yield content
            write_all(stream, content.getvalue())
        finally:
            os.close(stream)
        return
    name = f".{os.urandom(4).hex()}.{file.name}"
    folder = os.open(file.parent, FOLDER)
    try:
        mode = None
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(file.name, dir_fd=folder).st_mode & _PERMISSIONS
        beside = above_standard(os.open(name, _NEW, 0o666 if mode is None else mode, dir_fd=folder))
        try:
            with os.fdopen(beside, "w+b") as opened:
                if mode is not None:
                    with contextlib.suppress(OSError):  # some file systems have none
                        os.fchmod(beside, mode)  # the umask has taken some away
                yield opened
                opened.flush()
                os.fsync(beside)
            os.replace(name, file.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            raise
    finally:
        os.close(folder)


def write_file(path: pathlib.Path, content: bytes) -> None:
    """Write a whole output, or leave the file that is there; gzipped if its name ends in ``.gz``.

    Raises OSError like ``replacing``.
    """
    if path.name.lower().endswith(".gz"):
        import gzip

        content = gzip.compress(content, mtime=0)
    with replacing(path) as output:
        output.write(content)


def ending_in(name: str) -> str:
    """Return the ending of a file's name, in lower case and without ``.gz``; empty if it has none."""
    return os.path.splitext(name.lower().removesuffix(".gz"))[1]  # noqa: PTH122 — no pathlib here


def file_behind(path: pathlib.Path) -> pathlib.Path | None:
    """Return the regular file that a write to ``path`` makes or replaces; None for a descriptor, a device or a FIFO.

    Symbolic links are followed. Raises OSError for another user's link or file, and for a folder, a socket or a disk.
    """
    path = followed(path)
    if _is_descriptor(path):
        path.stat()  # fails for one that is not open: it may be a file of ours later
        return None
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if stat.S_ISREG(status.st_mode):
        _refuse_other_owner(status, path)
        return path
    _refuse_other_device(status, path)
    return None


def _open_stream(path: pathlib.Path) -> int:
    """Open what is no regular file, without waiting, and return a descriptor. Raises OSError."""
    path = followed(path)
    if _is_descriptor(path):
        return above_standard(os.dup(int(path.name)))
    try:
        stream = above_standard(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "no program reads from this FIFO", str(path)) from error
        raise
    try:
        _refuse_other_device(os.fstat(stream), path)
        os.set_blocking(stream, True)
    except OSError:
        os.close(stream)
        raise
    return stream


def _is_descriptor(path: pathlib.Path) -> bool:
    """Return whether a path is ``/dev/fd/N``, by any name of its folder."""
    own_folders = {os.path.realpath("/dev/fd"), os.path.realpath("/proc/self/fd")}
    return path.name.isdecimal() and os.path.realpath(path.parent) in own_folders


def _refuse_other_owner(status: os.stat_result, path: pathlib.Path) -> None:
    """Raise OSError for a regular file that is not ours to replace.

    Root may replace what belongs to the owner of both the folder and the working folder, as in a container that works
    in a mounted checkout.
    """
    owner = status.st_uid
    if owner == os.geteuid():
        return
    if os.geteuid() == 0 and owner == path.parent.stat().st_uid == os.stat(".").st_uid:  # noqa: PTH116 — no pathlib here
        return
    raise OSError(errno.EPERM, f"it belongs to another user ({_name_user(owner)})", str(path))


def _refuse_other_device(status: os.stat_result, path: pathlib.Path) -> None:
    """Raise OSError for another user's device or FIFO, and for a socket or a disk."""
    if not (stat.S_ISCHR(status.st_mode) or stat.S_ISFIFO(status.st_mode)):
        raise OSError(errno.EPERM, "it is a socket or a disk", str(path))
    theirs = another_owner(status)
    if theirs:
        raise OSError(errno.EPERM, f"it {theirs}", str(path))


class Way:
    """The folders that lead to a file, as they are when it is checked: one that takes another's place gets nothing."""

    def __init__(self, folder: pathlib.Path, *, must_stay: bool = False) -> None:
        """Look at the folders. Those of ours that a command makes anew count as the same, unless they ``must_stay``."""
        self.folder = folder
        self._must_stay = must_stay
        self._known: dict[pathlib.Path, os.stat_result] = {}
        for part in (folder, *folder.parents):
            with contextlib.suppress(OSError):
                self._known[part] = part.stat()

    def check(self) -> None:
        """Raise OSError if another folder, or a link to one, has taken the place of one of them."""
        for part in (self.folder, *self.folder.parents):
            if not os.path.lexists(part):
                continue
            known, found = self._known.get(part), part.lstat()
            if known is not None and os.path.samestat(known, part.stat()):
                return
            theirs = another_owner(found)
            if theirs or stat.S_ISLNK(found.st_mode) or (known is not None and self._must_stay):
                raise OSError(errno.EPERM, f"{part} is another folder now" + (theirs and f", which {theirs}"))

    def make(self) -> None:
        """Make what is missing of them. Raises OSError like ``check``."""
        self.check()
        self.folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def reached(self) -> Iterator[pathlib.Path]:
        """Yield a path that leads to the folder, which is held open, even if another one takes its place.

        Raises OSError like ``check``, also at the end of the block: then nothing that was written is where the path
        leads.
        """
        folder = above_standard(os.open(self.folder, FOLDER))
        try:
            self.check()
            self._refuse_other(folder)
            name = type(self.folder)(f"/proc/self/fd/{folder}")
            yield name if name.exists() else self.folder
            self._refuse_other(folder)
        finally:
            os.close(folder)

    def _refuse_other(self, folder: int) -> None:
        if not os.path.samestat(self.folder.stat(), os.fstat(folder)):
            raise OSError(errno.EPERM, f"{self.folder} is another folder now")


def ways_to(*paths: pathlib.Path | None) -> dict[pathlib.Path, Way]:
    """Return the ways to files by folder, for as long as no command runs."""
    return {path.parent: Way(path.parent, must_stay=True) for path in paths if path is not None}


def open_ours(path: pathlib.Path) -> int:
    """Open a log to write to, empty and append-only, where other users may have put a trap; return its descriptor.

    It never waits: Python tries an open again after a signal, so none ends one that waits for a FIFO's reader.

    Raises OSError, before anything changes, for a link, for what is no file, for another user's file, and for a file
    with a second name, which may be that of any file.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return above_standard(os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666))
    except FileExistsError:
        pass
    try:
        descriptor = above_standard(os.open(path, flags | os.O_NONBLOCK))
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link") from error
        raise
    try:
        _refuse_trap(os.fstat(descriptor), path)
        os.ftruncate(descriptor, 0)
        os.set_blocking(descriptor, True)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_trap(status: os.stat_result, path: pathlib.Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EPERM, "it is a device or pipe")
    _refuse_other_owner(status, path)
    if status.st_nlink > 1:
        raise OSError(errno.EPERM, "it has a second name (a hard link)")


def open_output(path: pathlib.Path) -> int:
    """Open an output that grows while a command runs, and return its descriptor.

    A file is opened as by ``open_ours``; a descriptor, a device and a FIFO as by ``replacing``. Raises OSError.
    """
    file = file_behind(path)
    return _open_stream(path) if file is None else open_ours(file)


def followed(path: pathlib.Path) -> pathlib.Path:
    """Return the path that a write is for, behind symbolic links. Raises OSError for another user's link."""
    for _ in range(_MOST_LINKS):
        if _is_descriptor(path) or not path.is_symlink():
            return path
        theirs = another_owner(path.lstat())
        if theirs:
            raise OSError(errno.EPERM, f"it is a symbolic link that {theirs}", str(path))
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def another_owner(status: os.stat_result) -> str:
    """Return which other user a file or folder belongs to, in words; empty if it is ours or root's."""
    if status.st_uid in {os.geteuid(), 0}:
        return ""
    return f"belongs to another user ({_name_user(status.st_uid)})"


def _name_user(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def open_to_all(status: os.stat_result) -> str:
    """Return that every user may write to a file or folder, in words; empty if not.

    In a sticky folder, such as /tmp, nobody else may replace what is ours.
    """
    is_sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    return "may be changed by every user" if status.st_mode & stat.S_IWOTH and not is_sticky else ""


def open_to_group(status: os.stat_result) -> bool:
    """Return whether the users of a group, but not all users, may write to a file or folder."""
    return bool(status.st_mode & stat.S_IWGRP) and not open_to_all(status)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``. Raises OSError."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # another program that shares the terminal or pipe made it non-blocking
            has_room(descriptor)


def has_room(descriptor: int, within_ms: int | None = None) -> bool:
    """Wait until a pipe or terminal can be written, for ever without a time; return whether it can.

    Raises ValueError for a negative descriptor.
    """
    import select

    poll = select.poll()  # select() takes no descriptor from 1,024 on
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(within_ms))


def descriptors_in_use() -> int:
    """Return the number of descriptors that this process has open; 0 when that is unknown."""
    try:
        return len(os.listdir("/dev/fd")) - 1  # noqa: PTH208 — only counted, without the one that lists
    except OSError as error:
        if error.errno != errno.EMFILE:
            return 0
        import resource

        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def above_standard(descriptor: int) -> int:
    """Return a descriptor above 2 in place of a given one, so that no program takes it for a standard stream.

    When standard streams are closed, new files get their numbers.
    """
    if descriptor > _STANDARD_ERROR:
        return descriptor
    import fcntl

    above = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _STANDARD_ERROR + 1)
    os.close(descriptor)
    return above
