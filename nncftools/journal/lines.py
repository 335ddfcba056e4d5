"""Every key of a journal, typed: JSON Lines, UTF-8; bytes and seconds; null is unknown.

The first line is a ``Header``. Every other line is a sample or a ``Line``. A sample is a list: the seconds since the
start, then one value per column of the plan. A ``Line`` is an object with one key.

The sampler uses these types for the checker only: it does not import ``typing``, which would cost memory.
"""

from __future__ import annotations

from typing import Any, NotRequired, Required, TypedDict

FORMAT = "nncf-tools-journal"
VERSION = 1
"""1: first version (2026-11)."""


class MemoryLimit(TypedDict):
    """The most memory that the processes may hold together, and what is done when they hold more."""

    rss: int
    """In bytes."""
    action: str
    """``warn`` or ``kill``."""


class PlanFields(TypedDict, total=False):
    """What the sampler was asked for; ``nncftools.journal.plan.Plan`` says what each means."""

    columns: Required[list[str]]
    pid: int | None
    interval_s: Required[float]
    duration_s: float | None
    children: bool
    wait_all: bool
    per_process: bool
    max_samples: int
    source: Required[str]
    limit: MemoryLimit | None
    redact: list[str] | None


class Header(TypedDict, total=False):
    """The first line: the facts of the run that are known before it starts."""

    format: Required[str]
    version: int
    tool_version: str
    name: str
    command: list[str]
    """As it was typed; bytes that are not UTF-8 are written ``\\xff``."""
    cwd: str
    rank: dict[str, Any] | None
    """See ``nncftools.session.model.Rank``."""
    host: Required[dict[str, Any]]
    """See ``nncftools.session.model.Host``."""
    plan: Required[PlanFields]


class ExitStatus(TypedDict):
    """How a process ended: by itself with ``code``, or killed by ``signal``; the other is null."""

    code: int | None
    signal: int | None


class Start(TypedDict):
    """The command has started: the moment that all seconds count from."""

    utc: str
    """ISO 8601 with zone."""
    monotonic_ns: int
    """The same moment on CLOCK_MONOTONIC."""
    utc_error_s: NotRequired[float | None]
    """How wrong ``utc`` can be, as the kernel knows it (adjtimex(2))."""
    pid: int
    """The command's process."""
    sampler_pid: NotRequired[int]


class ProcessFields(TypedDict, total=False):
    """Facts of one process; later lines add to earlier ones with the same ``id``.

    ``nncftools.session.model.Process`` says what each means.
    """

    id: Required[int]
    pid: int
    parent: int | None
    name: str
    command: list[str]
    forked_copy: bool
    start_s: float
    end_s: float
    exit: ExitStatus | None
    samples: int
    peak_rss: int | None
    high_water_mark: int | None
    high_water_limit: int | None
    accounted: bool
    cpu_s: float
    left_out: bool
    """It turned out not to belong to the run: forget it."""


class SamplerEnd(TypedDict, total=False):
    """What the sampling cost, and how punctual it was; see ``nncftools.session.model.SamplerFacts``."""

    cpu_s: float | None
    peak_rss: int | None
    interval_s: float | None
    achieved_interval_s: float | None
    taken: int | None
    missed: int | None
    longest_gap_s: float | None
    exit_accounting: str | None
    rows: int
    """Samples that were written, after neighbours were merged."""


class End(TypedDict, total=False):
    """The last line of a finished recording."""

    error: str | None
    """Why the command never started; the other keys are missing then."""
    duration_s: float | None
    totals: dict[str, int | float | None]
    """The counters at the end, also of processes that had ended."""
    exit: ExitStatus | None
    sampler: SamplerEnd
    unwritten: str
    """Lines that a full disk kept out of the journal; told to the starter, never in the journal itself."""


class Line(TypedDict, total=False):
    """A line that is not a sample; it has one of these keys."""

    start: Start
    columns: list[str]
    """The columns of all samples, where they are not those of the plan: a metric of devices has one for each."""
    process: ProcessFields
    each: dict[int, int]
    """RSS in bytes by process ``id``, at the sample of the line before (``--per-process``)."""
    warning: str
    """Text that every report repeats."""
    end: End
