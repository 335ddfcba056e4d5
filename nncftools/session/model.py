"""The data model: the contents of a session, the JSON document of a recorded run.

Sizes are bytes, times are seconds since the start, and null is unknown. ``Snapshots`` holds the stacks and mappings
that the helper process read when memory rose.
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
    """With the class from Python 3.11 on: ``Model.forward``."""
    file: str
    line: Whole

    @property
    def code(self) -> tuple[str, str]:
        """Function and file: frames with the same code are in the same function."""
        return self.function, self.file


class ThreadStacks(msgspec.Struct, frozen=True, array_like=True):
    """The Python stacks of a thread over time."""

    thread: Whole
    """The kernel's thread ID; below 0 for several threads of Python 3.10, which does not keep the ID."""
    time_s: list[Seconds]
    stacks: list[Size | None]
    """Index in ``Snapshots.stacks`` of the stack first seen at each time; null for no stack."""
    same: list[Size] = []
    """Number of outer frames in the same call as at the previous reading. At unlisted readings, no call changed."""
    still: list[Size] = []
    """Number of these frames at the same instruction with the same variables; empty in older recordings."""


class StackWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive readings of the stacks of a process."""

    time_s: list[Seconds]
    """Times of the readings; the first time may be the last time of the previous window."""
    threads: list[ThreadStacks] = []

    @property
    def from_s(self) -> float:
        """Time of the first reading."""
        return self.time_s[0]

    @property
    def to_s(self) -> float:
        """Time of the last reading."""
        return self.time_s[-1]


class PageFaults(msgspec.Struct, frozen=True, array_like=True):
    """Page faults by thread since the previous reading: they show who touched new memory."""

    time_s: Seconds
    threads: list[tuple[Whole, Whole]]
    """The kernel's thread IDs, and the page faults."""
    lost: Whole = 0
    """Page faults of threads that have ended."""


class RangeChange(msgspec.Struct, frozen=True, array_like=True):
    """Address ranges of anonymous memory that appeared or disappeared since the previous reading."""

    time_s: Seconds
    came: list[Whole]
    """First page and number of pages of each range, in turn; a page is 4 KiB."""
    went: list[Whole]
    heap: Whole = 0
    """Size of malloc's heap and arenas; 0 in earlier recordings, whose ranges may belong to the heap."""


class WatchedProcess(msgspec.Struct, kw_only=True):
    """A process that the helper watched."""

    process: Whole | None = None
    """The ``id`` in ``processes`` of the session; null if not listed there."""
    pid: Pid
    inherited: Whole = 0
    """RSS of a forked copy when first seen, including the pages shared with the parent."""
    user: Whole | None = None
    """ID of the user whose files the process opened; null if unknown, or if paths may have led to other files."""
    is_native: bool = False
    """Whether the process grew without any Python file."""
    time_s: list[Seconds] = []
    rss: list[Whole] = []
    """RSS at these times; in between, RSS changed about evenly."""
    shared: list[Whole] = []
    """Bytes of ``rss`` in pages of files and shared memory; empty in earlier recordings."""
    apart_s: list[Duration] = []
    """Longest gap between RSS readings since the previous time; limits the precision of a rise."""
    faults: list[PageFaults] = []
    ranges: list[RangeChange] = []
    """Read after large changes of memory."""
    windows: list[StackWindow] = []
    code_end_s: Seconds | None = None
    """When Python reported that all code had run; later, Python only clears modules."""

    def take_end_of_code(self, time_s: float, rss: int) -> None:
        """Insert the RSS that the process read when all code had run; limit the next point to that RSS."""
        index = bisect_left(self.time_s, time_s)
        if rss > 0 and 0 < index < len(self.time_s):
            self.code_end_s = time_s
            self.apart_s.insert(index, time_s - self.time_s[index - 1])
            self.time_s.insert(index, time_s)
            for sizes in (self.rss, self.shared):
                sizes[index:] = [min(rss, size) for size in sizes[index - 1 :]]
            self.rss[index] = rss

    def frames(self, stacks: Sequence[Sequence[int]]) -> set[int]:
        """Return the indexes of all frames seen in this process; ``stacks`` are the stacks of the session."""
        indexes = set[int]()
        for thread in chain.from_iterable(window.threads for window in self.windows):
            for stack in thread.stacks:
                indexes.update(() if stack is None else stacks[stack])
        return indexes


