"""The marks log of a program that records itself."""

from __future__ import annotations

import os
import pathlib
import tempfile
import threading

from nncftools.marks.line import VARIABLE

_lock = threading.Lock()
_users = 0
_made: pathlib.Path | None = None
_memory = -1


def acquire() -> pathlib.Path:
    """Return the log for this program's marks; each call needs a matching ``release``.

    Inside a run of ``nncf-tools``, that is the log of the outer recording.
    """
    global _users, _made  # noqa: PLW0603 — one log for all recorders of a program
    with _lock:
        _users += 1
        around = os.environ.get(VARIABLE)
        if around and pathlib.Path(around).exists():
            return pathlib.Path(around)
        _made = _new()
        os.environ[VARIABLE] = str(_made)
        return _made


def release() -> None:
    """Release the log; the last user removes it."""
    global _users, _made, _memory  # noqa: PLW0603 — the same
    with _lock:
        _users -= 1
        if _users or _made is None:
            return
        if os.environ.get(VARIABLE) == str(_made):
            del os.environ[VARIABLE]
        if _memory >= 0:
            os.close(_memory)
            _memory = -1
        else:
            _made.unlink(missing_ok=True)
        _made = None


def _new() -> pathlib.Path:
    """Return an empty file: a temporary one, or one in memory when none can be written."""
    global _memory  # noqa: PLW0603 — the same
    try:
        descriptor, name = tempfile.mkstemp(prefix="nncf-tools-", suffix=".marks.jsonl")
    except OSError:
        _memory = os.memfd_create("nncf-tools-marks")
        return pathlib.Path(f"/proc/{os.getpid()}/fd/{_memory}")
    os.close(descriptor)
    return pathlib.Path(name)
