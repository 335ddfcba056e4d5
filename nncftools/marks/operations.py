"""Operations that a Python program marks itself, in any process of a recorded run."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from time import monotonic_ns
from typing import Any, TypeVar, cast

from nncftools.marks import context, line

_Function = TypeVar("_Function", bound="Callable[..., Any]")

SOURCE = "api"
profilers = itertools.count(1)
"""Numbers of the profilers of this process; 0 stands for none of them."""


def mark_operation(name: str) -> None:
    """Begin an operation; the next one on its level ends it, or the end of the enclosing one.

    Does nothing when nothing is recording.
    """
    mark(name, 0)


def operation(name: str) -> Marking:
    """Mark a ``with`` block or a decorated function as an operation; an exception ends it, too.

    A coroutine or generator function is marked from its first step to its end. Does nothing when nothing is recording.
    """
    return Marking(name, lambda: 0)


class Marking:
    """Marks ``with`` blocks, and the calls of functions that it decorates."""

    def __init__(self, name: str, profiler: Callable[[], int | None]) -> None:
        """``profiler`` returns the number of the profiler that marks; None when it does not record."""
        self._name = name
        self._profiler = profiler
        self._begun: list[_Begun | None] = []

    def __enter__(self) -> None:
        self._begun.append(self._begin())

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        innermost = context.variable.get()  # parallel tasks may use one object
        begun = innermost if innermost in self._begun else self._begun[-1]
        self._begun.remove(begun)
        if begun is not None:
            begun.end(error)

    def __call__(self, function: _Function) -> _Function:
        """Return a function of the same kind that marks its calls."""
        if context.flags_of(function):
            return cast("_Function", context.marked(function, self._begin))

        @functools.wraps(function)
        def marked(*args: Any, **kwargs: Any) -> Any:
            with Marking(self._name, self._profiler):
                return function(*args, **kwargs)

        return cast("_Function", marked)

    def _begin(self, *_: object) -> _Begun | None:
        profiler, log = self._profiler(), os.environ.get(line.VARIABLE)
        return _Begun(os.fsencode(log), self._name, profiler) if log and profiler is not None else None


class _Begun(context.Open):
    """An operation whose begin is in the log."""

    __slots__ = ("_path",)

    def __init__(self, path: bytes, name: str, profiler: int) -> None:
        op = next(line.operations)
        line.append(path, line.begin(op, _members(name, profiler), monotonic_ns()))
        super().__init__(op)
        self._path = path

    def end(self, error: BaseException | None) -> None:
        """Write its end; in a forked child it is not open."""
        self.close()
        if self.pid == os.getpid():
            line.append(self._path, line.end(self.op, monotonic_ns(), None if error is None else type(error).__name__))


def mark(name: str, profiler: int) -> None:
    """Begin an operation of a profiler, or of none (0), that its next one on the level ends."""
    log = os.environ.get(line.VARIABLE)
    if log:
        line.append(os.fsencode(log), line.moment(_members(name, profiler), monotonic_ns()))


def end_marks(profiler: int) -> None:
    """End what a profiler has marked by ``mark``."""
    log = os.environ.get(line.VARIABLE)
    if log:
        line.append(os.fsencode(log), line.end(0, monotonic_ns(), facts=f',"profiler":{profiler}'))


_marking: set[int] = set()
"""The process in which this program has marked something, and the one that it was forked from."""


def _members(name: str, profiler: int) -> str:
    is_first = os.getpid() not in _marking
    _marking.add(os.getpid())
    members = _named(name, SOURCE) + context.around() + (f',"profiler":{profiler}' if profiler else "")
    return members + line.PROGRAM if is_first else members


_named = functools.lru_cache(maxsize=256)(line.common_members)


def mark_from_outside(log: int, name: str, source: str) -> None:
    """Begin an operation of the whole run; the next one marked from outside ends it.

    ``log`` is a descriptor opened for appending. Raises OSError.
    """
    os.write(log, f'{{{line.common_members(name, source)},"t_ns":{monotonic_ns()}}}\n'.encode("ascii"))
