"""The data model: what a session, that is the JSON document of a recorded run, contains.

All sizes are bytes, all times seconds since the start. ``Snapshots`` is what the helper process saw when memory rose.
"""

from __future__ import annotations

import re
import signal
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, TypedDict

import msgspec

from nncftools import intake
from nncftools.intake import Count, Duration, Figure, Pid, Seconds, Size, Whole
from nncftools.session.samples import Samples, drift


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """A frame of a Python stack."""

    function: str
    """From Python 3.11 on with its class: ``Model.forward``."""
    file: str
    line: Whole

    @property
    def code(self) -> tuple[str, str]:
        """Function and file: two frames with the same code are two places in one function."""
        return self.function, self.file


class ThreadStacks(msgspec.Struct, frozen=True, array_like=True):
    """The Python stacks of a thread over time."""

    thread: Whole
    """Its ID in the kernel; below 0 where Python (before 3.11) does not keep it and there are several threads."""
    time_s: list[Seconds]
    stacks: list[Size | None]
    """The index in ``Snapshots.stacks`` of the stack that was first seen at each of these moments; null for none."""
    same: list[Size] = []
    """How many of its outer frames were in the same call at the reading before; at all other readings, all were."""
    still: list[Size] = []
    """How many of these stood at the same instruction, with the same variables; empty in older recordings."""


class StackWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Readings of the stacks of a process, one soon after the other."""

    time_s: list[Seconds]
    """When they were taken; the first may be the last of the window before."""
    threads: list[ThreadStacks] = []

    @property
    def from_s(self) -> float:
        """When the first reading was taken."""
        return self.time_s[0]

    @property
    def to_s(self) -> float:
        """When the last reading was taken."""
        return self.time_s[-1]


class PageFaults(msgspec.Struct, frozen=True, array_like=True):
    """Which threads touched new memory since the reading before."""

    time_s: Seconds
    threads: list[tuple[Whole, Whole]]
    """IDs in the kernel, and page faults."""
    lost: Whole = 0
    """The page faults of threads that have ended."""


class RangeChange(msgspec.Struct, frozen=True, array_like=True):
    """Which addresses of blocks of anonymous memory came and went since the reading before."""

    time_s: Seconds
    came: list[Whole]
    """The first page of each range and its number of pages, one after the other; pages of 4 KiB."""
    went: list[Whole]
    heap: Whole = 0
    """The size of malloc's heap and arenas in bytes; 0 in earlier recordings, whose ranges may be of the heap."""


class WatchedProcess(msgspec.Struct, kw_only=True):
    """A process as the helper watched it."""

    process: Whole | None = None
    """The ``id`` of the same process in ``processes`` of the session; null when it is not there."""
    pid: Pid
    inherited: Whole = 0
    """Of a forked copy: its RSS when it was first seen; what it shares with its parent is part of that."""
    user: Whole | None = None
    """The ID of the user whose files it opened; null if unknown, or if paths may have led it to other files."""
    is_native: bool = False
    """Whether it was seen to grow without any file of Python."""
    time_s: list[Seconds] = []
    rss: list[Whole] = []
    """Its RSS at these moments; in between it changed about evenly."""
    shared: list[Whole] = []
    """The bytes of ``rss`` that were pages of files and of shared memory; empty in earlier recordings."""
    apart_s: list[Duration] = []
    """The longest time between two readings of RSS since the moment before: so exactly is a rise known."""
    faults: list[PageFaults] = []
    ranges: list[RangeChange] = []
    """Read when memory had changed by much."""
    windows: list[StackWindow] = []
    code_end_s: Seconds | None = None
    """When its Python had run all its code, by its own report; null if unknown. Later, it only clears its modules."""

    def take_end_of_code(self, time_s: float, rss: int) -> None:
        """Add the RSS that the process read when its code had ended, if it was watched then; later points are older."""
        place = bisect_left(self.time_s, time_s)
        if rss > 0 and 0 < place < len(self.time_s):
            self.code_end_s = time_s
            self.apart_s.insert(place, time_s - self.time_s[place - 1])
            self.time_s.insert(place, time_s)
            for sizes in (self.rss, self.shared):
                sizes[place:] = [min(rss, size) for size in sizes[place - 1 :]]
            self.rss[place] = rss

    def frames(self, stacks: Sequence[Sequence[int]]) -> set[int]:
        """Return the indexes of the frames that were in a stack of the process, of ``stacks`` of the session."""
        threads = [thread for window in self.windows for thread in window.threads]
        numbers = {number for thread in threads for number in thread.stacks if number is not None}
        return {frame for number in numbers for frame in stacks[number]}


