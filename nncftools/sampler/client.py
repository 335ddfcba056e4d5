"""Starts a sampler from another process, and waits for it.

``Starter`` is what that process changes in itself for it, and what a command still gets unchanged.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from nncftools.sampler.probes import references, resolved, why_unavailable
from nncftools.sampler.probes.machine import Devices
from nncftools.sampler.target import CAUGHT, ENDING, OF_FAULTS, catch_all, readable
from nncftools.sampler.tree import DETACHED_ARGUMENT, content_of, value_of

PROC = "/proc"
_SOURCE_VARIABLE = "_NNCF_TOOLS_SOURCE"
"""Only tests set it."""
_FEWEST_DESCRIPTORS = 24
"""The free descriptors that a recording needs; without a live view, half of them would just do."""
_USUAL_DESCRIPTORS = 256
_MAIN = pathlib.Path(__file__).parent / "__main__.py"
Relays = Sequence[tuple[int, int]]
"""Pairs of descriptors: where this process reads the command's output, and where it writes it."""


def host() -> dict[str, Any]:
    """Return the facts about this machine that a session keeps; memory in bytes."""
    of = os.uname()
    has_pages = "SC_PHYS_PAGES" in os.sysconf_names
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if has_pages else None
    return {
        "name": of.nodename,
        "system": of.sysname,
        "release": of.release,
        "machine": of.machine,
        "cpus": os.cpu_count(),
        "memory": memory,
        "swap": value_of(content_of(f"{PROC}/meminfo"), b"\nSwapTotal:"),
        "python": sys.version.split()[0],
        "boot_id": boot_id(),
    }


def boot_id() -> str:
    """Return the kernel's ID of this boot; empty for unknown."""
    return content_of(f"{PROC}/sys/kernel/random/boot_id").decode("ascii").strip()


class Offer(NamedTuple):
    """Where a metric comes from, and what that costs."""

    source: str
    cost: str
    missing: str = ""
    """Why it is not available here; empty when it is."""


def platform_source() -> str:
    """Return where figures come from on this platform: ``proc`` or ``psutil``."""
    return os.environ.get(_SOURCE_VARIABLE) or ("proc" if sys.platform == "linux" else "psutil")


def offers() -> dict[str, Offer]:
    """Return the metrics of this platform, by name."""
    if platform_source() == "psutil":
        from nncftools.sampler.psutil_source import SUPPORTED

        return dict.fromkeys(SUPPORTED, Offer("psutil", "80 µs a process"))
    offers = {}
    for reference in references():
        probe = resolved(reference)
        offer = Offer(probe.source, probe.cost, why_unavailable(reference, PROC))
        offers.update(dict.fromkeys(probe.metrics, offer))
    return offers


def metrics_of_devices() -> tuple[str, ...]:
    """Return the metrics of GPUs and NPUs, if there are any here."""
    return () if Devices.why_unavailable(PROC) else Devices.metrics


_PATHS = "LD_LIBRARY_PATH"
"""An empty part of it would be the working folder, in which nothing is executed."""
_DEVICES_MAIN = pathlib.Path(__file__).parent / "devices" / "__main__.py"
_PATIENCE_S = 1.0


def _device_reader(plan: Plan) -> DeviceReader | None:
    """Return the reader of devices, if a plan has a metric of them, and there are any."""
    wanted = plan.source == "proc" and any(name_of(column) in OF_DEVICES for column in plan.columns)
    return DeviceReader(plan) if wanted and metrics_of_devices() else None