class MappingGroup(msgspec.Struct, frozen=True, array_like=True):
    """Resident pages of one kind, in bytes."""

    kind: str
    """``anonymous``, ``file``, ``other_files``, ``libraries``, ``stack`` or ``shared``."""
    file: str
    """Path of the file for the kind ``file``; else empty."""
    rss: Whole
    shared_clean: Whole
    shared_dirty: Whole
    private_clean: Whole
    private_dirty: Whole
    anonymous: Whole
    """Private copies of pages of a mapped file, which the kernel cannot read from the file again."""

    @property
    def clean(self) -> int:
        """Bytes that the kernel can drop and read again."""
        return self.shared_clean + self.private_clean

    @property
    def pages_of_file(self) -> int:
        """Bytes in pages of files or of shared memory, without private copies."""
        return self.rss - self.anonymous


class ProcessMappings(msgspec.Struct, frozen=True, array_like=True):
    """The mappings of one process."""

    process: Whole | None
    """The ``id`` of the process."""
    groups: list[MappingGroup]


class MappingsMoment(msgspec.Struct, kw_only=True):
    """The mappings of the largest processes at one moment."""

    time_s: Seconds
    total: Whole
    """RSS of all processes at this moment."""
    processes: list[ProcessMappings]


MOST_FRAMES = 1_000
"""The helper cuts stacks at 401 frames."""


class Snapshots(msgspec.Struct, kw_only=True):
    """Stacks and mappings of a run; bytes, and seconds since the start."""

    missing: str | None = None
    """Why stacks of all or some processes are missing; null if nothing prevented them."""
    cpu_s: Seconds | None = None
    """CPU time of the helper; null if the helper was killed."""
    failed: Whole = 0
    """Stacks that could not be read."""
    frames: list[Frame] = []
    stacks: list[list[Size]] = []
    """Indexes of ``frames``, outermost first."""
    loops: list[Size] = []
    """Indexes of frames that make the same call with equal variables again and again: the calls look like a single
    call."""
    processes: list[WatchedProcess] = []
    mappings: list[MappingsMoment] = []
    sources: dict[str, dict[Whole, str]] = {}
    """Text of lines of the user's code, by file and line number."""


def check_snapshots(snapshots: Snapshots) -> None:
    """Raise WrongValueError for an index of a missing stack or frame, and for times out of order."""
    if max(map(len, snapshots.stacks), default=0) > MOST_FRAMES:
        raise intake.error_at("$.snapshots.stacks", f"at most {MOST_FRAMES:,} frames expected")
    last_frame = max(chain(snapshots.loops, *snapshots.stacks), default=-1)
    if last_frame >= len(snapshots.frames):
        raise intake.error_at("$.snapshots.stacks", "a frame that is not in `frames`")
    for number, watched in enumerate(snapshots.processes):
        key = f"$.snapshots.processes[{number}]"
        sizes = watched.rss, watched.shared or watched.rss
        intake.check_columns(key, watched.time_s, *sizes, watched.apart_s)
        intake.check_columns(f"{key}.faults", [reading.time_s for reading in watched.faults])
        intake.check_columns(f"{key}.ranges", [change.time_s for change in watched.ranges])
        for window in watched.windows:
            _check_window(window, f"{key}.windows", len(snapshots.stacks))


