"""What is read about once a second: occasional probes, killed processes, room on disks, and which files are read.

The pages of files that the processes read are in the page cache: with less memory than all of them, what is read twice
comes from storage twice. A file on a network may not answer, so a thread looks.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import stat
import time

from nncftools.sampler.probes import columns_of
from nncftools.sampler.probes.machine import FreeSpace

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from nncftools.journal.writing import Plan
    from nncftools.sampler.control_groups import LimitWatch
    from nncftools.sampler.tree import Process, WriteLine


_EVERY_S = 1.0
_AFTER_END_S = 0.25
"""After the end of a process everything is read this soon, and at most this often."""


class Occasional:
    """The occasional probes of a recording."""

    def __init__(
        self, classes: Sequence[Any], root: str, plan: Plan, limits: LimitWatch, write_line: WriteLine
    ) -> None:
        self._classes = classes
        self._root = root
        self._plan = plan
        self._limits = limits
        self._write_line = write_line
        self._probes: list[Any] = []
        self._free_space: list[FreeSpace] = []
        self._start_ns = time.monotonic_ns()
        self._has_ended = False
        self.at_s = 0.0
        """When the next reading is due."""

    def start(self, pid: int) -> None:
        """Make the probes of a command; the recording starts now."""
        self._start_ns = time.monotonic_ns()
        self._probes = [probe(self._root, pid, self._plan) for probe in self._classes]
        self._free_space = [probe for probe in self._probes if isinstance(probe, FreeSpace)]

    @property
    def columns(self) -> list[str]:
        """The columns of the values."""
        return [column for probe in self._probes for column in columns_of(probe)]

    def read(self, now_s: float) -> list[float | None]:
        """Read everything that is due, and return the values of the probes."""
        self.at_s = now_s + _EVERY_S
        thorough, self._has_ended = self._has_ended, False
        self._limits.check(now_s)
        self._write_room(always=False)
        return self.values(thorough=thorough)

    def values(self, *, thorough: bool) -> list[float | None]:
        """Return the values of the probes."""
        return [value for probe in self._probes for value in probe.read(thorough=thorough)]

    def process_ended(self, now_s: float) -> None:
        """Read everything soon: the kernel may have killed the process."""
        self._has_ended = True
        self.at_s = min(self.at_s, now_s + _AFTER_END_S)

    def close(self, now_s: float) -> None:
        """Write the last facts."""
        self._limits.check(now_s)
        self._write_room(always=True)
        for probe in self._free_space:
            probe.close()

    def _write_room(self, *, always: bool) -> None:
        for probe in self._free_space:
            for line in probe.lines(self._start_ns, always=always):
                self._write_line("file_system", line)


_MUCH = 16 << 20
"""Bytes that are read between two looks."""
_SHARE = 100
"""A look is followed by at least this many times the CPU time that it took."""
_MOST_PROCESSES = 8
_MOST_FILES = 10_000
_NOT_FILES = ("/dev/", "/proc/", "/sys/")


class FilesRead:
    """Looks at the open files of the largest processes, and writes new ones to the journal."""

    def __init__(self, write_line: WriteLine) -> None:
        self._write_line = write_line
        self.due_at = float(_MUCH)
        """A look is due when all processes have read so many bytes."""
        self._again_s = 0.0
        self._running = False
        self._new_files: dict[str, int] = {}
        self._sizes: dict[str, int] = {}

    def watch(self, read: float, processes: Sequence[Process]) -> None:
        """Look again, unless that is too soon; all processes have read so many bytes so far."""
        if self._running or time.monotonic() < self._again_s or len(self._sizes) > _MOST_FILES:
            return
        self.write()
        self.due_at = read + _MUCH
        largest = sorted(processes, key=lambda process: process.rss, reverse=True)[:_MOST_PROCESSES]
        self._running = True
        try:
            _thread.start_new_thread(self._look, ([process.path for process in largest],))
        except RuntimeError:  # the limit of threads
            self._running = False

    def write(self) -> None:
        """Write the files that were found since the last call."""
        if self._running:
            return
        new = {path: size for path, size in self._new_files.items() if size > self._sizes.get(path, 0)}
        self._new_files = {}
        if new:
            self._sizes.update(new)
            self._write_line("files_read", {"files": list(new.items())})

    def _look(self, folders: Iterable[str]) -> None:
        begun_s = time.thread_time()
        files: dict[str, int] = {}
        for folder in folders:
            with contextlib.suppress(OSError):  # it has ended, or belongs to another user
                _add_files(folder, files)
        self._new_files = files
        self._again_s = time.monotonic() + _SHARE * (time.thread_time() - begun_s)
        self._running = False


def _add_files(folder: str, files: dict[str, int]) -> None:
    for number in os.listdir(f"{folder}/fd"):
        with contextlib.suppress(OSError):
            path = os.fsencode(os.readlink(f"{folder}/fd/{number}")).decode(errors="backslashreplace")
            if path in files or not path.startswith("/") or path.startswith(_NOT_FILES):
                continue
            facts = os.stat(f"{folder}/fd/{number}")
            if stat.S_ISREG(facts.st_mode) and _is_read(f"{folder}/fdinfo/{number}"):
                files[path] = facts.st_size


def _is_read(fdinfo: str) -> bool:
    """Return whether a descriptor was opened for reading (``flags`` of fdinfo are octal, proc(5)). Raises OSError."""
    with open(fdinfo, "rb") as file:
        flags = int(file.read(200).partition(b"flags:")[2].split(None, 1)[0], 8)
    return flags & os.O_ACCMODE != os.O_WRONLY