class MappingGroup(msgspec.Struct, frozen=True, array_like=True):
    """Resident pages of one kind, in bytes."""

    kind: str
    """``anonymous``, ``file``, ``other_files``, ``libraries``, ``stack`` or ``shared``."""
    file: str
    """The path of the file, of the kind ``file``; else empty."""
    rss: Whole
    shared_clean: Whole
    shared_dirty: Whole
    private_clean: Whole
    private_dirty: Whole
    anonymous: Whole
    """Of a mapped file: private copies of its pages, which the kernel cannot read from the file again."""

    @property
    def clean(self) -> int:
        """Bytes that the kernel can drop and read again."""
        return self.shared_clean + self.private_clean

    @property
    def pages_of_file(self) -> int:
        """Bytes that are no private copies: pages of files, or of shared memory."""
        return self.rss - self.anonymous


class ProcessMappings(msgspec.Struct, frozen=True, array_like=True):
    """The mappings of one process."""

    process: Whole | None
    """The ``id`` of the process."""
    groups: list[MappingGroup]


class MappingsMoment(msgspec.Struct, kw_only=True):
    """What the memory of the largest processes was at one moment."""

    time_s: Seconds
    total: Whole
    """The RSS of all processes at this moment."""
    processes: list[ProcessMappings]


MOST_FRAMES = 1_000
"""The helper cuts stacks at 401 frames."""


class Snapshots(msgspec.Struct, kw_only=True):
    """Stacks and mappings of a run; bytes, and seconds since its start."""

    missing: str | None = None
    """Why there are no stacks, or not of every process; null when nothing was in the way."""
    cpu_s: Seconds | None = None
    """What taking them cost; null when the helper was killed."""
    failed: Whole = 0
    """Stacks that could not be read."""
    frames: list[Frame] = []
    stacks: list[list[Size]] = []
    """Indexes of ``frames``, the outermost first."""
    loops: list[Size] = []
    """Indexes of ``frames``: those that call again and again with equal variables, so that one call of theirs cannot be
    told from the next."""
    processes: list[WatchedProcess] = []
    mappings: list[MappingsMoment] = []
    sources: dict[str, dict[Whole, str]] = {}
    """By file and line number: the text of a line of the user's code."""


def check_snapshots(snapshots: Snapshots) -> None:
    """Raise WrongValueError for the first stack or frame that is not there, and for moments out of order."""
    if max(map(len, snapshots.stacks), default=0) > MOST_FRAMES:
        raise intake.error_at("$.snapshots.stacks", f"at most {MOST_FRAMES:,} frames expected")
    if max(chain(snapshots.loops, *snapshots.stacks), default=-1) >= len(snapshots.frames):
        raise intake.error_at("$.snapshots.stacks", "a frame that is not in `frames`")
    for number, watched in enumerate(snapshots.processes):
        key = f"$.snapshots.processes[{number}]"
        intake.check_columns(key, watched.time_s, watched.rss, watched.shared or watched.rss, watched.apart_s)
        intake.check_columns(f"{key}.faults", [reading.time_s for reading in watched.faults])
        intake.check_columns(f"{key}.ranges", [change.time_s for change in watched.ranges])
        key += ".windows"
        for window in watched.windows:
            intake.check_columns(key, window.time_s)
            if not window.time_s:
                raise intake.error_at(key, "a reading expected")
            for thread in window.threads:
                stacks = thread.stacks
                intake.check_columns(key, thread.time_s, stacks, thread.same or stacks, thread.still or stacks)
                if max((stack for stack in stacks if stack is not None), default=-1) >= len(snapshots.stacks):
                    raise intake.error_at(key, "a stack that is not in `stacks`")


