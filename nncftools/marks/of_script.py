"""Marks calls of functions of the script itself, which no import passes through: by sys.monitoring (PEP 669).

Runs in the marked program: Python 3.12 and later, the standard library only. Code that is not asked for costs one
event: it is switched off for that code at its first call.
"""

from __future__ import annotations

import sys
from _thread import _local

from .call_log import Call, Frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import CodeType
    from typing import Any

    from .call_log import Recorder

MAIN = "__main__"
_TOOL = 4
"""One of the two IDs that no kind of tool has by convention."""
_LATER = 0x20 | 0x80 | 0x100 | 0x200
"""CO_GENERATOR, CO_COROUTINE, CO_ITERABLE_COROUTINE, CO_ASYNC_GENERATOR."""


class _Open(_local):
    """The open calls of a thread, with their code."""

    def __init__(self) -> None:
        self.calls: list[tuple[CodeType, Call, Frame]] = []


class OfScript:
    """Records the calls of some functions of ``__main__``."""

    def __init__(self, members: Mapping[str, str], recorder: Recorder, warn: Callable[[str, str], None]) -> None:
        """``members`` are the JSON members of each function's lines, by its name; ``warn`` takes the name and why."""
        self._calls = {name: Call(text, {}) for name, text in members.items()}
        self._recorder = recorder
        self._warn = warn
        self._open = _Open()
        self._codes: set[CodeType] = set()

    def start(self) -> None:
        """Begin to record; where that is impossible, warn."""
        monitoring: Any = getattr(sys, "monitoring", None)
        own = "{}.{}".format(*sys.version_info[:2])
        missing = "" if monitoring else f"functions of the script itself need Python 3.12, the program runs in {own}"
        if not missing:
            try:
                monitoring.use_tool_id(_TOOL, "nncf-tools")
            except ValueError:
                missing = "another tool uses sys.monitoring"
        if missing:
            self._warn(", ".join(self._calls), f"{missing}; write `with nncftools.operation(NAME):` there")
            return
        events = monitoring.events
        monitoring.register_callback(_TOOL, events.PY_START, self._started)
        monitoring.register_callback(_TOOL, events.PY_RETURN, self._returned)
        monitoring.register_callback(_TOOL, events.PY_UNWIND, self._unwound)
        monitoring.set_events(_TOOL, events.PY_START)

    def _started(self, code: CodeType, _offset: int) -> Any:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore] # from Python 3.12 on
        call = self._calls.get(code.co_qualname)  # type: ignore[attr-defined,unused-ignore] # from Python 3.11 on
        if call is None or sys._getframe(1).f_globals.get("__name__") != MAIN:  # noqa: SLF001 — the only way
            return monitoring.DISABLE
        if code.co_flags & _LATER:
            self._warn(code.co_name, "it is a coroutine or generator function: its call returns before it runs")
            return monitoring.DISABLE
        if code not in self._codes:
            self._codes.add(code)
            monitoring.set_local_events(_TOOL, code, monitoring.events.PY_RETURN)
            monitoring.set_events(_TOOL, monitoring.events.PY_START | monitoring.events.PY_UNWIND)
        frame = Frame()
        self._open.calls.append((code, call, frame))
        self._recorder.enter(frame, call, (), {})
        return None

    def _returned(self, code: CodeType, _offset: int, _value: object) -> None:
        self._leave(code, None)

    def _unwound(self, code: CodeType, _offset: int, error: BaseException) -> None:
        if code in self._codes:
            self._leave(code, error)

    def _leave(self, code: CodeType, error: BaseException | None) -> None:
        opened = self._open.calls
        if opened and opened[-1][0] is code:
            _, call, frame = opened.pop()
            self._recorder.leave(frame, call, error)
