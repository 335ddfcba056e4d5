"""What an exception says about memory or disk space that ran out.

Runs in the marked program: Python 3.10 and later, the standard library only.
"""

from __future__ import annotations

import errno
import sys
from itertools import takewhile
from time import monotonic_ns

from . import line

MEMORY, DISK, DEVICE = "memory", "disk", "device"
_DEEPEST = 20
_NUMBERS = {errno.ENOMEM: MEMORY, errno.ENOSPC: DISK, errno.EDQUOT: DISK}
_TEXTS = (
    ("no space left on device", DISK),
    ("os error 28", DISK),
    ("disk quota exceeded", DISK),
    ("can't allocate memory", MEMORY),
    ("cannot allocate memory", MEMORY),
    ("unable to allocate", MEMORY),
    ("not enough memory", MEMORY),
    ("bad_alloc", MEMORY),
    ("bad allocation", MEMORY),
)
"""Parts of messages, in lower case: libraries in C++ and Rust report what ran out as a RuntimeError of their own."""
_OF_LIBRARIES = (RuntimeError, OSError, SystemError, ImportError)
"""Built-in exceptions that libraries raise for errors of their own; others may only quote such a message."""
_OTHER_MEMORY = ("cuda", "hip ", "xpu", "mps ", "cublas", "cudnn")
"""A message with one of these is about the memory of a device."""
_RAN_OUT_THERE = ("out of memory", "alloc_failed")


def cause_of(error: BaseException) -> tuple[str | None, BaseException]:
    """Return what ran out, ``memory``, ``disk`` or ``device``, and which exception says so: one of its causes."""
    source: BaseException | None = error
    for _ in range(_DEEPEST):
        if source is None:
            break
        cause = _own_cause(source)
        if cause is not None:
            return cause, source
        source = source.__cause__ or source.__context__
    return None, error


def _own_cause(error: BaseException) -> str | None:
    if isinstance(error, MemoryError):
        return MEMORY
    if isinstance(error, OSError) and error.errno in _NUMBERS:
        return _NUMBERS[error.errno]
    if type(error).__module__ == "builtins" and not isinstance(error, _OF_LIBRARIES):
        return None
    text = error.args[0].lower() if error.args and isinstance(error.args[0], str) else ""
    if any(word in text for word in _OTHER_MEMORY):
        return DEVICE if any(part in text for part in _RAN_OUT_THERE) else None
    return next((cause for part, cause in _TEXTS if part in text), None)


def report(path: bytes, error: BaseException, *, fatal: bool = False) -> None:
    """Write to the log what ran out; ``fatal``, the exception ended the program, and is written in any case."""
    cause, source = cause_of(error)
    if cause is not None or fatal:
        device = _device(source) if cause == DEVICE else ""
        line.append(path, line.failure(type(source).__name__, cause, monotonic_ns(), fatal=fatal, device=device))


def _device(error: BaseException) -> str:
    """Return the device that torch's message names, by torch's own name, or its kind (``cuda``) if there is no number.

    ``GPU 1 has a total capacity of …``, before PyTorch 2.2 ``(GPU 1; 79.15 GiB total capacity; …``.
    """
    text = error.args[0].lower() if error.args and isinstance(error.args[0], str) else ""
    return ("xpu" if "xpu" in text else "cuda") + "".join(takewhile(str.isdigit, text.partition("gpu ")[2]))


def report_at_exit(path: bytes) -> None:
    """Report the exception that ends the program: Python keeps it before it shows it."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if isinstance(error, BaseException):
        report(path, error, fatal=True)
