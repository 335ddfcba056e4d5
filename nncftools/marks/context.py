"""The operation that is open in this context: in a thread, in a task, or in a step of a generator (contextvars).

Runs in any marked program: Python 3.8 and later, the standard library only. The hook has a copy of this module besides
that of nncftools; both use the variable of the one that was loaded first.
"""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar

TYPE_CHECKING = False

_COPIES = ("nncftools.marks.context", "_nncf_tools_marks.context")


class Open:
    """An operation that begins in this context when this is made, and the one around it."""

    __slots__ = ("is_open", "op", "outer", "pid")

    def __init__(self, op: int) -> None:
        """``op`` is its number in the marks log."""
        self.op = op
        self.pid = os.getpid()
        self.is_open = True
        self.outer = _around(variable.get())
        variable.set(self)

    def close(self) -> None:
        """End it, in this context or in another one.

        Tasks that began inside of it may go on: they are inside of what is around it then.
        """
        self.is_open = False
        self.outer = _around(self.outer)
        variable.set(_around(variable.get()))


def _shared() -> ContextVar[Open | None]:
    for name in _COPIES:
        found: ContextVar[Open | None] | None = getattr(sys.modules.get(name), "variable", None)
        if found is not None:
            return found
    return ContextVar("nncf_tools_operation", default=None)


variable = _shared()
"""The innermost operation; it may have ended, or be that of a parent process."""


def around() -> str:
    """Return the member of a line that names the operation around what begins now: 0 for none."""
    innermost = variable.get()
    found = None if innermost is None else _around(innermost)
    return ',"in":0' if found is None else f',"in":{found.op}'


def swap(innermost: Open | None) -> Open | None:
    """Set the innermost operation of this context, and return what it was."""
    before = variable.get()
    variable.set(innermost)
    return before


def _around(innermost: Open | None) -> Open | None:
    """Return the innermost operation that is still open; None also for those of a parent process, after a fork."""
    while innermost is not None and not innermost.is_open:
        innermost = innermost.outer
    return None if innermost is None or innermost.pid != os.getpid() else innermost