def _check_window(window: StackWindow, key: str, number_of_stacks: int) -> None:
    intake.check_columns(key, window.time_s)
    if not window.time_s:
        raise intake.error_at(key, "a reading expected")
    for thread in window.threads:
        stacks = thread.stacks
        columns = stacks, thread.same or stacks, thread.still or stacks
        intake.check_columns(key, thread.time_s, *columns)
        if max((stack for stack in stacks if stack is not None), default=-1) >= number_of_stacks:
            raise intake.error_at(key, "a stack that is not in `stacks`")


FORMAT = "nncf-tools-session"
VERSION = 1
"""1: first version (2026-11)."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The moment from which all times count."""

    utc: str | None = None
    """ISO 8601 with time zone."""
    monotonic_ns: Whole | None = None
    """The start on CLOCK_MONOTONIC, which aligns marks of all processes on the machine."""
    utc_error_s: Seconds | None = None
    """Error bound of ``utc`` (maxerror of adjtimex(2)); null if nothing synchronizes the clock."""

    def __post_init__(self) -> None:
        """Raise ValueError for an impossible time."""
        if self.utc is not None:
            intake.moment(self.utc)


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """The rank of this process in a job, from the launcher's environment variables."""

    number: Whole
    size: Size | None = None
    """Number of ranks in the job."""
    local: Whole | None = None
    """Rank number on this machine."""
    job: str = ""
    launcher: str = ""
    """``torchrun``, ``mpi`` or ``slurm``."""


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended: with exit status ``code``, or killed by ``signal``."""

    code: Whole | None = None
    signal: Whole | None = None

    @property
    def text(self) -> str:
        """``exit status 0``, ``killed by SIGKILL``."""
        if self.signal is None:
            return f"exit status {'unknown' if self.code is None else self.code}"
        return f"killed by {signal_name(self.signal)}"


def signal_name(number: int) -> str:
    """Return the name of a signal: ``SIGKILL``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """The peak of one metric in bytes, as a bracket."""

    sampled: Whole | None
    """The largest sample: the sum over all processes at one moment."""
    at_s: Seconds | None
    """When a sample first came close to the peak (1 %, at least 1 MiB)."""
    low: Whole | None
    """Lower bound of the real peak: ``sampled``, or the largest high-water mark of a single process."""
    high: Whole | None = None
    """Upper bound of the real peak, if no process was missed."""
    low_from: str | None = None
    """Source of ``low``: ``"sampled"`` or ``"high_water_mark"``."""
    rose_from_s: Seconds | None = None
    """Memory rose to the peak between this time and ``rose_to_s``; equal if a sample shows the peak."""
    rose_to_s: Seconds | None = None
    process: Whole | None = None
    """The ``id`` of the process whose high-water mark proves this moment; null if a sample proves the moment."""
    likely: Whole | None = None
    """Best estimate, if above ``low``: a high-water mark, plus the other processes in the samples around the mark."""

    @property
    def span_s(self) -> tuple[float, float] | None:
        """The two times between which memory rose to the peak."""
        if self.low is None:
            return None
        if self.rose_from_s is not None and self.rose_to_s is not None:
            return self.rose_from_s, self.rose_to_s
        is_sampled = (self.sampled or 0) >= self.low - drift(self.low)
        return (self.at_s, self.at_s) if self.at_s is not None and is_sampled else None


UNKNOWN_PEAK = Peak(sampled=None, at_s=None, low=None)


class Rise(msgspec.Struct, frozen=True, kw_only=True):
    """A rise of a process's high-water mark above the samples, between two times."""

    from_s: Seconds
    to_s: Seconds
    high_water_mark: Size
    """The mark at ``to_s``."""
    others: Whole = 0
    """Memory that all other processes certainly held between these times."""
    others_around: Whole = 0
    """Least memory of all other processes in the samples around; probably the least between these times, too."""

    def __post_init__(self) -> None:
        """Raise ValueError if the rise ends before the beginning."""
        if self.to_s < self.from_s:
            raise ValueError(f"the rise ends at {self.to_s} s, before the beginning at {self.from_s} s")


