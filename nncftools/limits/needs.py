"""How much memory a run needs, and whether a machine has the memory and the disk space that a command needs.

This depends on the limit that a run meets first, on how much memory programs can still get (of the machine, and in the
control group of a process), and on the file systems that a command probably writes to.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from nncftools.journal.writing import GROUP, THROTTLE
from nncftools.sampler.control_groups import Hierarchies
from nncftools.session.model import MEMORY, MemoryLimit, SessionData
from nncftools.units import MemoryUnit, brief_size, part_text, printable

if TYPE_CHECKING:
    from nncftools.analysis.forecast import Result

MAX_MEMORY, MACHINE = "--max-memory", "machine"
_ABOVE = 1.1
"""RSS may be a little above the limit of its control group: another group may be charged for shared libraries."""


class Effective(NamedTuple):
    """A limit on resident memory."""

    kind: str
    """``control group``, ``control group, memory.high``, ``--max-memory`` or ``machine``: all of its memory."""
    size: int
    """In bytes."""
    set_by: str = ""
    """The file that sets it."""

    @property
    def name(self) -> str:
        """Its name where there is little room."""
        return "machine" if self.kind == MACHINE else "limit"

    def share_text(self, size: float) -> str:
        """Return a part of the limit as text: ``95 %``."""
        percent = size / self.size * 100
        return f"{percent:.0f} %" if percent >= 0.5 or not size else "less than 1 %"  # noqa: PLR2004 — rounds to 1


def effective_limit(session: SessionData) -> Effective | None:
    """Return the smallest limit on resident memory; None when none is known.

    The limit of a control group counts unless the whole run held more: then only a part of its processes was in it.
    """
    highest, reached = session.rss_peak.sampled or 0, session.limit_reached
    return smallest(session.memory_limits, highest, None if reached is None else reached.limit, session.host.memory)


def smallest(
    limits: Iterable[MemoryLimit], highest: float, max_memory: int | None, machine: int | None
) -> Effective | None:
    """Return the smallest limit on a run that held ``highest`` bytes: of a group, the recording, or the machine."""
    least = max(1.0, highest / _ABOVE)
    groups = [limit for limit in limits if limit.kind in {GROUP, THROTTLE} and limit.size >= least]
    known = [Effective(limit.kind, limit.size, limit.set_by) for limit in groups]
    if max_memory:
        known.append(Effective(MAX_MEMORY, max_memory))
    if machine:
        known.append(Effective(MACHINE, machine))
    return min(known, key=lambda limit: limit.size, default=None)


def smallest_of(session: SessionData, *kinds: str) -> Effective | None:
    """Return the smallest limit of these kinds, whatever the run held; None for none."""
    limits = [limit for limit in session.memory_limits if limit.kind in kinds and limit.size > 0]
    least = min(limits, key=lambda limit: limit.size, default=None)
    return None if least is None else Effective(least.kind, least.size, least.set_by)


_PAGES_OF_FILES = 0.02
"""Beside anonymous memory, the kernel needs room for some pages of mapped files: beside 200 MiB of anonymous memory and
for a file of 300 MiB, 5 MiB (``python -m benchmarks.limits --only floors``)."""


class Needs(NamedTuple):
    """What a run needs, in bytes."""

    floor: int
    """What it cannot do without: the kernel can neither drop nor share it."""
    at_s: float
    """When it held that, in seconds since the start."""
    comfortable: int
    """With this, everything that it maps and reads stays in memory: no file is read twice."""
    is_bound: bool = False
    """Whether it needs more than that: it did not end by itself."""

    def text(self, unit: MemoryUnit) -> str:
        """Return this as what follows "needs"."""
        floor, comfortable = (f"{unit.brief(size)} {unit}" for size in (self.floor, self.comfortable))
        if self.is_bound:
            return f"more than {floor}"
        more = f"; with {comfortable} no file is read twice" if floor != comfortable else ""
        return f"a limit of at least {floor}{more}"


def needs(session: SessionData) -> Needs | None:
    """Return what a run needs; None when this was not recorded.

    The floor was sampled. What RSS had between two samples, as a high-water mark proves, counts as anonymous memory.
    A run that did not end with an exit status needs more.
    """
    if (floor := session.floor) is None:
        return None
    size = floor.size + max(0, (session.rss_peak.low or 0) - (session.rss_peak.sampled or 0))
    read = sum(file.size for file in session.files_read)
    most = session.totals.get("read_chars")
    files = read if most is None else min(read, round(most))
    comfortable = size + floor.mapped + files
    least = size + round(min(size, floor.mapped) * _PAGES_OF_FILES)
    return Needs(least, floor.at_s, comfortable, _is_cut_short(session))


def went_on(session: SessionData) -> bool:
    """Return whether the command was still running when its recording ended (``--duration``)."""
    return session.attached_to is None and any(of.id == 0 and of.end_s is None for of in session.processes)


def _is_cut_short(session: SessionData) -> bool:
    if went_on(session) or not session.finished or session.exit is None or session.exit.signal is not None:
        return True
    has_failed = bool(session.exit.code) and any(failure.cause == MEMORY for failure in session.failures)
    return has_failed or bool(session.oom_kills or session.kernel_kills)


class Available(NamedTuple):
    """Bytes; None for unknown."""

    machine: int | None = None
    """What programs can get without swapping, as the kernel estimates it."""
    machine_size: int | None = None
    group: int | None = None
    """What the processes of the control group can get before a limit is met; None when there is no limit, too."""
    group_limit: int | None = None
    """The smallest limit of the group and of those above it."""

    @property
    def least(self) -> int | None:
        """What a program can get of both."""
        return min((size for size in (self.machine, self.group) if size is not None), default=None)


def available(proc: str, pid: int | None) -> Available:
    """Return what is available on this machine and to the control group of a process, if one is given."""
    machine, size = _of_machine(proc)
    group = None if pid is None else Hierarchies(proc).group_of(pid)
    if group is None:
        return Available(machine, size)
    limit = min((size for _, size, _ in group.limits()), default=None)
    return Available(machine, size, group.available(), limit)


def _of_machine(proc: str) -> tuple[int | None, int | None]:
    if sys.platform != "linux":
        import psutil

        memory = psutil.virtual_memory()
        return int(memory.available), int(memory.total)
    data = b""
    with contextlib.suppress(OSError):
        data = pathlib.Path(proc, "meminfo").read_bytes()
    matches = (re.search(key + rb"\s*(\d+)\s", data) for key in (b"MemAvailable:", b"MemTotal:"))
    available_size, size = (None if value is None else int(value[1]) * 1024 for value in matches)
    return available_size, size


_MOST_WORDS, _MOST_INSIDE = 1000, 8
_OF_KERNEL = ("/dev/", "/proc/", "/sys/")
_INSIDE = re.compile(r"/[\w.+@%~-]+(?:/[\w.+@%~-]+)*")
"""Paths inside of a word: of a line for a shell, of ``of=/data/model.bin``."""


def file_systems(argv: Sequence[str], output: pathlib.Path) -> list[tuple[str, str]]:
    """Return role and folder of each file system that a run may fill, each file system once.

    They hold the working folder, TMPDIR, the recording's ``output``, and paths among the arguments.
    """
    by_device: dict[int, tuple[str, str]] = {}
    for role, path in _candidates(argv, output):
        folder = _existing(path)
        try:
            if os.statvfs(folder).f_blocks:  # 0 of /proc, /sys and the like
                count = sum(name == role or name.startswith(f"{role}-") for name, _ in by_device.values())
                free_name = f"{role}-{count + 1}" if count else role
                by_device.setdefault(folder.stat().st_dev, (free_name, str(folder)))
        except OSError:
            continue
    return list(by_device.values())


class Room(NamedTuple):
    """A file system: what a run probably writes to it, and the bytes that are free."""

    folder: str
    needed: int
    free: int


def rooms(used: Mapping[str, int], argv: Sequence[str], output: pathlib.Path) -> list[Room]:
    """Return the file systems of a run that are here, by what it used of them elsewhere, by role.

    Two roles that had file systems of their own there may share one here.
    """
    folders = {role: str(path) for role, path in _candidates(argv, output)} | dict(file_systems(argv, output))
    by_device: dict[int, Room] = {}
    for role, size in used.items():
        folder = _existing(pathlib.Path(folders.get(role, "")))
        try:
            device, facts = folder.stat().st_dev, os.statvfs(folder)
        except OSError:
            continue
        before = by_device.get(device, Room(str(folder), 0, facts.f_bavail * facts.f_frsize))
        by_device[device] = before._replace(needed=before.needed + size)
    return list(by_device.values())


def _candidates(argv: Sequence[str], output: pathlib.Path) -> Iterable[tuple[str, pathlib.Path]]:
    yield "cwd", pathlib.Path()
    yield "TMPDIR", pathlib.Path(tempfile.gettempdir())
    yield "output", output
    for word in argv[1:_MOST_WORDS]:
        path = word.partition("=")[2] if word.startswith("-") else word
        for part in dict.fromkeys([path, *itertools.islice(_INSIDE.findall(word), _MOST_INSIDE)]):
            is_path = os.sep in part and len(part) < os.pathconf("/", "PC_PATH_MAX") and "\0" not in part
            if is_path and not part.startswith(_OF_KERNEL):
                yield "argument", pathlib.Path(part)


def _existing(path: pathlib.Path) -> pathlib.Path:
    """Return the nearest folder that exists: the command may make those inside of it."""
    try:
        path = path.absolute()
        return next((folder for folder in (path, *path.parents) if folder.is_dir()), path)
    except (OSError, ValueError):
        return path


class Requirement(NamedTuple):
    """What a command needs, in bytes."""

    memory: int
    disks: Mapping[str, int]
    """By role of a file system (``nncftools.session.model.FileSystem``): what it had less during an earlier run."""
    is_bound: bool = False
    """Whether it needs more memory than that: the earlier run did not end by itself."""


def of_session(session: SessionData) -> Requirement | None:
    """Return what a command needed in an earlier run; None when the least memory that it needs was not recorded."""
    if (needed := needs(session)) is None:
        return None
    used = {fs.role: fs.first - fs.lowest for fs in session.file_systems if fs.first and fs.lowest is not None}
    return Requirement(needed.floor, {role: size for role, size in used.items() if size > 0}, needed.is_bound)


def of_forecast(result: Result) -> Requirement | None:
    """Return what a command will need with the whole model; None when that is not known."""
    if (known := result.forecast) is None:
        return None
    return Requirement(round(known.floor.value), {} if known.disk is None else {"argument": round(known.disk.high)})


def shortage(memory: int, rooms: Sequence[Room], available: Available) -> str:
    """Return what is missing, with the figures; empty when all fits, as far as is known."""
    missing = []
    if available.least is not None and memory > available.least:
        parts = []
        machine = "machine", available.machine, available.machine_size
        for name, size, of in (machine, ("control group", available.group, available.group_limit)):
            if size is not None:
                parts.append(f"{name}: {brief_size(size) if of is None else part_text(size, of)}")
        text = _against(memory, available.least, "of memory is needed", "is available")
        missing.append(f"{text} ({', '.join(parts)})")
    for room in rooms:
        if room.needed > room.free:
            where = f"of disk at {printable(room.folder)!r} is needed"
            missing.append(_against(room.needed, room.free, where, "is free"))
    return "; ".join(missing)


def _against(needed: int, there: int, needed_text: str, there_text: str) -> str:
    """Return two sizes as text with enough digits to differ."""
    sizes = brief_size(needed), brief_size(there)
    if sizes[0] == sizes[1]:
        sizes = MemoryUnit.MiB.label(needed), MemoryUnit.MiB.label(there)
    return f"{sizes[0]} {needed_text}, {sizes[1]} {there_text}"
