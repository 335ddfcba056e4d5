"""Log the memory that a random program takes. Each program has a copy of this file beside it.

``takes()`` stands on the line before an allocation, ``lives(thing)`` on the line after it. The end of the thing is
logged when it is freed. Each line of the log has the time and the RSS of the process. A process logs its begin, too: a
forked one has the pages of its parent.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
import weakref
from types import FrameType
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
MEASURED = -1
"""The size of a thing whose size is by how much RSS rises."""
_LOG = os.open(os.environ["OWNERS_TRUTH"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
_numbers = itertools.count()
_taking: dict[int, str] = {}
"""By thread: the token of the allocation that comes next."""


class Buffer(bytearray):
    """A bytearray whose end can be watched."""


class Items(list[Any]):
    """A list whose end can be watched."""


def _log(event: str, token: str, size: int = 0, stack: str = "") -> None:
    with open("/proc/self/statm", "rb") as file:
        rss = int(file.read().split()[1]) * 4096
    line = "\t".join([event, str(os.getpid()), str(time.monotonic_ns()), str(rss), token, str(size), stack])
    os.write(_LOG, f"{line}\n".encode())


def takes(below: int = 1) -> None:
    """Log that the line so many lines below takes memory, and who called it."""
    stack: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame:
        code = frame.f_code
        line = frame.f_lineno if stack else frame.f_lineno + below
        folder, name = os.path.split(code.co_filename)
        if folder in {"", HERE} and not name.startswith("<"):
            stack.append(f"{name}:{line}:{getattr(code, 'co_qualname', code.co_name)}")
        frame = frame.f_back
    token = f"{os.getpid()}.{next(_numbers)}"
    _taking[threading.get_ident()] = token
    _log("takes", token, stack=";".join(reversed(stack)))


def lives(thing: Any, size: int | None = None) -> Any:
    """Log that a thing of this size is there, and later its end; without a size, that of an array or a Buffer."""
    token = _taking.pop(threading.get_ident())
    weakref.finalize(thing, _ends, os.getpid(), token)
    if size is None:
        size = getattr(thing, "nbytes", 0) or len(thing)
    _log("lives", token, size)
    return thing


def _ends(process: int, token: str) -> None:
    if process == os.getpid():  # a fork copies what its parent has
        _log("ends", token)


def _begins() -> None:
    _log("begins", "")


_begins()
os.register_at_fork(after_in_child=_begins)