class DeviceReader:
    """The helper of a recording, for the process that starts it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._process: subprocess.Popen[bytes] | None = None
        self._ends: Sequence[int] = ()
        with contextlib.suppress(OSError):
            self._ends = [above_standard(end) for end in os.pipe()]

    @property
    def output(self) -> Sequence[int]:
        """The descriptor that the sampler is to inherit."""
        return self._ends[:1]

    def start(self, sampler: int | None) -> list[int]:
        """Start it for what is below ``sampler``, or as no child of ours for ourselves; return its PID, if any."""
        plan = self._plan
        numbers = (0 if sampler is None or plan.pid is not None else sampler, plan.pid or 0, int(plan.children))
        paths = os.environ.get(_PATHS, "").split(os.pathsep)
        label = [DETACHED_ARGUMENT] if sampler is None else []
        with contextlib.suppress(OSError, IndexError):
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_DEVICES_MAIN), *map(str, numbers), *label],
                stdin=subprocess.DEVNULL,
                stdout=self._ends[1],
                stderr=subprocess.DEVNULL,
                env={**os.environ, _PATHS: os.pathsep.join(filter(os.path.isabs, paths))} if any(paths) else None,
                start_new_session=True,
            )
        self._hang_up()
        return [] if self._process is None else [self._process.pid]

    def wait(self) -> None:
        """Wait for the end of its first process, if it is no child of ours."""
        if self._process is not None:
            self._process.wait()

    def close(self) -> None:
        """End it, and what a driver has forked in it. One that a driver holds in the kernel is left alone after 1 s."""
        self._hang_up()
        if self._process is not None:
            if self._process.returncode is None:  # it is not reaped yet, so the group is its own
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE_S)
            self._process = None

    def _hang_up(self) -> None:
        for end in self._ends:
            os.close(end)
        self._ends = ()


def header(name: str, command: Sequence[str], rank: dict[str, Any] | None, plan: Plan) -> Header:
    """Return the first line of a journal; bytes of words and of the working folder that are not UTF-8 are escaped."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "tool_version": __version__,
        "name": _as_text(name),
        "command": [_as_text(word) for word in command],
        "cwd": _working_folder(),
        "rank": rank,
        "host": host(),
        "plan": plan.fields(),
    }


def _as_text(word: str) -> str:
    return os.fsencode(word).decode(errors="backslashreplace")


def _working_folder() -> str:
    try:
        return _as_text(os.getcwd())
    except FileNotFoundError:  # the folder was removed
        return ""


def check() -> None:
    """Raise NncfToolsError, with the reason, when nothing can be recorded here."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = descriptors_in_use()
    if hard != resource.RLIM_INFINITY and hard - used < _FEWEST_DESCRIPTORS:
        left = f"of {hard} open files that are allowed (ulimit -n), {used} are in use already"
        raise NncfToolsError(f"cannot record: {left}, and {_FEWEST_DESCRIPTORS} are needed")
    if platform_source() != "proc":
        return
    try:
        own = os.readlink(f"{PROC}/self")
    except OSError as error:
        message = f"cannot record: {PROC} is not mounted here ({error.strerror}); mount it (mount -t proc proc /proc)"
        raise NncfToolsError(message) from error
    if own != str(os.getpid()):
        why = f"{PROC} belongs to another PID namespace (this process is {os.getpid()}, there {own})"
        raise NncfToolsError(f"cannot record: {why}; mount its own (unshare --mount-proc)")


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Block signals until the end of the block; threads that are started meanwhile never receive one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_IMPORT = "<frozen importlib"
"""Files of Python's import system: a signal's exception in it can leave a module locked for ever (1 of 500 times)."""
_AGAIN_S, _LOST_S = 0.02, 1.0
"""After these, a signal is sent again: during an import, and where the exception was lost."""


class Interrupted(BaseException):
    """A signal arrived while results were saved or shown; ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number


class Starter:
    """A context manager around one recording or several: inside it, no signal ends this process.

    A signal goes to ``passes_to``, which sends it to the sampler of the running command. At the end of the context,
    signals are ignored: the only thing left to do is to exit with the command's status. (If they were blocked, other
    threads would take them.)
    """

    def __init__(self) -> None:
        self.passes_to: Callable[[int], None] | None = None
        self.asked_to_end: int | None = None
        """A signal that asked for the end while no command ran: no further command is started."""
        self.received: int | None = None
        """The first signal that asks for the end, also one that was passed on."""
        self.ignored: list[int] = []
        """Signals that a command must ignore, because this process did."""
        self.blocked: list[int] = []
        """Signals that a command must block, because this process does."""
        self.descriptors: int | None = None
        """A command's soft limit of open files; None when it is the same as this process's."""
        self._raises = self._is_interruptible = self._spares_first = False

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
        target.adopt_orphans()  # if a sampler is killed, its command becomes our child, and we can wait for it
        return self

    def __exit__(self, *_: object) -> None:
        for number in CAUGHT:
            signal.signal(number, signal.SIG_IGN)

    @contextlib.contextmanager
    def interruptible(self, *, by_first: bool = True) -> Iterator[None]:
        """Raise Interrupted when a signal asks for the end; again after a second, if a finalizer has swallowed it.

        Unless ``by_first``, the first signal since the start of the context does not count.
        """
        self._raises = self._is_interruptible = True
        self._spares_first = not by_first
        try:
            yield
        finally:
            self._raises = self._is_interruptible = False

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
    """The command's; None when it was never started, or the recording was attached."""
    exit_code: int | None
    """The command's: 128 + N when signal N killed it, 127 or 126 when it cannot be executed, None when unknown."""
    status: ExitStatus | None
    """The same as ``code`` or ``signal``, of a command that was started."""
    start: Start | None
    """The journal's line ``start``; the command may have removed it from the journal."""
    end: End | None
    """The journal's last line; a full disk may have kept it out of the journal."""
    lost: str | None
    """Why the sampler did not finish the recording; None when it did."""


