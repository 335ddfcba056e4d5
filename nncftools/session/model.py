"""The types of a session, which is the JSON document of a recorded run.

Sizes are bytes, times are seconds since the start, and null is unknown. ``Snapshots`` has the stacks and mappings that
a helper process read when memory rose.
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
from nncftools.intake import Count, Duration, ExitNumber, Level, Pid, Seconds, Size, Whole
from nncftools.session.samples import Samples, drift


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """A frame of a Python stack."""

    function: str
    """Name of the function. Since Python 3.11, the name includes the class: ``Model.forward``."""
    file: str
    line: Whole

    @property
    def code(self) -> tuple[str, str]:
        """(function, file): frames with an equal pair belong to the same function."""
        return self.function, self.file


class ThreadStacks(msgspec.Struct, frozen=True, array_like=True):
    """The Python stacks of a thread over time."""

    thread: Whole
    """The kernel's thread ID. Negative if Python 3.10 runs several threads, because Python 3.10 does not store their
    IDs."""
    time_s: list[Seconds]
    stacks: list[Size | None]
    """The thread's new stack at each time in ``time_s``: an index in ``Snapshots.stacks``, or null for no stack."""
    same: list[Size] = []
    """The number of outer frames that are in the same call as at the previous reading, for each time in ``time_s``.
    Readings without a change of the stack are not listed.
    """
    still: list[Size] = []
    """The number of outer frames with the same call, the same instruction and the same variables as at the previous
    reading, for each time in ``time_s``. Empty in older recordings.
    """


class StackWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A series of readings of a process's stacks, without a break."""

    time_s: list[Seconds]
    """Times of the readings. If there is no break after the previous window, the first time is the last time of that
    window."""
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
    """Page faults of each thread since the previous reading. A thread that touches new memory causes page faults."""

    time_s: Seconds
    threads: list[tuple[Whole, Whole]]
    """Pairs of the kernel's thread ID and the number of page faults."""
    lost: Size = 0
    """Page faults of threads that have ended."""


class RangeChange(msgspec.Struct, frozen=True, array_like=True):
    """Address ranges of anonymous memory that were mapped or unmapped since the previous reading."""

    time_s: Seconds
    came: list[Size]
    """New ranges as a flat list: first page, number of pages, first page, number of pages, … A page is 4 KiB."""
    went: list[Size]
    heap: Size = 0
    """Size of malloc's heap and arenas in bytes. 0 in older recordings, whose ranges may be parts of the heap."""


class WatchedProcess(msgspec.Struct, kw_only=True):
    """A process whose memory and stacks the helper read."""

    process: Size | None = None
    """The ``id`` of the process in ``processes`` of the session; null if the process is not listed there."""
    pid: Pid
    inherited: Size = 0
    """RSS of a forked copy at the first reading, including pages shared with the parent."""
    user: Size | None = None
    """ID of the user with whose rights the process opened files. Null if unknown, or if the process had another root
    folder or mount namespace, where a path may lead to another file."""
    is_native: bool = False
    """Whether memory rose although no file of a Python interpreter was mapped."""
    time_s: list[Seconds] = []
    rss: list[Size] = []
    """RSS at each of ``time_s``; between two times, RSS changed almost linearly."""
    shared: list[Size] = []
    """The part of ``rss`` in pages of files and of shared memory. Empty in older recordings."""
    apart_s: list[Duration] = []
    """The longest gap between two RSS readings since the previous time, for each time in ``time_s``. The time of a rise
    is not known more precisely.
    """
    faults: list[PageFaults] = []
    ranges: list[RangeChange] = []
    """Changes of address ranges; only read after large changes of RSS."""
    windows: list[StackWindow] = []
    code_end_s: Seconds | None = None
    """The time when Python reported that all code had run. After that, Python only clears modules."""

    def take_end_of_code(self, time_s: float, rss: int) -> None:
        """Insert the RSS that the process itself read when all code had run. Later sizes become at most ``rss``."""
        index = bisect_left(self.time_s, time_s)
        if rss > 0 and 0 < index < len(self.time_s):
            self.code_end_s = time_s
            self.apart_s.insert(index, time_s - self.time_s[index - 1])
            self.time_s.insert(index, time_s)
            for sizes in (self.rss, self.shared):
                sizes[index:] = [min(rss, size) for size in sizes[index - 1 :]]
            self.rss[index] = rss

    def frames(self, stacks: Sequence[Sequence[int]]) -> set[int]:
        """Return the indexes, in ``Snapshots.frames``, of all frames in the stacks of this process.

        ``stacks`` are the stacks of all processes (``Snapshots.stacks``), each a list of such indexes.
        """
        indexes = set[int]()
        for thread in chain.from_iterable(window.threads for window in self.windows):
            for stack in thread.stacks:
                indexes.update(() if stack is None else stacks[stack])
        return indexes


