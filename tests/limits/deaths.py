"""Made-up sessions in which something died."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from nncftools.journal.writing import ADDRESS_SPACE, GROUP
from nncftools.limits.judges import verdict
from nncftools.session.model import (
    ControlGroup,
    Exit,
    Failure,
    FileSystem,
    Host,
    KernelKill,
    MemoryLimit,
    OomKills,
    Process,
)
from nncftools.units import MemoryUnit
from tests import made_up
from tests.made_up import MIB, mib

if TYPE_CHECKING:
    from nncftools.analysis.session import Session
    from nncftools.limits.verdict import Verdict

FOLDER = "/sys/fs/cgroup/memory/job"
KILLED = Exit(signal=signal.SIGKILL)
FAILED = Exit(code=1)
COUNTED = [ControlGroup(folder=FOLDER, oom_kills=4)]
NO_KILLS = {"oom_kills": 0}
"""Totals of a run during which the kernel killed nothing on the machine."""


def command(end: Exit = FAILED, **fields: Any) -> Process:  # noqa: ANN401 — any field of a process
    """Return the command's process."""
    given = {"exit": end, "end_s": 1.0, "peak_rss": 300 * MIB}
    return made_up.process(0, **{**given, **fields})


def child(number: int = 1, end: Exit | None = KILLED, **fields: Any) -> Process:  # noqa: ANN401 — any field of a process
    """Return a child of the command."""
    given = {"exit": end, "end_s": 0.9, "parent": 0, "name": "worker", "peak_rss": 200 * MIB}
    return made_up.process(number, **{**given, **fields})


def run(end: Exit = FAILED, *others: Process, **fields: Any) -> Session:  # noqa: ANN401 — any field of a session
    """Return a run whose command ended so; RSS is 100, 200 and 300 MiB, on a machine of 1,000 MiB."""
    given = {"exit": end, "processes": [command(end), *others], "host": Host(name="box", memory=1000 * MIB)}
    return made_up.session({"rss": mib(100, 200, 300)}, **{**given, **fields})


def limit(size_mib: int, kind: str = GROUP) -> MemoryLimit:
    """Return a limit that processes had."""
    return MemoryLimit(kind=kind, size=size_mib * MIB, set_by=f"{FOLDER}/memory.limit_in_bytes", process=0)


def address_space(size_mib: int) -> MemoryLimit:
    """Return a limit of address space."""
    return limit(size_mib, ADDRESS_SPACE)


def counted(from_s: float = 0.8, to_s: float = 1.0, count: int = 1) -> OomKills:
    """Return a rise of a group's count."""
    return OomKills(group=FOLDER, from_s=from_s, to_s=to_s, count=count)


def logged(pid: int = 100, group: str | None = "/job") -> KernelKill:
    """Return what the kernel's log says."""
    return KernelKill(pid=pid, name="work", group=group, anon=290 * MIB, file=4 * MIB, shmem=0)


def failure(cause: str | None, *, fatal: bool = True, error: str = "SomeError", pid: int = 100) -> Failure:
    """Return an exception, by default of the command."""
    return Failure(pid=pid, at_s=0.9, error=error, cause=cause, fatal=fatal)


def disk(lowest_mib: float, first_mib: float = 100, size_mib: float = 1000) -> FileSystem:
    """Return a file system."""
    sizes = {"size": int(size_mib * MIB), "first": int(first_mib * MIB), "lowest": int(lowest_mib * MIB)}
    return FileSystem(role="TMPDIR", path="/scratch", lowest_s=0.8, **sizes)


def judged(session: Session) -> Verdict:
    """Return the verdict, which there must be."""
    found = verdict(session, MemoryUnit.MiB)
    assert found is not None
    return found
