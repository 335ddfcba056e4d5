"""Coroutine and generator functions that record what they run, from the first step to the end.

Runs in any marked program: Python 3.8 and later, the standard library only. What a wrapper returns is of the same type
as what the function returns; it passes on all that is sent, thrown and yielded, and holds none of it while it waits.
"""

from __future__ import annotations

import functools
import sys

from . import context

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


def _coroutine(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    """Return the wrapper of a coroutine function: a task has a context of its own, so steps need no care."""

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        begun = begin(args, kwargs)
        try:
            result = await function(*args, **kwargs)
        except BaseException as raised:
            _end(begun, raised)
            raise
        _end(begun, None)
        return result

    return wrapper


def _generator(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    """Return the wrapper of a generator function.

    Its operation is open in the context only while it runs: between its steps, the program does something else.
    """

    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        outside = context.variable.get()
        begun = begin(args, kwargs)
        try:
            inner = function(*args, **kwargs)
            del args, kwargs
            sent: list[Any] = [None]
            thrown = None
            while True:
                try:
                    yielded = [inner.send(sent.pop()) if thrown is None else inner.throw(thrown)]
                except StopIteration as stop:
                    result = stop.value
                    break
                finally:
                    thrown = None
                own = context.swap(outside)
                try:
                    sent.append((yield yielded.pop()))
                except BaseException as raised:  # noqa: BLE001 — also GeneratorExit, by which it is closed
                    thrown = raised
                outside = context.swap(own)
        except BaseException as raised:
            _end(begun, raised)
            raise
        _end(begun, None)
        return result

    return wrapper


def _async_generator(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    """Return the wrapper of an asynchronous generator function, with the steps of a generator."""

    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        outside = context.variable.get()
        begun = begin(args, kwargs)
        try:
            inner = function(*args, **kwargs)
            del args, kwargs
            step = [_first_step(inner)]
            while True:
                try:
                    yielded = [await step.pop()]
                except StopAsyncIteration:
                    break
                own = context.swap(outside)
                thrown = None
                try:
                    sent = [(yield yielded.pop())]
                except BaseException as raised:  # noqa: BLE001 — also GeneratorExit, by which it is closed
                    thrown = raised
                outside = context.swap(own)
                try:
                    if isinstance(thrown, GeneratorExit):
                        await inner.aclose()
                        raise thrown
                    step.append(inner.asend(sent.pop()) if thrown is None else inner.athrow(thrown))
                finally:
                    thrown = None
        except BaseException as raised:
            _end(begun, raised)
            raise
        _end(begun, None)

    return wrapper


def _first_step(inner: AsyncGenerator[Any, Any]) -> Any:
    """Return the first step of a generator of which the event loop learns nothing: the loop closes the wrapper."""
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return inner.asend(None)
    finally:
        sys.set_asyncgen_hooks(*hooks)


def _end(begun: Begun | None, error: BaseException | None) -> None:
    """End an operation; to be closed is no error."""
    if begun is not None:
        begun.end(None if isinstance(error, GeneratorExit) else error)
