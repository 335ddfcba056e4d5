"""The memory that a run needs, the memory and disk space that are available, and control groups with a memory limit.

Available memory is the memory that programs can still get: on the machine, and in the control group of a process. Disk
space is the free space of file systems that a command probably writes to.

To run a command under a limit, this module makes control groups (cgroups(7)). With cgroup v1, the new groups are inside
this process's own group, so that a container's limit still applies. With v2, a group that contains processes cannot
also contain groups with controllers (cgroup-v2.rst, No Internal Process Constraint). So the new groups are in the root
of the cgroup file system. If that is not allowed, but this process's group was delegated to the user, the new groups
are in that group, and this process moves to a new group there.

Files are dropped from the page cache before a run: pages that were cached outside the control group would not count in
the group.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from nncftools.analysis.summary import dropped_files
from nncftools.backports import running
from nncftools.errors import NncfToolsError
from nncftools.journal.writing import GROUP, THROTTLE
from nncftools.sampler.control_groups import ControlGroup, Hierarchies
from nncftools.session.model import MEMORY, MemoryLimit, SessionData
from nncftools.units import MemoryUnit, brief_size, part_text, printable

if TYPE_CHECKING:
    from typing_extensions import Self

    from nncftools.analysis.forecast import Result

MAX_MEMORY = "--max-memory"
MACHINE = "machine"
_ABOVE = 1.1
"""RSS may exceed the limit of a control group by this factor, because shared libraries may count in another group."""


class Effective(NamedTuple):
    """A memory limit that applied to a run."""

    kind: str
    """``--max-memory``, ``machine`` (the memory of the machine is the limit), or a kind of
    ``nncftools.session.model.MemoryLimit``, such as ``control group``."""
    size: int
    """Limit in bytes."""
    set_by: str = ""
    """The file or system call that sets the limit; empty if ``kind`` is ``--max-memory`` or ``machine``."""

    @property
    def name(self) -> str:
        """``machine`` for the size of the machine, ``limit`` for any other limit."""
        return "machine" if self.kind == MACHINE else "limit"

    def share_text(self, size: float) -> str:
        """Return ``size`` as a share of the limit: ``95 %``."""
        percent = size / self.size * 100
        return f"{percent:.0f} %" if percent >= 0.5 or not size else "less than 1 %"  # noqa: PLR2004 — rounds to 1


def effective_limit(session: SessionData) -> Effective | None:
    """Return the smallest limit on resident memory; None if unknown.

    Some control groups contain only a part of the run's processes. So if the run's memory exceeded the limit of a
    group, that limit is ignored.
    """
    highest = session.rss_peak.sampled or 0
    max_memory = None if session.limit_reached is None else session.limit_reached.limit
    return smallest(session.memory_limits, highest, max_memory, session.host.memory)


def smallest(
    limits: Iterable[MemoryLimit], highest: float, max_memory: int | None, machine: int | None
) -> Effective | None:
    """Return the smallest memory limit on a run whose RSS peak was ``highest``; None if there is no limit.

    ``limits`` has the limits of control groups. ``max_memory`` is the limit of nncf-tools, and ``machine`` the memory
    of the machine. If the run exceeded the limit of a control group, that limit is ignored.
    """
    least = max(1.0, highest / _ABOVE)
    groups = [limit for limit in limits if limit.kind in {GROUP, THROTTLE} and limit.size >= least]
    effective = [Effective(limit.kind, limit.size, limit.set_by) for limit in groups]
    if max_memory:
        effective.append(Effective(MAX_MEMORY, max_memory))
    if machine:
        effective.append(Effective(MACHINE, machine))
    return min(effective, key=lambda limit: limit.size, default=None)


def smallest_of(session: SessionData, *kinds: str) -> Effective | None:
    """Return the smallest limit of these kinds, even if the run exceeded the limit; None if there is no such limit."""
    limits = [limit for limit in session.memory_limits if limit.kind in kinds and limit.size > 0]
    effective = [Effective(limit.kind, limit.size, limit.set_by) for limit in limits]
    return min(effective, key=lambda limit: limit.size, default=None)


_PAGES_OF_FILES = 0.02
"""The kernel also needs memory for pages of mapped files: this share of the anonymous and shared memory, or of the
mapped files, whichever is smaller. Measured: 5 MiB for 200 MiB of anonymous memory and a file of 300 MiB
(``python -m benchmarks.limits --only floors``)."""


class Needs(NamedTuple):
    """The memory that a run needs, in bytes."""

    floor: int
    """Memory that the kernel can neither drop nor share: the smallest possible limit."""
    at_s: float
    """Time when the run needed the most memory, in seconds since the start."""
    comfortable: int
    """The smallest possible limit (``floor``) plus the size of all mapped and read files: with a limit of this size, no
    file has to be read twice."""
    is_bound: bool = False
    """True if the run did not end by itself, so that a complete run may need more than ``floor``."""
    is_short: bool = False
    """True if the kernel dropped files during the run and read them again. ``comfortable`` is then too small."""

    def text(self, unit: MemoryUnit) -> str:
        """Return the needs as a phrase that completes "the run needs"."""
        floor = f"{unit.brief(self.floor)} {unit}"
        comfortable = f"{unit.brief(self.comfortable)} {unit}"
        if self.is_bound:
            return f"more than {floor}"
        least = f"a limit of at least {floor}"
        if floor == comfortable:
            return least
        if self.is_short:
            return f"{least}; more than {comfortable} to read no file twice"
        return f"{least}; with {comfortable} no file is read twice"


def needs(session: SessionData) -> Needs | None:
    """Return the memory that a run needs; None if the session has no ``floor`` (the least memory that the run needs).

    The session's ``floor`` is from the sample where it is largest. If a high-water mark shows that RSS rose higher
    between two samples, the difference is added as anonymous memory. A rise that the reading of ``floor`` has seen is
    in ``floor.size`` already.
    """
    floor = session.floor
    if floor is None:
        return None
    peak = session.rss_peak
    rss = max(peak.sampled or 0, floor.rss or floor.size)
    size = floor.size + max(0, (peak.low or 0) - rss)
    files = sum(file.size for file in session.files_read)
    read = session.totals.get("read_chars")
    if read is not None:
        files = min(files, round(read))
    return Needs(
        floor=size + round(min(size, floor.mapped) * _PAGES_OF_FILES),
        at_s=floor.at_s,
        comfortable=size + floor.mapped + files,
        is_bound=_is_cut_short(session),
        is_short=dropped_files(session) > 0,
    )


def was_running(session: SessionData) -> bool:
    """Return whether the command was still running when the recording ended, as with ``--duration``."""
    unended = [process.id for process in session.processes if process.end_s is None]
    return session.attached_to is None and 0 in unended


def _is_cut_short(session: SessionData) -> bool:
    if session.exit is None or session.exit.signal is not None:
        return True
    if was_running(session) or not session.finished:
        return True
    has_failed = bool(session.exit.code) and any(failure.cause == MEMORY for failure in session.failures)
    return has_failed or bool(session.oom_kills or session.kernel_kills)


class Available(NamedTuple):
    """Available memory in bytes; None for unknown."""

    machine: int | None = None
    """The kernel's estimate of the memory that programs can get without swapping."""
    machine_size: int | None = None
    group: int | None = None
    """Memory that the control group can still get below the limit; None if unknown or if there is no limit."""
    group_limit: int | None = None
    """The smallest limit of the group and of the groups that contain the group."""

    @property
    def least(self) -> int | None:
        """Memory that a program can get: the smaller of ``machine`` and ``group``."""
        sizes = [size for size in (self.machine, self.group) if size is not None]
        return min(sizes, default=None)


