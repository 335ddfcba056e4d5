"""What a session holds, as the JSON document that everything reads and writes has it."""

from __future__ import annotations

import msgspec

from nncftools.session.samples import Samples  # noqa: TC001 — msgspec looks the types of fields up

FORMAT = "nncf-tools-session"
VERSION = 1
"""1: first version (2026-11)."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The moment that ``time_s`` counts from; null for unknown."""

    utc: str | None = None
    """ISO 8601 with zone."""
    monotonic_ns: int | None = None
    """The same moment on CLOCK_MONOTONIC; lines up marks of any process on the machine."""
    utc_error_s: float | None = None
    """How wrong ``utc`` can be, as the kernel knows it (maxerror of adjtimex(2)); null when nothing keeps the clock."""


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """Which of several processes of one job this was, as its launcher said in the environment; null for unknown."""

    number: int
    size: int | None = None
    """How many ranks the job has."""
    local: int | None = None
    """Its number on its machine."""
    job: str = ""
    launcher: str = ""
    """``torchrun``, ``mpi`` or ``slurm``."""


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended: by itself with ``code``, or killed by ``signal``."""

    code: int | None = None
    signal: int | None = None


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """The peak of one metric in bytes, as a bracket."""

    sampled: int | None
    """The largest sample: what the processes held together at one moment."""
    at_s: float | None
    """When that was, in seconds since the start."""
    low: int | None
    """The real peak is at least this: ``sampled``, or the largest high-water mark of a single process."""
    high: int | None = None
    """The real peak is at most this, as far as processes were seen; null when unknown."""
    low_from: str | None = None
    """Where ``low`` comes from: ``"sampled"`` or ``"high_water_mark"``."""


class Series(msgspec.Struct, kw_only=True):
    """One process's RSS in bytes at moments in seconds since the start."""

    time_s: list[float]
    rss: list[int]


class Process(msgspec.Struct, kw_only=True):
    """One process of the tree; bytes and seconds, null for unknown."""

    id: int
    """Its number in this session (a PID may come twice)."""
    pid: int | None = None
    parent: int | None = None
    """The ``id`` of its parent; null for the first process and for adopted orphans."""
    name: str = ""
    command: list[str] = []
    forked_copy: bool = False
    """Whether it runs its parent's command: forked without exec, it shares its parent's pages."""
    start_s: float | None = None
    end_s: float | None = None
    """Null when it outlived the recording."""
    exit: Exit | None = None
    """Null unless the sampler reaped it, or the kernel's exit accounting told it."""
    samples: int = 0
    peak_rss: int | None = None
    """Its largest sample."""
    high_water_mark: int | None = None
    """The largest that the kernel told of this process alone: VmHWM, once a second while it lived, or at its end."""
    high_water_limit: int | None = None
    """Its mark was at most this: ``ru_maxrss``, which may be a reaped child's or what it was forked from, or the mark
    that it had when the recording was attached to it."""
    accounted: bool = False
    """Whether the kernel's exit accounting told mark, exit status and CPU time: the former two are exact."""
    cpu_s: float | None = None
    """CPU seconds of its own since it began."""
    series: Series | None = None
    """Its RSS over time, where that was asked for."""


UNFINISHED = "unfinished"
"""The ``error`` of an operation whose process ended before it did."""


class Mark(msgspec.Struct, kw_only=True):
    """An operation: from ``start_s`` to ``end_s``, or to the next mark on its level when that is null."""

    name: str
    """What a reader calls it: the marker's own words, or the plain name of its kind."""
    start_s: float
    end_s: float | None = None
    depth: int = 0
    """How many operations it is inside of."""
    pid: int | None = None
    """The process that did it; null when whoever marked it stood outside."""
    source: str = ""
    """Who marked it: ``api``, ``auto`` (a catalogued function was called), ``output`` (a line of the command's output),
    ``shell`` (``nncf-tools mark``), ``sidecar``, or what another program calls itself."""
    kind: str | None = None
    """One of ``nncftools.session.kinds.KINDS``, when it is of one."""
    call: str | None = None
    """The function that was called."""
    error: str | None = None
    """The exception that ended it, or ``unfinished`` when its process ended before it did."""
    count: int = 1
    """How many calls are told together."""
    total_s: float | None = None
    """Seconds in those calls together; null for a single one."""
    longest_s: float | None = None
    """Seconds of the longest of them; null for a single one."""


