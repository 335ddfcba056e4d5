r"""Starts and reaps the measured command, or attaches to a process; forwards signals to the command.

The sampler sleeps until the next deadline or until a signal arrives. The sampler is in the process group of the
command, so a signal to the group (Ctrl-C, Ctrl-\, a hang-up, a scheduler's SIGUSR1) reaches the command directly. The
sampler does not ignore such signals, because the command would inherit an ignored signal. The sampler catches the
signals with handlers that only note the signals, because exec resets a handler. A signal that was ignored from the
start (nohup) stays ignored in all processes.

The starter is the process of nncf-tools that started the sampler. ``SignalForwarder`` forwards a signal to the
command if only the starter received the signal: the signal was meant for the command. A SIGTERM that only the sampler
received is forwarded, too.

The kernel signals all processes of a group at once. So if the starter reports a signal that does not arrive in the
sampler within a moment, the signal was sent to the starter alone. The starter may report a signal very late, because
the starter may be stopped, or may be loading a library. So if a signal arrives only in the sampler, the sampler asks
the starter. Before the answer, the starter reports all signals that the starter has received.

If a command has made a new process group, as ``timeout`` does, a signal to our group does not reach the command.
Without nncf-tools the signal would reach the command, because the command would have led the group from the start.

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
"""The signals of faults. They are not caught, because the same fault would happen again after a Python handler, for
ever. They are ignored: a real fault still ends the process, but the same signal from another process does not.
"""
_NEVER_CAUGHT = {"SIGKILL", "SIGSTOP"}
_IGNORED_BY_DEFAULT = {"SIGCHLD", "SIGCLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGINFO"}
_STOPPING = {"SIGTSTP", "SIGTTIN", "SIGTTOU"}
_IGNORED_BY_PYTHON = {"SIGPIPE", "SIGXFSZ"}
_NOT_CAUGHT = _NEVER_CAUGHT | _IGNORED_BY_DEFAULT | _STOPPING | _IGNORED_BY_PYTHON | {fault.name for fault in OF_FAULTS}
_VALID = sorted(signal.valid_signals())
CAUGHT = tuple(number for number in _VALID if getattr(number, "name", "") not in _NOT_CAUGHT)
"""All signals that a process group may receive and that would end a process. These signals are caught."""
_SELECT_LIMIT = 1024


class Signals:
    """Notes the signals that arrive, and ends a sleep when a signal arrives."""

    def __init__(self, blocked: Sequence[int] = ()) -> None:
        """Catch all signals.

        Only the signals in ``blocked`` stay blocked, as in the process that started the sampler.
        """
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
        """From now on, end a sleep when any of these descriptors can be read."""
        self._watched = [self._wake, *descriptors]

    def sleep(self, timeout_s: float | None) -> bool:
        """Sleep until the time-out, a signal, or until a descriptor can be read. Return False after the time-out."""
        self.ready = ready = wait_readable(self._watched, timeout_s)
        if not ready:
            return False
        if self._wake in ready:
            os.read(self._wake, 4096)
            ready.remove(self._wake)
        return True


def wait_readable(descriptors: Sequence[int], timeout_s: float | None = None) -> list[int]:
    """Wait until any of the descriptors can be read; return these descriptors.

    Return an empty list after the time-out.
    """
    if max(descriptors) < _SELECT_LIMIT:
        return select.select(descriptors, (), (), timeout_s)[0]
    poll = select.poll()  # poll accepts any descriptor, but waits only for whole milliseconds
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    timeout_ms = None if timeout_s is None else int(timeout_s * 1000) + 1
    return [descriptor for descriptor, _ in poll.poll(timeout_ms)]


def catch_all(handler: Callable[[int, FrameType | None], None]) -> None:
    """Call ``handler`` for each signal that would end this process. Ignored signals stay ignored.

    Also ignore SIGSEGV, SIGBUS, SIGFPE and SIGILL from other processes. A real fault still ends this process.
    """
    for number in OF_FAULTS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.SIG_IGN)
    for number in CAUGHT:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


SAME_WITHIN_S = 0.1
"""A signal to the process group arrives in the sampler and in the starter (the process that started the sampler) within
this time. Equal signals within this time count as a single signal, because the kernel may merge equal signals."""


class _Arrival:
    """A signal that arrived in the sampler."""

    is_asked = False

    def __init__(self, number: int, at_s: float, *, is_reported: bool) -> None:
        self.number = number
        self.at_s = at_s
        self.is_reported = is_reported
        """Whether the starter (the process that started the sampler) received the signal, too."""

    def is_due(self, now_s: float) -> bool:
        """Return whether the starter (the process that started the sampler) had enough time to report the signal."""
        return self.at_s + SAME_WITHIN_S <= now_s


class SignalForwarder:
    """Compares the signals that the sampler and the starter received, and passes signals on to the command.

    The starter is the process of nncf-tools that started the sampler.
    """

    _is_asking = False
    """Whether the starter (the process that started the sampler) has been asked for signals, and has not answered yet.
    """

    def __init__(
        self, deliver: Callable[[int], None], ask: Callable[[], None], group_signal: Callable[[int], object] = int
    ) -> None:
        """``deliver`` sends a signal to the command. ``ask`` asks the starter for the signals that arrived there.

        The starter is the process that started the sampler. ``group_signal`` is called with each signal that was sent
        to the whole process group.
        """
        self._deliver = deliver
        self._group_signal = group_signal
        self._ask = ask
        self._ours: list[_Arrival] = []
        self._theirs: list[tuple[int, float]] = []
        """The signals that only the starter (the process that started the sampler) has received so far: ``(number,
        time)``.
        """

    def note_ours(self, number: int, now_s: float) -> None:
        """Note a signal that arrived in the sampler."""
        others = [reported for reported in self._theirs if reported[0] != number]
        is_reported = len(others) < len(self._theirs)
        self._ours.append(_Arrival(number, now_s, is_reported=is_reported))
        self._theirs = others
        if is_reported:
            self._group_signal(number)

    def note_theirs(self, number: int, now_s: float) -> None:
        """Note a signal that the starter (the process that started the sampler) reported."""
        same = [arrival for arrival in self._ours if arrival.number == number]
        if any(not arrival.is_reported for arrival in same):
            self._group_signal(number)
        for arrival in same:
            arrival.is_reported = True
        if not same:
            self._theirs.append((number, now_s))

    def take_answer(self) -> None:
        """Note that the starter (the process that started the sampler) has reported all signals that arrived there.

        The sampler had asked the starter whether the sampler's signals arrived there, too. If only the sampler received
        a SIGTERM, pass the SIGTERM on to the command. Forget the signals that the sampler asked about.
        """
        self._is_asking = False
        asked = [arrival for arrival in self._ours if arrival.is_asked]
        self._ours = [arrival for arrival in self._ours if not arrival.is_asked]
        if any(arrival.number == signal.SIGTERM and not arrival.is_reported for arrival in asked):
            self._deliver(signal.SIGTERM)

    @property
    def is_waiting(self) -> bool:
        """Whether the decision about any signal is still open: to pass the signal on to the command, or not."""
        return bool(self._ours or self._theirs)

    def remaining_s(self, now_s: float) -> float | None:
        """Return the seconds until the next decision whether to pass on a signal. None if no decision is planned."""
        since = [at_s for _, at_s in self._theirs]
        since += [arrival.at_s for arrival in self._ours if arrival.is_reported or not self._is_asking]
        return max(0.0, min(since) + SAME_WITHIN_S - now_s) if since else None

    def settle(self, now_s: float, *, alone: bool) -> None:
        """Decide whether the command gets the signals that arrived at least ``SAME_WITHIN_S`` ago.

        The caller must have noted all signals that arrived before ``now_s``. With ``alone``, the starter (the process
        that started the sampler) is gone. Every signal that arrived in the sampler then counts as sent to the group.
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
"""The signals that the command gets with the default action. Exec would keep them ignored: Python ignores SIGPIPE and
SIGXFSZ from the start, and the sampler ignores the signals of faults.
"""


