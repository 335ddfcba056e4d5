"""Replaces functions by wrappers that write calls to the marks log. Very frequent calls are aggregated.

Runs in the marked program: Python 3.10 or later, the standard library only. The catalogue says how an argument is
shown. To show an argument, no code of the program is called. So the only values shown are numbers, texts, paths,
members of enumerations, and short lists of these. If a call saves an OpenVINO model, the line also has the model's
``rt_info``.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from _thread import _local
from time import monotonic_ns

from . import line, operations
from .line import quote

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    Facts = Mapping[str, Any]
    """A function's entry in the catalogue: how to mark the function."""
    Args = Sequence[Any]
    Kwargs = Mapping[str, Any]
    Function = Callable[..., Any]


VALUE = "{}"
"""Placeholder in the catalogue: the argument's value. For a member of an enumeration: the member's name."""
MEMBER = "{value}"
"""Placeholder in the catalogue: the argument's value. For a member of an enumeration: the member's value."""
FILE = "{file}"
"""Placeholder in the catalogue: the last part of a path."""
UNLESS = "!"
"""Prefix in the catalogue: ``!name`` shows ``name`` if the argument is False."""
_LONGEST = 400
"""A text is shown only if it has at most this many characters. A longer text is not cut: the beginning says little, and
the beginning of a secret would not be recognised as a secret.
"""
_MOST_ITEMS = 4
_LARGEST = 10**15


class Parameters:
    """The parameters of a marked function.

    The object knows how to show each parameter, and the name of the parameter that is the path of a saved file.
    """

    def __init__(self, function: Function, facts: Facts) -> None:
        names, defaults = _signature(function)
        self._positions = {name: position for position, name in enumerate(facts.get("parameters", names))}
        self._shown: dict[str, str] = facts.get("arguments", {})
        self._saves: str | None = facts.get("saves")
        always: Sequence[str] = facts.get("always", ())
        self._left_out: dict[str, str] = {}
        """Default values as text: ``{parameter: text}``. An argument with the same text is not shown."""
        self._defaults: dict[str, Any] = {}
        """Default values of the parameters that are shown even without an argument: ``{parameter: value}``."""
        for name, default in defaults.items():
            if name in always:
                self._defaults[name] = default
            elif name in self._shown:
                self._left_out[name] = _text(default, self._shown[name])

    def members(self, args: Args, kwargs: Kwargs) -> str:
        """Return the shown arguments of a call as a JSON member; empty if no argument is shown."""
        shown = []
        try:
            for name, form in self._shown.items():
                text = _text(self._value(name, args, kwargs), form)
                if text and text != self._left_out.get(name):
                    shown.append(quote(text))
        except Exception:
            if line.file_of_error() != _text.__code__.co_filename:
                raise
            return ""
        return ',"arguments":[' + ",".join(shown) + "]" if shown else ""

    def saved(self, args: Args, kwargs: Kwargs) -> str | None:
        """Return the absolute path of the file that a call saves, if any."""
        if self._saves is None:
            return None
        path = _path(self._value(self._saves, args, kwargs))
        return os.path.abspath(path) if path else None

    def _value(self, name: str, args: Args, kwargs: Kwargs) -> Any:
        if name in kwargs:
            return kwargs[name]
        position = self._positions.get(name, len(args))
        return args[position] if position < len(args) else self._defaults.get(name)


