"""Wraps the functions to mark when the program imports a module that defines them.

The functions come from the catalogue (see ``catalogue/README.md``) and from the user (``--mark-call``).

Runs at the start of the marked program. The code needs Python 3.10 or later, and imports as little of the standard
library as possible. ``json`` is imported together with the first library of the catalogue. ``ctypes`` takes 10 ms to
import; it is imported only if the kernel (Yama) lets only a parent read the stacks of a process. In that case, this
process must allow the recording's helper to read the stacks.
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

    Facts = dict[str, Any]
    """A function's entry in the catalogue: how to mark the function. Only functions that the user chose have the key
    ``name``.
    """
    Entries = dict[str, list[tuple[str, Facts]]]
    """The functions to mark: ``{module name: [(qualified function name, facts)]}``."""

_PR_SET_PTRACER = 0x59616D61
_BEGAN = 19
"""Index of the start time in the fields of ``/proc/PID/stat`` that follow the closing parenthesis of the name
(proc(5)).
"""


def allow_helper(helper: str) -> None:
    """Allow only the helper process ``PID:START`` to read the memory of this process and of forked children.

    ``START`` is the start time (field 22 of ``/proc/PID/stat``). If the start time is different, the PID belongs to
    another process by now. The kernel keeps the permission for a single process (Yama,
    Documentation/admin-guide/LSM/Yama.rst), and removes the permission when the helper ends (``yama_task_free``). If
    the helper ends during the call, this function withdraws the permission.
    """
    pid, _, began = helper.partition(":")
    number = int(pid)
    if number <= 1:  # -1 would give the permission to every process
        return
    import ctypes

    prctl = ctypes.CDLL(None).prctl

    def permit(process: int) -> None:
        arguments = ctypes.c_ulong(process), 0, 0, 0
        prctl(_PR_SET_PTRACER, *arguments)

    def allow() -> None:
        if read_start(number) == began:
            permit(number)
            if read_start(number) != began:
                permit(0)

    allow()
    os.register_at_fork(after_in_child=allow)


def read_start(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot; empty if the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            following = file.read().rpartition(b")")[2]
        return following.split()[_BEGAN].decode("ascii")
    except (OSError, IndexError):
        return ""


CALLS = "NNCF_TOOLS_MARK_CALLS"
"""The environment variable with the functions that the user chose. A line has module, function, name and kind (empty if
unknown), separated by tabs.
"""
HELPER = "NNCF_TOOLS_STACKS"
"""The environment variable with ``PID:START`` of the helper (the process that reads stacks). START is the start time in
clock ticks since boot. The variable is set only if this process must call ``allow_helper``."""
_SAME_NAMES = (
    "QEfficient",
    "auto_round",
    "bitsandbytes",
    "gptqmodel",
    "llmcompressor",
    "neural_compressor",
    "nncf",
    "onnx",
    "onnxruntime",
    "openvino",
    "optimum",
    "torch",
    "torchao",
    "transformers",
)
LIBRARIES = {
    "compressed_tensors": "llmcompressor",
    "openvino_tokenizers": "openvino",
    **{library: library.lower() for library in _SAME_NAMES},
}
"""Maps each top-level package to a file of the folder ``catalogue``, without ``.json``. The file lists the package's
functions to mark."""


def catalogued(file: str) -> dict[str, dict[str, Facts]]:
    """Return the functions in a file of the catalogue: ``{module: {qualified name: facts}}``."""
    import json

    path = os.path.join(os.path.dirname(__file__), "catalogue", file + ".json")
    with open(path, "rb") as text:
        return json.load(text)  # type: ignore[no-any-return]


def _attempt(work: Callable[..., object], *arguments: object) -> None:
    """Call a function and ignore any error: a program that cannot be marked must run as if nncf-tools were absent."""
    try:
        work(*arguments)
    except Exception:  # noqa: BLE001, S110 — any error
        pass


class Finder:
    """An import finder for modules with functions to mark.

    To find a module, the object asks the other finders of ``sys.meta_path``.
    """

    def __init__(self, path: bytes, entries: Entries) -> None:
        self._path = path
        self._entries = entries
        self._unread = dict(LIBRARIES)
        self._recorder: Any = None

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """Return the module's spec with a ``Loader``; None if the module has no functions to mark."""
        if not self.is_listed(name):
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = Loader(spec.loader, self)
                return spec
        return None

    def is_listed(self, module: str) -> bool:
        """Return whether a module has functions to mark. The first call for a library reads the catalogue's file."""
        file = self._unread.pop(module.partition(".")[0], None)
        if file is not None:
            _attempt(self._read, file)
        return module in self._entries

    def _read(self, file: str) -> None:
        for module, functions in catalogued(file).items():
            self._entries.setdefault(module, []).extend(functions.items())

    def mark(self, module: Any, name: str) -> None:
        """Mark the functions of an imported module."""
        for entry in self._entries[name]:
            _attempt(self._mark, module, name, entry)

    def _mark(self, module: Any, name: str, entry: tuple[str, Facts]) -> None:
        from . import call_log

        function, facts = entry
        try:
            call = call_log.Call(_members(name, function, facts), facts)
            call_log.mark(module, function, call, self._open_recorder())
        except call_log.NotMarkable as reason:
            if "by_user" in facts:
                self._warn(name, function, f"{function} {reason}")

    def mark_script(self) -> None:
        """Mark the functions in the module ``__main__`` (the script) that the user chose with ``--mark-call``."""
        from . import of_script

        main = of_script.MAIN
        functions = dict(self._entries.pop(main))

        def mark(name: str) -> None:
            _attempt(self._mark, sys.modules[main], main, (name, functions[name]))

        def warn(name: str, reason: str) -> None:
            self._warn(main, name, reason)

        if not hasattr(sys, "monitoring"):
            of_script.DefinitionTracer(functions, mark, warn).start()
            return
        members = {name: _members(main, name, facts) for name, facts in functions.items()}
        of_script.ScriptTracer(members, self._open_recorder(), warn).start()

    def _open_recorder(self) -> Any:
        if self._recorder is None:
            from . import call_log

            self._recorder = call_log.Recorder(self._path)
        return self._recorder

    def _warn(self, module: str, function: str, reason: str) -> None:
        text = f"--mark-call {module}:{function}: nothing is marked, {reason}"
        line.append(self._path, line.warning(text))


