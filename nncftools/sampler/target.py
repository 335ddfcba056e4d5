r"""The measured process, which the sampler starts and reaps, or attaches to; and the signals to that process.

The sampler sleeps until the next deadline or until a signal arrives. The sampler is in the process group of the
command, so a signal to the group (Ctrl-C, Ctrl-\, a hang-up, a scheduler's SIGUSR1) reaches the command directly. The
sampler catches such signals with handlers that only note them: the command would inherit an ignored signal, while exec
resets a handler. A signal that was ignored from the start (nohup) stays ignored in all processes.

``SignalForwarder`` passes signals on to the command if only the command line or only the sampler received them. A
signal to the command line alone was meant for the command.

The kernel signals all processes of a group at once. So if the command line reports a signal that does not arrive here
within a moment, the signal was sent to the command line alone. In the other direction no time is long enough, because
the command line may be stopped, or may be loading a library: the sampler asks, and the command line reports all signals
received before the answer.

A signal to our group does not reach a command that has made a new group, as ``timeout`` does. Without nncf-tools the
signal would reach the command, because the command would have led the group from the start.

``LimitGuard`` ends the processes that exceed the memory limit of the recording.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
from contextlib import suppress

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

    from nncftools.journal.reading import ExitStatus, MemoryLimit
    from nncftools.sampler.tree import WriteLine


ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
"""The signals by which a user or a system ends a program."""
OF_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
"""A Python handler cannot catch these: after the handler, the same fault would happen again, for ever. While such a
signal is ignored, a real fault still ends the process, but the same signal from another process does not.
"""
_NEVER_CAUGHT = {"SIGKILL", "SIGSTOP"}
_IGNORED_BY_DEFAULT = {"SIGCHLD", "SIGCLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGINFO"}
_STOPPING = {"SIGTSTP", "SIGTTIN", "SIGTTOU"}
_IGNORED_BY_PYTHON = {"SIGPIPE", "SIGXFSZ"}
_NOT_CAUGHT = _NEVER_CAUGHT | _IGNORED_BY_DEFAULT | _STOPPING | _IGNORED_BY_PYTHON | {fault.name for fault in OF_FAULTS}
_VALID = sorted(signal.valid_signals())
CAUGHT = tuple(number for number in _VALID if getattr(number, "name", "") not in _NOT_CAUGHT)
"""All signals that a group may receive and that would end a process."""
_SELECT_LIMIT = 1024


class Signals:
    """Note the signals that arrive and wake the sleeper."""

    def __init__(self, blocked: Sequence[int] = ()) -> None:
        """Catch all signals, and block only the signals that the starter has ``blocked``."""
        self._arrived: list[int] = []
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
        self._arrived.append(number)

    def take(self) -> list[int]:
        """Return the signals that arrived since the last call."""
        arrived = self._arrived
        self._arrived = []
        return arrived

    def watch(self, descriptors: Sequence[int]) -> None:
        """Wake up, from now on, when any of these descriptors becomes readable."""
        self._watched = [self._wake, *descriptors]

    def sleep(self, timeout_s: float | None) -> bool:
        """Sleep until the time-out, a signal or a readable descriptor; return False after the time-out."""
        self.ready = ready = wait_readable(self._watched, timeout_s)
        if not ready:
            return False
        if self._wake in ready:
            os.read(self._wake, 4096)
            ready.remove(self._wake)
        return True


def wait_readable(descriptors: Sequence[int], timeout_s: float | None = None) -> list[int]:
    """Wait until descriptors can be read; return these."""
    if max(descriptors) < _SELECT_LIMIT:
        return select.select(descriptors, (), (), timeout_s)[0]
    poll = select.poll()  # takes any descriptor, but waits for whole milliseconds only
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    timeout_ms = None if timeout_s is None else int(timeout_s * 1000) + 1
    return [descriptor for descriptor, _ in poll.poll(timeout_ms)]


def catch_all(handler: Callable[[int, FrameType | None], None]) -> None:
    """Catch all signals that would end this process, and ignore signals of faults; ignored signals stay ignored."""
    for number in OF_FAULTS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.SIG_IGN)
    for number in CAUGHT:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


SAME_WITHIN_S = 0.1
"""A signal to the group arrives at both processes within this time. Equal signals that are closer than this may have
merged in either of the processes."""


class _Arrival:
    """A signal that arrived here."""

    is_asked = False

    def __init__(self, number: int, at_s: float, *, is_reported: bool) -> None:
        self.number = number
        self.at_s = at_s
        self.is_reported = is_reported
        """Whether the command line received the signal, too."""

    def is_due(self, now_s: float) -> bool:
        """Return whether the command line had enough time to report the signal."""
        return self.at_s + SAME_WITHIN_S <= now_s


class SignalForwarder:
    """Compares the signals that arrived here with the signals that the command line reports."""

    _is_asking = False
    """Whether an answer of the command line is awaited."""

    def __init__(
        self, deliver: Callable[[int], None], ask: Callable[[], None], group_signal: Callable[[int], object] = int
    ) -> None:
        """``deliver`` sends a signal to the command; ``ask`` asks the command line about signals that arrived there.

        ``group_signal`` is called with each signal that was sent to the group.
        """
        self._deliver = deliver
        self._group_signal = group_signal
        self._ask = ask
        self._ours: list[_Arrival] = []
        self._theirs: list[tuple[int, float]] = []
        """Signals that the command line reported, and when."""

    def note_ours(self, number: int, now_s: float) -> None:
        """Note a signal that arrived here."""
        others = [reported for reported in self._theirs if reported[0] != number]
        is_reported = len(others) < len(self._theirs)
        self._ours.append(_Arrival(number, now_s, is_reported=is_reported))
        self._theirs = others
        if is_reported:
            self._group_signal(number)

    def note_theirs(self, number: int, now_s: float) -> None:
        """Note a signal that the command line reported."""
        same = [arrival for arrival in self._ours if arrival.number == number]
        if any(not arrival.is_reported for arrival in same):
            self._group_signal(number)
        for arrival in same:
            arrival.is_reported = True
        if not same:
            self._theirs.append((number, now_s))

    def take_answer(self) -> None:
        """Decide about the signals that the command line was asked about: forward only an unreported SIGTERM."""
        self._is_asking = False
        asked = [arrival for arrival in self._ours if arrival.is_asked]
        self._ours = [arrival for arrival in self._ours if not arrival.is_asked]
        if any(arrival.number == signal.SIGTERM and not arrival.is_reported for arrival in asked):
            self._deliver(signal.SIGTERM)

    @property
    def is_waiting(self) -> bool:
        """Whether a decision is to be made."""
        return bool(self._ours or self._theirs)

    def remaining_s(self, now_s: float) -> float | None:
        """Return the seconds until the next decision; None when none is due."""
        since = [at_s for _, at_s in self._theirs]
        since += [arrival.at_s for arrival in self._ours if arrival.is_reported or not self._is_asking]
        return max(0.0, min(since) + SAME_WITHIN_S - now_s) if since else None

    def settle(self, now_s: float, *, alone: bool) -> None:
        """Make the decisions that are due; all signals that arrived before ``now_s`` have been noted.

        ``alone`` means that the command line is gone: every signal that arrived here was sent to the group.
        """
        due = [number for number, at_s in self._theirs if at_s + SAME_WITHIN_S <= now_s]
        self._theirs = self._theirs[len(due) :]
        for number in due:
            self._deliver(number)
        unreported = []
        if not alone:
            unreported = [arrival for arrival in self._ours if not arrival.is_reported]
        fresh = [arrival for arrival in self._ours if arrival.is_reported and not arrival.is_due(now_s)]
        self._ours = unreported + fresh
        if self._is_asking or not any(arrival.is_due(now_s) for arrival in unreported):
            return
        self._is_asking = True
        for arrival in unreported:
            arrival.is_asked = True
        self._ask()


_SHELL = b"/bin/sh"
_PR_SET_CHILD_SUBREAPER = 36
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
_RESET = (signal.SIGPIPE, signal.SIGXFSZ, *OF_FAULTS)
"""Reset in the command: Python ignores some of these signals from the start, we ignore the others, and exec would keep
them ignored.
"""


def read_environment(changes: Mapping[str, str] | None = None) -> dict[bytes, bytes] | dict[str, str]:
    """Return the environment that this process was started with, with ``changes``.

    ``os.environ`` may differ: in the C locale, Python sets ``LC_CTYPE`` for itself and its children (PEP 538).
    """
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return {**os.environ, **(changes or {})}
    variables = {}
    for entry in entries:
        name, sign, value = entry.partition(b"=")
        if sign:
            variables[name] = value
    for key, text in (changes or {}).items():
        variables[os.fsencode(key)] = os.fsencode(text)
    return variables


def spawn(argv: list[bytes], blocked: Sequence[int] = (), ignored: Sequence[int] = ()) -> int:
    """Start a command with this process's own files, folder, environment and process group; return the PID.

    The command starts with the signals ``blocked`` and ``ignored`` blocked and ignored. Raises OSError when the command
    cannot be executed.
    """
    if ignored:
        return _fork(argv, blocked, ignored)
    try:
        return os.posix_spawnp(argv[0], argv, read_environment(), setsigdef=_RESET, setsigmask=blocked)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    return os.posix_spawn(_SHELL, _make_script_words(argv), read_environment(), setsigdef=_RESET, setsigmask=blocked)


def _fork(argv: list[bytes], blocked: Sequence[int], ignored: Sequence[int]) -> int:
    """Start a command by fork and exec: posix_spawn(3) cannot ignore a signal in the command only."""
    reader, writer = os.pipe()
    # In the child, signals wait until no handler of ours takes them.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
    pid = os.fork()
    if pid == 0:
        try:
            _set_signals(blocked, ignored)
            try:
                os.execvpe(argv[0], argv, read_environment())  # noqa: S606 — starting the command is the purpose
            except OSError as error:
                if error.errno != errno.ENOEXEC:
                    raise
            os.execve(_SHELL, _make_script_words(argv), read_environment())  # noqa: S606 — the same
        except OSError as error:
            os.write(writer, str(error.errno).encode())
        finally:
            os._exit(127)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
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


def _make_script_words(argv: list[bytes]) -> list[bytes]:
    """Return the words that run a script without a "#!" line, as execvp(3), env and time do."""
    program = argv[0]
    if b"/" not in program:
        folders = map(os.fsencode, os.get_exec_path())
        candidates = (os.path.join(folder, program) for folder in folders)
        program = next((path for path in candidates if os.access(path, os.X_OK)), program)
    return [_SHELL, program, *argv[1:]]


def adopt_orphans() -> bool:
    """Make orphaned descendants children of this process (prctl(2), Linux only); return whether that worked."""
    if sys.platform != "linux":
        return False
    import ctypes

    arguments = (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return bool(ctypes.CDLL(None).prctl(*arguments) == 0)


def reap_ended() -> Iterator[tuple[int, ExitStatus, int | None]]:
    """Reap the children that have ended; yield PID, exit status and ``ru_maxrss`` in bytes (getrusage(2)) of each.

    ``ru_maxrss`` is an upper limit of the child's own high-water mark. It is the largest of three sizes: the child's
    mark, the marks of the children that the child reaped, and the parent's size at the fork (exec keeps this size). If
    the system allows, each child is first yielded with None, before the reaping, while the figures can still be read.
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
                yield ready, _make_status(ended.si_status if has_exited else -ended.si_status), None
            pid, status, usage = os.wait4(ready, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, parse_wait_status(status), usage.ru_maxrss * _MAXRSS_UNIT


def parse_wait_status(status: int) -> ExitStatus:
    """Return a wait status as ``code`` or ``signal``; the other is None."""
    return _make_status(os.waitstatus_to_exitcode(status))


def _make_status(code: int) -> ExitStatus:
    return {"code": code, "signal": None} if code >= 0 else {"code": None, "signal": -code}


def exit_code(status: ExitStatus) -> int:
    """Return the status as a shell does: 128 + N for a process that signal N killed."""
    return 128 + (status["signal"] or 0) if status["code"] is None else status["code"]


def is_running(pid: int) -> bool:
    """Return whether a process exists that is not a child of this process."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno != errno.ESRCH  # EPERM: another user's process
    return True


KILL = "kill"
GRACE_S = 5.0
"""The time from SIGTERM to SIGKILL."""
_ROUNDS = 10
"""Processes are killed in several rounds: a process may fork just before it is killed."""


class LimitGuard:
    """Warns once when the processes together exceed the limit, and ends them if the plan asks for that."""

    _is_exceeded = False
    _kill_at_s: float | None = None

    def __init__(
        self, limit: MemoryLimit, alive: Callable[[float], Sequence[int]], warn: Callable[[str], None], write: WriteLine
    ) -> None:
        """``alive`` returns the PIDs of the running processes at a time in seconds; ``warn`` warns the user."""
        self._write_line = write
        self._limit = limit["rss"]
        self._action = limit["action"]
        self._list_alive = alive
        self._warn = warn

    @property
    def is_ending(self) -> bool:
        """Whether SIGTERM was sent, and SIGKILL is still to come for processes that go on."""
        return self._kill_at_s is not None

    def check(self, rss: float | None, now_s: float) -> None:
        """Compare the RSS of a sample, in bytes, with the limit."""
        if self._is_exceeded or rss is None or rss <= self._limit:
            return
        self._is_exceeded = True
        facts = {
            "at_s": round(now_s, 6),
            "rss": round(rss),
            "limit": self._limit,
            "action": self._action,
        }
        self._write_line("limit_reached", facts)
        text = f"RSS of {rss / 2**20:,.1f} MiB at {now_s:.3f} s is above --max-memory {self._limit / 2**20:,.1f} MiB"
        if self._action != KILL:
            self._warn(text)
            return
        self._warn(f"{text}: the command is ended")
        self._kill_at_s = now_s + GRACE_S
        send_signal(self._list_alive(now_s), signal.SIGTERM)

    def remaining_s(self, now_s: float) -> float | None:
        """Return the seconds until ``enforce`` is due; None when ``enforce`` has nothing to do."""
        return None if self._kill_at_s is None else max(0.0, self._kill_at_s - now_s)

    def enforce(self, now_s: float) -> None:
        """Send SIGKILL to the processes that go on after SIGTERM, when that is due."""
        if self._kill_at_s is None or now_s < self._kill_at_s:
            return
        self._kill_at_s = None
        pids = self._list_alive(now_s)
        if pids:
            self._warn(f"{len(pids)} of the processes went on for {GRACE_S:g} s after SIGTERM: SIGKILL")
        for _ in range(_ROUNDS):
            send_signal(pids, signal.SIGKILL)
            pids = self._list_alive(now_s)
            if not pids:
                return


def send_signal(pids: Sequence[int], number: int) -> None:
    """Send a signal to processes, except to those that have ended or belong to another user."""
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)
