"""Marks calls of functions of the script itself, which no import passes through.

Runs in the marked program, with the standard library only. From Python 3.12 on by sys.monitoring (PEP 669): code not
asked for costs one event: it is switched off for that code at its first call. Before, by tracing the lines of the
script until it has defined the functions.
"""

from __future__ import annotations

import sys

from . import context
from .call_log import Call, Frame, is_deep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import CodeType
    from typing import Any

    from .call_log import Later, Recorder
    from .context import Open

MAIN = "__main__"
_NAMES = MAIN, "__mp_main__", "<fake __main__>"
"""The names of the script: also in children that multiprocessing does not fork from it, and in other interpreters."""
_TOOL = 4
"""One of the two IDs that no kind of tool has by convention."""


class DefinitionTracer:
    """Marks functions of ``__main__`` once it has defined them: traces until then, which slows down its imports."""

    def __init__(self, names: Iterable[str], mark: Callable[[str], None], warn: Callable[[str, str], None]) -> None:
        """``mark`` takes the name of a function that is there, ``warn`` one that never will be, and why."""
        self._waiting = set(names)
        self._mark = mark
        self._warn = warn

    def start(self) -> None:
        """Begin to trace, unless another tool does."""
        if sys.gettrace() is None:
            sys.settrace(self._called)
        else:
            self._warn(", ".join(sorted(self._waiting)), "another tool traces the program")

    def _called(self, frame: Any, _event: str, _argument: object) -> Any:
        if frame.f_code.co_name != "<module>" or frame.f_globals.get("__name__") != MAIN:
            return None
        for name in sorted(self._waiting):
            if not _defines(frame.f_code, name.split(".")):
                self._waiting.discard(name)
                self._warn(name, "the script does not define it")
        return self._passed(frame, "line", None)

    def _passed(self, frame: Any, event: str, _argument: object) -> Any:
        for name in [name for name in self._waiting if name.partition(".")[0] in frame.f_globals]:
            self._waiting.discard(name)
            self._mark(name)
        if self._waiting and event != "return":
            return self._passed
        if sys.gettrace() == self._called:
            sys.settrace(None)
        return None


def _defines(code: CodeType, names: Sequence[str]) -> bool:
    first, *others = names
    inner = (part for part in code.co_consts if hasattr(part, "co_consts") and part.co_name == first)
    return any(not others or _defines(part, others) for part in inner)


class _Later:
    """A coroutine or generator that goes on."""

    def __init__(self, begun: Later | None, outside: Open | None) -> None:
        self.begun = begun
        self.waiting = outside
        """What is open in its context when it runs again; while it runs, what is open outside of it."""

    def turn(self) -> None:
        """Begin a step, or end one."""
        self.waiting = context.swap(self.waiting)


class ScriptTracer:
    """Records the calls of some functions of ``__main__``."""

    def __init__(self, members: Mapping[str, str], recorder: Recorder, warn: Callable[[str, str], None]) -> None:
        """``members`` are the JSON members of each function's lines, by its name; ``warn`` takes the name and why."""
        self._calls = {name: Call(text, {}) for name, text in members.items()}
        self._calls_of_later = {name: Call(text + context.MEMBER, {}) for name, text in members.items()}
        self._recorder = recorder
        self._warn = warn
        self._open: dict[int, tuple[Call, Frame] | _Later] = {}
        """Open calls, coroutines and generators, by the ``id()`` of Python's frames."""
        self._codes: set[CodeType] = set()

    def start(self) -> None:
        """Begin to record; where that is impossible, warn."""
        monitoring: Any = getattr(sys, "monitoring", None)
        try:
            monitoring.use_tool_id(_TOOL, "nncf-tools")
        except ValueError:
            why = "another tool uses sys.monitoring; write `with nncftools.operation(NAME):` there"
            self._warn(", ".join(self._calls), why)
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
        if name not in self._calls or frame_of_code.f_globals.get("__name__") not in _NAMES:
            return monitoring.DISABLE
        if code.co_flags & context.GENERATOR:  # from Python 3.13 on, to close one may cause no event
            hint = "write `@nncftools.operation(NAME)` there"
            self._warn(code.co_name, f"it is a generator function: its call returns before it runs; {hint}")
            return monitoring.DISABLE
        runs_later = code.co_flags & context.LATER
        if code not in self._codes:
            events = monitoring.events
            self._codes.add(code)
            steps = events.PY_YIELD | events.PY_RESUME if runs_later else 0
            monitoring.set_local_events(_TOOL, code, events.PY_RETURN | steps)
            monitoring.set_events(_TOOL, events.PY_START | events.PY_UNWIND | events.PY_THROW)
        if runs_later:
            outside = context.variable.get()
            begun = self._recorder.begin(self._calls_of_later[name], (), {})
            self._open[id(frame_of_code)] = _Later(begun, outside)
            return None
        thread, call = self._recorder.thread, self._calls[name]
        if call in thread.open:
            if not thread.raised:  # for the frame of this function
                sys.setrecursionlimit(sys.getrecursionlimit() + 1)
                thread.limit, thread.raised = sys.getrecursionlimit(), 1
        elif not is_deep():
            frame = Frame()
            thread.open.add(call)
            self._open[id(frame_of_code)] = call, frame
            self._recorder.enter(frame, call, (), {})
        return None

    def _turned(self, code: CodeType, _offset: int, _value: object = None) -> None:
        later = self._open.get(id(sys._getframe(1))) if code in self._codes else None  # noqa: SLF001 — the same
        if isinstance(later, _Later):
            later.turn()

    def _returned(self, _code: CodeType, _offset: int, _value: object) -> None:
        key = id(sys._getframe(1))  # noqa: SLF001 — the same
        if key in self._open:  # no further frame where the stack may be at its end
            self._leave(key, None)

    def _unwound(self, code: CodeType, _offset: int, error: BaseException) -> None:
        key = id(sys._getframe(1))  # noqa: SLF001 — the same
        if code in self._codes and key in self._open:
            self._leave(key, error)

    def _leave(self, key: int, error: BaseException | None) -> None:
        opened = self._open.pop(key)
        if not isinstance(opened, _Later):
            call, frame = opened
            self._recorder.thread.close(call)
            self._recorder.leave(frame, call, error)
        elif opened.begun is not None:
            opened.begun.end(None if isinstance(error, GeneratorExit) else error)
