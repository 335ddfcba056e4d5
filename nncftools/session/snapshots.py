"""What the helper process saw when memory rose: stacks, and what the memory was. Part of a session."""

from __future__ import annotations

import msgspec

from nncftools import intake


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """A frame of a Python stack."""

    function: str
    """From Python 3.11 on with its class: ``Model.forward``."""
    file: str
    line: int

    @property
    def code(self) -> tuple[str, str]:
        """Function and file: two frames with the same code are two places in one function."""
        return self.function, self.file


class ThreadLook(msgspec.Struct, frozen=True, array_like=True):
    """A thread at one look."""

    thread: int
    """Its ID in the kernel."""
    stack: int | None
    """The index of its stack in ``Snapshots.stacks``; null when it has no Python frame, or could not be read."""
    faults: int = 0
    """Its page faults since the look before."""
    cpu_s: float = 0.0
    """Its CPU time since the look before."""


class Look(msgspec.Struct, frozen=True, array_like=True):
    """The threads of a process at one moment: all with a Python stack, and all that touched new memory."""

    time_s: float
    threads: list[ThreadLook]
    lost: int = 0
    """The page faults of threads that have ended since the look before."""


class WatchedProcess(msgspec.Struct, kw_only=True):
    """A process as the helper watched it."""

    process: int | None = None
    """The ``id`` of the same process in ``processes`` of the session; null when it is not there."""
    pid: int
    inherited: int = 0
    """Of a forked copy: its RSS when it was first seen; what it shares with its parent is part of that."""
    time_s: list[float] = []
    rss: list[int] = []
    """Its RSS at these moments; in between it changed about evenly."""
    looks: list[Look] = []


class MappingGroup(msgspec.Struct, frozen=True, array_like=True):
    """Resident pages of one kind, in bytes."""

    kind: str
    """``anonymous``, ``file``, ``other_files``, ``libraries``, ``stack`` or ``shared``."""
    file: str
    """The path of the file, of the kind ``file``; else empty."""
    rss: int
    shared_clean: int
    shared_dirty: int
    private_clean: int
    private_dirty: int
    anonymous: int
    """Of a mapped file: private copies of its pages, which the kernel cannot read from the file again."""

    @property
    def clean(self) -> int:
        """Bytes that the kernel can drop and read again."""
        return self.shared_clean + self.private_clean


class ProcessMappings(msgspec.Struct, frozen=True, array_like=True):
    """The mappings of one process."""

    process: int | None
    """The ``id`` of the process."""
    groups: list[MappingGroup]


class MappingsMoment(msgspec.Struct, kw_only=True):
    """What the memory of the largest processes was at one moment."""

    time_s: float
    total: int
    """The RSS of all processes at this moment."""
    processes: list[ProcessMappings]


MOST_FRAMES = 1_000
"""The helper cuts stacks at 401 frames."""


class Snapshots(msgspec.Struct, kw_only=True):
    """Stacks and mappings of a run; bytes, and seconds since its start."""

    missing: str | None = None
    """Why there are no stacks, or not of every process; null when nothing was in the way."""
    cpu_s: float | None = None
    """What taking them cost; null when the helper was killed."""
    failed: int = 0
    """Stacks that could not be read."""
    frames: list[Frame] = []
    stacks: list[list[int]] = []
    """Indexes of ``frames``, the outermost first."""
    processes: list[WatchedProcess] = []
    mappings: list[MappingsMoment] = []


def check_snapshots(snapshots: Snapshots) -> None:
    """Raise WrongValueError for the first stack or frame that is not there, and for looks out of order."""
    for number, stack in enumerate(snapshots.stacks):
        place = f"$.snapshots.stacks[{number}]"
        if len(stack) > MOST_FRAMES:
            raise intake.wrong(place, f"at most {MOST_FRAMES:,} frames expected, found {len(stack):,}")
        if not all(0 <= frame < len(snapshots.frames) for frame in stack):
            raise intake.wrong(place, "a frame that is not in `frames`")
    for number, watched in enumerate(snapshots.processes):
        place = f"$.snapshots.processes[{number}].looks"
        intake.check_rising([look.time_s for look in watched.looks], place)
        stacks = {one.stack for look in watched.looks for one in look.threads if one.stack is not None}
        if not all(0 <= stack < len(snapshots.stacks) for stack in stacks):
            raise intake.wrong(place, "a stack that is not in `stacks`")