class LateReadings(msgspec.Struct, frozen=True, kw_only=True):
    """Samples whose processes were read later than the sample's time; columns of equal length."""

    from_s: list[Seconds] = []
    """Times of the samples."""
    to_s: list[Seconds] = []
    """Times when the last process was read."""

    def by_time(self) -> dict[float, float]:
        """Return the times of the last reading, by the times of the samples."""
        return dict(zip(self.from_s, self.to_s, strict=False))


class OwnMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of a process, and of the whole tree, when the process marked an operation."""

    rss: Whole | None = None
    high_water_mark: Size | None = None
    """Largest RSS so far (``ru_maxrss``)."""
    tree: Whole | None = None
    """Memory of the whole tree: the process and all descendants at the mark, the others in the next sample."""
    is_estimate: bool = False
    """Whether ``tree`` is an estimate, because other processes changed around the mark."""
    tree_low: Whole | None = None
    """Bounds of an estimate, in sessions of earlier versions."""
    tree_high: Whole | None = None
    devices: dict[str, tuple[Whole, Whole]] | None = None
    """Memory given out by torch's allocator, and the largest amount so far, by device; null if not read."""


class LimitReached(msgspec.Struct, frozen=True, kw_only=True):
    """The first sample above ``--max-memory``."""

    at_s: Seconds
    rss: Whole
    limit: Whole
    action: str
    """``warn``, or ``kill``: the processes were ended."""


class MemoryLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A memory limit of processes of the run."""

    kind: str
    """Defined in ``nncftools.journal.writing``: ``control group``, ``control group, memory.high``, ``RLIMIT_AS``,
    ``RLIMIT_DATA``."""
    size: Size
    set_by: str = ""
    """The file that sets the limit, or the system call."""
    process: Whole | None = None
    """The ``id`` of the first process seen with the limit."""


class ControlGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A control group with processes of the run."""

    folder: str
    oom_kills: Whole | None = None
    """Number of processes that the kernel had killed in the group before the run."""


class OomKills(msgspec.Struct, frozen=True, kw_only=True):
    """Processes that the kernel killed in a control group because memory ran out, between two times."""

    group: str
    """Folder of the group."""
    from_s: Seconds
    to_s: Seconds
    count: Size


