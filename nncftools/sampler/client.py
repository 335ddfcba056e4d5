"""Starts a sampler, and waits for the end of the recording.

During a recording, ``Starter`` changes signal handlers and the limit of open files of this process. The command still
starts with the original handlers and limit.
"""

from __future__ import annotations

import os
import pathlib
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple

from nncftools.errors import NncfToolsError, __version__
from nncftools.files import HELPER_PROCESS, above_standard, descriptors_in_use, write_all
from nncftools.journal.reading import FORMAT, VERSION, End, ExitStatus, Header, Start
from nncftools.journal.writing import Plan
from nncftools.metrics import OF_DEVICES, name_of
from nncftools.sampler import link, target
from nncftools.sampler.link import StarterLink
from nncftools.sampler.probes import explain_missing, list_references, load_probe
from nncftools.sampler.probes.machine import Devices
from nncftools.sampler.target import CAUGHT, ENDING, OF_FAULTS, catch_all, wait_readable
from nncftools.sampler.tree import DETACHED_ARGUMENT, find_size, read_small_file

PROC = "/proc"
_SOURCE_VARIABLE = "_NNCF_TOOLS_SOURCE"
"""The environment variable that sets the source of figures: ``proc`` or ``psutil``. Only tests set the variable."""
_FEWEST_DESCRIPTORS = 24
"""The number of free file descriptors that a recording with a live view needs. Without a live view, half are enough."""
_USUAL_DESCRIPTORS = 256
Relays = Sequence[tuple[int, int]]
"""Pairs ``(source, sink)`` of file descriptors. This process copies the command's output from the source to the sink.
"""


def describe_host() -> dict[str, Any]:
    """Return the facts about this machine for the session. Sizes are in bytes."""
    system = os.uname()
    memory = None
    if "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "name": system.nodename,
        "system": system.sysname,
        "release": system.release,
        "machine": system.machine,
        "cpus": os.cpu_count(),
        "memory": memory,
        "swap": find_size(read_small_file(f"{PROC}/meminfo"), b"\nSwapTotal:"),
        "python": sys.version.split()[0],
        "boot_id": boot_id(),
    }


def boot_id() -> str:
    """Return the kernel's ID of this boot. The text is empty if the ID is unknown."""
    return read_small_file(f"{PROC}/sys/kernel/random/boot_id").decode("ascii").strip()


class Offer(NamedTuple):
    """The source of a metric, and the cost of reading it."""

    source: str
    cost: str
    missing: str = ""
    """The reason why the metric is not available here. Empty if the metric is available."""


def platform_source() -> str:
    """Return the source of figures on this platform: ``proc`` or ``psutil``."""
    return os.environ.get(_SOURCE_VARIABLE) or ("proc" if sys.platform == "linux" else "psutil")


def list_offers() -> dict[str, Offer]:
    """Return the source and the cost of each metric, with the name of the metric as key."""
    if platform_source() == "psutil":
        from nncftools.sampler.psutil_source import SUPPORTED

        return dict.fromkeys(SUPPORTED, Offer("psutil", "80 µs a process"))
    offers = {}
    for reference in list_references():
        probe = load_probe(reference)
        offer = Offer(probe.source, probe.cost, explain_missing(reference, PROC))
        offers.update(dict.fromkeys(probe.metrics, offer))
    return offers


def list_device_metrics() -> tuple[str, ...]:
    """Return the metrics of GPUs and NPUs. The result is empty if this machine has neither."""
    return () if Devices.why_unavailable(PROC) else Devices.metrics


_PATHS = "LD_LIBRARY_PATH"
"""The environment variable with the folders of libraries. An empty entry would mean the working folder, and code in the
working folder must not be executed.
"""
_PATIENCE_S = 1.0