@dataclass(eq=False)
class Sampler:
    """A sampler process that is started and waited for; while it lives, signals are left to the command.

    Use it as a context manager around the whole recording. Signals to the process group reach the command directly;
    signals to this process alone are passed on.
    """

    starter: Starter
    plan: Plan
    argv: Sequence[str]
    """The command; empty to attach to a process."""
    marks: pathlib.Path | None = None
    environment: Mapping[str, str] | None = None
    """What the command gets besides our own environment, or in its place."""
    outputs: tuple[int | None, int | None] = (None, None)
    """The descriptors that the command gets in place of our standard output and error."""
    relays: Relays = ()
    """The sampler takes them over when this process is killed."""
    _process: subprocess.Popen[bytes] = field(init=False)
    _known_children: Collection[int] = field(default=(), init=False)
    _undelivered: list[int] = field(default_factory=list, init=False)
    _link: StarterLink | None = field(default=None, init=False)
    _devices: DeviceReader | None = field(default=None, init=False)

    def start(self, header: Header, journal: int) -> None:
        """Write the journal's first line, start the sampler and hand over the journal: a locked descriptor.

        Raises NncfToolsError, OSError when the journal cannot be written.
        """
        write_all(journal, link.encoded(header))
        relays = [(source, above_standard(os.dup(sink))) for source, sink in self.relays]
        try:
            with held_back():  # until there is a sampler to pass signals to
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
        """The PID of the sampler, after its start."""
        return self._process.pid

    def _begin(self, journal: int, relays: Relays) -> None:
        self._known_children = _children()
        self._devices = _device_reader(self.plan)
        readings = () if self._devices is None else self._devices.output
        with StarterLink.opened() as (ours, theirs):
            self._spawn((journal, *theirs), relays, readings)
        self._link = ours
        ours.send_order(order(self.plan, self.argv, self.marks, self.starter, relays, readings=readings))
        self.starter.passes_to = self._pass
        if self.starter.asked_to_end is not None:  # meanwhile, by a thread that does not block signals
            self._pass(self.starter.asked_to_end)
        if self._devices is not None:
            self._known_children = {*self._known_children, *self._devices.start(self._process.pid)}

    def _spawn(self, arguments: tuple[int, ...], relays: Relays, readings: Sequence[int]) -> None:
        inherited = (*arguments, *(descriptor for pair in relays for descriptor in pair), *readings)
        try:
            for descriptor in inherited:
                os.set_inheritable(descriptor, True)
            self._process = subprocess.Popen(
                _words(self.plan, arguments),
                close_fds=False,  # the command inherits descriptors that were open before us (a make jobserver's)
                env=target.environment(self.environment),
                stdout=self.outputs[0],
                stderr=self.outputs[1],
            )
        finally:
            for descriptor in inherited:
                os.set_inheritable(descriptor, False)

    def __enter__(self) -> Sampler:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the link to the sampler, and end the helper that reads devices."""
        self.starter.passes_to = None
        if self._link is not None:
            self._link.close()
        if self._devices is not None:
            self._devices.close()

    def _pass(self, number: int) -> None:
        """Report a signal to the sampler, which knows whether the command received it; without it, pass it on here."""
        if self._link is None or self._link.send_message(link.SIGNAL, number):
            return
        leads = number == signal.SIGHUP and os.getsid(0) == os.getpid()  # the kernel sends it to the leader only
        if number == signal.SIGTERM or leads:
            self._undelivered.append(number)
            self._deliver()

    def _deliver(self) -> None:
        """Send the command the signals that a sampler can no longer pass on, as soon as its PID is known."""
        assert self._link is not None
        received = self._link.received
        pid = None if link.EXIT in received else received.get(link.STARTED)
        while pid is not None and self._undelivered:
            with contextlib.suppress(OSError):
                os.kill(pid, self._undelivered.pop())

    def release(self, source: int) -> None:
        """Have the sampler close its copy of a source of output that is no longer read."""
        if self._link is not None:
            self._link.send_message(link.RELEASE, source)

    def stop(self) -> None:
        """End a recording that is attached to a process."""
        assert self._link is not None
        self._link.send_message(link.STOP)

    def wait(self) -> Outcome:
        """Wait for the end of the recording.

        When the sampler was killed or has failed, wait for the command, which is then a child of this process.
        """
        assert self._link is not None
        received = self._link.listen()
        code = self._process.wait()
        pid, status, end = received.get(link.STARTED), received.get(link.EXIT), received.get(link.END)
        lost = None
        if end is None:
            lost = f"was killed by signal {-code}" if code < 0 else f"failed (exit status {code})"
            if self.argv:
                # A sampler that is lost before it sends the PID has started no other process than the command.
                adopted = (child for child in _children() if child not in self._known_children)
                pid = received[link.STARTED] = pid or next(adopted, None)
                self._deliver()
                status = received[link.EXIT] = _status_of_orphan(pid) or status
        exit_code = target.exit_code(status) if status is not None else code if lost is None else None
        return Outcome(pid, exit_code, status, received.get(link.START), end, lost)


class DetachedSampler:
    """A sampler that records this process and is not its child; it ends on request, or with this process."""

    def __init__(self, header: Header, plan: Plan, journal: int, marks: pathlib.Path | None) -> None:
        """Start it. Raises OSError."""
        write_all(journal, link.encoded(header))
        devices = _device_reader(plan)
        readings = () if devices is None else devices.output
        with StarterLink.opened() as (ours, theirs):
            words = [*_words(plan, (journal, *theirs)), DETACHED_ARGUMENT]
            inherited = (journal, *theirs, *readings)
            with open(os.devnull, "rb") as nothing:
                starter = subprocess.Popen(words, stdin=nothing, pass_fds=inherited, env=target.environment())
            # While the other end is open here, a sampler that failed cannot cause SIGPIPE; the order is short.
            ours.send_order(order(plan, (), marks, None, (), readings=readings))
        if devices is not None:
            devices.start(None)
            devices.wait()
        if starter.wait() != 0:
            ours.close()
            raise OSError(f"the sampler failed (exit status {starter.returncode})")
        self._link = ours

    def has_news(self, within_s: float) -> bool:
        """Wait for the first sample, then for the sampler's end; return whether it came within ``within_s``."""
        return bool(readable([self._link.descriptor], within_s))

    def has_begun(self, within_s: float) -> bool:
        """Wait for the first sample; return whether it was taken within ``within_s``."""
        return self.has_news(within_s) and link.SAMPLED in (self._link.next_message() or {})

    def stop(self) -> None:
        """End the recording by closing the pipe. A write could raise SIGPIPE, which the program may not ignore."""
        self._link.hang_up()

    def close(self) -> None:
        """Close both pipes; the sampler ends if it still runs."""
        self._link.close()