def _signature(function: Any) -> tuple[Sequence[str], Mapping[str, Any]]:
    """Return the names of positional parameters, and defaults by name; both are empty for a compiled function."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    if code is None:
        return (), {}
    names = code.co_varnames[: code.co_argcount]
    values = getattr(function, "__defaults__", None) or ()
    defaults = dict(zip(reversed(names), reversed(values), strict=False))
    defaults.update(getattr(function, "__kwdefaults__", None) or {})
    return names, defaults


def _text(value: Any, form: str) -> str:
    if form.startswith(UNLESS):
        return form[1:] if value is False else ""
    if "{" not in form:
        return "" if value is None or value is False else form
    if FILE in form:
        path = _path(value)
        text = os.path.basename(path.rstrip("/" + os.sep)) if path else ""
        return form.replace(FILE, text) if 0 < len(text) <= _LONGEST else ""
    text = _plain(value, by_value=MEMBER in form)
    return form.replace(MEMBER, text).replace(VALUE, text) if text else ""


def _plain(value: Any, *, by_value: bool = False) -> str:
    """Return a number, text, path, enumeration member or short list of these as text; empty for any other value."""
    kind = type(value)
    if kind is list or kind is tuple:
        if not 0 < len(value) <= _MOST_ITEMS:
            return ""
        texts = [_plain(item, by_value=by_value) for item in value]
        return "[" + ", ".join(texts) + "]" if all(texts) else ""
    enumerations = getattr(sys.modules.get("enum"), "Enum", None)
    if enumerations is not None and issubclass(kind, enumerations):
        return _plain(value._value_) if by_value else str.__str__(value._name_ or "")
    if issubclass(kind, str):
        return str.__str__(value) if str.__len__(value) <= _LONGEST else ""
    if kind is bool or (kind is int and abs(value) < _LARGEST):
        return str(value)
    if issubclass(kind, float):
        return float.__format__(value, ".4g")
    path = _path(value)
    return path if path and len(path) <= _LONGEST else ""


def _path(value: Any) -> str | None:
    """Return a path as text; None for any other value, such as an open file."""
    kind = type(value)
    paths = getattr(sys.modules.get("pathlib"), "PurePath", None)
    if paths is not None and issubclass(kind, paths) and kind.__str__ is paths.__str__:
        return str(value)
    if issubclass(kind, str):
        return str.__str__(value)
    return os.fsdecode(value) if kind is bytes else None


MAX_LOGGED = 1000
"""At most this many calls of a function inside an operation are logged separately; further calls are aggregated."""
DEEPEST = 100
"""Calls are logged down to this level of nesting. A deeper call counts as part of the innermost logged call."""
FLUSH_NS = 10 * 10**9
"""Nanoseconds between two writes of aggregated calls. A killed program loses at most the aggregated calls of this time.
"""


class Call:
    """A function to mark."""

    __slots__ = ("facts", "is_leaf", "members", "most_logged", "parameters")

    def __init__(self, members: str, facts: Facts) -> None:
        self.facts = facts
        self.members = members
        """The JSON members that all lines of this function share."""
        self.most_logged: int = facts.get("logged", MAX_LOGGED)
        """At most this many calls inside an operation are logged separately."""
        self.is_leaf: bool = facts.get("leaf", False)
        """If true, calls inside calls of this function are not logged."""
        self.parameters: Parameters | None = None


class Aggregate:
    """Several calls of a function, written as a single line of the log. All times are in nanoseconds."""

    __slots__ = ("count", "end", "error", "longest", "start", "total")

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.count = self.total = self.longest = 0
        self.error: str | None = None

    def add(self, start: int, end: int, error: str | None) -> None:
        """Add a call."""
        self.count += 1
        self.total += end - start
        self.longest = max(self.longest, end - start)
        self.end = end
        self.error = error

    def line(self, members: str, where: str) -> str:
        """Return a log line for all calls, with the error of the last call."""
        error = "" if self.error is None else f',"error":{line.quote(self.error)}'
        return (
            f'{{{members},"t_ns":{self.start},"end_ns":{self.end},{where},'
            f'"count":{self.count},"total_ns":{self.total},"longest_ns":{self.longest}{error}}}\n'
        )


class Frame:
    """A running call. The outermost frame of a thread stands for the code outside all calls.

    A frame counts the marked calls directly inside.
    """

    __slots__ = ("aggregates", "is_logged", "level", "op", "outer", "start", "thread", "written")

    def __init__(self) -> None:
        self.thread: Thread | None = None
        self.outer: Frame | None = None
        self.level = 0
        """The number of running calls around this call."""
        self.op = 0
        self.start = 0
        self.is_logged = False
        """Whether calls inside this call may be logged."""
        self.written: dict[Call, int] | None = None
        self.aggregates: dict[Call, Aggregate] | None = None


class Later:
    """A running coroutine or generator. The call belongs to a context (contextvars), not to a thread's stack."""

    def __init__(self, recorder: Recorder, frame: Frame, call: Call) -> None:
        self._recorder = recorder
        self._frame = frame
        self._call = call
        self._opened = operations.Open(frame.op) if frame.op else None

    def end(self, error: BaseException | None) -> None:
        """Record the end of the call; ``error`` is the exception that ended the call, if any."""
        if self._opened is not None:
            self._opened.close()
        thread = self._recorder.thread
        innermost = thread.frame
        self._recorder.leave(self._frame, self._call, error)
        thread.frame = innermost  # a coroutine is not on the thread's stack


class Thread(_local):
    """The state of a thread: the innermost running call and the recursion limit."""

    def __init__(self) -> None:
        self.where = line.describe_thread()
        self.frame = Frame()
        self.frame.is_logged = True
        self.open: set[Call] = set()
        """The functions that are running now. If a function calls itself, only the outermost call is marked."""
        self.unmarked = 0
        """The number of running recursive calls without a mark. Each has a wrapper's frame on the stack."""
        self.raised = 0
        """The number that was added to Python's recursion limit to make room for the wrappers' frames."""
        self.limit = 0
        """The recursion limit after the last increase by this module; 0 without an increase."""

    def close(self, call: Call) -> None:
        """End a call. After the last call, restore the recursion limit, unless the program has changed the limit."""
        self.open.discard(call)
        if self.raised and not self.open:
            if sys.getrecursionlimit() == self.limit:
                sys.setrecursionlimit(self.limit - self.raised)
            self.raised = 0


