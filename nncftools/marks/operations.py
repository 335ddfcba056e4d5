"""The public functions that mark operations, and the innermost running operation of each context (contextvars).

Runs in any marked program: Python 3.10 or later, the standard library only. The hook (``sitecustomize.py`` in the
program) loads a separate copy of this module, besides the copy in nncftools. Both copies use the context variable of
the copy that was loaded first.

The wrapper of a coroutine or generator function returns an object of the same type as the function. The wrapper passes
on each value that is sent or yielded, and each exception that is thrown. After that, the wrapper keeps no reference to
the value or exception.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
from contextvars import ContextVar
from time import monotonic_ns

from . import line

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from typing import Any, Protocol, TypeVar

    Function = TypeVar("Function", bound=Callable[..., Any])

    class Begun(Protocol):
        """An operation that has begun and not ended."""

        def end(self, error: BaseException | None) -> None:
            """End the operation; ``error`` is the exception that ended it, if any."""

    Begin = Callable[[Any, Any], Begun | None]
    """Begins an operation for a call. The two parameters are the positional arguments (a tuple) and the keyword
    arguments (a dictionary) of the call. Returns None if the operation is not recorded."""

_COPIES = ("nncftools.marks.operations", "_nncf_tools_marks.operations")


class Open:
    """An operation that has not ended. Making the object begins the operation in the current context."""

    __slots__ = ("is_open", "op", "outer", "pid")

    def __init__(self, op: int) -> None:
        """``op`` is the number of the operation in the marks log."""
        self.op = op
        self.pid = os.getpid()
        self.is_open = True
        self.outer = _find_open(variable.get())
        variable.set(self)

    def close(self) -> None:
        """End the operation. The call may come from another context.

        Some tasks that began inside the operation may still run. From now on, they belong to the outer operation.
        """
        self.is_open = False
        self.outer = _find_open(self.outer)
        variable.set(_find_open(variable.get()))


def _shared_variable() -> ContextVar[Open | None]:
    for name in _COPIES:
        copy: Any = sys.modules.get(name)
        if hasattr(copy, "variable"):
            return copy.variable  # type: ignore[no-any-return]
    return ContextVar("nncf_tools_operation", default=None)


variable = _shared_variable()
"""The innermost operation of the context. The operation may have ended, or may belong to the parent process of a fork.
"""


def around() -> str:
    """Return the JSON member ``in`` for a new operation: the number of the enclosing operation, or 0."""
    operation = _find_open(variable.get())
    return ',"in":0' if operation is None else f',"in":{operation.op}'


def swap(innermost: Open | None) -> Open | None:
    """Set the innermost operation of this context; return the previous innermost operation."""
    previous = variable.get()
    variable.set(innermost)
    return previous


def _find_open(innermost: Open | None) -> Open | None:
    """Return the innermost operation that has not ended; None if a parent process began the operation before a fork."""
    while innermost is not None and not innermost.is_open:
        innermost = innermost.outer
    return None if innermost is None or innermost.pid != os.getpid() else innermost


GENERATOR = 0x20
_COROUTINE = 0x80
_ITERABLE_COROUTINE = 0x100
_ASYNC_GENERATOR = 0x200
"""GENERATOR, _COROUTINE, _ITERABLE_COROUTINE and this flag are copied from inspect, because importing inspect takes 10
ms.
"""
MEMBER = ',"later":true'
"""The JSON member of a coroutine or generator: the thread runs other code before the operation ends."""
LATER = GENERATOR | _COROUTINE | _ITERABLE_COROUTINE | _ASYNC_GENERATOR


def flags_of(function: Any) -> int:
    """Return the flags of a function's code that stand for a coroutine or generator; 0 for other functions.

    A functools.partial is unwrapped first.
    """
    while isinstance(function, functools.partial):
        function = function.func
    flags: int = getattr(getattr(function, "__code__", None), "co_flags", 0)
    return flags & LATER


def marked(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    """Return a wrapper of a coroutine or generator function. The wrapper is a function of the same kind."""
    flags = flags_of(function)
    wrapper: Any
    if flags & _COROUTINE:
        wrapper = _wrap_coroutine(function, begin)
    elif flags & _ASYNC_GENERATOR:
        wrapper = _wrap_async_generator(function, begin)
    else:
        wrapper = _wrap_generator(function, begin)
    functools.update_wrapper(wrapper, function)
    if flags & _ITERABLE_COROUTINE:
        code = wrapper.__code__
        wrapper.__code__ = code.replace(co_flags=code.co_flags | _ITERABLE_COROUTINE)
    return wrapper  # type: ignore[no-any-return]


class _Recorded:
    """Ends an operation at the end of a ``with`` block.

    GeneratorExit only closes a generator, so this exception is not logged as an error.
    """

    def __init__(self, begun: Begun | None) -> None:
        self._begun = begun

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._begun is not None:
            self._begun.end(None if isinstance(error, GeneratorExit) else error)


def _wrap_coroutine(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    """Return the wrapper of a coroutine function.

    Each task has a separate context, so the operation can stay open in the context while the coroutine waits.
    """

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        with _Recorded(begin(args, kwargs)):
            return await function(*args, **kwargs)

    return wrapper


def _wrap_generator(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    """Return the wrapper of a generator function.

    The operation is the innermost operation of the context only while the generator runs. Between two values, the
    program runs other code, so the wrapper restores the operation outside the generator.
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
                except BaseException as raised:  # noqa: BLE001 — also GeneratorExit, when the generator is closed
                    thrown = raised
                outside = swap(own)

    return wrapper