class KernelKill(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the run that was killed because memory ran out, according to the kernel's log."""

    pid: Pid
    name: str = ""
    group: str | None = None
    """The control group that reached the limit; null if the whole machine was out of memory."""
    anon: Whole | None = None
    file: Whole | None = None
    shmem: Whole | None = None


class FileSystem(msgspec.Struct, frozen=True, kw_only=True):
    """The free space of a file system that the command may write to."""

    role: str
    """Reason for watching: ``cwd``, ``TMPDIR``, ``output`` (of the recording), ``argument`` (a path in the command)."""
    path: str = ""
    """A folder in the file system."""
    size: Size | None = None
    first: Whole | None = None
    """Free bytes at the first reading."""
    lowest: Whole | None = None
    """Fewest free bytes, at ``lowest_s``."""
    lowest_s: Seconds | None = None
    last: Whole | None = None


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """The least memory that the run needs."""

    size: Size
    """Largest sum of anonymous and shared memory at a sample; forked copies count only unshared memory."""
    at_s: Seconds
    mapped: Whole = 0
    """Memory mapped from files: for each program, the largest amount of a single process."""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A readable GPU or NPU."""

    device: str
    """Name in columns: ``nvidia0``, ``nvidia0.mig1``, ``gpu0``, ``npu0``."""
    model: str = ""
    uuid: str = ""
    memory: Size | None = None
    missing: str | None = None
    """Why the run's memory on the device is unknown, always or at times; null if known."""


class FileRead(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was open for reading while the process read a lot."""

    path: str
    size: Size


MEMORY = "memory"
DISK = "disk"
DEVICE = "device"


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An exception that ended a marked call or the program, as reported by a marked Python program."""

    pid: Pid
    at_s: Seconds
    error: str
    """Name of the exception's class."""
    cause: str | None = None
    """The resource that ran out: ``memory``, ``disk`` or ``device``; null for other exceptions."""
    device: str | None = None
    """The device whose memory ran out."""
    fatal: bool = False
    """Whether the exception ended the program."""


class Series(msgspec.Struct, kw_only=True):
    """RSS of one process over time."""

    time_s: list[Seconds]
    rss: list[Whole]


_PYTHON = re.compile(r"(.*/)?(python|pypy)[\d.]*")


class Process(msgspec.Struct, kw_only=True):
    """One process of the tree."""

    id: Whole
    """Number in this session (a PID may be reused)."""
    pid: Pid | None = None
    parent: Whole | None = None
    """The ``id`` of the parent; null for the first process and for adopted orphans."""
    name: str = ""
    command: list[str] = []
    forked_copy: bool = False
    """Whether the process was forked without exec: same command as the parent, and shared pages."""
    apart: list[str] = []
    """Why the process could not write to the marks log at some moment: another ``user``, ``root`` folder or
    ``clock``."""
    start_s: Seconds | None = None
    end_s: Seconds | None = None
    """Null if the process outlived the recording."""
    exit: Exit | None = None
    """Null unless the sampler reaped the process: the command, and orphans."""
    counted_s: Seconds | None = None
    """Time of the first sample with the memory of this process."""
    first_rss: Whole | None = None
    """RSS in this sample."""
    samples: Whole = 0
    peak_rss: Whole | None = None
    """Largest sample."""
    peak_s: Seconds | None = None
    """Time of this sample."""
    high_water_mark: Size | None = None
    """High-water mark of this process: VmHWM, read while the process lived."""
    high_water_limit: Size | None = None
    """Upper bound of the mark: ``ru_maxrss``, which may come from a reaped child or from before a fork. In an attached
    recording, the mark at the beginning."""
    hugetlb: Size | None = None
    """Largest size seen in hugetlb pages, which RSS does not contain; null for none."""
    cpu_s: Seconds | None = None
    """CPU seconds of this process during the recording."""
    rises: list[Rise] = []
    """Times when the high-water mark rose above the samples."""
    series: Series | None = None
    """RSS over time, if requested."""

    @property
    def is_python(self) -> bool:
        """Whether the command starts with a Python interpreter."""
        return bool(self.command and _PYTHON.fullmatch(self.command[0]))

    @property
    def most_memory(self) -> int:
        """Largest known memory of this process alone; 0 for unknown."""
        return max(self.peak_rss or 0, self.high_water_mark or 0)

    @property
    def most_shown(self) -> int:
        """Largest memory with a known time, from a sample or a rise; 0 for none."""
        return max([self.peak_rss or 0, *(rise.high_water_mark for rise in self.rises)])


UNFINISHED = "unfinished"
"""The ``error`` of an operation whose process ended first."""
END_UNKNOWN = "end unknown"
"""The ``error`` of an operation whose end may be lost from the marks log; the operation ran at least until
``end_s``."""


class Mark(msgspec.Struct, kw_only=True):
    """An operation, from ``start_s`` to ``end_s``; if ``end_s`` is null, to the next mark on the same level."""

    name: str
    """Display name: the name in the mark, or the plain name of the kind."""
    start_s: Seconds
    end_s: Seconds | None = None
    depth: Count = 0
    """Number of enclosing operations."""
    op: Whole | None = None
    """Number of the operation, if others refer to this number by ``inside``."""
    inside: Whole | None = None
    """The ``op`` of the enclosing operation; null means the latest running operation of the level above."""
    pid: Pid | None = None
    """The process that performed the operation; null for a mark from outside."""
    source: str = ""
    """Origin of the mark: ``api``, ``auto`` (a call of a catalogued function), ``output`` (a line of the command's
    output), ``shell`` (``nncf-tools mark``), ``sidecar``, or the name of another program."""
    kind: str | None = None
    """An element of ``nncftools.session.nesting.KINDS``, or null."""
    call: str | None = None
    """The called function."""
    arguments: str | None = None
    """Shortened arguments of the call; null if no argument matters, or if several calls differ."""
    saved: str | None = None
    """Path of the saved file or folder."""
    saved_size: Whole | None = None
    """Bytes in the saved path at the end of the run, including a model's weights in a file beside the path."""
    error: str | None = None
    """The exception that ended the operation; ``unfinished`` if the process ended first; or ``end unknown``."""
    count: Size = 1
    """Number of calls that this mark stands for."""
    total_s: Seconds | None = None
    """Total seconds of these calls; null for a single call."""
    longest_s: Seconds | None = None
    """Seconds of the longest call; null for a single call."""
    own_start: OwnMemory | None = None
    """Memory at the start, as the process itself read, and memory of the tree."""
    own_end: OwnMemory | None = None
    """Memory at the end, like ``own_start``."""

    @property
    def own_peak(self) -> int | None:
        """Largest RSS of the process during the operation; None unless the high-water mark rose then."""
        if self.own_start is None or self.own_end is None:
            return None
        start = self.own_start.high_water_mark
        end = self.own_end.high_water_mark
        return end if start is not None and end is not None and end > start else None


class SavedModel(msgspec.Struct, kw_only=True):
    """Facts about compression in the ``rt_info`` of a saved model."""

    path: str
    saved_s: Seconds
    """When the model was written."""
    facts: dict[str, str] = {}
    """Values by key: ``nncf/weight_compression/mode``, ``optimum/optimum_intel_version``."""


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The machine."""

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
    """The kernel's ID of this boot: recordings with the same ID share CLOCK_MONOTONIC."""


class SamplerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Cost and punctuality of the sampling."""

    cpu_s: Seconds | None = None
    peak_rss: Whole | None = None
    interval_s: Seconds | None = None
    """As requested."""
    achieved_interval_s: Seconds | None = None
    """Mean interval between samples."""
    taken: Whole | None = None
    """Samples taken, before neighbours were merged."""
    merged_s: Seconds | None = None
    """Interval between the remaining samples, if neighbours were merged."""
    missed: Whole | None = None
    """Deadlines that passed without a sample."""
    longest_gap_s: Seconds | None = None
    """Longest interval between samples."""
    source: str = ""
    """``proc`` or ``psutil``; for another tool's log, the name of the importer."""

    @property
    def spacing_s(self) -> float | None:
        """Interval between neighbouring samples."""
        return self.merged_s or self.achieved_interval_s or self.interval_s


class RankRun(msgspec.Struct, kw_only=True):
    """The figures of one rank; times count from the start of the job."""

    name: str
    """``rank 3``, or the name of the recording if no launcher numbered the rank."""
    rank: Rank | None = None
    host: Host = Host()
    start_s: Seconds
    duration_s: Duration
    finished: bool | None = True
    exit: Exit | None = None
    peaks: dict[str, Peak] = {}
    cpu_s: Seconds | None = None
    time_s: list[Seconds] = []
    """Times of ``rss``, thinned for drawing: the smallest and the largest value of each interval remain."""
    rss: list[Whole | None] = []


class HeldLine(TypedDict):
    """RSS of processes at the sample that a mark triggered."""

    from_s: Seconds
    """Beginning of the previous sample."""
    to_s: Seconds
    """Beginning of this sample."""
    rss: list[list[Whole]] | None
    """For each process that changed since the previous line: ``id``, RSS, and the RSS in the previous sample if
    different. Older journals have the smallest and the largest RSS since ``from_s`` instead. Null if too many
    changed."""


class ExecLine(TypedDict):
    """Between two times, a process began to run another program (execve(2))."""

    id: Whole
    from_s: Seconds
    to_s: Seconds


class HeldLines(NamedTuple):
    """Lines of a journal about marks, which a session does not keep."""

    lines: Sequence[HeldLine] = ()
    with_descendants: bool = True
    execs: Sequence[ExecLine] = ()


class Unsaved:
    """Parts of a session that exist only in memory: they are not saved, and sessions compare equal without them."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.loaded = b"{}"
        """JSON of the loaded file."""
        self.of_marks = HeldLines()
        """Lines of the journal about marks that are still to be read."""
        self.figures: dict[object, tuple[Sequence[object], object]] = {}
        """Computed figures by function, each with the parts of the session that the figure depends on."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unsaved)

    def __reduce__(self) -> tuple[type[Unsaved], tuple[()]]:
        """Leave everything out of copies and of other processes."""
        return Unsaved, ()

    __hash__ = None  # type: ignore[assignment] # mutable


class SessionData(msgspec.Struct, kw_only=True):
    """One recorded run. Sizes are in bytes, times in seconds; null is unknown, never 0.

    Load with ``Session.load(path)``, write with ``session.save(path)``.
    """

    format: str = FORMAT
    version: int = VERSION
    tool_version: str = ""
    name: str = ""
    command: list[str] = []
    """Command and arguments, also of an attached process."""
    cwd: str = ""
    attached_to: Pid | None = None
    """PID, if the recording was attached to a running process."""
    rank: Rank | None = None
    """Rank in a job; null if no launcher set a rank."""
    ranks: list[RankRun] = []
    """The merged ranks of a job; the rest of the session is their sum."""
    start: Start
    duration_s: Duration
    finished: bool | None = True
    """False if the recorder was killed or still runs (see ``warnings``); null if unknown, as in some logs."""
    exit: Exit | None = None
    """How the command ended."""
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
    """Null without a limit, or below the limit."""
    memory_limits: list[MemoryLimit] = []
    control_groups: list[ControlGroup] = []
    oom_kills: list[OomKills] = []
    kernel_kills: list[KernelKill] | None = None
    """Null if the kernel's log was not read."""
    file_systems: list[FileSystem] = []
    devices: list[Device] = []
    floor: Floor | None = None
    files_read: list[FileRead] = []
    failures: list[Failure] = []
    processes: list[Process] = []
    marks: list[Mark] = []
    models: list[SavedModel] = []
    """Compressed models that the command saved, if their files record the compression."""
    warnings: list[str] = []
    """Warnings for readers of the figures, repeated in every report."""
    snapshots: Snapshots | None = None
    """Stacks and mappings of processes whose memory rose; null if not requested."""
    unsaved: Unsaved = msgspec.field(default_factory=Unsaved)

    @property
    def rss_peak(self) -> Peak:
        """The peak of RSS; unknown if not recorded."""
        return self.peaks.get("rss", UNKNOWN_PEAK)


FIELDS = [field for field in msgspec.structs.fields(SessionData) if field.type is not Unsaved]
"""The fields in a session's file."""


class ProcessTable:
    """The processes of a session by number and by PID."""

    def __init__(self, processes: Iterable[Process]) -> None:
        """Index processes, given in the order in which they were seen."""
        self.by_id: dict[int | None, Process] = {}
        self._by_pid: dict[int | None, list[Process]] = {}
        for process in processes:
            self.by_id[process.id] = process
            self._by_pid.setdefault(process.pid, []).append(process)

    def at(self, pid: int | None, at_s: float) -> Process | None:
        """Return the process that had a PID at a moment: a PID may be reused."""
        for process in reversed(self._by_pid.get(pid, ())):
            if pid is not None and (process.start_s or 0.0) <= at_s:
                return process
        return None

    def upwards(self, process: Process) -> Iterator[Process]:
        """Yield a process and all ancestors; a damaged journal may contain a circle."""
        ancestor: Process | None = process
        for _ in range(len(self.by_id)):
            if ancestor is None:
                return
            yield ancestor
            ancestor = self.by_id.get(ancestor.parent)
