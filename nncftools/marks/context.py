"""The operation that is open in this context (contextvars); coroutines and generators that record what they run.

Runs in any marked program: Python 3.10 and later, the standard library only. The hook has a copy of this module besides
that of nncftools; both use the variable of the one that was loaded first. What a wrapper returns is of the same type
as what the function returns; it passes on all that is sent, thrown and yielded, and holds none of it while it waits.
"""

from __future__ import annotations

import functools
import os
import sys
from contextvars import ContextVar

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from typing import Any, Protocol

    class Begun(Protocol):
        """An operation that goes on."""

        def end(self, error: BaseException | None) -> None:
            """End it; ``error`` ended it, if anything did."""

    Begin = Callable[[Any, Any], "Begun | None"]
    """Begins an operation, given the arguments of the call; None where it is not recorded."""

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
        variable_of_copy: ContextVar[Open | None] | None = getattr(sys.modules.get(name), "variable", None)
        if variable_of_copy is not None:
            return variable_of_copy
    return ContextVar("nncf_tools_operation", default=None)


variable = _shared()
"""The innermost operation; it may have ended, or be that of a parent process."""


def around() -> str:
    """Return the member of a line that names the operation around what begins now: 0 for none."""
    innermost = variable.get()
    operation = None if innermost is None else _around(innermost)
    return ',"in":0' if operation is None else f',"in":{operation.op}'


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


GENERATOR, _COROUTINE, _ITERABLE_COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x100, 0x200
"""CO_GENERATOR and others: importing inspect takes 10 ms."""
MEMBER = ',"later":true'
"""The member of its lines: its thread does other things before it ends."""
LATER = GENERATOR | _COROUTINE | _ITERABLE_COROUTINE | _ASYNC_GENERATOR


def flags_of(function: Any) -> int:
    """Return which of the flags in ``LATER`` a function has, or the function of a functools.partial."""
    while isinstance(function, functools.partial):
        function = function.func
    flags: int = getattr(getattr(function, "__code__", None), "co_flags", 0)
    return flags & LATER


def marked(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    """Return a wrapper of a coroutine or generator function, of the same kind."""
    flags = flags_of(function)
    make = _coroutine if flags & _COROUTINE else _async_generator if flags & _ASYNC_GENERATOR else _generator
    wrapper: Any = functools.update_wrapper(make(function, begin), function)
    if flags & _ITERABLE_COROUTINE:
        code = wrapper.__code__
        wrapper.__code__ = code.replace(co_flags=code.co_flags | _ITERABLE_COROUTINE)
    return wrapper  # type: ignore[no-any-return]


class _Recorded:
    """Ends an operation at the end of a block; to be closed is no error."""

    def __init__(self, begun: Begun | None) -> None:
        self._begun = begun

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._begun is not None:
            self._begun.end(None if isinstance(error, GeneratorExit) else error)


def _coroutine(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    """Return the wrapper of a coroutine function: a task has a context of its own, so steps need no care."""

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        with _Recorded(begin(args, kwargs)):
            return await function(*args, **kwargs)

    return wrapper


def _generator(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    """Return the wrapper of a generator function.

    Its operation is open in the context only while it runs: between its steps, the program does something else.
    """

    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        outside = variable.get()
        with _Recorded(begin(args, kwargs)):
            inner = function(*args, **kwargs)
            del args, kwargs
            sent: list[Any] = [None]
            thrown = None
            while True:
                try:
                    yielded = [inner.send(sent.pop()) if thrown is None else inner.throw(thrown)]
                except StopIteration as stop:
                    return stop.value
                finally:
                    thrown = None
                own = swap(outside)
                try:
                    sent.append((yield yielded.pop()))
                except BaseException as raised:  # noqa: BLE001 — also GeneratorExit, by which it is closed
                    thrown = raised
                outside = swap(own)

    return wrapper


def _async_generator(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    """Return the wrapper of an asynchronous generator function, with the steps of a generator."""

    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        outside = variable.get()
        with _Recorded(begin(args, kwargs)):
            inner = function(*args, **kwargs)
            del args, kwargs
            step = [_first_step(inner)]
            while True:
                try:
                    yielded = [await step.pop()]
                except StopAsyncIteration:
                    break
                own = swap(outside)
                thrown = None
                try:
                    sent = [(yield yielded.pop())]
                except BaseException as raised:  # noqa: BLE001 — also GeneratorExit, by which it is closed
                    thrown = raised
                outside = swap(own)
                try:
                    if isinstance(thrown, GeneratorExit):
                        await inner.aclose()
                        raise thrown
                    step.append(inner.asend(sent.pop()) if thrown is None else inner.athrow(thrown))
                finally:
                    thrown = None

    return wrapper


def _first_step(inner: AsyncGenerator[Any, Any]) -> Any:
    """Return the first step of a generator of which the event loop learns nothing: the loop closes the wrapper."""
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return inner.asend(None)
    finally:
        sys.set_asyncgen_hooks(*hooks)