class SavedModel(msgspec.Struct, kw_only=True):
    """What a model that was saved says about its compression, in its ``rt_info``."""

    path: str
    saved_s: float
    """When it was written, in seconds since the start."""
    facts: dict[str, str] = {}
    """By place: ``nncf/weight_compression/mode``, ``optimum/optimum_intel_version``."""


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The machine; ``memory`` in bytes."""

    name: str = ""
    system: str = ""
    release: str = ""
    machine: str = ""
    cpus: int | None = None
    memory: int | None = None
    python: str = ""
    boot_id: str = ""
    """The kernel's name of its run: CLOCK_MONOTONIC is one and the same where this is."""


class SamplerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the measuring itself cost, and how punctual it was; bytes and seconds."""

    cpu_s: float | None = None
    peak_rss: int | None = None
    interval_s: float | None = None
    """As asked for."""
    achieved_interval_s: float | None = None
    """The mean distance of two samples."""
    taken: int | None = None
    """Samples that were taken, before neighbours were merged."""
    merged_s: float | None = None
    """Where neighbours were merged (``--max-samples``): how far apart those are that were kept."""
    missed: int | None = None
    """Deadlines that passed without a sample."""
    longest_gap_s: float | None = None
    """The longest distance of two samples."""
    source: str = ""
    """``proc`` or ``psutil``; of another tool's log, the name of its importer."""
    exit_accounting: str | None = None
    """``complete``: the kernel told of every process that ended; ``incomplete``: some were lost; null: not allowed."""

    @property
    def spacing_s(self) -> float | None:
        """How far apart neighbouring samples are; None for unknown."""
        return self.merged_s or self.achieved_interval_s or self.interval_s


class RankRun(msgspec.Struct, kw_only=True):
    """What one rank of a job did by itself; bytes, and seconds since the start of the job."""

    name: str
    """``rank 3``, or the name of its recording where no launcher numbered it."""
    rank: Rank | None = None
    host: Host = Host()
    start_s: float
    duration_s: float
    finished: bool | None = True
    exit: Exit | None = None
    peaks: dict[str, Peak] = {}
    """At seconds since the job's start, too."""
    cpu_s: float | None = None
    time_s: list[float] = []
    """Of its RSS, few enough to be drawn: the smallest and the largest value of each stretch."""
    rss: list[int | None] = []


class SessionData(msgspec.Struct, kw_only=True, dict=True):
    """What a session holds: bytes and seconds; null is unknown, never 0."""

    format: str = FORMAT
    version: int = VERSION
    tool_version: str = ""
    name: str = ""
    command: list[str] = []
    """The command and its arguments, also of a process that was attached to."""
    cwd: str = ""
    attached_to: int | None = None
    """The PID, when the recording was attached to a running process."""
    rank: Rank | None = None
    """Which part of a job it was; null when no launcher said so."""
    ranks: list[RankRun] = []
    """The parts of a job whose recordings were put together; the rest of the session is what they amount to."""
    start: Start
    duration_s: float
    finished: bool | None = True
    """False when the recorder was killed, or still runs: ``warnings`` says which; null when a log does not say."""
    exit: Exit | None = None
    """How the command ended; null when unknown."""
    host: Host
    sampler: SamplerFacts
    samples: Samples
    from_zero: bool = False
    """Whether memory is told above a first sample that is not known (another tool's log): only differences count."""
    totals: dict[str, int | float | None] = {}
    """Counters at the end of the recording, by metric."""
    peaks: dict[str, Peak] = {}
    processes: list[Process] = []
    marks: list[Mark] = []
    models: list[SavedModel] = []
    """Compressed models that the command saved, as far as they tell of it."""
    warnings: list[str] = []
    """What a reader of the figures should know; every report repeats them."""
