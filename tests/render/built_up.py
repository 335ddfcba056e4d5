"""Sessions with stacks and mappings, with figures that are easy to follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nncftools.session.model import (
    Frame,
    Look,
    MappingGroup,
    MappingsMoment,
    ProcessMappings,
    Snapshots,
    ThreadLook,
    WatchedProcess,
)
from nncftools.session.session import Session
from tests.made_up import MIB, mib, session

MAIN = Frame("main", "/home/me/export.py", 10)
LOAD = Frame("load", "/home/me/export.py", 20)
TRACE = Frame("trace", "/venv/lib/python3.12/site-packages/torch/jit/_trace.py", 455)
IMPORT = Frame("<module>", "/venv/lib/python3.12/site-packages/torch/__init__.py", 1)
MACHINERY = Frame("_find_and_load", "<frozen importlib._bootstrap>", 1360)
THREAD = 100


def grown(*steps: tuple[Sequence[Frame], float], inherited: float = 0) -> Snapshots:
    """Return what the helper saw of a process that takes so many MiB in each of these stacks.

    It begins with what it shares with its parent. A step takes one second; it has three looks: at its begin, in its
    middle and at its end.
    """
    frames = list(dict.fromkeys(frame for stack, _ in steps for frame in stack))
    stacks = [[frames.index(frame) for frame in stack] for stack, _ in steps]
    watched = WatchedProcess(
        process=0, pid=THREAD, inherited=int(inherited * MIB), time_s=[0.0], rss=[int(inherited * MIB)]
    )
    for place, (stack, size) in enumerate(steps):
        seen = place if stack else None
        for after_s in (0.01, 0.5, 0.99):
            watched.looks.append(Look(place + after_s, [ThreadLook(THREAD, seen, 1000)]))
        watched.time_s.append(place + 1.0)
        watched.rss.append(watched.rss[-1] + int(size * MIB))
    return Snapshots(cpu_s=0.5, frames=frames, stacks=stacks, processes=[watched])


def group(kind: str, size: float, file: str = "", *, copied: float = 0) -> MappingGroup:
    """Return a group of pages of so many MiB, of which ``copied`` are private copies."""
    clean, copies = int((size - copied) * MIB), int(copied * MIB)
    return MappingGroup(kind, file, int(size * MIB), 0, 0, clean, copies, copies)


def mapped(time_s: float, *groups: MappingGroup, total: float | None = None) -> MappingsMoment:
    """Return the mappings of one process at a moment; ``total`` MiB, if other processes hold memory, too."""
    whole = sum(of.rss for of in groups) if total is None else int(total * MIB)
    return MappingsMoment(time_s=time_s, total=whole, processes=[ProcessMappings(0, list(groups))])


def built_up(*steps: tuple[Sequence[Frame], float], inherited: float = 0, **fields: Any) -> Session:  # noqa: ANN401 — any field of a session
    """Return a run with a sample every second, whose memory the steps built up."""
    snapshots = grown(*steps, inherited=inherited)
    rss = [size / MIB for size in snapshots.processes[0].rss]
    snapshots.mappings = fields.pop("mappings", [])
    time_s = snapshots.processes[0].time_s
    return session({"time_s": time_s, "rss": mib(*rss)}, **{"snapshots": snapshots, **fields})
