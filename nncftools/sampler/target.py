r"""The measured process: the sampler starts and reaps it, or attaches to it; and the signals that are meant for it.

The sampler sleeps until its next deadline or until a signal arrives. It shares the process group with the command, so
a signal to the group (Ctrl-C, Ctrl-\, a hang-up, a scheduler's SIGUSR1) reaches the command directly. The sampler
catches such signals with handlers that only note them: the command would inherit an ignored signal, while exec resets a
handler. A signal that was ignored from the start (nohup) stays ignored in all processes.

``SignalForwarder`` decides which signals must be passed on to the command: those that only the command line or only the
sampler received. A signal to the command line alone was meant for the command.

The kernel signals all processes of a group at once. So a signal that the command line reports, and that does not arrive
here within a moment, was sent to the command line alone. In the other direction no time is long enough, because the
command line may be stopped, or may be loading a library: the sampler asks it, and it reports all signals that it
received before it answers.

A command that has made a group of its own (``timeout`` does) is not reached by a signal to our group. Without
nncf-tools it would be, because the group would have been its own from the start.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

    from nncftools.journal.reading import ExitStatus


ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
"""Those with which a user or a system ends a program."""
OF_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
"""A Python handler cannot catch these: after it, the same fault would happen again, for ever. If they are ignored, only
a fault of its own ends a process, not a signal that another process sent."""
_NEVER_CAUGHT = {"SIGKILL", "SIGSTOP"}
_IGNORED_BY_DEFAULT = {"SIGCHLD", "SIGCLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGINFO"}
_STOPPING = {"SIGTSTP", "SIGTTIN", "SIGTTOU"}
_IGNORED_BY_PYTHON = {"SIGPIPE", "SIGXFSZ"}
_NOT_CAUGHT = _NEVER_CAUGHT | _IGNORED_BY_DEFAULT | _STOPPING | _IGNORED_BY_PYTHON | {fault.name for fault in OF_FAULTS}
CAUGHT = tuple(sorted(number for number in signal.valid_signals() if getattr(number, "name", "") not in _NOT_CAUGHT))
"""All signals that a group may receive and that would end a process."""
_MOST_OF_SELECT = 1024


class Signals:
    """Note the signals that arrive and wake the sleeper."""

    def __init__(self, blocked: Sequence[int] = ()) -> None:
        """Catch all signals, and block only those that the starter has ``blocked``."""
        self._noted: list[int] = []
        self.ready: list[int] = []
        """The descriptors that were readable after the last sleep."""
        self._wake, writer = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(writer, False)
        self.watch(())
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, self._note)
        catch_all(self._note)
        signal.pthread_sigmask(signal.SIG_SETMASK, {*blocked} - {signal.SIGCHLD})

    def _note(self, number: int, _frame: object) -> None:
        self._noted.append(number)

    def take(self) -> list[int]:
        """Return the signals noted since the last call."""
        noted, self._noted = self._noted, []
        return noted

    def watch(self, descriptors: Sequence[int]) -> None:
        """Wake up, from now on, when one of these descriptors becomes readable."""
        self._watched = [self._wake, *descriptors]

    def sleep(self, timeout_s: float | None) -> bool:
        """Sleep until the time-out, a signal, or a descriptor becomes readable; return False after the time-out."""
        self.ready = ready = readable(self._watched, timeout_s)
        if not ready:
            return False
        if self._wake in ready:
            os.read(self._wake, 4096)
            ready.remove(self._wake)
        return True


def readable(descriptors: Sequence[int], timeout_s: float | None = None) -> list[int]:
    """Wait for descriptors; return those that can be read."""
    if max(descriptors) < _MOST_OF_SELECT:
        return select.select(descriptors, (), (), timeout_s)[0]
    poll = select.poll()  # takes any descriptor, but waits for whole milliseconds only
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(None if timeout_s is None else int(timeout_s * 1000) + 1)]


def catch_all(handler: Callable[[int, FrameType | None], None]) -> None:
    """Catch all signals that would end this process, and ignore those of faults; ignored signals stay ignored."""
    for number in OF_FAULTS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.SIG_IGN)
    for number in CAUGHT:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


SAME_WITHIN_S = 0.1
"""A signal to the group arrives at both processes within this time. Equal signals that are closer than this may have
merged into one in one of the two."""


class _Arrival:
    """A signal that arrived here."""

    def __init__(self, number: int, at_s: float, *, is_known: bool) -> None:
        self.number = number
        self.at_s = at_s
        self.is_known = is_known
        """Whether the command line received it, too."""
        self.is_asked = False


class SignalForwarder:
    """Compares the signals that arrived here with those that the command line reports."""

    def __init__(
        self, deliver: Callable[[int], None], ask: Callable[[], None], group_signal: Callable[[int], object] = int
    ) -> None:
        """``deliver`` sends a signal to the command; ``ask`` asks the command line which signals it received.

        ``group_signal`` is called with each signal that was sent to the group.
        """
        self._deliver = deliver
        self._group_signal = group_signal
        self._ask = ask
        self._ours: list[_Arrival] = []
        self._theirs: list[tuple[int, float]] = []
        """Signals that the command line reported, and when."""
        self._waits = False
        """Whether an answer of the command line is awaited."""

    def note_ours(self, number: int, now_s: float) -> None:
        """Note a signal that arrived here."""
        others = [reported for reported in self._theirs if reported[0] != number]
        is_known = len(others) < len(self._theirs)
        self._ours.append(_Arrival(number, now_s, is_known=is_known))
        self._theirs = others
        if is_known:
            self._group_signal(number)

    def note_theirs(self, number: int, now_s: float) -> None:
        """Note a signal that the command line reported."""
        same = [arrival for arrival in self._ours if arrival.number == number]
        if any(not arrival.is_known for arrival in same):
            self._group_signal(number)
        for arrival in same:
            arrival.is_known = True
        if not same:
            self._theirs.append((number, now_s))

    def answered(self) -> None:
        """Decide about the signals that the command line was asked about: only a SIGTERM it missed is forwarded."""
        self._waits = False
        asked = [arrival for arrival in self._ours if arrival.is_asked]
        self._ours = [arrival for arrival in self._ours if not arrival.is_asked]
        if any(arrival.number == signal.SIGTERM and not arrival.is_known for arrival in asked):
            self._deliver(signal.SIGTERM)

    @property
    def is_waiting(self) -> bool:
        """Whether a decision is to be made."""
        return bool(self._ours or self._theirs)

    def remaining_s(self, now_s: float) -> float | None:
        """Return the seconds until the next decision; None when none is due."""
        since = [at_s for _, at_s in self._theirs]
        since += [arrival.at_s for arrival in self._ours if not (self._waits and not arrival.is_known)]
        return max(0.0, min(since) + SAME_WITHIN_S - now_s) if since else None

    def settle(self, now_s: float, *, alone: bool) -> None:
        """Make the decisions that are due; all signals that arrived before ``now_s`` have been noted.

        ``alone`` means that the command line is gone: every signal that arrived here was sent to the group.
        """
        due = [number for number, at_s in self._theirs if at_s + SAME_WITHIN_S <= now_s]
        self._theirs = self._theirs[len(due) :]
        for number in due:
            self._deliver(number)
        self._ours = [
            arrival
            for arrival in self._ours
            if (arrival.at_s + SAME_WITHIN_S > now_s if arrival.is_known else not alone)
        ]
        unknown = [arrival for arrival in self._ours if not arrival.is_known]
        if self._waits or not any(arrival.at_s + SAME_WITHIN_S <= now_s for arrival in unknown):
            return
        self._waits = True
        for arrival in unknown:
            arrival.is_asked = True
        self._ask()


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


def reap_ended() -> Iterator[tuple[int, ExitStatus, int | None]]:
    """Reap the children that have ended; yield PID, exit status and ``ru_maxrss`` in bytes (getrusage(2)) of each.

    ``ru_maxrss`` is an upper limit of the child's own high-water mark: it is the largest of its own mark, of those of
    the children that it reaped itself, and of its parent's size at the fork (kept over exec). Where the system allows
    that, each child is yielded with None before it is reaped, too, while the system still has its figures.
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
                yield ready, _ended_by(ended.si_status, has_exited=has_exited), None
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