def available(proc: str, pid: int | None) -> Available:
    """Return the memory available on this machine and, if ``pid`` is given, in the control group of that process."""
    memory = _available_on_machine(proc)
    group = None if pid is None else Hierarchies(proc).group_of(pid)
    if group is None:
        return memory
    limit = min((size for _, size, _ in group.limits()), default=None)
    return memory._replace(group=group.available(), group_limit=limit)


def _available_on_machine(proc: str) -> Available:
    if sys.platform != "linux":
        import psutil

        memory = psutil.virtual_memory()
        return Available(int(memory.available), int(memory.total))
    text = ""
    with contextlib.suppress(OSError):
        text = pathlib.Path(proc, "meminfo").read_text(encoding="utf-8")
    sizes = {name: int(size) * 1024 for name, size in re.findall(r"(\w+):\s*(\d+) kB", text)}
    return Available(sizes.get("MemAvailable"), sizes.get("MemTotal"))


_MOST_WORDS = 1000
_MOST_INSIDE = 8
_OF_KERNEL = ("/dev/", "/proc/", "/sys/")
_INSIDE = re.compile(r"/[\w.+@%~-]+(?:/[\w.+@%~-]+)*")
"""Matches paths inside a word, such as a shell command line or ``of=/data/model.bin``."""


