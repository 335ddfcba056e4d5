"""Files that appear whole or not at all, and files that somebody writes to."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a new, empty file beside ``path`` that takes its place at the end, or vanishes on an error.

    It keeps the file's ending, from which writers of pictures tell the format. Raises OSError.
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


def is_locked(path: pathlib.Path) -> bool:
    """Return whether a process holds the lock (flock) of a file, as a sampler does of its journal. Raises OSError."""
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    if not path.is_file():
        return False
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return False
