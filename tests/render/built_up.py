"""Sessions with stacks and mappings, with figures that are easy to follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nncftools.session.model import Frame, MappingGroup, MappingsMoment, ProcessMappings, Snapshots, WatchedProcess
from nncftools.session.session import Session
from tests.made_up import MIB, mib, session
from tests.made_up_stacks import window

MAIN = Frame("main", "/home/me/export.py", 10)
LOAD = Frame("load", "/home/me/export.py", 20)
TRACE = Frame("trace", "/venv/lib/python3.12/site-packages/torch/jit/_trace.py", 455)
IMPORT = Frame("<module>", "/venv/lib/python3.12/site-packages/torch/__init__.py", 1)
MACHINERY = Frame("_find_and_load", "<frozen importlib._bootstrap>", 1360)
THREAD = 100


def grown(*steps: tuple[Sequence[Frame], float], inherited: float = 0) -> Snapshots:
    """Return what the helper saw of a process that takes so many MiB in each of these stacks.

    It begins with what it shares with its parent. A step takes one second; memory rises in its middle. A step without
    frames has no stack.
    """
    frames = list(dict.fromkeys(frame for stack, _ in steps for frame in stack))
    stacks = [[frames.index(frame) for frame in stack] for stack, _ in steps]
    first = int(inherited * MIB)
    watched = WatchedProcess(process=0, pid=THREAD, inherited=first, time_s=[0.0], rss=[first])
    for place, (_, size) in enumerate(steps):
        watched.time_s += [place + 0.1, place + 0.9]
        watched.rss += [watched.rss[-1], watched.rss[-1] + int(size * MIB)]
    watched.time_s.append(float(len(steps)))
    watched.rss.append(watched.rss[-1])
    watched.apart_s = [0.001] * len(watched.time_s)
    changes = [(float(place), place) for place, (stack, _) in enumerate(steps) if stack]
    last_s = next((place for place, (stack, _) in enumerate(steps) if not stack), len(steps))
    watched.windows = [window(THREAD, *changes, to_s=float(last_s))] if changes else []
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
    snapshots.mappings = fields.pop("mappings", [])
    watched = snapshots.processes[0]
    whole = [watched.time_s.index(float(place)) for place in range(len(steps) + 1)]
    columns = {"time_s": [watched.time_s[of] for of in whole], "rss": mib(*(watched.rss[of] / MIB for of in whole))}
    return session(columns, **{"snapshots": snapshots, **fields})