class Recorder:
    """Records the calls of all threads of this process."""

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._reset()
        atexit.register(self._flush_all)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Forget all calls, at the start and in a forked child: the running calls belong to the parent process."""
        self.thread = Thread()
        self._pending: dict[Frame, str] = {}

    def enter(self, frame: Frame, call: Call, args: Args, kwargs: Kwargs) -> None:
        """Record the start and the arguments of a call."""
        thread = self.thread
        outer = thread.frame
        frame.outer = outer
        frame.thread = thread
        frame.level = outer.level + 1
        thread.frame = frame
        if not outer.is_logged:
            return
        written = outer.written
        if written is None:
            written = outer.written = {}
        count = written.get(call, 0)
        if count >= call.most_logged:
            frame.start = monotonic_ns()
            return
        if outer.aggregates:
            self._flush(outer, thread.where)
        written[call] = count + 1
        frame.op = next(line.operations)
        frame.is_logged = not call.is_leaf and frame.level < DEEPEST
        members = call.members
        if call.parameters is not None:
            members += call.parameters.members(args, kwargs)
        members += operations.around()
        text = line.begin(frame.op, members, monotonic_ns(), thread.where)
        line.append(self._path, text)

    def leave(
        self, frame: Frame, call: Call, raised: BaseException | None = None, facts: Callable[[], str] | None = None
    ) -> None:
        """Record the end of a call.

        ``raised`` is the exception that ended the call; ``facts`` returns more JSON members.
        """
        end_ns = monotonic_ns()
        thread = frame.thread
        outer = frame.outer
        # the start was not recorded, or was recorded in the parent process
        if outer is None or thread is not self.thread:
            return
        error = None if raised is None else type(raised).__name__
        thread.frame = outer
        if frame.op:
            if frame.aggregates:
                self._flush(frame, thread.where)
            members = "" if facts is None else facts()
            text = line.end(frame.op, end_ns, error, members, where=thread.where)
            line.append(self._path, text)
            if raised is not None:
                line.report(self._path, raised)
        elif frame.start:
            if outer.aggregates is None:
                outer.aggregates = {}
            aggregate = outer.aggregates.get(call)
            if aggregate is None:
                aggregate = outer.aggregates[call] = Aggregate(frame.start)
                self._pending[outer] = thread.where
            aggregate.add(frame.start, end_ns, error)
            if end_ns - aggregate.start > FLUSH_NS:
                self._flush(outer, thread.where)

    def begin(self, call: Call, args: Args, kwargs: Kwargs) -> Later | None:
        """Record the start of a coroutine or generator. Return None if the enclosing call does not log inner calls."""
        frame = Frame()
        innermost = self.thread.frame
        self.enter(frame, call, args, kwargs)
        self.thread.frame = innermost
        return Later(self, frame, call) if frame.op or frame.start else None

    def _flush(self, frame: Frame, where: str) -> None:
        aggregates = frame.aggregates or {}
        frame.aggregates = None
        self._pending.pop(frame, None)
        for call, aggregate in aggregates.items():
            line.append(self._path, aggregate.line(call.members, where))

    def _flush_all(self) -> None:
        for frame, where in list(self._pending.items()):
            self._flush(frame, where)


_KINDS = {"function", "builtin_function_or_method", "cython_function_or_method", "instancemethod", "nb_func"}
_READ = 64 * 1024
_ROOM = 60
"""A call is not marked if fewer stack frames than this are left. Marking needs these frames at the start and the end of
a call, but only a single frame (the wrapper) during the call.
"""
_SLACK = 1 if sys.version_info >= (3, 12) else 2
"""The recursion limit is raised by the number of wrapper frames on the stack, plus this number for the wrapper that
raises the limit.

