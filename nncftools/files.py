"""Atomic file writes, and helpers for descriptors."""

from __future__ import annotations

import contextlib
import errno
import os

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

    descriptor = os.open(folder, os.O_RDONLY)
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
