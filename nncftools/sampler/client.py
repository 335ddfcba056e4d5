"""Start a sampler from another process and wait for it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from nncftools.errors import NncfToolsError
from nncftools.files import above_standard, descriptors_in_use, write_all
from nncftools.journal.lines import FORMAT, VERSION
from nncftools.sampler import link, target
from nncftools.sampler.probes import references, resolved, why_not
from nncftools.sampler.signals import readable
from nncftools.sampler.starter import held_back
from nncftools.sampler.starter_link import StarterLink
from nncftools.sampler.tree import BESIDE
from nncftools.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from nncftools.journal.lines import End, ExitStatus, Header, Start
    from nncftools.journal.plan import Plan
    from nncftools.sampler.link import Order
    from nncftools.sampler.starter import Starter

PROC = "/proc"
_FEWEST_DESCRIPTORS = 24
"""What is needed besides those that were inherited: half of it keeps a recording without a live view just alive."""
_MAIN = pathlib.Path(__file__).parent / "__main__.py"


def host() -> dict[str, Any]:
    """Return the facts of this machine that a session keeps; memory in bytes."""
    memory = None
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "name": platform.node(),
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "memory": memory,
        "python": platform.python_version(),
        "boot_id": _boot_id(),
    }


def _boot_id() -> str:
    with contextlib.suppress(OSError):
        return pathlib.Path(PROC, "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


class Offer(NamedTuple):
    """What a source gives of one metric, and what that costs."""

    source: str
    cost: str
    missing: str = ""
    """Why it is not available here; empty when it is."""


def offers(source: str) -> dict[str, Offer]:
    """Return what a source (``proc``, ``psutil``) offers of every metric that it knows."""
    if source == "psutil":
        from nncftools.sampler.psutil_source import GIVEN

        return dict.fromkeys(GIVEN, Offer("psutil", "80 µs a process"))
    missing = "" if sys.platform == "linux" else "only on Linux"
    found = {}
    for reference in references():
        probe = resolved(reference)
        offer = Offer(probe.source, probe.cost, missing or why_not(reference, PROC))
        found.update(dict.fromkeys(probe.metrics, offer))
    return found


def header(name: str, command: Sequence[str], cwd: str, rank: dict[str, Any] | None, plan: Plan) -> Header:
    """Return the first line of a journal."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "tool_version": __version__,
        "name": name,
        "command": list(command),
        "cwd": cwd,
        "rank": rank,
        "host": host(),
        "plan": plan.fields(),
    }


def check(source: str) -> None:
    """Raise NncfToolsError when nothing can be recorded here, with the reason."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = descriptors_in_use()
    if hard != resource.RLIM_INFINITY and hard - used < _FEWEST_DESCRIPTORS:
        left = f"of {hard} open files that are allowed (ulimit -n), {used} are in use already"
        raise NncfToolsError(f"cannot record: {left}, and {_FEWEST_DESCRIPTORS} are needed")
    if sys.platform != "linux" or source != "proc":
        return
    try:
        own = os.readlink(f"{PROC}/self")
    except OSError as error:
        message = f"cannot record: {PROC} is not mounted here ({error.strerror}); mount it (mount -t proc proc /proc)"
        raise NncfToolsError(message) from error
    if own != str(os.getpid()):
        raise NncfToolsError(
            f"cannot record: {PROC} belongs to another PID namespace (this process is {os.getpid()}, there {own}); "
            "mount the own one (unshare --mount-proc)"
        )


class Outcome(NamedTuple):
    """How a recording ended, as far as the starter can know it."""

    pid: int | None
    """The command's; None when it was never started, or the recording was attached."""
    exit_code: int | None
    """The command's, 128 + N when signal N killed it, 127 or 126 when it cannot be executed; None when unknown."""
    status: ExitStatus | None
    """The same as ``code`` or ``signal``, of a command that was started."""
    start: Start | None
    """The journal's line of that name, which the command may have taken out of the journal."""
    end: End | None
    """The journal's last line, which a full disk may have kept out of the journal."""
    lost: str | None
    """What became of a sampler that did not finish the recording."""