def _members(module: str, function: str, facts: Facts) -> str:
    kind: Any = facts.get("kind")
    call = facts.get("call") or module.partition(".")[0] + "." + function
    name = facts.get("name", kind)
    return line.common_members(name, "auto", kind, call, step=facts.get("step", False))


class Loader:
    """Runs the original loader of a module, then marks the module's functions."""

    def __init__(self, loader: Any, finder: Finder) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_loader"), name)

    def exec_module(self, module: Any) -> None:
        """Execute the module with the original loader, then mark the functions. The module never sees this loader."""
        name = module.__spec__.name
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._finder.mark(sys.modules.get(name, module), name)

    # The import system removes frames with this file name from tracebacks.
    exec_module.__code__ = exec_module.__code__.replace(co_filename="<frozen importlib._bootstrap>")


def _report_end(path: bytes) -> None:
    """Log the exception that ended the program, if any. If RSS ever reached 64 MiB, log the final memory, too."""
    line.report_at_exit(path)
    if line.has_grown():
        line.append(path, line.describe_python(monotonic_ns(), ',"ended":true' + line.own_memory()))


def start() -> None:
    """Start to mark functions; the environment variable ``NNCF_TOOLS_MARKS`` has the path of the log."""
    path = os.fsencode(os.environ[line.VARIABLE])
    line.append(path, line.describe_python(monotonic_ns()))
    if HELPER in os.environ:
        _attempt(allow_helper, os.environ[HELPER])
    import atexit

    atexit.register(_attempt, _report_end, path)  # atexit runs the first registered function last
    entries: Entries = {}
    for text in os.environ.get(CALLS, "").splitlines():
        module, function, name, kind = text.split("\t")
        is_named = module == "__main__" and function != name
        call = function if is_named else module + "." + function
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
