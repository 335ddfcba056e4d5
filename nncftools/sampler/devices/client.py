"""The start and the end of the helper that reads devices, and the way of its lines to the journal.

It takes readings at distances of its own. So they are no part of samples, but lines of the journal with their times.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys

from nncftools.files import above_standard
from nncftools.sampler.link import LineReader
from nncftools.sampler.tree import DETACHED_ARGUMENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from typing import Any

    from nncftools.journal.writing import Plan
    from nncftools.sampler.tree import WriteLine

_PATHS = "LD_LIBRARY_PATH"
"""An empty part of it would be the working folder, in which nothing is executed."""
_MAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
_KEYS = {"devices", "device", "warning"}
_PATIENCE_S = 1.0
_SILENT_S = 3.0
"""So long may a reading take that is due."""


class Helper:
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
        import subprocess  # the sampler, which needs only what is below, does without

        plan = self._plan
        numbers = (0 if sampler is None or plan.pid is not None else sampler, plan.pid or 0, int(plan.children))
        paths = os.environ.get(_PATHS, "").split(os.pathsep)
        label = [DETACHED_ARGUMENT] if sampler is None else []
        with contextlib.suppress(OSError, IndexError):
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", _MAIN, *map(str, numbers), *label],
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
            import signal
            import subprocess

            if self._process.returncode is None:  # it is not reaped yet, so the group is its own
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE_S)
            self._process = None

    def _hang_up(self) -> None:
        for end in self._ends:
            os.close(end)
        self._ends = ()


class Relay(LineReader):
    """Passes the helper's lines on to the journal; in the sampler."""

    def __init__(self, descriptor: int, write_line: WriteLine, start_ns: int) -> None:
        """Read from ``descriptor``, which the command does not inherit; the recording began at ``start_ns``."""
        super().__init__(descriptor)
        os.set_blocking(descriptor, False)
        self._write_line = write_line
        self._start_ns = start_ns
        self._sources = {"GPUs and NPUs": (0.0, 0.0)}
        """What is read: when it was read last, and when the next reading is due."""
        self.columns: set[str] = set()
        """The columns of all readings so far."""

    def take(self, now_s: float) -> None:
        """Write the lines that have arrived; say so when the helper was killed."""
        for text in self.lines():
            with contextlib.suppress(
                ValueError, TypeError, KeyError, AttributeError
            ):  # a driver may print what it likes
                for key, value in json.loads(text).items():
                    self._take_line(key, value, now_s)
        if self._sources and not self.is_open:
            why = "the process that asks the drivers ended early"
            self._write_line("warning", f"memory of devices is unknown from {now_s:.1f} s on: {why}")

    def _take_line(self, key: str, value: Any, now_s: float) -> None:  # noqa: ANN401 — as JSON has it
        if key == "sources":
            self._sources = dict.fromkeys(value, (0.0, 0.0))
        elif key == "ended":
            del self._sources[value[0]]
            if value[1]:
                self._write_line("warning", f"memory of {value[0]} is unknown from {now_s:.1f} s on: {value[1]}")
        elif key == "devices":
            value["at_s"] = read_s = max(0.0, round((value.pop("t_ns") - self._start_ns) / 1e9, 6))
            self._sources[value.pop("of")] = read_s, read_s + value.pop("next_s")
            self.columns.update(value["values"])
        if key in _KEYS and (key != "devices" or value["values"]):
            self._write_line(key, value)

    def finish(self, end_s: float) -> None:
        """Write what is left, and whether the drivers have not answered for a while."""
        if self.is_open:
            self.take(end_s)
        for what, (read_s, due_s) in self._sources.items():
            if self.is_open and end_s - due_s > _SILENT_S:
                since = f"since {read_s:.1f} s" if read_s else f"in the {end_s:.1f} s of the run"
                self._write_line("warning", f"memory of {what} is unknown: the driver did not answer {since}")
