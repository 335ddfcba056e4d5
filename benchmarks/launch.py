"""Start commands, wait for them, and know what they cost."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import machine
from benchmarks.tools import HungError, ToolError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Self

_LAUNCHER = pathlib.Path(__file__).with_name("launcher.py")
_GRACE_S = 10
"""The launcher's own time to kill what hangs."""
_LONGEST_REASON = 120
_HEAD_START_S = 0.5
"""What a tool that attaches needs to be there before the workload begins."""


@dataclass(frozen=True)
class Cost:
    """What a command cost with all the children it waited for; bytes and seconds."""

    wall_s: float
    cpu_s: float
    max_rss: int
    """High-water mark of the largest process."""


class Launched:
    """A command under the launcher; the context manager always ends it on exit."""

    def __init__(self, words: Sequence[str], folder: pathlib.Path, bound_s: float) -> None:
        """Start."""
        self._folder, self._bound_s = folder, bound_s
        limit = machine.available_memory() * 3 // 4
        launcher = (sys.executable, "-S", "-E", str(_LAUNCHER), str(self._result), str(bound_s), str(limit))
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*launcher, *words],
                cwd=folder,
                env=_environment(words[0]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGALRM)  # the launcher kills all that it started
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
    with Launched(words, folder, bound_s) as launched:
        return launched.finish()


def _environment(command: str) -> dict[str, str]:
    """Put the tool's own folder first in PATH; leave out variables that slow Python down (PYTHONDONTWRITEBYTECODE)."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON") or name == "PYTHONPATH"}
    return {**kept, "PATH": f"{pathlib.Path(command).parent}{os.pathsep}{os.environ['PATH']}"}


@contextlib.contextmanager
def held_back(words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a workload that begins a moment later, with the same PID; it is gone at the end."""
    pause = f'sleep {_HEAD_START_S}; exec "$@"'
    quiet = subprocess.DEVNULL
    with subprocess.Popen(["sh", "-c", pause, "sh", *words], stdin=quiet, stdout=quiet) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def beside(words: Sequence[str]) -> Iterator[None]:
    """Keep a workload running in the background of a measurement; it prints a line when it is ready."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
