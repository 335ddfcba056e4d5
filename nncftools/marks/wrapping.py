"""Replaces a function by one that records its calls.

Runs in the marked program: Python 3.8 and later, the standard library only.
"""

from __future__ import annotations

import functools

from . import saved
from .call_log import Frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .call_log import Call, Recorder

_KINDS = {"function", "builtin_function_or_method", "cython_function_or_method", "instancemethod", "nb_func"}
_LATER = 0x20 | 0x80 | 0x100 | 0x200
"""CO_GENERATOR, CO_COROUTINE, CO_ITERABLE_COROUTINE, CO_ASYNC_GENERATOR: importing inspect takes 10 ms."""


class NotMarkable(Exception):  # noqa: N818 — no error of the program's
    """The function cannot be marked; the message says why."""


def mark(module: object, qualified_name: str, call: Call, recorder: Recorder) -> None:
    """Make a function or ``Class.method`` of a module record its calls, under every name that it has there.

    Raises NotMarkable; a function that is already marked stays as it is.
    """
    owner: Any = module
    *classes, name = qualified_name.split(".")
    for part in classes:
        owner = _member(owner, part)
    found = _member(owner, name)
    function = found.__func__ if isinstance(found, (classmethod, staticmethod)) else found
    if getattr(getattr(function, "__code__", None), "co_filename", None) == marked.__code__.co_filename:
        return
    if type(function).__name__ not in _KINDS or (classes and not hasattr(found, "__get__")):
        raise NotMarkable("is not a function")
    if _runs_later(function):
        raise NotMarkable("is a coroutine or generator function: its call returns before it runs")
    replacement: Any = marked(function, call, recorder)
    if function is not found:
        replacement = type(found)(replacement)
    for alias, member in list(vars(owner).items()):
        if member is found:
            setattr(owner, alias, replacement)


def _member(owner: Any, name: str) -> Any:
    """Return the attribute that a module or class itself defines. Raises NotMarkable."""
    if name in getattr(owner, "__dict__", ()):
        return vars(owner)[name]
    for base in getattr(owner, "__mro__", ()):
        if name in vars(base):
            raise NotMarkable(f"is inherited: name it as {base.__module__}:{base.__qualname__}.{name}")
    raise NotMarkable("does not exist")


def _runs_later(function: Any) -> bool:
    while function is not None:
        if getattr(getattr(function, "__code__", None), "co_flags", 0) & _LATER:
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def marked(function: Callable[..., Any], call: Call, recorder: Recorder) -> Callable[..., Any]:
    """Return a wrapper of ``function`` that records its calls."""
    enter, leave, saves = recorder.enter, recorder.leave, call.saves

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        frame = Frame()
        try:
            enter(frame, call)
            result = function(*args, **kwargs)
        except BaseException as error:
            leave(frame, call, type(error).__name__)
            raise
        if saves is None:
            leave(frame, call)
        else:
            leave(frame, call, None, functools.partial(saved.facts, saves, args, kwargs))
        return result

    functools.update_wrapper(wrapper, function)
    wrapper.__code__ = wrapper.__code__.replace(co_name=wrapper.__name__)
    return wrapper
