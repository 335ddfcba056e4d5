"""Wraps the functions of the catalogue, and those that the user names, as their modules are imported.

Runs in the marked program at its start: Python 3.10 and later, as little of the standard library as possible. ``json``
is imported with the first catalogued library, and ``ctypes`` (10 ms) only where the kernel allows nobody but parents to
read stacks (yama), so that this process must allow it to the recording's helper.

``catalogue/README.md`` describes the catalogue's files.
"""

from __future__ import annotations

import os
import sys
from time import monotonic_ns

from . import line

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Entries = dict[str, list[tuple[str, dict[str, Any]]]]
    """By module: functions to mark, and how; those of the user have a name."""

_PR_SET_PTRACER = 0x59616D61
_BEGAN = 19
"""Position after the closing parenthesis of the name (proc(5))."""


def allow_helper(helper: str) -> None:
    """Allow the process that ``PID:START`` names, and no other, to read our memory; again in forked children.

    ``START`` is when it began (field 22 of ``/proc/PID/stat``): after its end, another process may have its PID. The
    kernel keeps the permission for one process only (Yama, Documentation/admin-guide/LSM/Yama.rst), and removes it when
    the helper ends (``yama_task_free``). If the helper ends during the call, the permission is withdrawn here.
    """
    pid, _, began = helper.partition(":")
    number = int(pid)
    if number <= 1:  # -1 would allow it to every process
        return
    import ctypes

    prctl = ctypes.CDLL(None).prctl

    def allow() -> None:
        if began_at(number) == began:
            prctl(_PR_SET_PTRACER, ctypes.c_ulong(number), 0, 0, 0)
            if began_at(number) != began:
                prctl(_PR_SET_PTRACER, ctypes.c_ulong(0), 0, 0, 0)

    allow()
    os.register_at_fork(after_in_child=allow)


def began_at(pid: int) -> str:
    """Return when a process began, in clock ticks since the start of the machine; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[_BEGAN].decode("ascii")
    except (OSError, IndexError):
        return ""


CALLS = "NNCF_TOOLS_MARK_CALLS"
"""The user's functions, one per line, tab-separated: module, function, name, kind (empty if unknown)."""
HELPER = "NNCF_TOOLS_STACKS"
"""``PID:START`` of the helper, where the kernel lets it read only processes that allow it: see ``allow_helper``."""
_WITH_A_FILE = "QEfficient", "nncf", "onnx", "onnxruntime", "openvino", "optimum", "torch", "transformers"
LIBRARIES = {"openvino_tokenizers": "openvino", **{library: library.lower() for library in _WITH_A_FILE}}
"""The catalogue's file for each root package."""


def catalogued(file: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the functions in a file of the catalogue, by module and qualified name, with their facts."""
    import json

    with open(os.path.join(os.path.dirname(__file__), "catalogue", file + ".json"), "rb") as text:
        return json.load(text)  # type: ignore[no-any-return]


def _attempt(work: Callable[..., object], *arguments: object) -> None:
    """Do something, or not: a program that cannot be marked must run as it would have."""
    try:
        work(*arguments)
    except Exception:  # noqa: BLE001, S110 — whatever it is
        pass


class Finder:
    """Finds the modules that have functions to mark; delegates to the other finders."""

    def __init__(self, path: bytes, entries: Entries) -> None:
        self._path = path
        self._entries = entries
        self._unread = dict(LIBRARIES)
        self._recorder: Any = None

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """Return the module's spec with a loader that marks; None for modules that are not listed."""
        if not self.is_listed(name):
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = Loader(spec.loader, self)
                return spec
        return None

    def is_listed(self, module: str) -> bool:
        """Return whether a module has functions to mark; reads the catalogue of its library on first use."""
        file = self._unread.pop(module.partition(".")[0], None)
        if file is not None:
            _attempt(self._read, file)
        return module in self._entries

    def _read(self, file: str) -> None:
        for module, functions in catalogued(file).items():
            self._entries.setdefault(module, []).extend(functions.items())

    def mark(self, module: Any, name: str) -> None:
        """Mark the listed functions of a module."""
        for function, facts in self._entries[name]:
            _attempt(self._mark, module, name, function, facts)

    def _mark(self, module: Any, name: str, function: str, facts: dict[str, Any]) -> None:
        from . import call_log

        try:
            call_log.mark(module, function, _members(name, function, facts), facts, self._recorded())
        except call_log.NotMarkable as reason:
            if "by_user" in facts:
                self._warn(name, function, f"{function} {reason}")

    def mark_script(self) -> None:
        """Mark the listed functions of the script itself, when they are called."""
        from . import of_script

        asked = self._entries.pop(of_script.MAIN, None)
        if asked is not None and not hasattr(sys, "monitoring"):
            facts = dict(asked)

            def mark(name: str) -> None:
                _attempt(self._mark, sys.modules[of_script.MAIN], of_script.MAIN, name, facts[name])

            of_script.DefinitionTracer(facts, mark, lambda *why: self._warn(of_script.MAIN, *why)).start()
        elif asked is not None:
            members = {function: _members(of_script.MAIN, function, facts) for function, facts in asked}
            of_script.ScriptTracer(members, self._recorded(), lambda *why: self._warn(of_script.MAIN, *why)).start()

    def _recorded(self) -> Any:
        if self._recorder is None:
            from . import call_log

            self._recorder = call_log.Recorder(self._path)
        return self._recorder

    def _warn(self, module: str, function: str, reason: str) -> None:
        line.append(self._path, line.warning(f"--mark-call {module}:{function}: nothing is marked, {reason}"))


def _members(module: str, function: str, facts: dict[str, Any]) -> str:
    kind: Any = facts.get("kind")
    shown = facts.get("call") or module.partition(".")[0] + "." + function
    return line.common_members(facts.get("name", kind), "auto", kind, shown, step=facts.get("step", False))


class Loader:
    """Runs a module's own loader as if it were alone, then marks the module's functions."""

    def __init__(self, loader: Any, finder: Finder) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_loader"), name)

    def exec_module(self, module: Any) -> None:
        """Execute the module, which sees its own loader, then mark its functions."""
        name = module.__spec__.name
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._finder.mark(sys.modules.get(name, module), name)

    # The import system drops frames of this file name from tracebacks.
    exec_module.__code__ = exec_module.__code__.replace(co_filename="<frozen importlib._bootstrap>")


def _report_end(path: bytes) -> None:
    """Report which exception ended the program, and what it holds before Python clears its modules."""
    line.report_at_exit(path)
    if line.has_grown():
        line.append(path, line.describe_python(monotonic_ns(), ',"ended":true' + line.own_memory()))


def start() -> None:
    """Start to mark, into the log that the environment names."""
    path = os.fsencode(os.environ[line.VARIABLE])
    line.append(path, line.describe_python(monotonic_ns()))
    if HELPER in os.environ:
        _attempt(allow_helper, os.environ[HELPER])
    import atexit

    atexit.register(_attempt, _report_end, path)  # the first one runs last
    entries: Entries = {}
    for text in os.environ.get(CALLS, "").splitlines():
        module, function, name, kind = text.split("\t")
        call = function if module == "__main__" and function != name else module + "." + function
        facts = {"name": name, "kind": kind, "call": call, "by_user": True}
        entries.setdefault(module, []).append((function, facts))
    finder = Finder(path, entries)
    if "__main__" in entries:
        finder.mark_script()
    sys.meta_path.insert(0, finder)
    for name in LIBRARIES:
        if name in sys.modules:
            finder.is_listed(name)
    for name in list(entries):
        if name in sys.modules:
            finder.mark(sys.modules[name], name)
