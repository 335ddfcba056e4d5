"""The types of all keys in a journal: JSON Lines, UTF-8; bytes and seconds; null is unknown.

The first line is a ``Header``. Every other line is a sample or a ``Line``. A sample is a list: the seconds since the
start, then one value per column of the plan. A ``Line`` is an object with one key. Where some keys of an object are
always there and others may be missing, the former are in a class of their own (``Required`` needs Python 3.11).

These types are for the type checker: the sampler does not import ``typing``, which would cost memory.

The types of all lines that the helper process writes: JSON Lines; bytes, and CLOCK_MONOTONIC in nanoseconds.

Every line is an object with one key. Frames and stacks are numbered from 0, in the order of their lines.
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


class _RequiredOfProcess(TypedDict):
    id: int


class ProcessFields(_RequiredOfProcess, total=False):
    """Facts of one process; later lines add to earlier ones with the same ``id``.

    ``nncftools.session.model.Process`` documents each field.
    """

    pid: int
    parent: int | None
    name: str
    command: list[str]
    forked_copy: bool
    apart: list[str]
    start_s: float
    end_s: float
    exit: ExitStatus | None
    counted_s: float | None
    first_rss: int | None
    samples: int
    peak_rss: int | None
    peak_s: float | None
    high_water_mark: int | None
    high_water_limit: int | None
    accounted: bool
    cpu_s: float
    left_out: bool
    """The process does not belong to the run after all: drop it."""


class Rise(TypedDict):
    """Between two moments, the high-water mark of a process rose above what the samples show."""

    id: int
    """Of the process."""
    from_s: float
    to_s: float
    high_water_mark: int
    """The mark at the second moment, in bytes."""
    others: int
    """What all other processes together certainly held between these moments, in bytes."""
    others_around: int
    """What they held at least in the samples before and after: probably meanwhile, too."""


class Held(TypedDict):
    """What processes held at the sample that a mark triggered, and what they can have held since the sample before."""

    from_s: float
    """When the sample before began."""
    to_s: float
    """When this sample began."""
    rss: list[list[int]] | None
    """For each process whose RSS is new or not certain: its ``id``, RSS in bytes, and, if these differ, the least and
    the most since ``from_s``. A process that is not listed holds what it held in the line before. Null: too many."""


class Unseen(TypedDict):
    """Between two samples, more can have been held than they show."""

    from_s: float
    to_s: float
    rss: int | None
    """At most this, in bytes; null for unknown."""


class LimitReached(TypedDict):
    """The first sample above the memory limit."""

    at_s: float
    rss: int
    """In bytes, like ``limit``."""
    limit: int
    action: str
    """``warn`` or ``kill``."""


class FoundLimit(TypedDict):
    """A memory limit of a process; ``nncftools.session.model.MemoryLimit`` documents each field."""

    kind: str
    size: int
    set_by: str
    process: int


class _RequiredOfGroup(TypedDict):
    folder: str


class Group(_RequiredOfGroup, total=False):
    """A control group of a process, when the process was first seen in it."""

    oom_kills: int | None
    """How many of its processes the kernel had killed before, because memory ran out."""
    process: int


class OomKills(TypedDict):
    """The kernel has killed processes of a control group because memory ran out."""

    group: str
    """Its folder."""
    from_s: float
    to_s: float
    """Between these moments."""
    count: int


class _RequiredOfFileSystem(TypedDict):
    role: str
    """Why it is watched: ``cwd``, ``TMPDIR``, ``output`` or ``argument``."""


class FileSystem(_RequiredOfFileSystem, total=False):
    """The room that a file system has, in bytes; later lines replace earlier ones of the same role."""

    path: str
    size: int
    first: int
    """The free bytes at the first reading, then the least, and when that was."""
    lowest: int
    lowest_s: float
    last: int | None


class Floor(TypedDict):
    """The largest anonymous and shared memory so far; ``nncftools.session.model.Floor`` documents each field."""

    size: int
    at_s: float
    mapped: int


class FilesRead(TypedDict):
    """Files that processes had open for reading while they read much; later lines add to earlier ones."""

    files: list[tuple[str, int]]
    """Path and bytes."""


class SamplerEnd(TypedDict, total=False):
    """The cost and punctuality of the sampling; see ``nncftools.session.model.SamplerFacts``."""

    cpu_s: float | None
    peak_rss: int | None
    interval_s: float | None
    achieved_interval_s: float | None
    taken: int | None
    missed: int | None
    longest_gap_s: float | None
    exit_accounting: str | None
    rows: int
    """Samples written, after merging."""


class End(TypedDict, total=False):
    """The last line of a finished recording."""

    error: str | None
    """Why the command did not start; the other keys are missing then."""
    duration_s: float | None
    totals: dict[str, int | float | None]
    """The counters at the end, including processes that ended earlier."""
    exit: ExitStatus | None
    sampler: SamplerEnd
    unwritten: str
    """Lines that could not be written because the disk was full; sent to the starter, never in the journal itself."""


class Line(TypedDict, total=False):
    """A line that is not a sample; it has one of these keys."""

    start: Start
    columns: list[str]
    """The columns of all samples, if they differ from the plan: a device metric has one column per device."""
    process: ProcessFields
    rise: Rise
    held: Held
    unseen: Unseen
    limit_reached: LimitReached
    memory_limit: FoundLimit
    group: Group
    oom_kills: OomKills
    file_system: FileSystem
    floor: Floor
    files_read: FilesRead
    each: dict[int, int]
    """RSS in bytes by process ``id``, at the sample on the previous line (``--per-process``)."""
    warning: str
    """A warning, which every report repeats."""
    end: End


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
