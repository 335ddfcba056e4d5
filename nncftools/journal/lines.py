"""What the starter of a recording, its sampler and its journal tell each other: header, start and end.

A journal is JSON Lines, UTF-8; bytes and seconds; null is unknown. The first line is a ``Header``. Every other line is
a sample, a list of the seconds since the start and one value per column of the plan, or an object with one key:
``nncftools.session.recording.Line`` has their types, which are the session's.

Where some keys of an object are always there and others may be missing, the former are in a class of their own
(``Required`` needs Python 3.11). The sampler does not import ``typing``, which would cost memory.
"""

from __future__ import annotations

from typing import Any, TypedDict

FORMAT = "nncf-tools-journal"
VERSION = 1
"""1: first version (2026-11)."""


class MemoryLimit(TypedDict):
    """The memory limit for all processes together, and the action when they exceed it."""

    rss: int
    """In bytes."""
    action: str
    """``warn`` or ``kill``."""


class _RequiredOfPlan(TypedDict):
    columns: list[str]
    interval_s: float
    source: str


class PlanFields(_RequiredOfPlan, total=False):
    """The request to the sampler; ``nncftools.journal.writing.Plan`` documents each field."""

    pid: int | None
    duration_s: float | None
    children: bool
    wait_all: bool
    per_process: bool
    max_samples: int
    limit: MemoryLimit | None
    redact: list[str] | None
    slow_share: float
    file_systems: list[list[str]]


class _RequiredOfHeader(TypedDict):
    format: str
    host: dict[str, Any]
    """See ``nncftools.session.model.Host``."""
    plan: PlanFields


class Header(_RequiredOfHeader, total=False):
    """The first line: the facts of the run that are known before it starts."""

    version: int
    tool_version: str
    name: str
    command: list[str]
    """As typed; bytes that are not UTF-8 are written ``\\xff``."""
    cwd: str
    rank: dict[str, Any] | None
    """See ``nncftools.session.model.Rank``."""


class ExitStatus(TypedDict):
    """How a process ended: ``code`` if it exited, ``signal`` if it was killed; the other is null."""

    code: int | None
    signal: int | None


class _RequiredOfStart(TypedDict):
    utc: str
    """ISO 8601 with zone."""
    monotonic_ns: int
    """The same moment on CLOCK_MONOTONIC."""
    pid: int
    """The PID of the command."""


class Start(_RequiredOfStart, total=False):
    """The start of the command: the zero of all seconds."""

    utc_error_s: float | None
    """The possible error of ``utc``, as the kernel estimates it (adjtimex(2))."""
    sampler_pid: int


class End(TypedDict, total=False):
    """The last line of a finished recording."""

    error: str | None
    """Why the command did not start; the other keys are missing then."""
    duration_s: float | None
    totals: dict[str, int | float | None]
    """The counters at the end, including processes that ended earlier."""
    exit: ExitStatus | None
    sampler: dict[str, Any]
    """Its cost and punctuality: see ``nncftools.session.recording.SamplerEnd``."""
    unwritten: str
    """Lines that could not be written because the disk was full; sent to the starter, never in the journal itself."""