class DeviceReader:
    """Starts and ends the helper process that reads GPUs and NPUs. Without such devices, no helper is started."""

    _process: subprocess.Popen[bytes] | None = None

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._ends: list[int] = []
        is_wanted = plan.source == "proc" and any(name_of(column) in OF_DEVICES for column in plan.columns)
        if is_wanted and list_device_metrics():
            self._ends = [above_standard(end) for end in os.pipe()]
        self.outputs = self._ends[:1]
        """The descriptor from which the sampler reads the helper's lines. Empty if there is no helper."""

    def start(self, sampler: int | None) -> list[int]:
        """Start the helper; return a list with the PID of the started process. The list is empty without a helper.

        If ``sampler`` is a PID, the helper reads the processes that this sampler records. If ``sampler`` is None, the
        helper reads this process. In this case, the started process forks the helper and ends, so that the helper is
        not a child of this process.
        """
        if not self._ends:
            return []
        plan = self._plan
        reaper = 0 if sampler is None or plan.pid is not None else sampler
        words = [sys.executable, "-I", "-S", HELPER_PROCESS, "devices"]
        words += map(str, (reaper, plan.pid or 0, int(plan.children)))
        if sampler is None:
            words.append(DETACHED_ARGUMENT)
        paths = os.environ.get(_PATHS, "").split(os.pathsep)
        absolute = filter(os.path.isabs, paths)
        with suppress(OSError):
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=self._ends[1],
                stderr=subprocess.DEVNULL,
                env={**os.environ, _PATHS: os.pathsep.join(absolute)},
                start_new_session=True,
            )
        self._hang_up()
        if self._process is None:
            return []
        if sampler is None:
            self._process.wait()
        return [self._process.pid]

    def close(self) -> None:
        """End the helper and all processes that a driver has forked.

        Wait at most 1 s for the end of the helper, because a driver may block the helper.
        """
        self._hang_up()
        if self._process is not None:
            # the helper is not reaped yet, so no other group has this number
            os.killpg(self._process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE_S)
            self._process = None

    def _hang_up(self) -> None:
        for end in self._ends:
            os.close(end)
        self._ends = []


def make_header(name: str, command: Sequence[str], rank: dict[str, Any] | None, plan: Plan) -> Header:
    """Return the first line of a journal. Bytes that are not UTF-8 are written as escapes."""
    folder = ""
    with suppress(FileNotFoundError):  # the working folder was removed
        folder = _escape(os.getcwd())
    return {
        "format": FORMAT,
        "version": VERSION,
        "tool_version": __version__,
        "name": _escape(name),
        "command": [_escape(word) for word in command],
        "cwd": folder,
        "rank": rank,
        "host": describe_host(),
        "plan": plan.fields(),
    }


def _escape(word: str) -> str:
    return os.fsencode(word).decode(errors="backslashreplace")


def check() -> None:
    """Raise NncfToolsError with the reason if nothing can be recorded here."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = descriptors_in_use()
    if hard != resource.RLIM_INFINITY and hard - used < _FEWEST_DESCRIPTORS:
        reason = f"of {hard} open files that are allowed (ulimit -n), {used} are in use already"
        raise NncfToolsError(f"cannot record: {reason}, and {_FEWEST_DESCRIPTORS} are needed")
    if platform_source() != "proc":
        return
    try:
        pid = os.readlink(f"{PROC}/self")
    except OSError as error:
        message = f"cannot record: {PROC} is not mounted here ({error.strerror}); mount it (mount -t proc proc /proc)"
        raise NncfToolsError(message) from error
    if pid != str(os.getpid()):
        reason = f"{PROC} belongs to another PID namespace (this process has the PID {os.getpid()}, and {pid} there)"
        raise NncfToolsError(f"cannot record: {reason}; mount /proc of this namespace (unshare --mount-proc)")


@contextmanager
def block_signals() -> Iterator[None]:
    """Block signals inside a ``with`` block. A thread that starts inside the block never receives signals."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


_IMPORT = "<frozen importlib"
"""The file names of Python's import system begin with this text. In 1 of 500 cases, an exception during an import
leaves a module locked for ever.
"""
_AGAIN_S = 0.02
"""A signal that arrives during an import is sent again after this time."""
_LOST_S = 1.0
"""A signal that raised an exception is sent again after this time, because the exception may be lost."""