FORMAT = "nncf-tools-session"
VERSION = 1
"""1: first version (2026-11)."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The moment that ``time_s`` counts from; null for unknown."""

    utc: str | None = None
    """ISO 8601 with time zone."""
    monotonic_ns: Whole | None = None
    """The same moment on CLOCK_MONOTONIC, by which marks of any process on the machine are aligned."""
    utc_error_s: Seconds | None = None
    """The error bound of ``utc`` (maxerror of adjtimex(2)); null when nothing synchronizes the clock."""

    def __post_init__(self) -> None:
        """Raise ValueError for a moment that cannot be."""
        if self.utc is not None:
            intake.moment(self.utc)


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """Which of several processes of one job this was, from its launcher's environment variables; null for unknown."""

    number: Whole
    size: Size | None = None
    """How many ranks the job has."""
    local: Whole | None = None
    """Its number on its machine."""
    job: str = ""
    launcher: str = ""
    """``torchrun``, ``mpi`` or ``slurm``."""


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended: by itself with ``code``, or killed by ``signal``."""

    code: Whole | None = None
    signal: Whole | None = None

    @property
    def text(self) -> str:
        """``exit status 0``, ``killed by SIGKILL``."""
        if self.signal is None:
            return f"exit status {'unknown' if self.code is None else self.code}"
        try:
            return f"killed by {signal.Signals(self.signal).name}"
        except ValueError:
            return f"killed by signal {self.signal}"


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """The peak of one metric in bytes, as a bracket."""

    sampled: Whole | None
    """The largest sample: the sum over all processes at one moment."""
    at_s: Seconds | None
    """When a sample first came near it (1 %, at least 1 MiB), in seconds since the start."""
    low: Whole | None
    """The real peak is at least this: ``sampled``, or the largest high-water mark of a single process."""
    high: Whole | None = None
    """The real peak is at most this, if no process was missed; null when unknown."""
    low_from: str | None = None
    """Where ``low`` comes from: ``"sampled"`` or ``"high_water_mark"``."""
    rose_from_s: Seconds | None = None
    """Between this moment and ``rose_to_s``, memory rose to the peak; a sample that shows it makes them equal."""
    rose_to_s: Seconds | None = None
    process: Whole | None = None
    """The ``id`` of the process whose high-water mark proves this moment; null when a sample does."""
    likely: Whole | None = None
    """The best estimate, if it is above ``low``: a mark, and what the other processes held in the samples around it."""

    @property
    def span_s(self) -> tuple[float, float] | None:
        """The two moments between which memory rose to the peak; None for unknown."""
        if self.low is None:
            return None
        if self.rose_from_s is not None and self.rose_to_s is not None:
            return self.rose_from_s, self.rose_to_s
        if self.at_s is None or (self.sampled or 0) < self.low - drift(self.low):
            return None
        return self.at_s, self.at_s


UNKNOWN_PEAK = Peak(sampled=None, at_s=None, low=None)


class Rise(msgspec.Struct, frozen=True, kw_only=True):
    """Between two moments, the high-water mark of a process rose above what the samples show; bytes and seconds."""

    from_s: Seconds
    to_s: Seconds
    high_water_mark: Size
    """The mark at ``to_s``."""
    others: Whole = 0
    """What all other processes together certainly held between these moments."""
    others_around: Whole = 0
    """What they held at least in the samples before and after, and so probably between these."""

    def __post_init__(self) -> None:
        """Raise ValueError if the rise ends before it begins."""
        if self.to_s < self.from_s:
            raise ValueError(f"the rise ends at {self.to_s} s, before it begins at {self.from_s} s")


class LateReadings(msgspec.Struct, frozen=True, kw_only=True):
    """Samples whose processes were read a while after their time; columns of equal length."""

    from_s: list[Seconds] = []
    """The times of these samples."""
    to_s: list[Seconds] = []
    """When the last process was read."""

    def by_time(self) -> dict[float, float]:
        """Return when samples were read, by their times."""
        return dict(zip(self.from_s, self.to_s, strict=False))


class OwnMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What a process itself held when it marked an operation, and the whole tree with it, in bytes."""

    rss: Whole | None = None
    high_water_mark: Size | None = None
    """Its largest RSS so far (``ru_maxrss``)."""
    tree: Whole | None = None
    """What the whole tree held: this process and its descendants as it read them, the others in the sample after."""
    is_estimate: bool = False
    """Whether ``tree`` is an estimate, because other processes changed around the mark."""
    tree_low: Whole | None = None
    """In sessions of earlier versions, the bounds of an estimate."""
    tree_high: Whole | None = None
    devices: dict[str, tuple[Whole, Whole]] | None = None
    """By device: what torch's allocator had given out, and the most so far, in bytes; null if it was not read."""