def file_systems(argv: Sequence[str], output: pathlib.Path) -> list[tuple[str, str]]:
    """Return ``(role, folder)`` of each file system that a run may fill; each file system only once.

    The folders are the working folder, TMPDIR, the folder of ``output`` (the recording), and paths in the arguments. A
    role is the use of a folder, such as ``TMPDIR`` or ``argument``.
    """
    by_device: dict[int, tuple[str, str]] = {}
    for role, path in _list_folders(argv, output):
        folder = _find_existing(path)
        try:
            device = folder.stat().st_dev
            is_real = os.statvfs(folder).f_blocks > 0  # /proc, /sys and similar file systems have 0 blocks
        except OSError:
            continue
        if is_real and device not in by_device:
            number = sum(name.startswith(role) for name, _ in by_device.values()) + 1
            by_device[device] = role if number == 1 else f"{role}-{number}", str(folder)
    return list(by_device.values())


class Room(NamedTuple):
    """A file system, with the bytes that a run will probably write and the free bytes."""

    folder: str
    needed: int
    free: int


def rooms(used: Mapping[str, int], argv: Sequence[str], output: pathlib.Path) -> list[Room]:
    """Return the file systems that a run will write to on this machine.

    ``used`` is ``{role: bytes}``: the bytes that an earlier run wrote, perhaps on another machine. A role is the use of
    a file system, such as ``TMPDIR``. If two roles have the same file system on this machine, their bytes are added.
    """
    folders: dict[str, str | pathlib.Path] = dict(_list_folders(argv, output))
    folders.update(file_systems(argv, output))
    by_device: dict[int, Room] = {}
    for role, size in used.items():
        folder = _find_existing(pathlib.Path(folders.get(role, "")))
        try:
            device = folder.stat().st_dev
            facts = os.statvfs(folder)
        except OSError:
            continue
        unused = Room(str(folder), 0, facts.f_bavail * facts.f_frsize)
        room = by_device.get(device, unused)
        by_device[device] = room._replace(needed=room.needed + size)
    return list(by_device.values())


def _list_folders(argv: Sequence[str], output: pathlib.Path) -> Iterator[tuple[str, pathlib.Path]]:
    yield "cwd", pathlib.Path()
    with contextlib.suppress(FileNotFoundError):  # no folder for temporary files is usable
        yield "TMPDIR", pathlib.Path(tempfile.gettempdir())
    yield "output", output
    longest = os.pathconf("/", "PC_PATH_MAX")
    for word in argv[1:_MOST_WORDS]:
        path = word.partition("=")[2] if word.startswith("-") else word
        inside = itertools.islice(_INSIDE.findall(word), _MOST_INSIDE)
        for part in dict.fromkeys([path, *inside]):
            is_path = os.sep in part and len(part) < longest and "\0" not in part
            if is_path and not part.startswith(_OF_KERNEL):
                yield "argument", pathlib.Path(part)


def _find_existing(path: pathlib.Path) -> pathlib.Path:
    """Return the folder ``path`` or, if missing, the nearest existing parent: the command may make missing folders."""
    try:
        path = path.absolute()
        existing = (folder for folder in (path, *path.parents) if folder.is_dir())
        return next(existing, path)
    except (OSError, ValueError):
        return path


class Requirement(NamedTuple):
    """The memory and disk space that a command needs, in bytes."""

    memory: int
    disks: Mapping[str, int]
    """Disk space that the recorded run used: ``{role: bytes}``. A role is a file system's use, such as ``TMPDIR``."""
    is_bound: bool = False
    """True if the recorded run did not end by itself. A complete run may then need more memory than ``memory``."""


def of_session(session: SessionData) -> Requirement | None:
    """Return the memory and disk space that a command needs, from an earlier run; None if not recorded."""
    needed = needs(session)
    if needed is None:
        return None
    disks = {}
    for disk in session.file_systems:
        if disk.lowest is not None and (disk.first or 0) > disk.lowest:
            disks[disk.role] = (disk.first or 0) - disk.lowest
    return Requirement(needed.floor, disks, needed.is_bound)


def of_forecast(result: Result) -> Requirement | None:
    """Return the memory and disk space that a command needs with the whole model; None if unknown.

    ``result`` is a forecast from runs with only some of the model's layers.
    """
    forecast = result.forecast
    if forecast is None:
        return None
    disks = {} if forecast.disk is None else {"argument": round(forecast.disk.high)}
    return Requirement(round(forecast.floor.value), disks)


