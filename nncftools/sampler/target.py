"""The measured process: the sampler starts and reaps it, or attaches to it."""

from __future__ import annotations

import errno
import os
import signal
import sys

from nncftools.sampler.signals import CAUGHT, OF_FAULTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from nncftools.journal.reading import ExitStatus

_SHELL = b"/bin/sh"
_PR_SET_CHILD_SUBREAPER = 36
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
_RESET = (signal.SIGPIPE, signal.SIGXFSZ, *OF_FAULTS)
"""Python ignores some of these at its start, we ignore the others, and exec keeps ignored signals ignored."""


def environment(more: Mapping[str, str] | None = None) -> dict[bytes, bytes] | dict[str, str]:
    """Return the environment that this process was started with, overridden by ``more``.

    ``os.environ`` can differ from it: in the C locale, Python sets ``LC_CTYPE`` for itself and its children (PEP 538).
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

    The signals ``blocked`` and ``ignored`` are blocked and ignored in it. Raises OSError when it cannot be executed.
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
    """Start a command by fork and exec: posix_spawn(3) cannot ignore a signal in the command only."""
    reader, writer = os.pipe()
    # In the child, signals wait until no handler of ours takes them.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
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
    """Set signals as the command must have them; signals that waited arrive now."""
    for number in {*_RESET, *CAUGHT, *ignored}:
        if number in ignored:
            signal.signal(number, signal.SIG_IGN)
        elif number in _RESET or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _as_script(argv: list[bytes]) -> list[bytes]:
    """Return the words that run a script without a "#!" line, as execvp(3) does, and so env and time."""
    return [_SHELL, _path_of(argv[0]), *argv[1:]]


def _path_of(program: bytes) -> bytes:
    if b"/" in program:
        return program
    candidates = (os.path.join(folder, program) for folder in map(os.fsencode, os.get_exec_path()))
    return next((path for path in candidates if os.access(path, os.X_OK)), program)


def adopt_orphans() -> bool:
    """Make orphaned descendants children of this process (prctl(2), Linux only); return whether that worked."""
    if sys.platform != "linux":
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def reap_ended(before: Callable[[int, ExitStatus], None]) -> Iterator[tuple[int, ExitStatus, int]]:
    """Reap the children that have ended; yield PID, exit status and ``ru_maxrss`` in bytes (getrusage(2)) of each.

    ``ru_maxrss`` is an upper limit of the child's own high-water mark: it is the largest of its own mark, of those of
    the children that it reaped itself, and of its parent's size at the fork (kept over exec). ``before`` is called with
    PID and exit status of each child while the system still has its figures, where the system allows that.
    """
    while True:
        try:
            ready = -1
            if sys.platform == "linux":  # waitid came to macOS with Python 3.13
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None:
                    return
                ready = ended.si_pid
                has_exited = ended.si_code == os.CLD_EXITED
                before(ready, _ended_by(ended.si_status, has_exited=has_exited))
            pid, status, usage = os.wait4(ready, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, exit_status(status), usage.ru_maxrss * _MAXRSS_UNIT


def exit_status(status: int) -> ExitStatus:
    """Return a wait status as ``code`` or ``signal``; the other is None."""
    has_exited = not os.WIFSIGNALED(status)
    return _ended_by(os.WEXITSTATUS(status) if has_exited else os.WTERMSIG(status), has_exited=has_exited)


def _ended_by(number: int, *, has_exited: bool) -> ExitStatus:
    return {"code": number, "signal": None} if has_exited else {"code": None, "signal": number}


def exit_code(status: ExitStatus) -> int:
    """Return the status as a shell does: 128 + N for a process that signal N killed."""
    return 128 + (status["signal"] or 0) if status["code"] is None else status["code"]


def is_running(pid: int) -> bool:
    """Return whether a process exists that is not a child of this one."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno != errno.ESRCH  # EPERM: another user's process
    return True