class Interrupted(BaseException):
    """A signal arrived while results were saved or shown. ``self.number`` is the signal number."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number


class Starter:
    """A context manager around recordings: inside the ``with`` block, no signal ends this process.

    The function ``passes_to`` passes a signal to the sampler of the running command. After the ``with`` block, this
    process only exits with the command's status, so signals are ignored. Blocking the signals would not be enough,
    because other threads would receive the signals.
    """

    passes_to: Callable[[int], None] | None = None
    asked_to_end: int | None = None
    """The first signal that asked this process to end while no command ran. If there is such a signal, no command is
    started.
    """
    received: int | None = None
    """The first signal that asked this process to end. A signal that was passed to the sampler counts, too."""
    descriptors: int | None = None
    """The soft limit of open files that a command must get. None if this process has the same limit."""
    _raises = False
    _is_interruptible = False
    _spares_first = False

    def __init__(self) -> None:
        self.ignored: list[int] = []
        """The signal numbers that a command must ignore: this process ignored them before the ``with`` block began."""
        self.blocked: list[int] = []
        """The signal numbers that a command must block, because this process blocks them, too."""

    def __enter__(self) -> Starter:
        """Catch all signals that would end this process. Ignored signals (nohup) stay ignored."""
        self.blocked = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # otherwise, the exit status of children would be lost
            self.ignored = [signal.SIGCHLD]
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.ignored += [number for number in OF_FAULTS if signal.getsignal(number) is signal.SIG_IGN]
        catch_all(self._take)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and soft - descriptors_in_use() < _USUAL_DESCRIPTORS:
            self.descriptors = soft
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        target.adopt_orphans()  # if a sampler is killed, the command becomes our child, and we can wait for it
        return self

    def __exit__(self, *_: object) -> None:
        for number in CAUGHT:
            signal.signal(number, signal.SIG_IGN)

    @contextmanager
    def interruptible(self, *, by_first: bool = True) -> Iterator[None]:
        """Raise Interrupted inside a ``with`` block if a signal asks this process to end.

        If the exception is lost, raise the exception again after a second. If ``by_first`` is false, ignore the first
        signal since the start of the ``Starter`` context.
        """
        self._raises = True
        self._is_interruptible = True
        self._spares_first = not by_first
        try:
            yield
        finally:
            self._raises = False
            self._is_interruptible = False

    def _take(self, number: int, frame: FrameType | None) -> None:
        is_spared = self._spares_first and self.received is None
        if number in ENDING:
            self.received = self.received or number
        if self._raises and number in ENDING and not is_spared:
            while frame is not None and not frame.f_code.co_filename.startswith(_IMPORT):
                frame = frame.f_back
            if frame is None:
                self._raises = False
                self._send_again(_LOST_S, number)
                raise Interrupted(number)
            self._send_again(_AGAIN_S, number)
        elif self.passes_to is not None:
            self.passes_to(number)
        elif number in ENDING:
            self.asked_to_end = self.asked_to_end or number

    def _send_again(self, after_s: float, number: int) -> None:
        def send() -> None:
            if self._is_interruptible:
                self._raises = True
                os.kill(os.getpid(), number)

        timer = threading.Timer(after_s, send)
        timer.daemon = True
        timer.start()


class Outcome(NamedTuple):
    """How a recording ended, as far as this process knows."""

    pid: int | None
    """The command's PID. None if no command was started: the start failed, or the recording was attached to a process.
    """
    exit_code: int | None
    """The exit code of the command: 128 + N if signal N killed the command, 127 or 126 if the command cannot be
    executed. None if unknown.
    """
    status: ExitStatus | None
    """How the command ended: ``{"code": N, "signal": None}``, or ``{"code": None, "signal": N}`` if a signal killed the
    command. None if unknown, or if the command was not started.
    """
    start: Start | None
    """The ``start`` line of the journal, as sent by the sampler. The command may have removed the line from the
    journal.
    """
    end: End | None
    """The last line of the journal, as sent by the sampler. The journal may lack the line if the disk was full."""
    lost: str | None
    """The reason why the sampler did not finish the recording. None if the sampler finished the recording."""


@dataclass(eq=False)
class Sampler:
    """A sampler process, and the context manager around the whole recording.

    While the sampler runs, signals end the command and not this process. A signal to the process group reaches the
    command directly. A signal to this process alone is passed on to the command.
    """

    starter: Starter
    plan: Plan
    argv: Sequence[str]
    """The command. Empty if the recording is attached to a running process."""
    marks: pathlib.Path | None = None
    environment: Mapping[str, str] | None = None
    """Changes to the environment: the command gets these variables, and all other variables of this process."""
    outputs: tuple[int | None, int | None] = (None, None)
    """The descriptors for the command's standard output and error. None stands for the descriptor of this process."""
    relays: Relays = ()
    """Pairs ``(source, sink)`` of file descriptors. If this process is killed, the sampler copies the command's output
    from the source to the sink.
    """
    ends_with_starter: bool = False
    """Whether the recording ends if this process is killed. Only for recordings without a command."""
    _process: subprocess.Popen[bytes] = field(init=False)
    _known_children: list[int] = field(default_factory=list, init=False)
    _undelivered: list[int] = field(default_factory=list, init=False)
    _link: StarterLink | None = field(default=None, init=False)
    _devices: DeviceReader = field(init=False)

    def start(self, header: Header, journal: int) -> None:
        """Write the journal's first line, start the sampler, and pass the journal to the sampler.

        ``journal`` is a locked file descriptor. Raises OSError if the journal cannot be written, and NncfToolsError if
        the recording cannot begin for another reason.
        """
        write_all(journal, link.encode_line(header))
        relays = [(source, above_standard(os.dup(sink))) for source, sink in self.relays]
        try:
            with block_signals():  # no sampler can pass on signals yet
                number = self.starter.asked_to_end
                if number is not None:
                    error = NncfToolsError(f"interrupted by {signal.Signals(number).name} before the command began")
                    error.exit_code = 128 + number
                    raise error
                self._begin(journal, relays)
        except OSError as failure:
            raise NncfToolsError(f"the sampler could not be started: {failure}") from failure
        finally:
            for _, sink in relays:
                os.close(sink)

    @property
    def pid(self) -> int:
        """The PID of the sampler, known after ``start``."""
        return self._process.pid

    def _begin(self, journal: int, relays: Relays) -> None:
        self._known_children = _list_children()
        with StarterLink.opened() as (ours, theirs):
            self._spawn((journal, *theirs), relays)
        self._link = ours
        order = make_order(self.plan, self._devices, self.marks)
        order["ends_with_starter"] = self.ends_with_starter
        order["argv"] = [os.fsencode(word).decode("latin-1") for word in self.argv]
        order["blocked"] = self.starter.blocked
        order["ignored"] = self.starter.ignored
        order["descriptors"] = self.starter.descriptors
        order["relays"] = list(relays)
        ours.send_order(order)
        self.starter.passes_to = self._pass
        if self.starter.asked_to_end is not None:  # a signal arrived in a thread that does not block signals
            self._pass(self.starter.asked_to_end)
        self._known_children += self._devices.start(self._process.pid)

    def _spawn(self, arguments: tuple[int, ...], relays: Relays) -> None:
        inherited = [*arguments, *self._devices.outputs]
        for pair in relays:
            inherited += pair
        try:
            for descriptor in inherited:
                os.set_inheritable(descriptor, True)
            self._process = subprocess.Popen(
                _make_words(self.plan, arguments),
                # the command also inherits descriptors that this process has inherited, such as the pipe of make's
                # jobserver
                close_fds=False,
                env=target.read_environment(self.environment),
                stdout=self.outputs[0],
                stderr=self.outputs[1],
            )
        finally:
            for descriptor in inherited:
                os.set_inheritable(descriptor, False)

    def __enter__(self) -> Sampler:
        self._devices = DeviceReader(self.plan)
        return self

    def __exit__(self, *_: object) -> None:
        """Close the link to the sampler, and end the helper that reads devices."""
        self.starter.passes_to = None
        if self._link is not None:
            self._link.close()
        self._devices.close()

    def _send(self, key: str, value: object = True) -> bool:  # noqa: FBT002 — JSON's true
        assert self._link is not None
        return self._link.send_message(key, value)

    def _pass(self, number: int) -> None:
        """Report a signal to the sampler. The sampler passes the signal on to the command.

        If the sampler is gone, this process sends the signal to the command.
        """
        if self._send(link.SIGNAL, number):
            return
        # the kernel sends SIGHUP to the session leader only
        leads = number == signal.SIGHUP and os.getsid(0) == os.getpid()
        if number == signal.SIGTERM or leads:
            self._undelivered.append(number)
            self._deliver()

    def _deliver(self) -> None:
        """Send all undelivered signals to the command, if the PID of the command is known."""
        assert self._link is not None
        received = self._link.received
        pid = None if link.EXIT in received else received.get(link.STARTED)
        while pid is not None and self._undelivered:
            target.send_signal([pid], self._undelivered.pop())

    def release(self, source: int) -> None:
        """Tell the sampler to close a source of the command's output. This process no longer reads from the source."""
        if self._link is not None:
            self._send(link.RELEASE, source)

    def stop(self) -> None:
        """End a recording that is attached to a process."""
        self._send(link.STOP)

    def wait(self) -> Outcome:
        """Wait for the end of the recording, and return the outcome.

        If the sampler was killed or has failed, wait for the command: the command is then a child of this process.
        """
        assert self._link is not None
        received = self._link.listen()
        code = self._process.wait()
        pid = received.get(link.STARTED)
        status = received.get(link.EXIT)
        end = received.get(link.END)
        lost = None
        if end is None:
            lost = f"was killed by signal {-code}" if code < 0 else f"failed (exit status {code})"
            if self.argv:
                # A sampler that ended before sending the PID had a single child, the command.
                adopted = (child for child in _list_children() if child not in self._known_children)
                pid = received[link.STARTED] = pid or next(adopted, None)
                self._deliver()
                if pid is not None:
                    with suppress(ChildProcessError):  # the command did not become our child
                        status = target.parse_wait_status(os.waitpid(pid, 0)[1])
                received[link.EXIT] = status
        exit_code = code if lost is None else None
        if status is not None:
            exit_code = target.exit_code(status)
        return Outcome(
            pid=pid,
            exit_code=exit_code,
            status=status,
            start=received.get(link.START),
            end=end,
            lost=lost,
        )