def read_environment(changes: Mapping[str, str] | None = None) -> dict[bytes, bytes] | dict[str, str]:
    """Return the environment with which this process was started, updated with ``changes``.

    ``os.environ`` may be different: in the C locale, Python sets ``LC_CTYPE`` for itself and for child processes (PEP
    538).
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
    """Start a command; return the PID. Raises OSError if the command cannot be executed.

    The command gets the open files, folder, environment and process group of this process. The signals ``blocked`` are
    blocked in the command, and the signals ``ignored`` are ignored.
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
    """Start a command by fork and exec, because posix_spawn(3) cannot ignore a signal in the command only."""
    reader, writer = os.pipe()
    # In the child, signals are blocked as long as the handlers of this process would catch the signals.
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
    failure = os.read(reader, 16)  # empty after exec, because exec closes the other end
    os.close(reader)
    if failure:
        os.waitpid(pid, 0)
        raise OSError(int(failure), os.strerror(int(failure)))
    return pid


def _set_signals(blocked: Sequence[int], ignored: Sequence[int]) -> None:
    """Set the actions and the mask of signals for the command. Signals that ``_fork`` had blocked may arrive now."""
    for number in {*_RESET, *CAUGHT, *ignored}:
        if number in ignored:
            signal.signal(number, signal.SIG_IGN)
        elif number in _RESET or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _make_script_words(argv: list[bytes]) -> list[bytes]:
    """Return the command line that runs a script without a "#!" line, as execvp(3), env and time do."""
    program = argv[0]
    if b"/" not in program:
        folders = map(os.fsencode, os.get_exec_path())
        candidates = (os.path.join(folder, program) for folder in folders)
        program = next((path for path in candidates if os.access(path, os.X_OK)), program)
    return [_SHELL, program, *argv[1:]]