def order(  # noqa: PLR0913 — one parameter per key
    plan: Plan,
    argv: Sequence[str],
    marks: pathlib.Path | None,
    starter: Starter | None,
    relays: Relays,
    *,
    readings: Sequence[int] = (),
) -> link.Order:
    """Return the order; without a ``starter``, for a recording of this process."""
    return {
        "plan": plan.fields(),
        "argv": [os.fsencode(word).decode("latin-1") for word in argv],
        "marks": None if marks is None else str(marks),
        "blocked": [] if starter is None else starter.blocked,
        "ignored": [] if starter is None else starter.ignored,
        "descriptors": None if starter is None else starter.descriptors,
        "relays": list(relays),
        "devices": next(iter(readings), None),
        "detached": starter is None,
    }


def _words(plan: Plan, descriptors: Sequence[int]) -> list[str]:
    """Return the command line of a sampler: psutil needs the site packages, nothing else does."""
    isolated = ["-I", "-S"] if plan.source == "proc" else ["-I"]
    return [sys.executable, *isolated, str(_MAIN), *map(str, descriptors)]


def _status_of_orphan(pid: int | None) -> ExitStatus | None:
    """Wait for the command of a lost sampler, which then became our child; return None when it did not."""
    with contextlib.suppress(ChildProcessError):
        return None if pid is None else target.exit_status(os.waitpid(pid, 0)[1])
    return None


def _children() -> dict[int, None]:
    """Return the children of this process, in the order of their start; empty where that is unknown."""
    return dict.fromkeys(map(int, content_of(f"{PROC}/self/task/{os.getpid()}/children").split()))