def _wrap_async_generator(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    """Return the wrapper of an asynchronous generator function.

    The operation is the innermost operation of the context only while the generator runs. Between two values, the
    wrapper restores the operation outside the generator.
    """

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
                except BaseException as raised:  # noqa: BLE001 — also GeneratorExit, when the generator is closed
                    thrown = raised
                outside = swap(own)
                try:
                    if isinstance(thrown, GeneratorExit):
                        await inner.aclose()
                        raise thrown
                    following = inner.asend(sent.pop()) if thrown is None else inner.athrow(thrown)
                    step.append(following)
                finally:
                    thrown = None

    return wrapper


def _first_step(inner: AsyncGenerator[Any, Any]) -> Any:
    """Return an awaitable that runs ``inner``, the wrapped generator, up to the first value.

    The event loop must not know ``inner``, so that the loop closes only the wrapper.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return inner.asend(None)
    finally:
        sys.set_asyncgen_hooks(*hooks)


SOURCE = "api"
profilers = itertools.count(1)
"""Counter for the numbers that identify ``Profiler`` objects in this process; 0 means no profiler."""


def mark_operation(name: str) -> None:
    """Begin an operation that ends at the next ``mark_operation`` inside the same enclosing operation.

    If there is no such call, the end of the enclosing operation ends this operation. Does nothing if no recording is
    running.
    """
    mark(name, 0)


def operation(name: str) -> Marking:
    """Mark a ``with`` block or a decorated function as an operation; an exception ends the operation, too.

    The operation of a coroutine or generator begins when the code of the function begins to run, and ends when the code
    ends. Does nothing if no recording is running.
    """
    return Marking(name, lambda: 0)


class Marking:
    """Marks ``with`` blocks, and the calls of decorated functions."""

    def __init__(self, name: str, profiler: Callable[[], int | None]) -> None:
        """``profiler`` returns a number that identifies the ``Profiler`` object of the user; 0 if there is none.

        If nothing is recorded, ``profiler`` returns None.
        """
        self._name = name
        self._profiler = profiler
        self._begun: list[_Begun | None] = []

    def __enter__(self) -> None:
        self._begun.append(self._begin())

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        innermost: Any = variable.get()  # parallel tasks may use the same object
        begun = innermost if innermost in self._begun else self._begun[-1]
        self._begun.remove(begun)
        if begun is not None:
            begun.end(error)

    def __call__(self, function: Function) -> Function:
        """Return a wrapper that marks each call. The wrapper is a function of the same kind."""
        if flags_of(function):
            return marked(function, self._begin)  # type: ignore[return-value]

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with Marking(self._name, self._profiler):
                return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]

    def _begin(self, *_: object) -> _Begun | None:
        profiler = self._profiler()
        log = os.environ.get(line.VARIABLE)
        return _Begun(os.fsencode(log), self._name, profiler) if log and profiler is not None else None


class _Begun(Open):
    """An operation whose start is in the log."""

    __slots__ = ("_path",)

    def __init__(self, path: bytes, name: str, profiler: int) -> None:
        op = next(line.operations)
        line.append(path, line.begin(op, _members(name, profiler), monotonic_ns()))
        super().__init__(op)
        self._path = path

    def end(self, error: BaseException | None) -> None:
        """End the operation, and write the end to the log; in a forked child, write nothing."""
        self.close()
        if self.pid == os.getpid():
            name = None if error is None else type(error).__name__
            line.append(self._path, line.end(self.op, monotonic_ns(), name))


def mark(name: str, profiler: int) -> None:
    """Begin an operation that ends at the next mark of the same profiler inside the same outer operation.

    A ``profiler`` of 0 stands for no profiler.
    """
    log = os.environ.get(line.VARIABLE)
    if log:
        text = line.moment(_members(name, profiler), monotonic_ns())
        line.append(os.fsencode(log), text)


def end_marks(profiler: int) -> None:
    """End the operations that a profiler has begun with ``mark``."""
    log = os.environ.get(line.VARIABLE)
    if log:
        text = line.end(0, monotonic_ns(), facts=f',"profiler":{profiler}')
        line.append(os.fsencode(log), text)


_marking: set[int] = set()
"""PIDs of processes that have marked an operation: this process, and the processes from which it was forked."""


def _members(name: str, profiler: int) -> str:
    members = _named(name, SOURCE) + around()
    if profiler:
        members += f',"profiler":{profiler}'
    if os.getpid() not in _marking:
        _marking.add(os.getpid())
        members += line.PROGRAM
    return members


_named = functools.lru_cache(maxsize=256)(line.common_members)


def mark_from_outside(log: int, name: str, source: str) -> None:
    """Begin an operation of the whole run. It ends at the next operation marked from outside the program.

    ``log`` is a descriptor opened for appending. Raises OSError.
    """
    text = f'{{{line.common_members(name, source)},"t_ns":{monotonic_ns()}}}\n'
    os.write(log, text.encode("ascii"))