def adopt_orphans() -> bool:
    """Become the parent of orphaned descendants (prctl(2), Linux only); return whether this is possible."""
    if sys.platform != "linux":
        return False
    import ctypes

    arguments = (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return bool(ctypes.CDLL(None).prctl(*arguments) == 0)


def reap_ended() -> Iterator[tuple[int, ExitStatus, int | None]]:
    """Reap the children that have ended; yield PID, exit status and ``ru_maxrss`` in bytes (getrusage(2)) of each.

    On Linux, each child is yielded twice. The first time is before the reaping, while the files of the child in /proc
    can still be read; ``ru_maxrss`` is None then. ``ru_maxrss`` is an upper limit of the child's own high-water mark.
    This limit is the largest of three sizes: the child's mark, the marks of the children that the child reaped, and the
    parent's size at the fork (exec keeps this size).
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
    """Return a wait status as ``{"code": 0, "signal": None}`` or ``{"code": None, "signal": 9}``."""
    return _make_status(os.waitstatus_to_exitcode(status))


def _make_status(code: int) -> ExitStatus:
    return {"code": code, "signal": None} if code >= 0 else {"code": None, "signal": -code}


def exit_code(status: ExitStatus) -> int:
    """Return the exit code of a process as a shell does: 128 + N if signal N killed the process."""
    return 128 + (status["signal"] or 0) if status["code"] is None else status["code"]


def is_running(pid: int) -> bool:
    """Return whether a process exists. Only for processes that are not children of this process."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno != errno.ESRCH  # EPERM: the process belongs to another user
    return True


KILL = "kill"
GRACE_S = 5.0
"""The time between SIGTERM and SIGKILL."""
_ROUNDS = 10
"""SIGKILL is sent up to this many times, because a process may fork just before the kill."""


class LimitGuard:
    """Warns once if the processes together exceed the memory limit. Ends the processes if the plan asks for this."""

    _is_exceeded = False
    _kill_at_s: float | None = None

    def __init__(
        self, limit: MemoryLimit, alive: Callable[[float], Sequence[int]], warn: Callable[[str], None], write: WriteLine
    ) -> None:
        """``alive`` returns the PIDs of the running processes at a given time. ``warn`` warns the user."""
        self._write_line = write
        self._limit = limit["rss"]
        self._action = limit["action"]
        self._list_alive = alive
        self._warn = warn

    @property
    def is_ending(self) -> bool:
        """Whether SIGTERM was sent, and SIGKILL may still follow."""
        return self._kill_at_s is not None

    def check(self, rss: float | None, now_s: float) -> None:
        """Compare the RSS of a sample, in bytes, with the limit. Warn or send SIGTERM if RSS is higher."""
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
        self._warn(f"{text}: ending the command")
        self._kill_at_s = now_s + GRACE_S
        send_signal(self._list_alive(now_s), signal.SIGTERM)

    def remaining_s(self, now_s: float) -> float | None:
        """Return the seconds until ``enforce`` is due. None if no SIGKILL is planned."""
        return None if self._kill_at_s is None else max(0.0, self._kill_at_s - now_s)

    def enforce(self, now_s: float) -> None:
        """Send SIGKILL to the processes that still run, if ``GRACE_S`` has passed since SIGTERM."""
        if self._kill_at_s is None or now_s < self._kill_at_s:
            return
        self._kill_at_s = None
        pids = self._list_alive(now_s)
        if pids:
            self._warn(f"{len(pids)} of the processes still run {GRACE_S:g} s after SIGTERM: sending SIGKILL")
        for _ in range(_ROUNDS):
            send_signal(pids, signal.SIGKILL)
            pids = self._list_alive(now_s)
            if not pids:
                return


def send_signal(pids: Sequence[int], number: int) -> None:
    """Send a signal to processes. Processes that have ended or belong to another user are left out."""
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)
