"""Start commands, wait for them, and know what they cost."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from benchmarks import launcher, machine
from benchmarks.tools import HungError, ToolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

_GRACE_S = 10
"""The launcher's own time to kill what hangs."""
_LONGEST_REASON = 120
_ISOLATED = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Its child is the first process of a PID namespace, with a /proc of its own; unshare(1) mounts it privately."""


@dataclass(frozen=True)
class Cost:
    """What a command cost with all the children it waited for; bytes and seconds."""

    wall_s: float
    cpu_s: float
    max_rss: int
    """High-water mark of the largest process."""


@dataclass(frozen=True)
class Job:
    """A command, and what runs at the same time without being counted."""

    command: Sequence[str]
    watched: Sequence[str] = ()
    """What the command attaches to; each ``launcher.PID`` in its words becomes the PID."""
    beside: Sequence[str] = ()
    """Prints a line when it is ready."""


class Launched:
    """A job under the launcher; the context manager always ends it on exit."""

    def __init__(self, job: Job, folder: pathlib.Path, bound_s: float) -> None:
        """Start."""
        self._folder, self._bound_s = folder, bound_s
        limits = {"seconds": bound_s, "size": machine.available_memory() * 3 // 4}
        order = json.dumps({"result": str(self._result), **limits, **asdict(job)})
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command_line(order, isolated=isolates()),
                cwd=folder,
                env=_environment(job.command[0]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGALRM)  # the launcher kills all that it started, or the namespace ends
            wait(self._process, _GRACE_S)

    @property
    def _result(self) -> pathlib.Path:
        return self._folder / "cost.json"

    @property
    def _errors(self) -> pathlib.Path:
        return self._folder / "stderr.txt"

    def finish(self) -> Cost:
        """Wait for the end. Raises ToolError when the command failed, HungError when it had to be killed."""
        wait(self._process, self._bound_s + _GRACE_S)
        if not self._result.exists():
            raise ToolError("was killed together with its launcher")
        figures = json.loads(self._result.read_bytes())
        code, hung = figures.pop("code"), figures.pop("hung")
        if hung:
            raise HungError(f"did not end within {self._bound_s:.0f} s")
        if code:
            raise ToolError(f"exit status {code}: {self._last_words()}")
        return Cost(**figures)

    def _last_words(self) -> str:
        lines = self._errors.read_text(encoding="utf-8", errors="replace").split("\n")
        text = next((line.strip() for line in reversed(lines) if line.strip()), "no message")
        return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"


def wait(process: subprocess.Popen[bytes], bound_s: float) -> None:
    """Wait for a process. Raises HungError."""
    try:
        process.wait(bound_s)
    except subprocess.TimeoutExpired:
        raise HungError(f"did not end within {bound_s:.0f} s") from None


def run(words: Sequence[str], folder: pathlib.Path, bound_s: float) -> Cost:
    """Run a command. Raises ToolError."""
    return run_job(Job(words), folder, bound_s)


def run_job(job: Job, folder: pathlib.Path, bound_s: float) -> Cost:
    """Run a command with what belongs to it. Raises ToolError."""
    with Launched(job, folder, bound_s) as launched:
        return launched.finish()


def command_line(order: str, *, isolated: bool) -> list[str]:
    """Return the launcher's command, in a process list of its own or in that of the machine."""
    return [*(_ISOLATED if isolated else ()), sys.executable, "-S", "-E", launcher.__file__, order]


@functools.cache
def isolates() -> bool:
    """Return whether commands can have process lists of their own here: for root, unless a container forbids it."""
    if os.geteuid():
        return False
    try:
        return subprocess.run([*_ISOLATED, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _environment(command: str) -> dict[str, str]:
    """Put the tool's own folder first in PATH; leave out variables that slow Python down (PYTHONDONTWRITEBYTECODE)."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON") or name == "PYTHONPATH"}
    return {**kept, "PATH": f"{pathlib.Path(command).parent}{os.pathsep}{os.environ['PATH']}"}