class MappingGroup(msgspec.Struct, frozen=True, array_like=True):
    """Resident pages of one kind: sizes in bytes."""

    kind: str
    """``anonymous``; ``file``: a single large file; ``other_files``: all smaller files; ``libraries``; ``stack``: the
    main thread's stack; or ``shared``: shared memory."""
    file: str
    """Path of the mapped file if the kind is ``file``; otherwise empty."""
    rss: Size
    shared_clean: Size
    shared_dirty: Size
    private_clean: Size
    private_dirty: Size
    anonymous: Size
    """Private copies of pages of a mapped file. The kernel cannot drop such a page and read the page from the file
    again."""

    @property
    def clean(self) -> int:
        """Bytes that the kernel can drop, and read from the file again later."""
        return self.shared_clean + self.private_clean

    @property
    def pages_of_file(self) -> int:
        """Bytes in pages of files or of shared memory, excluding private copies."""
        return self.rss - self.anonymous


class ProcessMappings(msgspec.Struct, frozen=True, array_like=True):
    """The mappings of one process."""

    process: Size | None
    """The ``id`` of the process in the session."""
    groups: list[MappingGroup]


class MappingsMoment(msgspec.Struct, kw_only=True):
    """The mappings of the largest processes at one time."""

    time_s: Seconds
    total: Size
    """RSS of all processes at this time."""
    processes: list[ProcessMappings]


MOST_FRAMES = 1_000
"""A session with a longer stack is rejected as damaged. The recorder itself cuts each stack off at 401 frames."""


class Snapshots(msgspec.Struct, kw_only=True):
    """Stacks and mappings of a run. Sizes are bytes; times are seconds since the start."""

    missing: str | None = None
    """Why stacks of some or of all processes are missing; null if nothing prevented the helper from reading them."""
    cpu_s: Duration | None = None
    """CPU time of the helper; null if the helper was killed."""
    failed: Size | None = 0
    """Number of failed attempts to read a stack."""
    frames: list[Frame] = []
    stacks: list[list[Size]] = []
    """Each stack as a list of indexes of ``frames``, outermost first."""
    loops: list[Size] = []
    """Indexes of frames that make new calls in a loop while none of the frame's variables change. The calls look like a
    single call."""
    processes: list[WatchedProcess] = []
    mappings: list[MappingsMoment] = []
    sources: dict[str, dict[Whole, str]] = {}
    """``{file: {line number: text}}`` for lines of the user's code."""


