"""Marks functions of the script itself (``__main__``), a module that is never imported.

Runs in the marked program, with the standard library only. From Python 3.12 on, sys.monitoring (PEP 669) reports the
calls. A function that is not to be marked is reported only once, at the first call. Before 3.12, the script is traced
line by line until all functions to mark are defined.
"""

from __future__ import annotations

import sys

from . import operations
from .call_log import Call, Frame, is_deep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import CodeType
    from typing import Any

    from .call_log import Later, Recorder
    from .operations import Open

    Warn = Callable[[str, str], None]
    """Writes a warning. The arguments are the name of a function that will not be marked, and the reason."""

MAIN = "__main__"
_NAMES = MAIN, "__mp_main__", "<fake __main__>"
"""Names of the script's module: in the program, in children of multiprocessing, and in other interpreters."""
_TOOL = 4
"""An ID of sys.monitoring that is not reserved for a kind of tool."""


class DefinitionTracer:
    """Marks functions of ``__main__`` as soon as they are defined. The tracing slows down the script's imports."""

    def __init__(self, names: Iterable[str], mark: Callable[[str], None], warn: Warn) -> None:
        """Call ``mark`` with the name of a function as soon as the function is defined."""
        self._waiting = set(names)
        self._mark = mark
        self._warn = warn

    def start(self) -> None:
        """Begin to trace. If another tool traces the program, warn instead."""
        if sys.gettrace() is None:
            sys.settrace(self._trace_call)
        else:
            for name in sorted(self._waiting):
                self._warn(name, "another tool traces the program")

    def _trace_call(self, frame: Any, _event: str, _argument: object) -> Any:
        if frame.f_code.co_name != "<module>" or frame.f_globals.get("__name__") != MAIN:
            return None
        for name in sorted(self._waiting):
            if not _defines(frame.f_code, name.split(".")):
                self._waiting.discard(name)
                self._warn(name, "the script does not define it")
        return self._trace_line(frame, "line", None)

    def _trace_line(self, frame: Any, event: str, _argument: object) -> Any:
        for name in list(self._waiting):
            if name.partition(".")[0] in frame.f_globals:
                self._waiting.discard(name)
                self._mark(name)
        if self._waiting and event != "return":
            return self._trace_line
        if sys.gettrace() == self._trace_call:
            sys.settrace(None)
        return None


def _defines(code: CodeType, names: Sequence[str]) -> bool:
    first, *others = names
    for part in code.co_consts:
        if getattr(part, "co_name", None) == first and (not others or _defines(part, others)):
            return True
    return False


class _Later:
    """A running coroutine."""

    def __init__(self, begun: Later | None, outside: Open | None) -> None:
        self.begun = begun
        self.waiting = outside
        """While the coroutine waits: the innermost operation inside the coroutine. While the coroutine runs: the
        innermost operation of the code that runs the coroutine. None if there is no operation.
        """

    def turn(self) -> None:
        """Swap the attribute ``waiting`` and the innermost operation of the context.

        Call this method each time the coroutine continues, and each time the coroutine starts to wait.
        """
        self.waiting = operations.swap(self.waiting)


class ScriptTracer:
    """Records the calls of some functions of ``__main__``."""

    def __init__(self, members: Mapping[str, str], recorder: Recorder, warn: Warn) -> None:
        """``members`` maps the qualified name of each function to JSON text, such as ``"name":"Export"``.

        Each line of the marks log about a call contains the JSON text of the called function.
        """
        self._members = members
        self._calls: dict[CodeType, Call] = {}
        self._recorder = recorder
        self._warn = warn
        self._open: dict[int, tuple[Call, Frame] | _Later] = {}
        """Running calls and coroutines, by the ``id()`` of the Python frame."""

    def start(self) -> None:
        """Begin to record, or warn if that is impossible."""
        monitoring: Any = getattr(sys, "monitoring", None)
        try:
            monitoring.use_tool_id(_TOOL, "nncf-tools")
        except ValueError:
            why = "another tool uses sys.monitoring; write `with nncftools.operation(NAME):` in the functions"
            for name in self._members:
                self._warn(name, why)
            return
        events = monitoring.events
        monitoring.register_callback(_TOOL, events.PY_START, self._started)
        monitoring.register_callback(_TOOL, events.PY_RETURN, self._returned)
        monitoring.register_callback(_TOOL, events.PY_UNWIND, self._unwound)
        for event in (events.PY_YIELD, events.PY_RESUME, events.PY_THROW):
            monitoring.register_callback(_TOOL, event, self._turned)
        monitoring.set_events(_TOOL, events.PY_START)

    def _started(self, code: CodeType, _offset: int) -> Any:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore] # from Python 3.12 on
        name = code.co_qualname  # type: ignore[attr-defined,unused-ignore] # from Python 3.11 on
        frame_of_code = sys._getframe(1)  # noqa: SLF001 — the only way
        if name not in self._members or frame_of_code.f_globals.get("__name__") not in _NAMES:
            return monitoring.DISABLE
        if code.co_flags & operations.GENERATOR:  # from Python 3.13 on, closing a generator may cause no event
            hint = "decorate it with `@nncftools.operation(NAME)` instead"
            self._warn(name, f"it is a generator function: a call returns before its code runs; {hint}")
            return monitoring.DISABLE
        runs_later = code.co_flags & operations.LATER
        if code not in self._calls:
            members = self._members[name]
            self._calls[code] = Call(members + operations.MEMBER if runs_later else members, {})
            events = monitoring.events
            steps = events.PY_YIELD | events.PY_RESUME if runs_later else 0
            monitoring.set_local_events(_TOOL, code, events.PY_RETURN | steps)
            monitoring.set_events(_TOOL, events.PY_START | events.PY_UNWIND | events.PY_THROW)
        call = self._calls[code]
        thread = self._recorder.thread
        if runs_later:
            outside = operations.variable.get()
            begun = self._recorder.begin(call, (), {})
            self._open[id(frame_of_code)] = _Later(begun, outside)
        elif call in thread.open:
            if not thread.raised:  # room for the frame of this function
                sys.setrecursionlimit(sys.getrecursionlimit() + 1)
                thread.limit = sys.getrecursionlimit()
                thread.raised = 1
        elif not is_deep():
            frame = Frame()
            thread.open.add(call)
            self._open[id(frame_of_code)] = call, frame
            self._recorder.enter(frame, call, (), {})
        return None

    def _turned(self, code: CodeType, _offset: int, _value: object = None) -> None:
        if code in self._calls:
            later = self._open.get(id(sys._getframe(1)))  # noqa: SLF001 — as above
            if isinstance(later, _Later):
                later.turn()

    def _returned(self, _code: CodeType, _offset: int, _value: object) -> None:
        key = id(sys._getframe(1))  # noqa: SLF001 — as above
        if key in self._open:  # checked without a call: the stack may be nearly full
            self._leave(key, None)

    def _unwound(self, code: CodeType, _offset: int, error: BaseException) -> None:
        key = id(sys._getframe(1))  # noqa: SLF001 — as above
        if code in self._calls and key in self._open:
            self._leave(key, error)

    def _leave(self, key: int, error: BaseException | None) -> None:
        opened = self._open.pop(key)
        if not isinstance(opened, _Later):
            call, frame = opened
            self._recorder.thread.close(call)
            self._recorder.leave(frame, call, error)
        elif opened.begun is not None:
            opened.begun.end(None if isinstance(error, GeneratorExit) else error)
