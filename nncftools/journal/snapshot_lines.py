"""The types of all lines that the helper process writes: JSON Lines; bytes, and CLOCK_MONOTONIC in nanoseconds.

Every line is an object with one key. Frames and stacks are numbered from 0, in the order of their lines.
"""

from __future__ import annotations

from typing import TypedDict

MappingGroup = tuple[str, str, list[int]]
"""Kind, file name and sizes: RSS, shared clean and dirty, private clean and dirty, anonymous."""


class HelperStarted(TypedDict):
    """The first line."""

    pid: int
    t_ns: int
    missing: str | None
    """Why it takes no stacks, or not of every process."""
    share: float
    """The part of one core's time that it may take."""
    least_s: float
    """The CPU seconds that it may take in any case."""


class WatchedProcess(TypedDict):
    """A process of the tree."""

    number: int
    """Its number in this log."""
    pid: int
    t_ns: int
    """When it was first seen."""
    inherited: int
    """Of a forked copy: its RSS when it was first seen; what it shares with its parent is part of that."""


class RssPoints(TypedDict):
    """The RSS of a process since the line before; between two moments it changed about evenly."""

    process: int
    t_ns: list[int]
    rss: list[int]


class Look(TypedDict):
    """The stacks of a process at one moment, and which threads touched new memory since the look before."""

    process: int
    t_ns: int
    stacks: dict[int, int | None]
    """By thread: its stack, where it changed; null for a thread that ended or whose stack was not seen."""
    faults: dict[int, int]
    """By thread: its page faults since the look before; none where it is missing."""
    ticks: dict[int, int]
    """By thread: its CPU time since the look before, in clock ticks."""
    lost: int
    """The page faults of threads that have ended since the look before."""


class Mappings(TypedDict):
    """What the resident memory of the largest processes was."""

    t_ns: int
    total: int
    """The RSS of all processes."""
    processes: list[tuple[int, list[MappingGroup]]]


class Problem(TypedDict):
    """Why stacks of a process could not be read."""

    process: int
    text: str


class HelperEnd(TypedDict):
    """The last line."""

    cpu_s: float
    looks: int
    failed: int


class SnapshotLine(TypedDict, total=False):
    """A line; it has one of these keys."""

    helper: HelperStarted
    process: WatchedProcess
    frame: tuple[int, str, str, int]
    """Its number, function, file and line."""
    stack: tuple[int, list[int]]
    """Its number, and the numbers of its frames, the outermost first."""
    rss: RssPoints
    look: Look
    mappings: Mappings
    problem: Problem
    end: HelperEnd