def check_snapshots(snapshots: Snapshots) -> None:
    """Raise WrongValueError if an index refers to a missing stack or frame, or if times are not in order."""
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
"""Version 1 is the first version (2026-11)."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The start of the command. All other times of the session count from this moment."""

    utc: str | None = None
    """Date and time in ISO 8601, with the time zone."""
    monotonic_ns: Size | None = None
    """This moment on CLOCK_MONOTONIC, a clock that all processes of the machine share."""
    utc_error_s: Duration | None = None
    """Largest possible error of ``utc`` (maxerror of adjtimex(2)); null if nothing synchronizes the machine's clock."""

    def __post_init__(self) -> None:
        """Raise ValueError if ``utc`` is not a valid time."""
        if self.utc is not None:
            intake.moment(self.utc)


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """The rank of this process in a job, from the launcher's environment variables."""

    number: Size
    size: Size | None = None
    """Number of ranks in the job."""
    local: Size | None = None
    """Number of this rank among the ranks on the same machine."""
    job: str = ""
    launcher: str = ""
    """The program that started the ranks: ``torchrun``, ``mpi`` or ``slurm``. Empty if unknown."""


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended: by an exit status (``code``) or by a ``signal``. The other field is null."""

    code: ExitNumber | None = None
    signal: ExitNumber | None = None

    @property
    def text(self) -> str:
        """The end as text: ``exit status 0``, ``killed by SIGKILL``."""
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
    """The peak of one metric, in bytes: the real peak is between ``low`` and ``high``."""

    sampled: Size | None
    """The largest sample: the sum over all processes at one moment."""
    at_s: Seconds | None
    """Time of the first sample close to the peak: less than 1 % or 1 MiB below, whichever is more."""
    low: Size | None
    """Lower bound of the real peak: ``sampled``, or a larger high-water mark or reading."""
    high: Size | None = None
    """Upper bound of the real peak, if the recording missed no process."""
    low_from: str | None = None
    """Source of ``low``: ``"sampled"``, ``"high_water_mark"``, or ``"reading"`` (of ``Floor``)."""
    rose_from_s: Seconds | None = None
    """Memory rose to the peak between this time and ``rose_to_s``. If a sample shows the peak, both times are equal."""
    rose_to_s: Seconds | None = None
    process: Size | None = None
    """The ``id`` of the process whose high-water mark proves the time of the peak. Null if a sample proves the time."""
    likely: Size | None = None
    """Best estimate of the peak: the high-water mark of a process, plus the memory of the other processes in the
    samples before and after the rise of this mark. Null if the estimate is not above ``low``."""

    @property
    def span_s(self) -> tuple[float, float] | None:
        """Memory rose to the peak between these two times, in seconds since the start. None if the time is unknown."""
        if self.low is None:
            return None
        if self.rose_from_s is not None and self.rose_to_s is not None:
            return self.rose_from_s, self.rose_to_s
        is_sampled = (self.sampled or 0) >= self.low - drift(self.low)
        return (self.at_s, self.at_s) if self.at_s is not None and is_sampled else None


UNKNOWN_PEAK = Peak(sampled=None, at_s=None, low=None)


class Rise(msgspec.Struct, frozen=True, kw_only=True):
    """A time span in which a process's high-water mark rose above the process's samples."""

    from_s: Seconds
    to_s: Seconds
    high_water_mark: Size
    """The high-water mark at ``to_s``."""
    others: Size = 0
    """Proven lower bound of the memory of all other processes together, between ``from_s`` and ``to_s``."""
    others_around: Size = 0
    """Probable lower bound of the memory of all other processes: the sum, over these processes, of the smaller RSS in
    the samples before and after the rise."""

    def __post_init__(self) -> None:
        """Raise ValueError if ``to_s`` is before ``from_s``."""
        if self.to_s < self.from_s:
            raise ValueError(f"the rise ends at {self.to_s} s, before the beginning at {self.from_s} s")


class LateReadings(msgspec.Struct, frozen=True, kw_only=True):
    """Samples that took long: some processes were read later than the time of the sample. Lists of equal length."""

    from_s: list[Seconds] = []
    """The time of each late sample: the start of the sample."""
    to_s: list[Seconds] = []
    """The end of each late sample: the time when the last process was read."""

    def by_time(self) -> dict[float, float]:
        """Return ``{time of the sample: time when the last process was read}``."""
        return dict(zip(self.from_s, self.to_s, strict=False))


class OwnMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of a process, and of the whole process tree, when the process began or ended an operation."""

    rss: Size | None = None
    high_water_mark: Size | None = None
    """Largest RSS of the process so far (``ru_maxrss``)."""
    tree: Size | None = None
    """Memory of all processes of the run together. The process and its descendants are read at the mark, other
    processes at the next sample."""
    is_estimate: bool = False
    """True if other processes changed around the mark, so that ``tree`` is only an estimate. If all processes had ended
    before their memory was read, ``tree`` is null, and this field is true."""
    tree_low: Size | None = None
    """Lower bound of the memory of all processes, where ``tree`` is an estimate. Only in sessions of earlier versions.
    """
    tree_high: Size | None = None
    """Upper bound of the memory of all processes, where ``tree`` is an estimate. Only in sessions of earlier versions.
    """
    devices: dict[str, tuple[Size, Size]] | None = None
    """Maps a device to a pair: the bytes that torch's allocator has in use, and the most bytes in use so far. Null if
    not read."""


