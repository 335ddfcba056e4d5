"""Control groups of our own with a memory limit, for the runs of a search (cgroups(7)), and where they can be made.

v1: inside of our own group, so that a container's limit still holds. v2: a group with processes cannot have groups with
controllers inside (cgroup-v2.rst, No Internal Process Constraint), so they are made at the top. Where that is not
allowed, but our own group was delegated to this user, they are made there; this process moves to a group beside them.

Files are dropped from the page cache before a run: what is cached outside of a control group costs nothing inside.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from nncftools.backports import running
from nncftools.errors import NncfToolsError
from nncftools.sampler.control_groups import ControlGroup, Hierarchies, number_in

if TYPE_CHECKING:
    from typing_extensions import Self


PROC = "/proc"
PREFIX = "nncf-tools-fit-"
_LIMITS_V1 = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
_LIMITS_V2 = "memory.max", "memory.swap.max"
_REMOVE_WITHIN_S = 10.0
_PAUSE_S = 0.02
_MAPPED = re.compile(r"^[^/\n]*(/(?!dev/|memfd:|SYSV).*)(?<! \(deleted\))$", re.MULTILINE)
"""A line of /proc/PID/maps with a file that can be dropped from the page cache."""


class ParentGroup(NamedTuple):
    """A group in which groups of our own can be made."""

    folder: str
    is_v2: bool


class LimitedGroup:
    """A group that exists within a ``with`` block; at its end all of its processes are killed."""

    def __init__(self, parent: ParentGroup, number: int) -> None:
        self.folder = pathlib.Path(parent.folder) / f"{own_name()}-{number}"
        self._is_v2 = parent.is_v2
        self._counts = ControlGroup(str(self.folder), parent.folder, is_v2=parent.is_v2)

    def __enter__(self) -> Self:
        self.folder.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        remove(self.folder)

    def limit(self, size: int) -> None:
        """Limit memory, in bytes, without any swap beside it. Raises OSError."""
        of_memory, of_swap = _LIMITS_V2 if self._is_v2 else _LIMITS_V1
        _write(self.folder / of_memory, size)
        if (self.folder / of_swap).exists():
            _write(self.folder / of_swap, 0 if self._is_v2 else size)

    @property
    def entry(self) -> list[str]:
        """Words before a command that make it enter the group before it takes memory."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.folder / "cgroup.procs")]

    def oom_kills(self) -> int:
        """Return how many of its processes the kernel killed."""
        return self._counts.oom_kills() or 0

    def most_charged(self) -> int | None:
        """Return the most bytes that were charged to it; None for unknown (memory.peak: Linux 5.19)."""
        return number_in(f"{self.folder}/{'memory.peak' if self._is_v2 else 'memory.max_usage_in_bytes'}")

    def refaults(self) -> int | None:
        """Return the bytes of files that were dropped and read again; None for unknown (memory.stat: Linux 5.9)."""
        pages = self._counts.in_stat(b"workingset_refault_file ")
        return None if pages is None else pages * os.sysconf("SC_PAGE_SIZE")


