"""The side that starts a sampler, and waits for the end of the recording.

``Starter`` changes signals and limits of this process for a recording; the command still gets them unchanged.
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
from nncftools.files import above_standard, descriptors_in_use, write_all
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
"""The environment variable with the source; only tests set the variable."""
_FEWEST_DESCRIPTORS = 24
"""The free descriptors that a recording needs; without a live view, half of them are enough."""
_USUAL_DESCRIPTORS = 256
_MAIN = pathlib.Path(__file__).parent / "__main__.py"
Relays = Sequence[tuple[int, int]]
"""Pairs of descriptors: this process copies the command's output from the first to the second."""


def describe_host() -> dict[str, Any]:
    """Return the facts about this machine that a session keeps; memory in bytes."""
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
    """Return the kernel's ID of this boot; empty for unknown."""
    return read_small_file(f"{PROC}/sys/kernel/random/boot_id").decode("ascii").strip()


class Offer(NamedTuple):
    """The source of a metric, and the cost of reading it."""

    source: str
    cost: str
    missing: str = ""
    """Why the metric is not available here; empty when it is available."""


def platform_source() -> str:
    """Return the source of figures on this platform: ``proc`` or ``psutil``."""
    return os.environ.get(_SOURCE_VARIABLE) or ("proc" if sys.platform == "linux" else "psutil")


def list_offers() -> dict[str, Offer]:
    """Return the metrics of this platform, by name."""
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
    """Return the metrics of GPUs and NPUs, if there are any here."""
    return () if Devices.why_unavailable(PROC) else Devices.metrics


_PATHS = "LD_LIBRARY_PATH"
"""A list of folders with libraries. An empty entry would mean the working folder, whose code must not be executed."""
_PATIENCE_S = 1.0


class DeviceReader:
    """The helper that reads devices, for the process that starts a recording. Without devices there is no helper."""

    _process: subprocess.Popen[bytes] | None = None

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._ends: list[int] = []
        is_wanted = plan.source == "proc" and any(name_of(column) in OF_DEVICES for column in plan.columns)
        if is_wanted and list_device_metrics():
            self._ends = [above_standard(end) for end in os.pipe()]
        self.outputs = self._ends[:1]
        """The descriptor that the sampler inherits."""

    def start(self, sampler: int | None) -> list[int]:
        """Start the helper for the processes below ``sampler``, or for this process if None; return the PID.

        A helper for this process stops being a child: the started process forks the helper and ends.
        """
        if not self._ends:
            return []
        plan = self._plan
        reaper = 0 if sampler is None or plan.pid is not None else sampler
        words = [sys.executable, "-I", "-S", str(_MAIN), "devices"]
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
        """End the helper, and processes that a driver has forked; wait 1 s for a helper that a driver blocks."""
        self._hang_up()
        if self._process is not None:
            os.killpg(
                self._process.pid, signal.SIGKILL
            )  # the helper is not reaped yet, so no other group has this number
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE_S)
            self._process = None

    def _hang_up(self) -> None:
        for end in self._ends:
            os.close(end)
        self._ends = []


def make_header(name: str, command: Sequence[str], rank: dict[str, Any] | None, plan: Plan) -> Header:
    """Return the first line of a journal; bytes that are not UTF-8 are escaped."""
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
    """Raise NncfToolsError, with the reason, when nothing can be recorded here."""
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
        reason = f"{PROC} belongs to another PID namespace (this process is {os.getpid()}, there {pid})"
        raise NncfToolsError(f"cannot record: {reason}; mount /proc of this namespace (unshare --mount-proc)")


@contextmanager
def block_signals() -> Iterator[None]:
    """Block signals during a ``with`` block; threads that start in the block never receive signals."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


_IMPORT = "<frozen importlib"
"""Files of Python's import system: an exception in these files can leave a module locked for ever (1 of 500 times)."""
_AGAIN_S = 0.02
"""A signal that arrives during an import is sent again after this time."""
_LOST_S = 1.0
"""A signal whose exception may be lost is sent again after this time."""


class Interrupted(BaseException):
    """The signal ``number`` arrived while results were saved or shown."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number


class Starter:
    """A context manager around recordings: inside the context, no signal ends this process.

    ``passes_to`` takes a signal, and passes the signal to the sampler of the running command. After the context,
    signals are ignored, because this process has only to exit with the command's status. (Other threads would receive
    blocked signals.)
    """

    passes_to: Callable[[int], None] | None = None
    asked_to_end: int | None = None
    """A signal that asked for the end while no command ran: no further command is started."""
    received: int | None = None
    """The first signal that asks for the end; the signal may have been passed on."""
    descriptors: int | None = None
    """A command's soft limit of open files; None when this process has the same limit."""
    _raises = False
    _is_interruptible = False
    _spares_first = False

    def __init__(self) -> None:
        self.ignored: list[int] = []
        """Signals that a command must ignore, because this process did."""
        self.blocked: list[int] = []
        """Signals that a command must block, because this process does."""

    def __enter__(self) -> Starter:
        """Catch signals; an ignored signal (nohup) stays ignored."""
        self.blocked = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # the exit status of children would be lost
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
        """Raise Interrupted when a signal asks for the end; raise again after a second if the exception was lost.

        Without ``by_first``, ignore the first signal since the start of the context.
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
    """How a recording ended, as far as the starter knows."""

    pid: int | None
    """The command's PID; None when the command was never started, or the recording was attached."""
    exit_code: int | None
    """128 + N when signal N killed the command, 127 or 126 when it cannot be executed, None when unknown."""
    status: ExitStatus | None
    """The status as ``code`` or ``signal``, if the command was started."""
    start: Start | None
    """The journal's line ``start``; the command may have removed this line from the journal."""
    end: End | None
    """The journal's last line; a full disk may have kept this line out of the journal."""
    lost: str | None
    """Why the sampler did not finish the recording; None when it did."""