Before Python 3.12, the call of the built-in function that raises the limit counts as a frame, too.
"""


class NotMarkable(Exception):  # noqa: N818 — not an error of the program
    """The function cannot be marked; the message says why."""


def mark(module: object, qualified_name: str, call: Call, recorder: Recorder) -> None:
    """Replace a function or ``Class.method`` of a module by a wrapper, under every name in the module or class.

    Raises NotMarkable. A function that is already marked stays unchanged.
    """
    owner: Any = module
    *classes, name = qualified_name.split(".")
    for part in classes:
        owner = _member(owner, part)
    attribute = _member(owner, name)
    function = attribute.__func__ if isinstance(attribute, (classmethod, staticmethod)) else attribute
    wrapper_files = {marked.__code__.co_filename, operations.marked.__code__.co_filename}
    if getattr(getattr(function, "__code__", None), "co_filename", None) in wrapper_files:
        if function.__qualname__ != qualified_name:
            raise NotMarkable(f"is already marked as {function.__qualname__}")
        return
    if type(function).__name__ not in _KINDS or (classes and not hasattr(attribute, "__get__")):
        raise NotMarkable("is not a function")
    if "arguments" in call.facts or "saves" in call.facts:
        call.parameters = Parameters(function, call.facts)
    replacement: Any
    if operations.flags_of(function):
        call.members += operations.MEMBER
        replacement = _marked_later(function, call, recorder)
    elif _returns_later(function):
        raise NotMarkable("is a coroutine or generator function: a call returns before its code runs")
    else:
        replacement = marked(function, call, recorder)
    if function is not attribute:
        replacement = type(attribute)(replacement)
    for alias, member in list(vars(owner).items()):
        if member is attribute:
            setattr(owner, alias, replacement)


def _member(owner: Any, name: str) -> Any:
    """Return an attribute that the module or class itself defines. Raises NotMarkable if it is inherited or missing."""
    if name in getattr(owner, "__dict__", ()):
        return vars(owner)[name]
    for base in getattr(owner, "__mro__", ()):
        if name in vars(base):
            raise NotMarkable(f"is inherited: name it as {base.__module__}:{base.__qualname__}.{name}")
    raise NotMarkable("does not exist")


def _returns_later(function: Any) -> bool:
    """Return whether a decorated function is a coroutine or generator function."""
    while function is not None:
        if operations.flags_of(function):
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def is_deep() -> bool:
    """Return whether fewer stack frames are left than marking needs."""
    try:
        sys._getframe(sys.getrecursionlimit() - _ROOM)  # noqa: SLF001 — as in ``marked``
    except ValueError:  # enough frames are left
        return False
    return True


def marked(function: Function, call: Call, recorder: Recorder) -> Function:
    """Return a wrapper of ``function`` that records calls."""
    enter = recorder.enter
    leave = recorder.leave
    parameters = call.parameters
    limit = sys.getrecursionlimit
    look_down = sys._getframe  # noqa: SLF001 — the only way that makes no frame

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        thread = recorder.thread
        if call in thread.open:
            more = len(thread.open) + thread.unmarked + _SLACK - thread.raised
            if more > 0:
                sys.setrecursionlimit(limit() + more)
                thread.limit = limit()
                thread.raised += more
            thread.unmarked += 1
            try:
                return function(*args, **kwargs)
            finally:
                thread.unmarked -= 1
        try:
            look_down(limit() - _ROOM)
        except ValueError:  # enough frames are left; calling ``is_deep`` would need another frame
            pass
        else:
            return function(*args, **kwargs)
        frame = Frame()
        thread.open.add(call)
        try:
            enter(frame, call, args, kwargs)
            result = function(*args, **kwargs)
        except BaseException as error:
            leave(frame, call, error)
            raise
        finally:
            thread.close(call)
        facts = None if parameters is None else functools.partial(_facts, parameters, args, kwargs)
        leave(frame, call, None, facts)
        return result

    functools.update_wrapper(wrapper, function)
    wrapper.__code__ = wrapper.__code__.replace(co_name=wrapper.__name__)
    return wrapper


def _marked_later(function: Function, call: Call, recorder: Recorder) -> Function:
    def begin(args: Any, kwargs: Any) -> Later | None:
        return None if is_deep() else recorder.begin(call, args, kwargs)

    wrapper: Any = operations.marked(function, begin)
    wrapper.__code__ = wrapper.__code__.replace(co_name=wrapper.__name__)
    return wrapper  # type: ignore[no-any-return]


def _facts(parameters: Parameters, args: Args, kwargs: Kwargs) -> str:
    """Return JSON members: the path of the saved file, if any, and the ``rt_info`` of an OpenVINO model."""
    try:
        path = parameters.saved(args, kwargs)
        if path is None or not os.path.exists(path):
            return ""
        rt_info = _rt_info(path) if path.endswith(".xml") else ""
    except (OSError, ValueError):
        return ""
    members = f',"saved":{quote(path)}'
    return f'{members},"rt_info":{quote(rt_info)}' if rt_info else members


def _rt_info(path: str) -> str:
    """Return the elements ``nncf`` and ``optimum`` of a model's ``rt_info``, at the end of the file. Raises OSError."""
    import re

    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _READ))
        tail = file.read(_READ)
    tail = tail[tail.rfind(b"</edges>") + 1 :]
    elements = [match.group() for match in re.finditer(rb"<(nncf|optimum)>.*?</\1>", tail, re.DOTALL)]
    return b"".join(elements).decode("utf-8", "replace")