def remove(folder: pathlib.Path) -> None:
    """Kill all processes of a group, give its page cache back and remove it; do nothing if it is gone.

    Its parent would inherit the cache: what a run has read would be free for the next one. Raises NncfToolsError.
    """
    until_s = time.monotonic() + _REMOVE_WITHIN_S
    while folder.exists():
        for inner in (path for path in folder.glob("*") if path.is_dir()):
            remove(inner)
        for pid in pids_of(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not pids_of(folder):
            with contextlib.suppress(OSError):
                _write(folder / "memory.force_empty", 0)
            with contextlib.suppress(OSError, ValueError):  # a v2 group drops as much as it is told to
                _write(folder / "memory.reclaim", int((folder / "memory.current").read_text()))
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:  # EBUSY while a process ends
            if time.monotonic() > until_s:
                reason = error.strerror or error
                raise NncfToolsError(f"the control group {str(folder)!r} cannot be removed: {reason}") from error
            time.sleep(_PAUSE_S)


def pids_of(folder: pathlib.Path) -> list[int]:
    """Return the processes of a group; none when it is gone."""
    with contextlib.suppress(OSError):
        return [int(line) for line in (folder / "cgroup.procs").read_text().split()]
    return []


def own_name() -> str:
    """Return how the names of this process's groups begin: with its PID and when it began."""
    return f"{PREFIX}{os.getpid()}-{_started(os.getpid())}"


def _started(pid: int) -> str:
    """Return when a process began, in clock ticks; empty for no such process."""
    with contextlib.suppress(OSError, IndexError):
        return pathlib.Path(PROC, str(pid), "stat").read_text().rpartition(")")[2].split()[19]
    return ""


def _write(file: pathlib.Path, value: int | str) -> None:
    """Write to a group's file. Raises OSError, which closing a Python file would swallow."""
    descriptor = os.open(file, os.O_WRONLY)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def files_of(pids: Iterable[int]) -> set[str]:
    """Return the files that processes have mapped; bytes that are no UTF-8 are ``\\xff``, as in sessions."""
    files: set[str] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            files.update(_MAPPED.findall(pathlib.Path(PROC, str(pid), "maps").read_text("utf-8", "backslashreplace")))
    return files


_BESIDE = "nncf-tools"
"""The name of the group that this process moves to."""
_SCOPE = ["systemd-run", "--user", "--scope", "--quiet", "--property=Delegate=yes"]
"""A command in a group of its own that is delegated to its user (systemd.resource-control(5))."""
_LONGEST_S = 10


def parent_group() -> ParentGroup:
    """Return the group in which groups can be made. Raises OSError, with a reason, where that is not allowed."""
    own = Hierarchies(PROC).group_of(os.getpid())
    if own is None:
        raise OSError("no memory controller accounts this process's control group")
    if not own.is_v2:
        return _tried(ParentGroup(own.folder, is_v2=False))
    try:
        return _tried(ParentGroup(own.top, is_v2=True))
    except OSError:
        return _tried(_delegated(pathlib.Path(own.folder)))


def _tried(parent: ParentGroup) -> ParentGroup:
    with LimitedGroup(parent, 0) as trial:
        trial.limit(1 << 30)
    return parent


def _delegated(own: pathlib.Path) -> ParentGroup:
    """Make room in our own group for groups with limits. Raises OSError where it is not ours."""
    folder = own.parent if own.name == _BESIDE else own
    beside = folder / _BESIDE
    beside.mkdir(exist_ok=True)
    for pid in pids_of(folder):
        _write(beside / "cgroup.procs", pid)
    _write(folder / "cgroup.subtree_control", "+memory")
    return ParentGroup(str(folder), is_v2=True)


def start_in_scope() -> None:
    """Start this program again in a group that this user's systemd delegates; return where that is not possible.

    The process stays the same, with its PID: ``systemd-run --scope`` executes the command itself.
    """
    unit = f"{own_name()}-0.scope"
    if unit in pathlib.Path(PROC, "self/cgroup").read_text(encoding="utf-8", errors="replace"):
        return
    try:
        tried = subprocess.run([*_SCOPE, "--", "true"], capture_output=True, timeout=_LONGEST_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return
    if tried.returncode == 0:
        again = [*running("nncftools"), *sys.argv[1:]]
        os.execvp(_SCOPE[0], [*_SCOPE, f"--unit={unit}", "--", *again])  # noqa: S606 — no shell is wanted


def remove_leftovers(parent: ParentGroup) -> list[str]:
    """Remove the groups of searches that were killed, with all that runs in them; return their folders."""
    top = pathlib.Path(parent.folder)
    scopes = top.parent.glob(f"{PREFIX}*.scope") if top.name.startswith(PREFIX) else ()
    removed = []
    for folder in (*top.glob(f"{PREFIX}*"), *scopes):
        owner = re.fullmatch(rf"{PREFIX}(\d+)-(\d+)-\d+(\.scope)?", folder.name)
        if owner is not None and _started(int(owner[1])) != owner[2]:
            remove(folder)
            removed.append(str(folder))
    return removed


def drop(paths: Iterable[str]) -> None:
    """Drop files from the page cache, but for pages that a process has mapped (posix_fadvise(2))."""
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                with contextlib.suppress(OSError):
                    os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
