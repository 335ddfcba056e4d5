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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from nncftools.errors import NncfToolsError
from nncftools.sampler import target
from nncftools.sampler.probes import PROCESS_PROBES, SLOW_PROBES, SYSTEM_PROBES, resolved, why_not
from nncftools.sampler.signals import CAUGHT
from nncftools.sampler.tree import BESIDE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nncftools.sampler.plan import Plan

PROC = "/proc"
_TAIL = 1 << 16
"""The last line is shorter."""
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


@dataclass(frozen=True)
class Offer:
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
    for reference in (*PROCESS_PROBES, *SLOW_PROBES, *SYSTEM_PROBES):
        (probe,) = resolved([reference])
        offer = Offer(probe.source, probe.cost, missing or why_not(reference, PROC))
        found.update(dict.fromkeys(probe.metrics, offer))
    return found


def own_plan(columns: list[str], interval_s: float, *, children: bool) -> Plan:
    """Return the plan of a recording of this process."""
    return {
        "argv": [],
        "pid": os.getpid(),
        "interval_s": interval_s,
        "duration_s": None,
        "children": children,
        "wait_all": False,
        "per_process": False,
        "max_samples": 1_000_000,
        "marks": None,
        "channel": None,
        "columns": columns,
        "source": "proc" if sys.platform == "linux" else "psutil",
        "signal_mask": [],
    }


def start_beside(header: dict[str, Any], plan: Plan, journal: pathlib.Path) -> tuple[int, int]:
    """Start a sampler that is no child of this process and records it to ``journal``, which may exist.

    Return two descriptors: a byte written to the first ends the recording; from the second comes a byte with the first
    sample, and its end when the sampler has ended. Raises OSError.
    """
    told, control = os.pipe()
    status, tell = os.pipe()
    try:
        line = _first_line({**header, "plan": {**plan, "pid": os.getpid(), "channel": [told, tell]}})
        journal.write_bytes(line)
        words = [*_interpreter(plan), str(_MAIN), str(journal.absolute()), BESIDE]
        with open(os.devnull, "rb") as nothing:
            subprocess.run(words, stdin=nothing, pass_fds=(told, tell), env=target.environment(), check=True)
    except BaseException as error:
        os.close(control)
        os.close(status)
        if isinstance(error, subprocess.SubprocessError):
            raise OSError(str(error)) from error
        raise
    finally:
        os.close(told)
        os.close(tell)
    return control, status


class Sampler:
    """A sampler process, started and waited for; signals are left to the command while it lives.

    Use it as a context manager around the whole recording. The shared process group brings Ctrl-C and hang-ups to the
    command by itself; SIGTERM is handed on to the sampler, which passes it to the command.
    """

    def __init__(
        self,
        header: dict[str, Any],
        plan: Plan,
        journal: pathlib.Path,
        environment: Mapping[str, str] | None = None,
        outputs: tuple[int | None, int | None] = (None, None),
    ) -> None:
        """Create the journal with ``header`` and ``plan`` as its first line.

        The command gets ``environment`` on top of ours, and ``outputs`` (descriptors) in place of our standard output
        and error. Raises FileExistsError when the journal exists, OSError when it cannot be written.
        """
        self.journal = journal
        self._plan = plan
        self._environment = environment
        self._outputs = outputs
        self._process: subprocess.Popen[bytes] | None = None
        self._handlers: dict[int, Any] = {}
        _create(journal, {**header, "plan": plan})

    def __enter__(self) -> Self:
        """Start the sampler. Raises NncfToolsError."""
        target.adopt_orphans()  # should the sampler be killed, the command becomes our child and can be waited for
        for number in CAUGHT:
            if signal.getsignal(number) is not signal.SIG_IGN:  # ignored (nohup): stays so for the command, too
                self._handlers[number] = signal.signal(number, self._heed)
        if sys.platform != "win32":  # inherited by the sampler, which takes them when its handlers are in place
            signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
        try:
            self._process = subprocess.Popen(
                [*_interpreter(self._plan), str(_MAIN), str(self.journal.absolute())],
                close_fds=False,  # descriptors that the command is to inherit (a make jobserver's) pass through
                env=target.environment(self._environment),
                stdout=self._outputs[0],
                stderr=self._outputs[1],
            )
        except OSError as error:
            self.__exit__()
            raise NncfToolsError(f"the sampler could not be started: {error}") from error
        finally:
            if sys.platform != "win32":
                signal.pthread_sigmask(signal.SIG_SETMASK, self._plan["signal_mask"])
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _heed(self, number: int, _frame: object) -> None:
        """Pass on what the command would have been sent in our place.

        That is SIGTERM, and SIGHUP when we lead the session: the kernel then sends it to the leader alone.
        """
        terminate = number == signal.SIGTERM
        if terminate and self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
        elif terminate or (sys.platform != "win32" and number == signal.SIGHUP and os.getsid(0) == os.getpid()):
            pid = None if self._plan["pid"] else _command_pid(self.journal)
            if pid is not None:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)

    def stop(self) -> None:
        """End a recording that is attached to a process."""
        assert self._process is not None
        self._process.terminate()

    def wait(self) -> Ending:
        """Wait for the end of the recording.

        When the sampler was killed or failed, wait for the command, which is a child of this process then.
        """
        assert self._process is not None
        code = self._process.wait()
        if _is_complete(self.journal):
            return Ending(code)
        lost = f"was killed by signal {-code}" if code < 0 else f"failed (exit status {code})"
        status = _wait_for_orphan(self.journal)
        if status is not None:
            return Ending(target.exit_code(status), lost, status)
        return Ending(code if code >= 0 else None, lost)


@dataclass(frozen=True)
class Ending:
    """How a recording ended."""

    exit_code: int | None
    """The command's, 128 + N when signal N killed it; None when it cannot be known."""
    lost: str | None = None
    """What became of a sampler that did not finish the recording."""
    status: dict[str, int | None] | None = None
    """The command's ``code`` or ``signal``, which a lost sampler could not write down."""


def blocked_signals() -> list[int]:
    """Return the signals that are blocked in this thread, for ``Plan.signal_mask``."""
    if sys.platform == "win32":
        return []
    return sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def _create(journal: pathlib.Path, header: dict[str, Any]) -> None:
    """Write the first line of a new journal, or nothing. Raises OSError."""
    line = _first_line(header)
    descriptor = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(line)
    except OSError:
        journal.unlink()
        raise


def _first_line(header: dict[str, Any]) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode("ascii") + b"\n"


def _interpreter(plan: Plan) -> list[str]:
    """Return how to start Python for a sampler: psutil needs the site packages, nothing else does."""
    return [sys.executable, "-I", "-S"] if plan["source"] == "proc" else [sys.executable, "-I"]


def _is_complete(journal: pathlib.Path) -> bool:
    """Return whether the journal's last line is the sampler's."""
    with journal.open("rb") as lines:
        lines.seek(max(0, lines.seek(0, os.SEEK_END) - _TAIL))
        return b'\n{"end":' in lines.read()


def _command_pid(journal: pathlib.Path) -> int | None:
    """Return the PID of the command that a sampler started, or None when it had not."""
    with journal.open("rb") as lines:
        for line in lines:
            if line.startswith(b'{"start"'):
                return int(json.loads(line)["start"]["pid"])
    return None


def _wait_for_orphan(journal: pathlib.Path) -> dict[str, int | None] | None:
    """Wait for the command of a lost sampler; return its exit status, or None when it cannot be known."""
    pid = _command_pid(journal)
    if pid is None or sys.platform == "win32":
        return None
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return None
    return target.exit_status(status)
