"""Control groups of our own with a memory limit, for the runs of a search (cgroups(7)).

v1: the group is made inside of our own, so that a container's limit still holds. v2: a group with processes cannot have
groups with controllers inside (cgroup-v2.rst, No Internal Process Constraint), so it is made at the top.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

from nncftools.errors import NncfToolsError
from nncftools.sampler.control_groups import ControlGroup, Hierarchies

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Self

PROC = "/proc"
_PREFIX = "nncf-tools-fit-"
_REMOVE_WITHIN_S = 10.0
_PAUSE_S = 0.02
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Place(NamedTuple):
    """A group in which groups of our own can be made."""

    folder: str
    is_v2: bool


class LimitedGroup:
    """A group that exists within a ``with`` block; at its end all of its processes are killed."""

    def __init__(self, parent: Place, number: int) -> None:
        self.folder = pathlib.Path(parent.folder) / f"{_PREFIX}{os.getpid()}-{started(os.getpid())}-{number}"
        self._is_v2 = parent.is_v2
        self._counts = ControlGroup(str(self.folder), parent.folder, is_v2=parent.is_v2)

    def __enter__(self) -> Self:
        self.folder.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        remove(self.folder)

    def limit(self, size: int, swap: int) -> None:
        """Limit memory, and swap beside it, in bytes. Raises OSError."""
        if self._is_v2:
            _write(self.folder / "memory.max", size)
            if (self.folder / "memory.swap.max").exists():
                _write(self.folder / "memory.swap.max", swap)
            return
        _write(self.folder / "memory.limit_in_bytes", size)
        if (self.folder / "memory.memsw.limit_in_bytes").exists():
            _write(self.folder / "memory.memsw.limit_in_bytes", size + swap)

    @property
    def entry(self) -> list[str]:
        """Words before a command that make it enter the group first: what it took before is charged elsewhere."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.folder / "cgroup.procs")]

    def pids(self) -> list[int]:
        """Return its processes."""
        return _pids(self.folder)

    def end(self, number: int) -> None:
        """Send a signal to all of its processes."""
        _signal(self.folder, number)

    def oom_kills(self) -> int:
        """Return how many of its processes the kernel killed."""
        return self._counts.oom_kills() or 0

    def refaults(self) -> int | None:
        """Return the bytes that were dropped and read again; None for unknown."""
        with contextlib.suppress(OSError):
            lines = (self.folder / "memory.stat").read_text().splitlines()
            pages = [int(line.split()[1]) for line in lines if line.startswith("workingset_refault")]
            return sum(pages) * _PAGE if pages else None
        return None


def parent_group() -> Place:
    """Return the group in which groups can be made. Raises OSError, with a reason, where that is not allowed."""
    own = Hierarchies(PROC).group_of(os.getpid())
    if own is None:
        raise OSError("no memory controller accounts this process's control group")
    parent = Place(own.top if own.is_v2 else own.folder, own.is_v2)
    trial = LimitedGroup(parent, 0)
    with trial:
        trial.limit(1 << 30, 0)
    return parent


def remove_leftovers(parent: Place) -> list[str]:
    """Remove the groups of searches that were killed, with all that runs in them; return their folders."""
    found = []
    for folder in pathlib.Path(parent.folder).glob(f"{_PREFIX}*"):
        owner = re.fullmatch(rf"{_PREFIX}(\d+)-(\d+)-\d+", folder.name)
        if owner is not None and started(int(owner[1])) != owner[2]:
            remove(folder)
            found.append(str(folder))
    return found


def remove(folder: pathlib.Path) -> None:
    """Kill all processes of a group, give its page cache back and remove it; do nothing if it is gone.

    Its parent would inherit the cache: what a run has read would be free for the next one. Raises NncfToolsError.
    """
    until_s = time.monotonic() + _REMOVE_WITHIN_S
    while folder.exists():
        _signal(folder, signal.SIGKILL)
        if not _pids(folder):
            _give_back(folder)
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:  # EBUSY while a process ends
            if time.monotonic() > until_s:
                reason = error.strerror or error
                raise NncfToolsError(f"the control group {str(folder)!r} cannot be removed: {reason}") from error
            time.sleep(_PAUSE_S)


def _give_back(folder: pathlib.Path) -> None:
    """Drop a group's page cache; a v2 group drops as much as it is told to."""
    with contextlib.suppress(OSError):
        _write(folder / "memory.force_empty", 0)
    with contextlib.suppress(OSError, ValueError):
        _write(folder / "memory.reclaim", int((folder / "memory.current").read_text()))


def _pids(folder: pathlib.Path) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(line) for line in (folder / "cgroup.procs").read_text().split()]
    return []


def _signal(folder: pathlib.Path, number: int) -> None:
    for pid in _pids(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def started(pid: int) -> str:
    """Return when a process began, in clock ticks; empty when there is none."""
    with contextlib.suppress(OSError, IndexError):
        return pathlib.Path(PROC, str(pid), "stat").read_text().rpartition(")")[2].split()[19]
    return ""


def _write(file: pathlib.Path, value: int) -> None:
    """Write a number. Raises OSError, which closing a Python file would swallow."""
    descriptor = os.open(file, os.O_WRONLY)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def files_of(pids: Iterable[int]) -> set[str]:
    """Return the files that processes have mapped."""
    found: set[str] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in pathlib.Path(PROC, str(pid), "maps").read_text(errors="surrogateescape").splitlines():
                path = line[line.find("/") :] if "/" in line else ""
                if path and not path.startswith(("/dev/", "/memfd:", "/SYSV")) and not path.endswith(" (deleted)"):
                    found.add(path)
    return found