@dataclass(eq=False)
class Sampler:
    """A sampler process; while the sampler runs, signals end the command and not this process.

    A context manager around the whole recording. Signals to the process group reach the command directly; signals to
    this process alone are passed on.
    """

    starter: Starter
    plan: Plan
    argv: Sequence[str]
    """The command; empty to attach to a process."""
    marks: pathlib.Path | None = None
    environment: Mapping[str, str] | None = None
    """Variables that the command gets besides our own environment, or in place of our values."""
    outputs: tuple[int | None, int | None] = (None, None)
    """The descriptors that the command gets in place of our standard output and error."""
    relays: Relays = ()
    """Pairs of descriptors that the sampler takes over when this process is killed."""
    _process: subprocess.Popen[bytes] = field(init=False)
    _known_children: list[int] = field(default_factory=list, init=False)
    _undelivered: list[int] = field(default_factory=list, init=False)
    _link: StarterLink | None = field(default=None, init=False)
    _devices: DeviceReader = field(init=False)

    def start(self, header: Header, journal: int) -> None:
        """Write the journal's first line, start the sampler and hand over the journal: a locked descriptor.

        Raises NncfToolsError, OSError when the journal cannot be written.
        """
        write_all(journal, link.encode_line(header))
        relays = [(source, above_standard(os.dup(sink))) for source, sink in self.relays]
        try:
            with block_signals():  # there is no sampler yet that could pass signals on
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
        """The PID of the sampler, after the start."""
        return self._process.pid

    def _begin(self, journal: int, relays: Relays) -> None:
        self._known_children = _list_children()
        with StarterLink.opened() as (ours, theirs):
            self._spawn((journal, *theirs), relays)
        self._link = ours
        order = make_order(self.plan, self._devices, self.marks)
        order["argv"] = [os.fsencode(word).decode("latin-1") for word in self.argv]
        order["blocked"] = self.starter.blocked
        order["ignored"] = self.starter.ignored
        order["descriptors"] = self.starter.descriptors
        order["relays"] = list(relays)
        ours.send_order(order)
        self.starter.passes_to = self._pass
        if self.starter.asked_to_end is not None:  # the signal was received by a thread that does not block signals
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
                close_fds=False,  # the command inherits descriptors that were open before us (a make jobserver's)
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
        """Report a signal, so that the sampler passes it on once; without a sampler, pass it on here."""
        if self._send(link.SIGNAL, number):
            return
        leads = number == signal.SIGHUP and os.getsid(0) == os.getpid()  # the kernel sends SIGHUP to the leader only
        if number == signal.SIGTERM or leads:
            self._undelivered.append(number)
            self._deliver()

    def _deliver(self) -> None:
        """Send the command the signals that a sampler can no longer pass on, as soon as the PID is known."""
        assert self._link is not None
        received = self._link.received
        pid = None if link.EXIT in received else received.get(link.STARTED)
        while pid is not None and self._undelivered:
            target.send_signal([pid], self._undelivered.pop())

    def release(self, source: int) -> None:
        """Have the sampler close a source of output that is no longer read."""
        if self._link is not None:
            self._send(link.RELEASE, source)

    def stop(self) -> None:
        """End a recording that is attached to a process."""
        self._send(link.STOP)

    def wait(self) -> Outcome:
        """Wait for the end of the recording.

        When the sampler was killed or has failed, wait for the command: the command is then a child of this process.
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
                # A sampler that is lost before sending the PID has started no other process than the command.
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
    """A sampler that records this process and is not a child; the sampler ends on request, or with this process."""

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
            # While the other end is open here, a sampler that failed cannot cause SIGPIPE; the order is short.
            ours.send_order(make_order(plan, devices, marks, detached=True))
        devices.start(None)
        if starter.wait() != 0:
            ours.close()
            raise OSError(f"the sampler failed (exit status {starter.returncode})")
        self._link = ours

    def has_news(self, within_s: float) -> bool:
        """Return whether the sampler reports the first sample or, after that, has ended, within ``within_s``."""
        return bool(wait_readable([self._link.descriptor], within_s))

    def has_begun(self, within_s: float) -> bool:
        """Wait for the first sample; return whether the sampler took it within ``within_s``."""
        return self.has_news(within_s) and link.SAMPLED in (self._link.next_message() or {})

    def stop(self) -> None:
        """End the recording by closing the pipe. A write could raise SIGPIPE, a signal that may end the program."""
        self._link.hang_up()

    def close(self) -> None:
        """Close both pipes; the sampler ends if it still runs."""
        self._link.close()


def make_order(plan: Plan, devices: DeviceReader, marks: pathlib.Path | None, *, detached: bool = False) -> link.Order:
    """Return an order without a command."""
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
    }


def _make_words(plan: Plan, descriptors: Sequence[int]) -> list[str]:
    """Return the command line of a sampler: only psutil needs the site packages."""
    words = [sys.executable, "-I", str(_MAIN), *map(str, descriptors)]
    if plan.source == "proc":
        words.insert(1, "-S")
    return words


def _list_children() -> list[int]:
    """Return the children of this process, in the order of their start; empty where that is unknown."""
    return list(map(int, read_small_file(f"{PROC}/self/task/{os.getpid()}/children").split()))
