"""Small sessions with stacks and mappings for tests."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from nncftools.analysis.code_places import shared_depth
from nncftools.session.model import (
    Frame,
    MappingGroup,
    MappingsMoment,
    ProcessMappings,
    Snapshots,
    StackWindow,
    ThreadStacks,
    WatchedProcess,
)
from tests.made_up import MIB, process, session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nncftools.analysis.session import Session

Stack = tuple[Frame, ...]

SITE = "/env/lib/python3.11/site-packages/"


def frame(place: str) -> Frame:
    """Return the frame that ``"torch/jit/_trace.py:455 _check_trace"`` names; a path with a slash first is whole."""
    file, _, rest = place.partition(":")
    line, _, function = rest.partition(" ")
    return Frame(function, file if file.startswith(("/", "<")) else f"{SITE}{file}", int(line))


def stack(*places: str) -> tuple[Frame, ...]:
    """Return a stack, the outermost frame first."""
    return tuple(map(frame, places))


def group(kind: str, size: float, file: str = "", *, clean: float = 0, copied: float = 0) -> MappingGroup:
    """Return a group of mappings with sizes in MiB; what is not clean is private and dirty."""
    dirty = round((size - clean) * MIB)
    return MappingGroup(kind, file, round(size * MIB), 0, 0, round(clean * MIB), dirty, round(copied * MIB))


def window(
    thread: int,
    *changes: tuple[float, int | None],
    to_s: float,
    every_s: float = 0.02,
    same: Sequence[int] | None = None,
) -> StackWindow:
    """Return a window in which a thread had each of these stacks from a moment on, by default in calls of its own."""
    times, stacks = [time_s for time_s, _ in changes], [number for _, number in changes]
    depths = [0] * len(stacks) if same is None else list(same)
    return StackWindow(
        time_s=reading_times(times[0], to_s, every_s, *times),
        threads=[ThreadStacks(thread, times, stacks, depths, depths)],
    )


def reading_times(from_s: float, to_s: float, every_s: float, *more: float) -> list[float]:
    """Return the moments of readings at even distances, at the end, and at some more moments."""
    even = (round(from_s + number * every_s, 6) for number in range(1, int((to_s - from_s) / every_s) + 1))
    return sorted({from_s, to_s, *more, *(at_s for at_s in even if at_s < to_s)})


def snapshots(
    rises: Sequence[tuple[Stack, float]],
    groups: Sequence[MappingGroup] = (),
    total: float | None = None,
    **fields: Any,  # noqa: ANN401 — any field of snapshots
) -> Snapshots:
    """Return what was seen of one process that takes MiB in one stack after the other, each in half a second.

    ``groups`` are its mappings at its largest RSS, or when it was ``total`` MiB.
    """
    frames: list[Frame] = []
    stacks: list[list[int]] = []
    points, changes, rss = [(0.0, 0)], [], 0.0
    codes = [[frame.code for frame in of] for of, _ in rises]
    same = [0, *(shared_depth(*pair) for pair in pairwise(codes))]
    for number, (of, size) in enumerate(rises):
        frames += of
        stacks.append(list(range(len(frames) - len(of), len(frames))))
        begin_s, rss = number / 2, rss + size
        points += [(begin_s + 0.02, points[-1][1]), (begin_s + 0.48, round(rss * MIB))]
        changes.append((begin_s, number))
    windows = [window(100, *changes, to_s=len(rises) / 2, same=same)]
    watched = WatchedProcess(process=0, pid=100, windows=windows, apart_s=[0.001] * len(points))
    watched.time_s, watched.rss = ([point[place] for point in points] for place in (0, 1))
    read = round((rss if total is None else total) * MIB)
    moment = MappingsMoment(time_s=points[-1][0], total=read, processes=[ProcessMappings(0, list(groups))])
    found = {"frames": frames, "stacks": stacks, "processes": [watched], "mappings": [moment] if groups else []}
    return Snapshots(**{**found, **fields})


def grown(*rises: tuple[Stack, float], **fields: Any) -> Session:  # noqa: ANN401 — any field of snapshots or a session
    """Return a session of one process that takes MiB in one stack after the other."""
    of_snapshots: Mapping[str, Any] = {
        name: fields.pop(name) for name in ("groups", "total", "missing", "failed", "mappings") if name in fields
    }
    seen = snapshots(rises, **of_snapshots)
    watched = seen.processes[0]
    columns = {"time_s": watched.time_s, "rss": list(watched.rss)}
    end_s = watched.time_s[-1]
    return session(columns, snapshots=seen, processes=[process(end_s=end_s)], duration_s=end_s, **fields)