def shortage(memory: int, rooms: Sequence[Room], available: Available) -> str:
    """Return a text about missing memory and disk space, with sizes; empty if nothing is known to be missing."""
    missing = []
    if available.least is not None and memory > available.least:
        sources = []
        if available.machine is not None:
            sources.append(f"machine: {_describe_part(available.machine, available.machine_size)}")
        if available.group is not None:
            sources.append(f"control group: {_describe_part(available.group, available.group_limit)}")
        needed, free = _distinct_sizes(memory, available.least)
        missing.append(f"{needed} of memory is needed, {free} is available ({', '.join(sources)})")
    for room in rooms:
        if room.needed > room.free:
            needed, free = _distinct_sizes(room.needed, room.free)
            missing.append(f"{needed} of disk at {printable(room.folder)!r} is needed, {free} is free")
    return "; ".join(missing)


def _describe_part(size: int, total: int | None) -> str:
    return brief_size(size) if total is None else part_text(size, total)


def _distinct_sizes(needed: int, free: int) -> tuple[str, str]:
    if brief_size(needed) == brief_size(free):
        return MemoryUnit.MiB.label(needed), MemoryUnit.MiB.label(free)
    return brief_size(needed), brief_size(free)


PROC = "/proc"
PREFIX = "nncf-tools-fit-"
_LIMITS_V1 = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
_LIMITS_V2 = "memory.max", "memory.swap.max"
_REMOVE_WITHIN_S = 10.0
_PAUSE_S = 0.02
_MAPPED = re.compile(r"^[^/\n]*(/(?!dev/|memfd:|SYSV).*)(?<! \(deleted\))$", re.MULTILINE)
"""Matches the path of a mapped file in /proc/PID/maps, if the file can be dropped from the page cache."""


class ParentGroup(NamedTuple):
    """An existing control group in which this process can make groups with limits."""

    folder: str
    is_v2: bool


class LimitedGroup:
    """A control group with a limit, as a context manager.

    At the end, all processes in the group are killed, and the group is removed.
    """

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
        """Set the memory limit in bytes, and forbid swapping. Raises OSError."""
        memory, swap = _LIMITS_V2 if self._is_v2 else _LIMITS_V1
        _write(self.folder / memory, size)
        if (self.folder / swap).exists():
            _write(self.folder / swap, 0 if self._is_v2 else size)

    @property
    def entry(self) -> list[str]:
        """Words to put before a command, so that the command enters the group before the command takes memory."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.folder / "cgroup.procs")]

    def oom_kills(self) -> int:
        """Return how many processes of the group the kernel killed because memory ran out."""
        return self._counts.oom_kills() or 0

    def most_charged(self) -> int | None:
        """Return the group's largest memory in bytes; None if unknown (memory.peak: Linux 5.19)."""
        return self._counts.number("memory.peak" if self._is_v2 else "memory.max_usage_in_bytes")

    def refaults(self) -> int | None:
        """Return how many bytes of files the kernel dropped from the page cache and read again; None if unknown.

        The value is in memory.stat since Linux 5.9.
        """
        pages = self._counts.in_stat(b"workingset_refault_file ")
        return None if pages is None else pages * os.sysconf("SC_PAGE_SIZE")


def remove(folder: pathlib.Path) -> None:
    """Kill all processes of a control group, free its page cache and remove the group, if the group exists.

    If the page cache were not freed, the parent group would take over the cache, and files that this run has read would
    not count in the next run. Raises NncfToolsError.
    """
    until_s = time.monotonic() + _REMOVE_WITHIN_S
    while folder.exists():
        for inner in folder.glob("*"):
            if inner.is_dir():
                remove(inner)
        pids = pids_of(folder)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            with contextlib.suppress(OSError):
                _write(folder / "memory.force_empty", 0)
            with contextlib.suppress(OSError, ValueError):  # with v2, the kernel frees as many bytes as written
                _write(folder / "memory.reclaim", (folder / "memory.current").read_text())
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:  # EBUSY while a process is still ending
            if time.monotonic() > until_s:
                reason = error.strerror or error
                raise NncfToolsError(f"the control group {str(folder)!r} cannot be removed: {reason}") from error
            time.sleep(_PAUSE_S)


def pids_of(folder: pathlib.Path) -> list[int]:
    """Return the PIDs in a group; empty if the group does not exist."""
    with contextlib.suppress(OSError):
        return [int(line) for line in (folder / "cgroup.procs").read_text().split()]
    return []


