"""Sessions with stacks and mappings, with figures that are easy to follow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from nncftools.analysis.code_places import shared_depth
from nncftools.analysis.session import Session
from nncftools.session.model import (
    Frame,
    MappingGroup,
    MappingsMoment,
    ProcessMappings,
    Snapshots,
    WatchedProcess,
)
from tests.made_up import MIB, mib, session
from tests.made_up_stacks import window

MAIN = Frame("main", "/home/me/export.py", 10)
LOAD = Frame("load", "/home/me/export.py", 20)
TRACE = Frame("trace", "/venv/lib/python3.12/site-packages/torch/jit/_trace.py", 455)
MACHINERY = Frame("_find_and_load", "<frozen importlib._bootstrap>", 1360)
THREAD = 100


def grown(*steps: tuple[Sequence[Frame], float], inherited: float = 0) -> Snapshots:
    """Return what the helper saw of a process that takes so many MiB in each of these stacks.

    It begins with what it shares with its parent. A step takes one second; memory rises in its middle. What a step
    without frames takes, another process has, of which no stack was seen.
    """
    frames = list(dict.fromkeys(frame for stack, _ in steps for frame in stack))
    stacks = [[frames.index(frame) for frame in stack] for stack, _ in steps]
    first = int(inherited * MIB)
    watched = WatchedProcess(process=0, pid=THREAD, inherited=first, time_s=[0.0], rss=[first])
    unseen = WatchedProcess(process=1, pid=THREAD + 1, time_s=[0.0], rss=[0])
    for place, (stack, size) in enumerate(steps):
        for of in (watched, unseen):
            before = of.rss[-1]
            after = before + int(size * MIB) if bool(stack) == (of is watched) else before
            of.time_s += [place + 0.1, place + 0.9, place + 1.0]
            of.rss += [before, after, after]
    watched.apart_s = unseen.apart_s = [0.001] * len(watched.time_s)
    changes = [(float(place), place) for place, (stack, _) in enumerate(steps) if stack]
    codes = [[frame.code for frame in stack] for stack, _ in steps if stack]
    same = [0, *(shared_depth(*pair) for pair in pairwise(codes))]
    watched.windows = [window(THREAD, *changes, to_s=float(len(steps)), same=same)] if changes else []
    processes = [watched, unseen] if unseen.rss[-1] else [watched]
    return Snapshots(cpu_s=0.5, frames=frames, stacks=stacks, processes=processes)


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
    sums = [sum(of.rss[place] for of in snapshots.processes) for place in range(0, len(watched.rss), 3)]
    columns = {"time_s": watched.time_s[::3], "rss": mib(*(rss / MIB for rss in sums))}
    return session(columns, **{"snapshots": snapshots, **fields})
