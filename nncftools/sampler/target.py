"""The measured process: started and reaped, or attached to and let be."""

from __future__ import annotations

import errno
import os
import signal
import sys

from nncftools.sampler.signals import CAUGHT, OF_FAULTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from nncftools.journal.lines import ExitStatus

_SHELL = b"/bin/sh"
_PR_SET_CHILD_SUBREAPER = 36
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
_RESET = (signal.SIGPIPE, signal.SIGXFSZ, *OF_FAULTS)
"""Python ignores some of these at its start, we the others, and an ignored signal is inherited by exec."""


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


def spawn(argv: list[bytes], blocked: Sequence[int] = (), ignored: Sequence[int] = ()) -> int:
    """Start a command with this process's own files, folder, environment and process group; return its PID.

    The command gets signals blocked and ignored as named. Raises OSError when it cannot be executed.
    """
    if ignored:
        return _forked(argv, blocked, ignored)
    try:
        return os.posix_spawnp(argv[0], argv, environment(), setsigdef=_RESET, setsigmask=blocked)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    return os.posix_spawn(_SHELL, _as_script(argv), environment(), setsigdef=_RESET, setsigmask=blocked)


def _forked(argv: list[bytes], blocked: Sequence[int], ignored: Sequence[int]) -> int:
    """Start a command by fork and exec: posix_spawn(3) has no way to ignore a signal in the command alone."""
    reader, writer = os.pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)  # what the child gets waits until no handler takes it
    pid = os.fork()
    if pid == 0:
        try:
            _set_signals(blocked, ignored)
            try:
                os.execvpe(argv[0], argv, environment())  # noqa: S606 — starting it is the purpose
            except OSError as error:
                if error.errno != errno.ENOEXEC:
                    raise
            os.execve(_SHELL, _as_script(argv), environment())  # noqa: S606 — the same
        except OSError as error:
            os.write(writer, str(error.errno).encode())
        finally:
            os._exit(127)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(writer)
    failure = os.read(reader, 16)  # exec closes the other end
    os.close(reader)
    if failure:
        os.waitpid(pid, 0)
        raise OSError(int(failure), os.strerror(int(failure)))
    return pid


def _set_signals(blocked: Sequence[int], ignored: Sequence[int]) -> None:
    """Take signals as the command is to get them; what waits arrives now."""
    for number in {*_RESET, *CAUGHT, *ignored}:
        if number in ignored:
            signal.signal(number, signal.SIG_IGN)
        elif number in _RESET or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _as_script(argv: list[bytes]) -> list[bytes]:
    """Return how to run a script without a "#!" line; execvp(3), and so env and time, do the same."""
    return [_SHELL, _path_of(argv[0]), *argv[1:]]


def _path_of(program: bytes) -> bytes:
    """Return the file that a program's name means."""
    if b"/" in program:
        return program
    candidates = (os.path.join(folder, program) for folder in map(os.fsencode, os.get_exec_path()))
    return next((path for path in candidates if os.access(path, os.X_OK)), program)


def reap_ended(before: Callable[[int, ExitStatus], None]) -> Iterator[Ended]:
    """Reap the children that have ended.

    ``before`` is called with PID and exit status of each, where the system allows that while it still has the figures.
    """
    while True:
        try:
            ready = -1
            if sys.platform == "linux":  # waitid came to macOS with Python 3.13
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if found is None:
                    return
                ready = found.si_pid
                before(ready, _status_of(found.si_code, found.si_status))
            pid, status, usage = os.wait4(ready, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield Ended(pid, exit_status(status), usage.ru_maxrss * _MAXRSS_UNIT)


def _status_of(code: int, status: int) -> ExitStatus:
    """Return what waitid(2) says of an end as ``code`` or ``signal``, the other None."""
    if code == os.CLD_EXITED:
        return {"code": status, "signal": None}
    return {"code": None, "signal": status}


class Ended:
    """A reaped child: its PID, exit status and ``ru_maxrss`` in bytes (getrusage(2)).

    That is an upper limit of the child's own high-water mark: it is the largest of its own, of those of the children
    that it reaped in turn, and of what its parent held when it was forked (kept over exec).
    """

    __slots__ = ("high_water_limit", "pid", "status")

    def __init__(self, pid: int, status: ExitStatus, high_water_limit: int | None) -> None:
        self.pid = pid
        self.status = status
        self.high_water_limit = high_water_limit


def exit_status(status: int) -> ExitStatus:
    """Return a wait status as ``code`` or ``signal``, the other None."""
    if os.WIFSIGNALED(status):
        return {"code": None, "signal": os.WTERMSIG(status)}
    return {"code": os.WEXITSTATUS(status), "signal": None}


def exit_code(status: ExitStatus) -> int:
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