class LimitReached(msgspec.Struct, frozen=True, kw_only=True):
    """The first sample whose RSS exceeded ``--max-memory``."""

    at_s: Seconds
    rss: Size
    limit: Size
    action: str
    """The action: ``warn``, or ``kill`` (the processes were ended)."""


class MemoryLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A memory limit that applied to processes of the run."""

    kind: str
    """``control group``, ``control group, memory.high``, ``RLIMIT_AS`` or ``RLIMIT_DATA``."""
    size: Size
    set_by: str = ""
    """The file that sets the limit, or the system call."""
    process: Size | None = None
    """The ``id`` of the process in which this limit was seen first. Null if unknown."""


class ControlGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A control group with processes of the run."""

    folder: str
    oom_kills: Size | None = None
    """Number of processes that the kernel had already killed in the group before the run."""


class OomKills(msgspec.Struct, frozen=True, kw_only=True):
    """Number of processes that the kernel killed in a control group between two times, because memory ran out."""

    group: str
    """Folder of the control group."""
    from_s: Seconds
    to_s: Seconds
    count: Size


class KernelKill(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the run that the kernel killed because memory ran out, as reported in the kernel's log."""

    pid: Pid
    name: str = ""
    group: str | None = None
    """The control group that reached the limit; null if the whole machine was out of memory."""
    anon: Size | None = None
    file: Size | None = None
    shmem: Size | None = None


class FileSystem(msgspec.Struct, frozen=True, kw_only=True):
    """The free space of a file system. The command will perhaps write files to this file system."""

    role: str
    """Why the space is recorded. ``cwd``: working folder; ``TMPDIR``; ``output``: folder of the recording;
    ``argument``: a path in the command."""
    path: str = ""
    """Path of the folder named by ``role``. If the folder is missing, the nearest parent folder that exists."""
    size: Size | None = None
    first: Size | None = None
    """Free bytes at the first reading."""
    lowest: Size | None = None
    """Fewest free bytes; reached at ``lowest_s``."""
    lowest_s: Seconds | None = None
    last: Size | None = None


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that the kernel can neither drop nor share: the least memory that the run needs."""

    size: Size
    """Largest total of anonymous and shared memory in a sample. A forked copy counts only with the memory that the copy
    does not share."""
    at_s: Seconds
    mapped: Size = 0
    """Memory mapped from files. Each program counts once, with the process that maps most."""
    rss: Size | None = None
    """RSS from the same reading as ``size``. Samples may be earlier. Null in old recordings."""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU or NPU that can be read."""

    device: str
    """The device in names of columns: ``nvidia0``, ``nvidia0.mig1``, ``gpu0``, ``npu0``."""
    model: str = ""
    uuid: str = ""
    memory: Size | None = None
    missing: str | None = None
    """Why the run's memory on the device is unknown, all the time or part of the time; null if known."""


class FileRead(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a process had open for reading while the processes of the run read many bytes."""

    path: str
    size: Size


MEMORY = "memory"
DISK = "disk"
DEVICE = "device"


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An exception that ended a marked call or the whole program. The marked program reported the exception."""

    pid: Pid
    at_s: Seconds
    error: str
    """Name of the exception's class."""
    cause: str | None = None
    """The resource that ran out: ``memory``, ``disk`` or ``device``. Null if the exception has another cause."""
    device: str | None = None
    """The device whose memory ran out; null if unknown or if another resource ran out."""
    fatal: bool = False
    """Whether the exception ended the program."""


class Series(msgspec.Struct, kw_only=True):
    """RSS of one process over time."""

    time_s: list[Seconds]
    rss: list[Size]


_PYTHON = re.compile(r"(.*/)?(python|pypy)[\d.]*")


class Process(msgspec.Struct, kw_only=True):
    """One process of the tree."""

    id: Size
    """Number of the process in this session. Unlike a PID, the number is never reused."""
    pid: Pid | None = None
    parent: Size | None = None
    """The ``id`` of the parent. Null for the first process, and for an orphan that another process adopted."""
    name: str = ""
    command: list[str] = []
    forked_copy: bool = False
    """Whether the process was forked and did not call exec: such a process has the parent's command, and shares
    pages."""
    apart: list[str] = []
    """Reasons why the process could not write to the marks log for some time: ``user``, ``root`` or ``clock``. The
    user, the root folder or the clock of the process was different from the sampler's."""
    start_s: Seconds | None = None
    end_s: Seconds | None = None
    """End of the process; null if the process was still running at the end of the recording."""
    exit: Exit | None = None
    """How the process ended. Only known for children of the sampler: the command, and adopted orphans."""
    counted_s: Seconds | None = None
    """Time of the first sample that includes the memory of this process."""
    first_rss: Size | None = None
    """RSS in the first sample that includes the memory of this process."""
    samples: Size | None = 0
    peak_rss: Size | None = None
    """Largest RSS in a sample."""
    peak_s: Seconds | None = None
    """Time of the sample with the largest RSS."""
    high_water_mark: Size | None = None
    """Largest RSS of this process according to the kernel (VmHWM), read while the process was running."""
    high_water_limit: Size | None = None
    """Upper bound of ``high_water_mark``: ``ru_maxrss``, which may be the size of a child of the process, or of the
    parent at the fork. In a recording that was attached to the process: the high-water mark at the start of the
    recording."""
    hugetlb: Size | None = None
    """Largest size of the hugetlb pages, which are not part of RSS; null for none."""
    cpu_s: Duration | None = None
    """CPU seconds of this process during the recording."""
    rises: list[Rise] = []
    """Time spans in which the high-water mark rose above the samples."""
    series: Series | None = None
    """RSS over time; null unless requested."""

    @property
    def is_python(self) -> bool:
        """Whether the command starts with a Python interpreter."""
        return bool(self.command and _PYTHON.fullmatch(self.command[0]))

    @property
    def most_memory(self) -> int:
        """Largest known memory of this process alone; 0 if unknown."""
        return max(self.peak_rss or 0, self.high_water_mark or 0)

    @property
    def most_shown(self) -> int:
        """Largest memory whose time is known, from a sample or a rise; 0 if unknown."""
        return max([self.peak_rss or 0, *(rise.high_water_mark for rise in self.rises)])


UNFINISHED = "unfinished"
"""The value of ``error`` for an operation that was still running when the process ended."""
END_UNKNOWN = "end unknown"
"""The value of ``error`` for an operation whose end is unknown, because lines may be lost from the marks log. The
operation ran at least until ``end_s``."""


class Mark(msgspec.Struct, kw_only=True):
    """An operation of the command, such as the call of a function.

    If ``end_s`` is null, the operation ends when the same process begins the next operation with an equal or smaller
    ``depth``, or when the process ends.
    """

    name: str
    """Name to display: the name given in the mark, or the name of the ``kind``."""
    start_s: Seconds
    end_s: Seconds | None = None
    depth: Count = 0
    """Number of enclosing operations."""
    op: Whole | None = None
    """ID of the operation. Null if no other operation has this ID in the field ``inside``."""
    inside: Whole | None = None
    """The ``op`` of the enclosing operation. Null: ``depth`` tells the enclosing operation. Among the operations that
    were still running and have a ``depth`` smaller by 1, the operation that began last is the enclosing operation.
    Operations of the same process have priority."""
    pid: Pid | None = None
    """PID of the process that ran the operation; null if the mark comes from outside the command."""
    source: str = ""
    """Origin of the mark: ``api``, ``auto`` (a call of a catalogued function), ``output`` (a line of the command's
    output), ``shell`` (``nncf-tools mark``), ``sidecar`` (a file of marks), or the name of another program."""
    kind: str | None = None
    """Kind of work: ``Model Loading``, ``Export``, ``Quantization``, ``Weight Compression``, ``Training``,
    ``Compilation``, ``Generation``, ``Saving`` or ``Cleanup``. Null for other work."""
    call: str | None = None
    """Name of the called function; null if the operation is not a call."""
    arguments: str | None = None
    """Shortened arguments of the call. Null if no argument is worth showing, or if several calls had different
    arguments."""
    saved: str | None = None
    """Path of the file or folder that the operation saved."""
    saved_size: Size | None = None
    """Size of ``saved`` at the end of the run. If a model's weights are in a separate file next to the path, that file
    counts, too."""
    error: str | None = None
    """Name of the exception that ended the operation; ``unfinished`` if the process ended first; ``end unknown`` if the
    line with the end may be lost."""
    count: Size = 1
    """Number of calls that were joined into this mark."""
    total_s: Duration | None = None
    """Total duration of all joined calls; null for a single call."""
    longest_s: Duration | None = None
    """Duration of the longest joined call; null for a single call."""
    own_start: OwnMemory | None = None
    """Memory of the process, and of all processes together, at the start of the operation. Null if not read."""
    own_end: OwnMemory | None = None
    """Memory of the process, and of all processes together, at the end of the operation. Null if not read."""

    @property
    def own_peak(self) -> int | None:
        """Largest RSS of the process during the operation.

        None if the high-water mark did not rise during the operation.
        """
        if self.own_start is None or self.own_end is None:
            return None
        start = self.own_start.high_water_mark
        end = self.own_end.high_water_mark
        return end if start is not None and end is not None and end > start else None


class SavedModel(msgspec.Struct, kw_only=True):
    """A saved OpenVINO model, with facts about the compression. The facts are in the model's ``rt_info``."""

    path: str
    saved_s: Seconds
    """Time when the model was written."""
    facts: dict[str, str] = {}
    """Facts, such as ``{"nncf/weight_compression/mode": "int4_sym"}``."""


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The machine of the recording."""

    name: str = ""
    system: str = ""
    release: str = ""
    machine: str = ""
    cpus: Count | None = None
    memory: Size | None = None
    swap: Size | None = None
    """Bytes of swap space."""
    python: str = ""
    boot_id: str = ""
    """The kernel's ID of this boot. Recordings with the same ID have the same CLOCK_MONOTONIC."""


class SamplerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Cost and precision of the sampling."""

    cpu_s: Duration | None = None
    peak_rss: Size | None = None
    interval_s: Duration | None = None
    """The requested interval between samples."""
    achieved_interval_s: Duration | None = None
    """The actual mean interval between samples."""
    taken: Size | None = None
    """Number of samples taken, counted before neighbouring samples were merged."""
    merged_s: Duration | None = None
    """Interval between the samples that remain after merging; null if no samples were merged."""
    missed: Size | None = None
    """Number of planned samples that were not taken in time."""
    longest_gap_s: Duration | None = None
    """Longest interval between two samples."""
    source: str = ""
    """Source of the figures: ``proc`` or ``psutil``. If the session is another tool's log, the name of the importer."""

    @property
    def spacing_s(self) -> float | None:
        """Usual interval between two neighbouring samples of this session."""
        return self.merged_s or self.achieved_interval_s or self.interval_s


class RankRun(msgspec.Struct, kw_only=True):
    """The figures of one rank of a job. Times count from the start of the job."""

    name: str
    """Name such as ``rank 3``. If no launcher set the rank, the name of the recording."""
    rank: Rank | None = None
    host: Host = Host()
    start_s: Seconds
    duration_s: Duration
    finished: bool | None = True
    exit: Exit | None = None
    peaks: dict[str, Peak] = {}
    cpu_s: Duration | None = None
    time_s: list[Seconds] = []
    """Times of ``rss``. The curve is thinned for drawing, but the smallest and the largest value of each interval
    remain."""
    rss: list[Whole | None] = []


class HeldLine(TypedDict):
    """RSS of the processes at a sample that was triggered by a mark."""

    from_s: Seconds
    """Time of the sample before the sample that the mark triggered."""
    to_s: Seconds
    """Time of the sample that the mark triggered."""
    rss: list[list[Size]] | None
    """``[id, rss]`` or ``[id, rss, further sizes …]`` for each process that changed since the previous line. Further
    sizes are RSS in the previous sample and a new high-water mark. In older journals, the sizes are the smallest and
    the largest RSS since ``from_s``. Null if too many processes changed."""


class ExecLine(TypedDict):
    """A process started another program by execve(2), between ``from_s`` and ``to_s``."""

    id: Size
    from_s: Seconds
    to_s: Seconds


class HeldLines(NamedTuple):
    """Lines of a journal that are needed to read the marks, and then dropped: a session does not contain them."""

    lines: Sequence[HeldLine] = ()
    with_descendants: bool = True
    execs: Sequence[ExecLine] = ()


class Unsaved:
    """Parts of a session that are not saved. Comparisons of sessions ignore these parts."""

    def __init__(self) -> None:
        self.loaded = b"{}"
        """JSON of the loaded session file."""
        self.of_marks = HeldLines()
        """Journal lines that are needed to read the marks; empty after the marks were read."""
        self.figures: dict[object, tuple[Sequence[object], object]] = {}
        """Cache of computed figures: ``{function: (inputs, result)}``."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unsaved)

    def __reduce__(self) -> tuple[type[Unsaved], tuple[()]]:
        """Make copies and pickles empty."""
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
    """Command and arguments. If the recording was attached to a process, the command of that process."""
    cwd: str = ""
    attached_to: Pid | None = None
    """PID, if the recording was attached to a running process; otherwise null."""
    rank: Rank | None = None
    """Rank of this process in a job; null if no launcher set a rank."""
    ranks: list[RankRun] = []
    """The ranks, if this session merges the ranks of a job. All other fields are then sums over the ranks."""
    start: Start
    duration_s: Duration
    finished: bool | None = True
    """False if the recorder was killed or is still running (see ``warnings``). Null if unknown, as in some logs of
    other tools."""
    exit: Exit | None = None
    """How the command ended. Null if unknown, or if the command was still running at the end of the recording."""
    host: Host
    sampler: SamplerFacts
    samples: Samples
    from_zero: bool = False
    """Whether all memory figures are differences from the first sample, because the memory at the first sample is
    unknown. Some logs of other tools have only differences."""
    totals: dict[str, Size | Level | None] = {}
    """Final values of the counters, by metric."""
    peaks: dict[str, Peak] = {}
    late: LateReadings = LateReadings()
    limit_reached: LimitReached | None = None
    """The first sample whose RSS exceeded ``--max-memory``. Null without this limit, or if no sample exceeded it."""
    memory_limits: list[MemoryLimit] = []
    control_groups: list[ControlGroup] = []
    oom_kills: list[OomKills] = []
    kernel_kills: list[KernelKill] | None = None
    """Null if the kernel's log could not be read."""
    file_systems: list[FileSystem] = []
    devices: list[Device] = []
    floor: Floor | None = None
    files_read: list[FileRead] = []
    failures: list[Failure] = []
    processes: list[Process] = []
    marks: list[Mark] = []
    models: list[SavedModel] = []
    """Models that the command saved, if their files say how they were compressed."""
    warnings: list[str] = []
    """Messages about values that are missing or inexact. Every report repeats these messages."""
    snapshots: Snapshots | None = None
    """Stacks and mappings of processes whose memory rose; null if not recorded."""
    unsaved: Unsaved = msgspec.field(default_factory=Unsaved)

    @property
    def rss_peak(self) -> Peak:
        """The peak of RSS; an unknown peak if RSS was not recorded."""
        return self.peaks.get("rss", UNKNOWN_PEAK)


FIELDS = [field for field in msgspec.structs.fields(SessionData) if field.type is not Unsaved]
"""The fields of a session that are saved."""


class ProcessTable:
    """Finds processes of a session by their ``id`` or by PID."""

    def __init__(self, processes: Iterable[Process]) -> None:
        """Index ``processes``, in the order in which they were first seen."""
        self.by_id: dict[int | None, Process] = {}
        self._by_pid: dict[int | None, list[Process]] = {}
        for process in processes:
            self.by_id[process.id] = process
            self._by_pid.setdefault(process.pid, []).append(process)

    def at(self, pid: int | None, at_s: float) -> Process | None:
        """Return the process that had this PID at this time; None if there is none. PIDs may be reused."""
        for process in reversed(self._by_pid.get(pid, ())):
            if pid is not None and (process.start_s or 0.0) <= at_s:
                return process
        return None

    def upwards(self, process: Process) -> Iterator[Process]:
        """Yield a process and all ancestors.

        A damaged journal may contain a cycle, so at most as many processes are yielded as there are.
        """
        ancestor: Process | None = process
        for _ in range(len(self.by_id)):
            if ancestor is None:
                return
            yield ancestor
            ancestor = self.by_id.get(ancestor.parent)
