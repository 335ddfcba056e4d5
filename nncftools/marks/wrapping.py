"""Replaces a function by one that records its calls, and what a saved OpenVINO model holds about itself.

Runs in the marked program: Python 3.8 and later, the standard library only.
"""

from __future__ import annotations

import functools
import os
import sys

from . import later
from .arguments import Parameters
from .call_log import Call, Frame
from .line import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from .call_log import Later, Recorder

_KINDS = {"function", "builtin_function_or_method", "cython_function_or_method", "instancemethod", "nb_func"}
_ELEMENTS = ("nncf", "optimum")
_READ = 64 * 1024
_ROOM = 60
"""Frames that marking may need for a moment; at a call, the program keeps all but one of them."""
_MODEL = ".xml"
"""The ending of an OpenVINO model."""


class NotMarkable(Exception):  # noqa: N818 — no error of the program's
    """The function cannot be marked; the message says why."""


def mark(module: object, qualified_name: str, members: str, facts: Mapping[str, Any], recorder: Recorder) -> None:
    """Make a function or ``Class.method`` of a module record its calls, under every name that it has there.

    ``members`` are the JSON members of all its lines, ``facts`` those of the catalogue. Raises NotMarkable; a function
    that is already marked stays as it is.
    """
    owner: Any = module
    *classes, name = qualified_name.split(".")
    for part in classes:
        owner = _member(owner, part)
    found = _member(owner, name)
    function = found.__func__ if isinstance(found, (classmethod, staticmethod)) else found
    files = {marked.__code__.co_filename, later.marked.__code__.co_filename}
    if getattr(getattr(function, "__code__", None), "co_filename", None) in files:
        return
    if type(function).__name__ not in _KINDS or (classes and not hasattr(found, "__get__")):
        raise NotMarkable("is not a function")
    runs_later = later.flags_of(function)
    if not runs_later and _returns_later(function):
        raise NotMarkable("is a coroutine or generator function: its call returns before it runs")
    call = Call(members + later.MEMBER if runs_later else members, facts)
    if "arguments" in facts or "saves" in facts:
        call.parameters = Parameters(function, facts)
    replacement: Any = (_marked_later if runs_later else marked)(function, call, recorder)
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


def _returns_later(function: Any) -> bool:
    while function is not None:
        if later.flags_of(function):
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def marked(function: Callable[..., Any], call: Call, recorder: Recorder) -> Callable[..., Any]:
    """Return a wrapper of ``function`` that records its calls."""
    enter, leave, parameters = recorder.enter, recorder.leave, call.parameters
    look_down, limit = sys._getframe, sys.getrecursionlimit  # noqa: SLF001 — the only way that makes no frame

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            look_down(limit() - _ROOM)
        except ValueError:  # the stack is not that deep
            pass
        else:  # what we would add to it could be too much for the program
            return function(*args, **kwargs)
        frame = Frame()
        try:
            enter(frame, call, args, kwargs)
            result = function(*args, **kwargs)
        except BaseException as error:
            leave(frame, call, error)
            raise
        leave(frame, call, None, None if parameters is None else functools.partial(_facts, parameters, args, kwargs))
        return result

    functools.update_wrapper(wrapper, function)
    wrapper.__code__ = wrapper.__code__.replace(co_name=wrapper.__name__)
    return wrapper


def _marked_later(function: Callable[..., Any], call: Call, recorder: Recorder) -> Callable[..., Any]:
    """Return a wrapper of a coroutine or generator function that records it from its first step to its end."""

    def begin(args: Any, kwargs: Any) -> Later | None:
        try:
            sys._getframe(sys.getrecursionlimit() - _ROOM)  # noqa: SLF001 — the same
        except ValueError:
            return recorder.begin(call, args, kwargs)
        return None

    wrapper: Any = later.marked(function, begin)
    wrapper.__code__ = wrapper.__code__.replace(co_name=wrapper.__name__)
    return wrapper  # type: ignore[no-any-return]


def _facts(parameters: Parameters, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return as JSON members the path of what was saved, and of an OpenVINO model its ``rt_info``."""
    try:
        path = parameters.saved(args, kwargs)
        if path is None or not os.path.exists(path):
            return ""
        rt_info = _rt_info(path) if path.endswith(_MODEL) else ""
    except (OSError, ValueError):
        return ""
    return f',"saved":{quoted(path)}' + (f',"rt_info":{quoted(rt_info)}' if rt_info else "")


def _rt_info(path: str) -> str:
    """Return the elements of the model's ``rt_info``, which follows its layers and edges. Raises OSError."""
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _READ))
        tail = file.read(_READ)
    tail = tail[tail.rfind(b"</edges>") + 1 :]
    found = b""
    for element in _ELEMENTS:
        start = tail.find(b"<%s>" % element.encode())
        closing = b"</%s>" % element.encode()
        end = tail.find(closing, start)
        if start >= 0 and end >= 0:
            found += tail[start : end + len(closing)]
    return found.decode("utf-8", "replace")