class Sampler:
    """A sampler process, started and waited for; signals are left to the command while it lives.

    Use it as a context manager around the whole recording. What is sent to the process group reaches the command by
    itself; what only this process gets is passed on.
    """

    def __init__(  # noqa: PLR0913 — what to start, and what to give to it
        self,
        starter: Starter,
        plan: Plan,
        argv: Sequence[str],
        *,
        marks: pathlib.Path | None = None,
        environment: Mapping[str, str] | None = None,
        outputs: tuple[int | None, int | None] = (None, None),
        relays: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Plan to run ``argv``, or to attach where it is empty.

        The command gets ``environment`` on top of ours, and ``outputs`` (descriptors) in place of our standard output
        and error. ``relays`` are descriptors that this process reads the command's output from, and where it goes: the
        sampler takes over when this process is killed.
        """
        self._starter = starter
        self._plan = plan
        self._argv = argv
        self._marks = marks
        self._environment = environment
        self._outputs = outputs
        self._relays = relays
        self._process: subprocess.Popen[bytes] | None = None
        self._known_children: Collection[int] = ()
        self._owed: list[int] = []
        self._link: StarterLink | None = None

    def start(self, header: Header, journal: int) -> None:
        """Write the journal's first line, start the sampler and give it the journal: a locked descriptor.

        Raises NncfToolsError, OSError when the journal cannot be written.
        """
        write_all(journal, _first_line(header))
        relays = [(source, above_standard(os.dup(sink))) for source, sink in self._relays]
        try:
            with held_back():  # until there is a sampler that they can be passed to
                self._refuse_if_interrupted()
                self._begin(journal, relays)
        except OSError as error:
            raise NncfToolsError(f"the sampler could not be started: {error}") from error
        finally:
            for _, sink in relays:
                os.close(sink)

    def _begin(self, journal: int, relays: Sequence[tuple[int, int]]) -> None:
        self._known_children = _children()
        with StarterLink.opened() as (ours, theirs):
            self._spawn(journal, theirs, relays)
        self._link = ours
        ours.send(_order(self._plan, self._argv, self._marks, self._starter, relays))
        self._starter.passes_to = self._pass
        if self._starter.asked_to_end is not None:  # meanwhile, by a thread that holds nothing back
            self._pass(self._starter.asked_to_end)

    def _refuse_if_interrupted(self) -> None:
        number = self._starter.asked_to_end
        if number is not None:
            error = NncfToolsError(f"interrupted by {signal.Signals(number).name} before the command began")
            error.exit_code = 128 + number
            raise error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the sampler."""
        self._starter.passes_to = None
        if self._link is not None:
            self._link.close()

    def _spawn(self, journal: int, theirs: tuple[int, int], relays: Sequence[tuple[int, int]]) -> None:
        inherited = (journal, *theirs, *(descriptor for pair in relays for descriptor in pair))
        try:
            for descriptor in inherited:
                os.set_inheritable(descriptor, True)
            self._process = subprocess.Popen(
                [*_interpreter(self._plan), str(_MAIN), *map(str, (journal, *theirs))],
                close_fds=False,  # descriptors that the command is to inherit (a make jobserver's) pass through
                env=target.environment(self._environment),
                stdout=self._outputs[0],
                stderr=self._outputs[1],
            )
        finally:
            for descriptor in inherited:
                os.set_inheritable(descriptor, False)

    def _pass(self, number: int) -> None:
        """Tell the sampler of a signal: it knows whether the command got it, too. Without it, pass on what ends."""
        if self._link is None or self._link.send_message(link.SIGNAL, number):
            return
        leads = number == signal.SIGHUP and os.getsid(0) == os.getpid()  # the kernel sends it to the leader alone
        if number == signal.SIGTERM or leads:
            self._owed.append(number)
            self._deliver_owed()

    def _deliver_owed(self) -> None:
        """Send the command what it is to get without the sampler, as soon as its PID is known."""
        pid = self._running()
        while pid is not None and self._owed:
            with contextlib.suppress(OSError):
                os.kill(pid, self._owed.pop())

    def _adopted(self) -> int | None:
        """Return the child that came from a sampler that was lost before it told its PID: it starts nothing else."""
        return next((pid for pid in _children() if pid not in self._known_children), None)

    def _running(self) -> int | None:
        """Return the command's PID, None when it has ended, as far as is known."""
        assert self._link is not None
        return None if link.EXIT in self._link.told else self._link.told.get(link.STARTED)

    def release(self, source: int) -> None:
        """Have the sampler close its copy of a descriptor that the command's output is no longer read from."""
        if self._link is not None:
            self._link.send_message(link.RELEASE, source)

    def stop(self) -> None:
        """End a recording that is attached to a process."""
        assert self._link is not None
        self._link.send_message(link.STOP)

    def wait(self) -> Outcome:
        """Wait for the end of the recording.

        When the sampler was killed or failed, wait for the command, which is a child of this process then.
        """
        assert self._process is not None
        assert self._link is not None
        told = self._link.listen()
        code = self._process.wait()
        pid, status, end = told.get(link.STARTED), told.get(link.EXIT), told.get(link.END)
        lost = None
        if end is None:
            lost = f"was killed by signal {-code}" if code < 0 else f"failed (exit status {code})"
            if self._argv:
                pid = told[link.STARTED] = pid or self._adopted()
                self._deliver_owed()
                status = told[link.EXIT] = _status_of_orphan(pid) or status
        exit_code = target.exit_code(status) if status is not None else code if lost is None else None
        return Outcome(pid, exit_code, status, told.get(link.START), end, lost)


class Beside:
    """A sampler that records this process and is no child of it; ends when it is told to, or with this process."""

    def __init__(self, header: Header, plan: Plan, journal: int, marks: pathlib.Path | None) -> None:
        """Start it. Raises OSError."""
        write_all(journal, _first_line(header))
        with StarterLink.opened() as (ours, theirs):
            words = [*_interpreter(plan), str(_MAIN), *map(str, (journal, *theirs)), BESIDE]
            with open(os.devnull, "rb") as nothing:
                starter = subprocess.Popen(words, stdin=nothing, pass_fds=(journal, *theirs), env=target.environment())
            # While the other end is open here, a sampler that failed cannot bring us SIGPIPE; the order is short.
            ours.send(_order(plan, (), marks, None, ()))
        if starter.wait() != 0:
            ours.close()
            raise OSError(f"the sampler failed (exit status {starter.returncode})")
        self._link = ours

    def has_news(self, within_s: float) -> bool:
        """Wait for the first sample, then for the sampler's end; return whether it came within a time."""
        return bool(readable([self._link.incoming], within_s))

    def has_begun(self) -> bool:
        """Return whether the first sample was taken; waits until it was, or the sampler has ended."""
        return link.SAMPLED in self._link.next_message()

    def stop(self) -> None:
        """Have it end the recording. Nothing is written: the program may not ignore SIGPIPE."""
        self._link.hang_up()

    def close(self) -> None:
        """Let go of it; it ends, if it still runs."""
        self._link.close()


def _order(
    plan: Plan,
    argv: Sequence[str],
    marks: pathlib.Path | None,
    starter: Starter | None,
    relays: Sequence[tuple[int, int]],
) -> Order:
    """Return what to send; without a ``starter``, for a recording of this process."""
    return {
        "plan": plan.fields(),
        "argv": [os.fsencode(word).decode("latin-1") for word in argv],
        "marks": None if marks is None else str(marks),
        "blocked": [] if starter is None else starter.blocked,
        "ignored": [] if starter is None else starter.ignored,
        "descriptors": None if starter is None else starter.descriptors,
        "relays": list(relays),
        "beside": starter is None,
    }


def _first_line(header: Header) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode("ascii") + b"\n"


def _interpreter(plan: Plan) -> list[str]:
    """Return how to start Python for a sampler: psutil needs the site packages, nothing else does."""
    return [sys.executable, "-I", "-S"] if plan.source == "proc" else [sys.executable, "-I"]


def _status_of_orphan(pid: int | None) -> ExitStatus | None:
    """Wait for the command of a lost sampler, with whose end it became our child; return None when it is none."""
    if pid is None:
        return None
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return None
    return target.exit_status(status)


def _children() -> dict[int, None]:
    """Return the children of this process, in the order in which they came; none where it cannot be known."""
    with contextlib.suppress(OSError):
        children = pathlib.Path(PROC, "self", "task", str(os.getpid()), "children").read_text(encoding="ascii")
        return dict.fromkeys(map(int, children.split()))
    return {}
