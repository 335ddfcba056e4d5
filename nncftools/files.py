"""Atomic file writes, and helpers for descriptors."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

TYPE_CHECKING = False  # the sampler uses this module and does without typing
if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator


_STANDARD_ERROR = 2


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a new, empty file next to ``path``; it replaces ``path`` at the end, or is removed on an error.

    It keeps the file's ending, from which image writers derive the format. Raises OSError.
    """
    beside = path.with_name(f".{os.urandom(4).hex()}.{path.name}")
    os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        yield beside
        with beside.open("rb+") as written:
            os.fsync(written.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def held(folder: pathlib.Path) -> Iterator[None]:
    """Hold a folder, so that no other process holds it meanwhile: by flock(2), where its file system has locks.

    Raises BlockingIOError while another one holds it, OSError if it cannot be opened.
    """
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(descriptor)


def open_ours(path: pathlib.Path) -> int:
    """Open a file to write to, empty and append-only, where other users may have put a trap; return its descriptor.

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
        _refuse_trap(os.fstat(descriptor))
        os.ftruncate(descriptor, 0)
        os.set_blocking(descriptor, True)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_trap(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EPERM, "it is a device or pipe")
    if found.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "it belongs to another user")
    if found.st_nlink > 1:
        raise OSError(errno.EPERM, "it has a second name (a hard link)")


def followed(path: pathlib.Path) -> pathlib.Path:
    """Return the path that a write is for, behind a symbolic link. Raises OSError for another user's link."""
    if not path.is_symlink():
        return path
    theirs = another_owner(path.lstat())
    if theirs:
        raise OSError(errno.EPERM, f"it is a symbolic link that {theirs}")
    return path.resolve()


def another_owner(found: os.stat_result) -> str:
    """Return which other user a file or folder belongs to, in words; empty if it is ours or root's."""
    if found.st_uid in {os.geteuid(), 0}:
        return ""
    import pwd

    try:
        name = pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        name = f"user {found.st_uid}"
    return f"belongs to another user ({name})"


def open_to_all(found: os.stat_result) -> str:
    """Return that every user may write to a file or folder, in words; empty if not.

    In a sticky folder, such as /tmp, nobody else may replace what is ours.
    """
    is_sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    return "may be changed by every user" if found.st_mode & stat.S_IWOTH and not is_sticky else ""


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``. Raises OSError."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # another program that shares the terminal or pipe made it non-blocking
            import select

            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()


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