def own_name() -> str:
    """Return the first part of the names of control groups that this process makes.

    The text consists of a prefix, the PID and the start time of this process.
    """
    return f"{PREFIX}{os.getpid()}-{_start_of(os.getpid())}"


def _start_of(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot; empty if the process does not exist."""
    with contextlib.suppress(OSError, IndexError):
        text = pathlib.Path(PROC, str(pid), "stat").read_text()
        return text.rpartition(")")[2].split()[19]
    return ""


def _write(file: pathlib.Path, value: int | str) -> None:
    """Write to a file of a control group.

    Raises OSError. (With a Python file object, the error could get lost when the file is closed.)
    """
    descriptor = os.open(file, os.O_WRONLY)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def files_of(pids: Iterable[int]) -> set[str]:
    """Return the paths of files that processes have mapped.

    A byte that is not UTF-8 becomes an escape, such as ``\\xff``.
    """
    files = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            maps = pathlib.Path(PROC, str(pid), "maps").read_text("utf-8", "backslashreplace")
            files.update(_MAPPED.findall(maps))
    return files


_BESIDE = "nncf-tools"
"""Name of the group to which this process moves if its own group must contain groups with limits."""
_SCOPE = ["systemd-run", "--user", "--scope", "--quiet", "--property=Delegate=yes"]
"""Runs a command in a new group that is delegated to this user (systemd.resource-control(5))."""
_LONGEST_S = 10


def parent_group() -> ParentGroup:
    """Return a control group in which this process can make groups with limits.

    If necessary, this process moves to another group first. Raises OSError with the reason if there is no such group.
    """
    own = Hierarchies(PROC).group_of(os.getpid())
    if own is None:
        raise OSError("no memory controller counts the memory of this process's control group")
    if not own.is_v2:
        return _try_out(ParentGroup(own.folder, is_v2=False))
    try:
        return _try_out(ParentGroup(own.top, is_v2=True))
    except OSError:
        return _try_out(_make_delegated_room(pathlib.Path(own.folder)))


def _try_out(parent: ParentGroup) -> ParentGroup:
    with LimitedGroup(parent, 0) as trial:
        trial.limit(1 << 30)
    return parent


def _make_delegated_room(own: pathlib.Path) -> ParentGroup:
    """Move this process out of its own control group, so that this group can contain groups with limits.

    Raises OSError if the group is not delegated to this user.
    """
    folder = own.parent if own.name == _BESIDE else own
    beside = folder / _BESIDE
    beside.mkdir(exist_ok=True)
    for pid in pids_of(folder):
        _write(beside / "cgroup.procs", pid)
    _write(folder / "cgroup.subtree_control", "+memory")
    return ParentGroup(str(folder), is_v2=True)


def start_in_scope() -> None:
    """Start this program again in a group that systemd delegates to this user. Return if that is not possible.

    The PID stays the same, because ``systemd-run --scope`` replaces itself by the command.
    """
    import subprocess

    unit = f"{own_name()}-0.scope"
    if unit in pathlib.Path(PROC, "self/cgroup").read_text(encoding="utf-8", errors="replace"):
        return
    try:
        trial = subprocess.run(
            [*_SCOPE, "--", "true"],
            capture_output=True,
            timeout=_LONGEST_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    if trial.returncode == 0:
        command = [*running("nncftools"), *sys.argv[1:]]
        os.execvp(_SCOPE[0], [*_SCOPE, f"--unit={unit}", "--", *command])  # noqa: S606 — no shell is wanted


def remove_leftovers(parent: ParentGroup) -> list[str]:
    """Remove control groups that nncf-tools left behind when it was killed, and kill the processes in these groups.

    Return the folders of the removed groups.
    """
    top = pathlib.Path(parent.folder)
    folders = list(top.glob(f"{PREFIX}*"))
    if top.name.startswith(PREFIX):
        folders += top.parent.glob(f"{PREFIX}*.scope")
    removed = []
    for folder in folders:
        owner = re.fullmatch(rf"{PREFIX}(\d+)-(\d+)-\d+(\.scope)?", folder.name)
        if owner is not None and _start_of(int(owner[1])) != owner[2]:
            remove(folder)
            removed.append(str(folder))
    return removed


def drop(paths: Iterable[str]) -> None:
    """Drop files from the page cache, except pages that a process has mapped (posix_fadvise(2))."""
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                with contextlib.suppress(OSError):
                    os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