class LimitReached(msgspec.Struct, frozen=True, kw_only=True):
    """The first sample above ``--max-memory``; bytes, and seconds since the start."""

    at_s: Seconds
    rss: Whole
    limit: Whole
    action: str
    """``warn``, or ``kill``: the processes were ended."""


class MemoryLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that processes of the run had."""

    kind: str
    """One of ``nncftools.journal.writing``: ``control group``, ``control group, memory.high``, ``RLIMIT_AS``,
    ``RLIMIT_DATA``."""
    size: Size
    """In bytes."""
    set_by: str = ""
    """The file that sets it, or the system call."""
    process: Whole | None = None
    """The ``id`` of the first process that was seen with it."""


class ControlGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A control group that processes of the run were in."""

    folder: str
    oom_kills: Whole | None = None
    """How many processes the kernel had killed in it before the run; null for unknown."""


class OomKills(msgspec.Struct, frozen=True, kw_only=True):
    """Between two moments, the kernel killed processes of a control group because memory ran out."""

    group: str
    """The folder of the group."""
    from_s: Seconds
    to_s: Seconds
    count: Size


class KernelKill(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the run that the kernel's log says it killed because memory ran out; bytes, null for unknown."""

    pid: Pid
    name: str = ""
    group: str | None = None
    """The control group whose limit was reached; null when the whole machine was out of memory."""
    anon: Whole | None = None
    file: Whole | None = None
    shmem: Whole | None = None


class FileSystem(msgspec.Struct, frozen=True, kw_only=True):
    """The room of a file system that the command may write to; bytes, null for unknown."""

    role: str
    """Why it was watched: ``cwd``, ``TMPDIR``, ``output`` (of the recording), ``argument`` (a path in the command)."""
    path: str = ""
    """One of its folders."""
    size: Size | None = None
    first: Whole | None = None
    """Free at the first reading."""
    lowest: Whole | None = None
    """The least that was free, at ``lowest_s``."""
    lowest_s: Seconds | None = None
    last: Whole | None = None


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """What the run cannot do without, in bytes."""

    size: Size
    """The largest sum of anonymous and shared memory at a sample; forked copies count what they do not share."""
    at_s: Seconds
    mapped: Whole = 0
    """What was mapped from files: for each program, the most that one of its processes had."""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU or NPU that could be read."""

    device: str
    """As columns name it: ``nvidia0``, ``nvidia0.mig1``, ``gpu0``, ``npu0``."""
    model: str = ""
    uuid: str = ""
    memory: Size | None = None
    """In bytes."""
    missing: str | None = None
    """Why it is unknown what the run held of it, all the time or at times; null where it is known."""


class FileRead(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was open for reading while its process read much; ``size`` in bytes."""

    path: str
    size: Size


MEMORY, DISK, DEVICE = "memory", "disk", "device"


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An exception that a marked Python program reported: it ended a marked call, or the program."""

    pid: Pid
    at_s: Seconds
    error: str
    """The name of its class."""
    cause: str | None = None
    """``memory``, ``disk`` or ``device``, if it says that one of them ran out."""
    device: str | None = None
    """Whose memory ran out."""
    fatal: bool = False
    """Whether it ended the program."""


class Series(msgspec.Struct, kw_only=True):
    """One process's RSS in bytes at moments in seconds since the start."""

    time_s: list[Seconds]
    rss: list[Whole]


_PYTHON = re.compile(r"(.*/)?(python|pypy)[\d.]*")


class Process(msgspec.Struct, kw_only=True):
    """One process of the tree; bytes and seconds, null for unknown."""

    id: Whole
    """Its number in this session (a PID may be reused)."""
    pid: Pid | None = None
    parent: Whole | None = None
    """The ``id`` of its parent; null for the first process and for adopted orphans."""
    name: str = ""
    command: list[str] = []
    forked_copy: bool = False
    """Whether it was forked without exec: it runs its parent's command and shares its parent's pages."""
    apart: list[str] = []
    """What kept it from the marks log at some moment: another ``user``, ``root`` folder or ``clock``."""
    start_s: Seconds | None = None
    end_s: Seconds | None = None
    """Null when it outlived the recording."""
    exit: Exit | None = None
    """Null unless the sampler reaped the process: the command, and orphans."""
    counted_s: Seconds | None = None
    """The time of the first sample that contains its memory."""
    first_rss: Whole | None = None
    """Its RSS in this sample."""
    samples: Whole = 0
    peak_rss: Whole | None = None
    """Its largest sample."""
    peak_s: Seconds | None = None
    """The time of this sample."""
    high_water_mark: Size | None = None
    """The high-water mark of this process: VmHWM, read while it lived."""
    high_water_limit: Size | None = None
    """The upper bound of its mark: ``ru_maxrss``, which may be that of a reaped child or of the process that it was
    forked from, or the mark that it had when the recording was attached to it."""
    hugetlb: Size | None = None
    """The most that it was seen to hold in hugetlb pages, which no RSS contains; null for none."""
    cpu_s: Seconds | None = None
    """Its own CPU seconds during the recording."""
    rises: list[Rise] = []
    """When its high-water mark rose above what the samples show."""
    series: Series | None = None

    """Its RSS over time, if this was requested."""

    @property
    def is_python(self) -> bool:
        """Whether the first word of its command is a Python."""
        return bool(self.command and _PYTHON.fullmatch(self.command[0]))

    @property
    def most_memory(self) -> int:
        """The most memory that it is known to have held by itself; 0 for unknown."""
        return max(self.peak_rss or 0, self.high_water_mark or 0)

    @property
    def most_shown(self) -> int:
        """The most memory whose moment a sample or a rise shows; 0 for none."""
        return max([self.peak_rss or 0, *(rise.high_water_mark for rise in self.rises)])


UNFINISHED = "unfinished"
"""The ``error`` of an operation whose process ended before it did."""
END_UNKNOWN = "end unknown"
"""The ``error`` of an operation whose end the marks log may have lost; it ran at least until ``end_s``."""


class Mark(msgspec.Struct, kw_only=True):
    """An operation: from ``start_s`` to ``end_s``, or to the next mark on its level when that is null."""

    name: str
    """Its display name: the name in the mark, or the plain name of its kind."""
    start_s: Seconds
    end_s: Seconds | None = None
    depth: Count = 0
    """How many operations enclose it."""
    op: Whole | None = None
    """Its number, if others refer to it by ``inside``."""
    inside: Whole | None = None
    """The ``op`` of the operation that encloses it; null if that is the latest one of the level above that goes on."""
    pid: Pid | None = None
    """The process that performed it; null when it was marked from outside."""
    source: str = ""
    """What marked it: ``api``, ``auto`` (a call of a catalogued function), ``output`` (a line of the command's output),
    ``shell`` (``nncf-tools mark``), ``sidecar``, or the name of another program."""
    kind: str | None = None
    """One of ``nncftools.session.nesting.KINDS``, or null."""
    call: str | None = None
    """The function that was called."""
    arguments: str | None = None
    """What it was called with, shortened; null when nothing of it matters, or when several calls differ."""
    saved: str | None = None
    """The path of the file or folder that it saved."""
    saved_size: Whole | None = None
    """The bytes of that at the end of the run, with a model's weights beside it; null when unknown."""
    error: str | None = None
    """The exception that ended it; ``unfinished`` when its process ended before it did; or ``end unknown``."""
    count: Size = 1
    """How many calls this stands for."""
    total_s: Seconds | None = None
    """The total seconds of these calls; null for a single one."""
    longest_s: Seconds | None = None
    """The seconds of the longest call; null for a single one."""
    own_start: OwnMemory | None = None
    """The memory of its process at the start, as the process itself read it, and of the tree; null for unknown."""
    own_end: OwnMemory | None = None
    """The same at the end."""

    @property
    def own_peak(self) -> int | None:
        """The largest RSS of its own process during it; None unless the high-water mark of the process rose then."""
        before, after = (None if own is None else own.high_water_mark for own in (self.own_start, self.own_end))
        return after if before is not None and after is not None and after > before else None


class SavedModel(msgspec.Struct, kw_only=True):
    """What the ``rt_info`` of a saved model records about its compression."""

    path: str
    saved_s: Seconds
    """When it was written, in seconds since the start."""
    facts: dict[str, str] = {}
    """By place: ``nncf/weight_compression/mode``, ``optimum/optimum_intel_version``."""


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The machine; ``memory`` in bytes."""

    name: str = ""
    system: str = ""
    release: str = ""
    machine: str = ""
    cpus: Count | None = None
    memory: Size | None = None
    swap: Whole | None = None
    """Bytes of swap space."""
    python: str = ""
    boot_id: str = ""
    """The kernel's ID of this boot: where it is equal, CLOCK_MONOTONIC is the same clock."""


class SamplerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of the sampling itself, and how punctual it was; bytes and seconds."""

    cpu_s: Seconds | None = None
    peak_rss: Whole | None = None
    interval_s: Seconds | None = None
    """As requested."""
    achieved_interval_s: Seconds | None = None
    """The mean distance of two samples."""
    taken: Whole | None = None
    """Samples that were taken, before neighbours were merged."""
    merged_s: Seconds | None = None
    """If neighbours were merged: how far apart the remaining samples are."""
    missed: Whole | None = None
    """Deadlines that passed without a sample."""
    longest_gap_s: Seconds | None = None
    """The longest distance of two samples."""
    source: str = ""
    """``proc`` or ``psutil``; for another tool's log, the name of its importer."""

    @property
    def spacing_s(self) -> float | None:
        """How far apart neighbouring samples are; None for unknown."""
        return self.merged_s or self.achieved_interval_s or self.interval_s


class RankRun(msgspec.Struct, kw_only=True):
    """The figures of one rank of a job; bytes, and seconds since the start of the job."""

    name: str
    """``rank 3``, or the name of its recording where no launcher numbered it."""
    rank: Rank | None = None
    host: Host = Host()
    start_s: Seconds
    duration_s: Duration
    finished: bool | None = True
    exit: Exit | None = None
    peaks: dict[str, Peak] = {}
    """Their times are in seconds since the start of the job, too."""
    cpu_s: Seconds | None = None
    time_s: list[Seconds] = []
    """The times of ``rss``, few enough to be drawn: the smallest and the largest value of each interval are kept."""
    rss: list[Whole | None] = []


class HeldLine(TypedDict):
    """The RSS of processes at the sample that a mark triggered."""

    from_s: Seconds
    """When the sample before began."""
    to_s: Seconds
    """When this sample began."""
    rss: list[list[Whole]] | None
    """For each process that changed since the line before: its ``id``, RSS in bytes, and, if it differs, its RSS in the
    sample before. Older journals have the least and the most since ``from_s`` instead. Null: too many."""


class ExecLine(TypedDict):
    """Between two moments, a process began to run another program (execve(2))."""

    id: Whole
    from_s: Seconds
    to_s: Seconds


class HeldLines(NamedTuple):
    """What a journal says of marks, which a session does not keep."""

    lines: Sequence[HeldLine] = ()
    with_descendants: bool = True
    execs: Sequence[ExecLine] = ()


class Unsaved:
    """What belongs to a session only in memory: it is not saved, and equal sessions may differ in it."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.loaded = b"{}"
        """The JSON that the session was loaded from."""
        self.of_marks = HeldLines()
        """What the journal says of marks that are still to be read."""
        self.figures: dict[object, tuple[Sequence[object], object]] = {}
        """By function and state of the session: the parts that a figure depends on, and the figure."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unsaved)

    def __reduce__(self) -> tuple[type[Unsaved], tuple[()]]:
        """Leave all of it out of copies and of other processes."""
        return Unsaved, ()

    __hash__ = None  # type: ignore[assignment] # it can change


class SessionData(msgspec.Struct, kw_only=True):
    """One recorded run. Inside, everything is bytes and seconds; null is unknown, never 0.

    Load with ``Session.load(path)``, write with ``session.save(path)``.
    """

    format: str = FORMAT
    version: int = VERSION
    tool_version: str = ""
    name: str = ""
    command: list[str] = []
    """The command and its arguments, also of a process that was attached to."""
    cwd: str = ""
    attached_to: Pid | None = None
    """The PID, when the recording was attached to a running process."""
    rank: Rank | None = None
    """Which rank of a job it was; null when no launcher set one."""
    ranks: list[RankRun] = []
    """The ranks of a job whose recordings were merged; the rest of the session is their sum."""
    start: Start
    duration_s: Duration
    finished: bool | None = True
    """False when the recorder was killed or still runs (see ``warnings``); null when a log does not record it."""
    exit: Exit | None = None
    """How the command ended; null when unknown."""
    host: Host
    sampler: SamplerFacts
    samples: Samples
    from_zero: bool = False
    """Whether memory is relative to an unknown first sample (another tool's log): only differences count."""
    totals: dict[str, Whole | Figure | None] = {}
    """Counters at the end of the recording, by metric."""
    peaks: dict[str, Peak] = {}
    late: LateReadings = LateReadings()
    limit_reached: LimitReached | None = None
    """Null without a limit, or below it."""
    memory_limits: list[MemoryLimit] = []
    control_groups: list[ControlGroup] = []
    oom_kills: list[OomKills] = []
    kernel_kills: list[KernelKill] | None = None
    """Null when the kernel's log was not read, or could not be."""
    file_systems: list[FileSystem] = []
    devices: list[Device] = []
    floor: Floor | None = None
    """Null when it was not recorded."""
    files_read: list[FileRead] = []
    failures: list[Failure] = []
    processes: list[Process] = []
    marks: list[Mark] = []
    models: list[SavedModel] = []
    """Compressed models that the command saved, as far as their files record this."""
    warnings: list[str] = []
    """What readers of the figures should know; every report repeats them."""
    snapshots: Snapshots | None = None
    """Stacks and mappings of processes whose memory rose; null when none were asked for."""
    unsaved: Unsaved = msgspec.field(default_factory=Unsaved)

    @property
    def rss_peak(self) -> Peak:
        """The peak of RSS; unknown if it was not recorded."""
        return self.peaks.get("rss", UNKNOWN_PEAK)


FIELDS = [field for field in msgspec.structs.fields(SessionData) if field.type is not Unsaved]
"""Those of a session's file."""


class ProcessTable:
    """The processes of a session by their numbers and PIDs."""

    def __init__(self, processes: Iterable[Process]) -> None:
        """Take processes in the order in which they were found."""
        self.by_id: dict[int | None, Process] = {}
        self._by_pid: dict[int | None, list[Process]] = {}
        for process in processes:
            self.by_id[process.id] = process
            self._by_pid.setdefault(process.pid, []).append(process)

    def at(self, pid: int | None, at_s: float) -> Process | None:
        """Return the process that had a PID at a moment: a PID may be reused."""
        begun = [process for process in self._by_pid.get(pid, ()) if (process.start_s or 0.0) <= at_s]
        return begun[-1] if begun and pid is not None else None

    def upwards(self, process: Process) -> Iterator[Process]:
        """Yield a process and its ancestors; those of a damaged journal may be a circle."""
        above: Process | None = process
        for _ in range(len(self.by_id)):
            if above is None:
                return
            yield above
            above = self.by_id.get(above.parent)
