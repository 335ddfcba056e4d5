"""The marks log of a program that records itself."""

from __future__ import annotations

import functools
import os
import pathlib
import tempfile
import threading
from typing import TYPE_CHECKING

from nncftools.marks.line import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable

_lock = threading.Lock()
_users = 0
_made: tuple[str, Callable[[], None]] | None = None
"""The path of the log, and what removes it."""


def acquire() -> pathlib.Path:
    """Return the log for this program's marks; each call needs a matching ``release``.

    Inside a run of ``nncf-tools``, that is the log of the outer recording.
    """
    global _users, _made  # noqa: PLW0603 — one log for all recorders of a program
    with _lock:
        _users += 1
        around = os.environ.get(VARIABLE)
        if not around or not pathlib.Path(around).is_file():
            _made = _new()
            around = os.environ[VARIABLE] = _made[0]
        return pathlib.Path(around)


def release() -> None:
    """Release the log; the last user removes it."""
    global _users, _made  # noqa: PLW0603 — the same
    with _lock:
        _users -= 1
        if _users or _made is None:
            return
        path, remove = _made
        if os.environ.get(VARIABLE) == path:
            del os.environ[VARIABLE]
        remove()
        _made = None


def _new() -> tuple[str, Callable[[], None]]:
    """Return path and removal of an empty file: a temporary one, or one in memory when none can be written."""
    try:
        descriptor, name = tempfile.mkstemp(prefix="nncf-tools-", suffix=".marks.jsonl")
    except OSError:
        memory = os.memfd_create("nncf-tools-marks")
        return f"/proc/{os.getpid()}/fd/{memory}", functools.partial(os.close, memory)
    os.close(descriptor)
    return name, functools.partial(pathlib.Path(name).unlink, missing_ok=True)