class DetachedSampler:
    """A sampler that records this process, and is not a child of this process.

    The sampler ends on request, or when this process ends.
    """

    def __init__(self, header: Header, plan: Plan, journal: int, marks: pathlib.Path | None) -> None:
        """Start the sampler. Raises OSError."""
        write_all(journal, link.encode_line(header))
        devices = DeviceReader(plan)
        with StarterLink.opened() as (ours, theirs):
            descriptors = (journal, *theirs)
            with open(os.devnull, "rb") as nothing:
                starter = subprocess.Popen(
                    [*_make_words(plan, descriptors), DETACHED_ARGUMENT],
                    stdin=nothing,
                    pass_fds=(*descriptors, *devices.outputs),
                    env=target.read_environment(),
                )
            # This process still has the other end of the pipe, so the order cannot cause SIGPIPE if the sampler has
            # failed. The order is short enough for the pipe.
            ours.send_order(make_order(plan, devices, marks, detached=True))
        devices.start(None)
        if starter.wait() != 0:
            ours.close()
            raise OSError(f"the sampler failed (exit status {starter.returncode})")
        self._link = ours

    def has_news(self, within_s: float) -> bool:
        """Wait up to ``within_s`` seconds for a message or for the end of the sampler.

        Return False if neither came in this time.
        """
        return bool(wait_readable([self._link.descriptor], within_s))

    def has_begun(self, within_s: float) -> bool:
        """Wait up to ``within_s`` seconds for the first sample; return whether the sample was taken."""
        return self.has_news(within_s) and link.SAMPLED in (self._link.next_message() or {})

    def stop(self) -> None:
        """Close the pipe to the sampler, so that the recording ends.

        A message would be no alternative: a write could cause SIGPIPE, and SIGPIPE may end the program.
        """
        self._link.hang_up()

    def close(self) -> None:
        """Close both pipes. If the sampler still runs, the sampler ends."""
        self._link.close()


def make_order(plan: Plan, devices: DeviceReader, marks: pathlib.Path | None, *, detached: bool = False) -> link.Order:
    """Return the order (the settings that the sampler gets) for a recording without a command.

    The caller may add a command.
    """
    return {
        "plan": plan.fields(),
        "argv": [],
        "marks": None if marks is None else str(marks),
        "blocked": [],
        "ignored": [],
        "descriptors": None,
        "relays": [],
        "devices": devices.outputs[0] if devices.outputs else None,
        "detached": detached,
        "ends_with_starter": detached,
    }


def _make_words(plan: Plan, descriptors: Sequence[int]) -> list[str]:
    """Return the command line of a sampler. The source ``proc`` needs no site packages (``-S``)."""
    words = [sys.executable, "-I", HELPER_PROCESS, "sampler", *map(str, descriptors)]
    if plan.source == "proc":
        words.insert(1, "-S")
    return words


def _list_children() -> list[int]:
    """Return the PIDs of the children of this process, the oldest first. Empty if the list is not available."""
    return list(map(int, read_small_file(f"{PROC}/self/task/{os.getpid()}/children").split()))
