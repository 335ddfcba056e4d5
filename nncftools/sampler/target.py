"""The measured process: started and reaped, or attached to and let be."""

from __future__ import annotations

import errno
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Mapping

_SHELL = b"/bin/sh"
_PR_SET_CHILD_SUBREAPER = 36
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
_windows_children: dict[int, subprocess.Popen[bytes]] = {}
_RESET = tuple(getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name))
"""Python ignores these, and an ignored signal is inherited by exec."""


def adopt_orphans() -> bool:
    """Make orphaned descendants children of this process (prctl(2), Linux only); return whether that worked."""
    if sys.platform != "linux":
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def environment(more: Mapping[str, str] | None = None) -> dict[bytes, bytes] | dict[str, str]:
    """Return the environment that this process was given, and ``more`` on top of it.

    ``os.environ`` may hold more: in the C locale, Python sets ``LC_CTYPE`` for itself and its children (PEP 538).
    """
    try:
        with open("/proc/self/environ", "rb") as file:
            block = file.read()
    except OSError:
        return {**os.environ, **(more or {})}
    pairs = [entry.partition(b"=") for entry in block.split(b"\0") if b"=" in entry]
    added = {os.fsencode(name): os.fsencode(value) for name, value in (more or {}).items()}
    return {name: value for name, _, value in pairs} | added


def spawn(argv: list[bytes]) -> int:
    """Start a command with this process's own files, folder, environment and process group; return its PID.

    Raises OSError when it cannot be executed.
    """
    if sys.platform == "win32":
        import subprocess

        child = subprocess.Popen([os.fsdecode(word) for word in argv])
        _windows_children[child.pid] = child
        return child.pid
    try:
        return os.posix_spawnp(argv[0], argv, environment(), setsigdef=_RESET)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    script = [_SHELL, _path_of(argv[0]), *argv[1:]]  # without a "#!" line; execvp(3), and so env and time, do the same
    return os.posix_spawn(_SHELL, script, environment(), setsigdef=_RESET)


def _path_of(program: bytes) -> bytes:
    """Return the file that a program's name means."""
    if b"/" in program:
        return program
    candidates = (os.path.join(folder, program) for folder in map(os.fsencode, os.get_exec_path()))
    return next((path for path in candidates if os.access(path, os.X_OK)), program)


def reap_ended(before: Callable[[int], None]) -> Iterator[Ended]:
    """Reap the children that have ended; ``before`` is called with each PID while the kernel still has its figures."""
    if sys.platform == "win32":
        for child in list(_windows_children.values()):
            if child.poll() is not None:
                del _windows_children[child.pid]
                yield Ended(child.pid, {"code": child.returncode, "signal": None}, None)
        return
    while True:
        try:
            ready = -1
            if sys.platform == "linux":  # waitid came to macOS with Python 3.13
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if found is None:
                    return
                ready = found.si_pid
                before(ready)
            pid, status, usage = os.wait4(ready, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield Ended(pid, exit_status(status), usage.ru_maxrss * _MAXRSS_UNIT)


class Ended:
    """A reaped child: its PID, exit status and ``ru_maxrss`` in bytes (getrusage(2)).

    That is an upper limit of the child's own high-water mark: it is the largest of its own, of those of the children
    that it reaped in turn, and of what its parent held when it was forked (kept over exec).
    """

    __slots__ = ("high_water_limit", "pid", "status")

    def __init__(self, pid: int, status: dict[str, int | None], high_water_limit: int | None) -> None:
        self.pid = pid
        self.status = status
        self.high_water_limit = high_water_limit


def exit_status(status: int) -> dict[str, int | None]:
    """Return a wait status as ``code`` or ``signal``, the other None."""
    if os.WIFSIGNALED(status):
        return {"code": None, "signal": os.WTERMSIG(status)}
    return {"code": os.WEXITSTATUS(status), "signal": None}


def exit_code(status: dict[str, int | None]) -> int:
    """Return the status as a shell gives it: 128 + N for a process that signal N killed."""
    return 128 + (status["signal"] or 0) if status["code"] is None else status["code"]


def is_running(pid: int) -> bool:
    """Return whether a process exists that is not a child of this one."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
