"""Read the log of the helper process (stacks and mappings), and the source text of the user's lines in the stacks.

The log is JSON Lines. Sizes are bytes; times are nanoseconds on CLOCK_MONOTONIC. Every line is an object with one key.
Frames and stacks are numbered from 0, in the order of their lines. A kill may have cut the log off.

The text of a line of code is only read if the line ran, and if the user who ran the line may read the file. Otherwise a
measured program could name any file as source code, or another user could replace a file by a link or a pipe.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import stat
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, repeat
from math import inf
from pathlib import PurePosixPath
from typing import NamedTuple, TypedDict, TypeVar

import msgspec

from nncftools import intake
from nncftools.intake import Pid, Redaction, Seconds, Size, Whole
from nncftools.journal.writing import MOST_OF_TABLES
from nncftools.session import model
from nncftools.session.model import MOST_FRAMES, Frame, Process, SessionData, Snapshots
from nncftools.units import shortened

_HOOK_FILE = "<frozen importlib._bootstrap nncf-tools>"
"""The file name in the frames that our hook (``marks/hook/sitecustomize.py``) adds to stacks."""
WRONG = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LookupError, TypeError, ValueError)
"""Exceptions that a damaged line raises."""


class HelperStarted(TypedDict):
    """The first line of the helper's log.

    Further keys: ``pid`` and ``t_ns`` (PID and start time of the helper); ``share`` and ``least_s`` (the helper may use
    this share of a core's time, but at least this many CPU seconds).
    """

    missing: str | None
    """Why the helper reads no stacks, or reads only stacks of some processes."""


class IntroducedProcess(TypedDict):
    """The first line about a process of the watched process tree."""

    number: Whole
    """Number of the process in this log (not the PID). Later lines refer to the process by this number."""
    pid: Pid
    t_ns: Whole
    """Time when the process was first seen."""
    inherited: Size


class WatchedProcess(IntroducedProcess, total=False):
    """Further facts about a process. Older logs have no ``user``."""

    user: Whole | None
    """The user ID with which the process opens files. Null if unknown, or if the process may see different files under
    the same paths."""


class _SharedPoints(TypedDict, total=False):
    shared: list[Size]
    """The bytes of ``rss`` that are pages of files and of shared memory, for each time. Older logs lack this key."""


class RssPoints(_SharedPoints):
    """RSS of a process at several times since the previous line for this process.

    Between two of these times, RSS changed almost linearly.
    """

    process: Whole
    t_ns: list[Whole]
    rss: list[Size]
    apart_ns: list[Size]
    """The longest gap between two readings since the previous time, for each time in ``t_ns``."""


class Faults(TypedDict):
    """Page faults of a process since the previous line for this process."""

    process: Whole
    t_ns: Whole
    threads: dict[Whole, Whole]
    """Page faults by thread ID; a thread that is not listed had no page faults."""
    lost: Size


class Ranges(TypedDict):
    """Address ranges of a process that were mapped or unmapped since the previous line for this process."""

    process: Whole
    t_ns: Whole
    came: list[Size]
    """New ranges as a flat list: first page, number of pages, first page, number of pages, … A page is 4 KiB."""
    went: list[Size]
    heap: Size
    """Size of malloc's heap and arenas in bytes."""


class Change(msgspec.Struct, frozen=True, array_like=True):
    """A thread has had the stack ``stack`` since the time ``t_ns``."""

    t_ns: Whole
    stack: Size | None
    """Index of the stack among all stacks of the log, counted from 0; null if the thread has no stack."""
    same: Size = 0
    """How many outer frames are in the same call as at the previous reading."""
    still: Size = 0
    """How many outer frames are unchanged since the previous reading: same call, same instruction, same variables."""


class Window(TypedDict):
    """A series of readings of a process's stacks, without a break."""

    process: Whole
    t_ns: list[Whole]
    """Times of the readings. If there was no break since the previous window, the first time repeats the last time of
    the previous window."""
    threads: dict[Whole, list[Change]]


class Mappings(TypedDict):
    """Resident memory of the largest processes, by kind of mapping."""

    t_ns: Whole
    total: Size
    processes: list[tuple[Whole, list[tuple[str, str, list[Size]]]]]
    """The number of each process in this log (not the PID), and the groups of the process's mappings. A group is
    ``(kind, path of the file, sizes)``; the path is empty if the group is not a single file. The sizes in bytes are:
    RSS, shared clean, shared dirty, private clean, private dirty, anonymous.
    """


class Problem(TypedDict):
    """A reason why stacks of a process could not be read."""

    process: Whole
    text: str


class HelperEnd(TypedDict):
    """The last line of the helper's log."""

    cpu_s: Seconds
    failed: Size


class FrameLine(msgspec.Struct, frozen=True, array_like=True):
    """The position of a frame in the code: a line, or an instruction in the bytecode."""

    number: Whole
    function: str
    file: str
    line: Whole
    """First line of the function. Logs of older versions have no line tables; there, this is the line that ran."""
    table: Whole | None = None
    offset: Whole = 0
    """Offset of the instruction in the function's bytecode."""


class SnapshotLine(TypedDict, total=False):
    """A line of the helper's log. A line has exactly one of these keys."""

    helper: HelperStarted
    process: WatchedProcess
    table: tuple[Whole, Whole, bytes]
    """A line table of a code object: index of the table in this log, minor version of Python 3, the table's bytes."""
    frame: FrameLine
    stack: tuple[Whole, list[Whole]]
    """Index of the stack in this log, and the indexes of its frames, outermost frame first."""
    loop: Whole
    """Index of a frame in this log. The frame runs a loop that repeats a call without a change of any variable."""
    native: Whole
    """Number of a process in this log (not the PID). The process has mapped no file of a Python interpreter, but its
    memory rose."""
    rss: RssPoints
    faults: Faults
    ranges: Ranges
    window: Window
    mappings: Mappings
    problem: Problem
    failure: str
    """The exception that ended the helper."""
    end: HelperEnd


def decode_line(text: bytes) -> SnapshotLine:
    """Decode a line of the helper's log. A damaged line raises, for example, ValueError (see ``WRONG``)."""
    return msgspec.json.decode(text, type=SnapshotLine)


_NOT_FIRST = bytes(range(128))
"""Bytes that cannot begin an entry of a line table: since Python 3.11, the highest bit of the first byte is set."""
_SIZES = bytes(range(2, 18, 2)) * 32
"""Maps the first byte of a line table's entry to the number of bytes of bytecode that the entry covers."""
_SHORT_STEPS = bytes(0xD8) + b"\1" * 8 + b"\2" * 8 + bytes(24)
"""Maps the first byte of a line table's short entry to the difference from the line number of the entry before."""
_LONG_ENTRY = re.compile(rb"([\xe8-\xf7][\x00-\x7f]*)")
"""Matches a long entry of a line table: the first byte, and then the difference from the line number of the entry
before. The difference has any number of bytes."""
_MOST_BITS = 30
_NO_LINE = b"\x80"
_WITH_LOCATIONS = 11
"""The first minor version of Python 3 whose line tables follow CPython's document Objects/locations.md."""


class LineTable:
    """The line table of one code object: finds the line of an instruction."""

    def __init__(self, version: int, table: bytes) -> None:
        """Use the bytes of a line table of Python 3.``version``. A damaged table gives wrong lines."""
        self._version = version
        self._table = table

    @cached_property
    def _ends_and_lines(self) -> tuple[array[int], array[int]]:
        """Return two arrays: the bytecode offset at which each entry of the table ends, and the line of each entry.

        Lines count from the function's first line, which is 0. The second array has an additional 0 at the beginning.
        """
        if self._version >= _WITH_LOCATIONS:
            sizes = self._table.translate(_SIZES, _NOT_FIRST)
            steps = _located_steps(self._table)
        else:
            sizes = self._table[::2]
            steps = _steps(self._table)
        return array("q", accumulate(sizes)), array("q", accumulate(steps, initial=0))

    def line_at(self, first_line: int, offset: int) -> int:
        """Return the line of the instruction at ``offset``, if the function begins in line ``first_line``."""
        ends, lines = self._ends_and_lines
        index = min(bisect_right(ends, offset) + 1, len(lines) - 1)
        return first_line + lines[index]


def _located_steps(table: bytes) -> list[int]:
    """Return the difference of each entry's line number from the entry before (CPython's Objects/locations.md)."""
    steps = []
    for number, piece in enumerate(_LONG_ENTRY.split(table)):
        if number % 2:
            steps.append(_signed(piece[1:]))
        else:
            steps += piece.translate(_SHORT_STEPS, _NOT_FIRST)
    return steps


def _steps(table: bytes) -> list[int]:
    """Return the line number differences in a line table of Python 3.10: one for each pair of bytes.

    The format is described in Objects/lnotab_notes.txt of CPython 3.10.
    """
    steps = table[1::2].replace(_NO_LINE, b"\0")
    return [(step ^ 128) - 128 for step in steps]


def _signed(data: bytes) -> int:
    """Decode the signed number at the start of ``data``.

    Each byte has six bits of the number, lowest bits first. The lowest bit of the number is the sign.
    """
    number = 0
    shift = 0
    for byte in data:
        number |= (byte & 63) << shift
        shift += 6
        if not byte & 64 or shift > _MOST_BITS:
            break
    return -(number >> 1) if number & 1 else number >> 1


_NEAR_S = 0.2
"""Tolerance in seconds: the sampler and the helper may see the start or end of a process at times this far apart."""


class LostError(Exception):
    """A frame or a stack is missing from the log, so later numbers may refer to other frames."""


class Stacks:
    """The stacks of the helper's log."""

    def __init__(self, redaction: Redaction) -> None:
        self.redaction = redaction
        self._tables: dict[int, LineTable] = {}
        self._table_bytes = 0
        self.frames: list[Frame] = []
        self.stacks: list[list[int]] = []
        """Each stack as a list of indexes of ``frames``, outermost first. Frames of our hook are left out."""
        self.hooked: dict[int | None, list[int]] = {None: []}
        """Maps the index of a stack to the positions that frames of our hook had in the stack. Position 0 is the
        outermost frame. The key None stands for a thread without a stack."""

    def take(self, line: SnapshotLine) -> None:
        """Process a line about stacks; ignore any other line. Raises LostError, LookupError."""
        if "frame" in line:
            frame = line["frame"]
            _expect(frame.number, len(self.frames))
            line_number = frame.line
            if frame.table is not None:
                line_number = self._tables[frame.table].line_at(frame.line, frame.offset)
            file = self.redaction.text(frame.file)
            self.frames.append(Frame(frame.function, file, line_number))
        elif "table" in line:
            number, version, table = line["table"]
            self._table_bytes += len(table)
            has_room = self._table_bytes <= MOST_OF_TABLES
            self._tables[number] = LineTable(version, table if has_room else b"")
        elif "stack" in line:
            number, stack = line["stack"]
            _expect(number, len(self.stacks))
            is_known = all(0 <= frame < len(self.frames) for frame in stack)
            if len(stack) > MOST_FRAMES or not is_known:
                raise LostError("the line was damaged")
            self.hooked[number] = []
            self.stacks.append([])
            for depth, index in enumerate(stack):
                if self.frames[index].file == _HOOK_FILE:
                    self.hooked[number].append(depth)
                else:
                    self.stacks[number].append(index)


def _expect(number: int, expected: int) -> None:
    if number != expected:
        raise LostError(f"number {expected} is missing")


def snapshots_from(
    data: bytes, start: model.Start, processes: Sequence[Process], redact: Sequence[str] | None
) -> Snapshots | None:
    """Return the snapshots in the helper's log ``data``; None if the log is empty.

    Unreadable lines are skipped. If a frame or stack is missing, reading ends there.
    """
    if start.monotonic_ns is None or not data:
        return None
    reader = _SnapshotReader(start.monotonic_ns, processes, Redaction(redact))
    for text in filter(None, data.split(b"\n")):
        try:
            reader.take(decode_line(text))
        except LostError as error:
            return reader.finish(f"the log of the helper is damaged ({error})")
        except WRONG:
            continue
    return reader.finish("the helper process ended early")


_Reading = TypeVar("_Reading", model.PageFaults, model.RangeChange)


class _SnapshotReader:
    def __init__(self, start_ns: int, processes: Sequence[Process], redaction: Redaction) -> None:
        self._stacks = Stacks(redaction)
        self._snapshots = Snapshots(frames=self._stacks.frames, stacks=self._stacks.stacks)
        self._start_ns = start_ns
        self._table = model.ProcessTable(processes)
        self._watched: dict[int, model.WatchedProcess] = {}

    def take(self, line: SnapshotLine) -> None:
        snapshots = self._snapshots
        self._stacks.take(line)
        if "helper" in line:
            snapshots.missing = line["helper"]["missing"]
        elif "process" in line:
            self._take_process(line["process"])
        elif "rss" in line:
            self._take_points(line["rss"])
        elif "loop" in line:
            self._stacks.frames[line["loop"]]  # raises LookupError if a frame is missing
            snapshots.loops.append(line["loop"])
        elif "native" in line:
            self._watched[line["native"]].is_native = True
        elif "faults" in line:
            self._take_faults(line["faults"])
        elif "ranges" in line:
            self._take_ranges(line["ranges"])
        elif "window" in line:
            self._take_window(line["window"])
        elif "mappings" in line:
            self._take_mappings(line["mappings"])
        elif "problem" in line:
            snapshots.missing = snapshots.missing or self._describe(line["problem"])
        elif "failure" in line:
            snapshots.missing = f"the helper process failed ({line['failure']})"
        elif "end" in line:
            snapshots.cpu_s = line["end"]["cpu_s"]
            snapshots.failed = line["end"]["failed"]

    def finish(self, reason: str) -> Snapshots:
        """Return the snapshots. If the log has no ``end`` line, the snapshots say so, with ``reason``."""
        snapshots = self._snapshots
        for watched in snapshots.processes:
            if not any(watched.shared):  # an older log
                watched.shared = []
        if snapshots.cpu_s is None and snapshots.missing is None:
            ends_s = [watched.time_s[-1] for watched in snapshots.processes if watched.time_s]
            last_s = max(ends_s, default=0.0)
            snapshots.missing = f"{reason}, after {last_s:.1f} s"
        return snapshots

    def _seconds(self, t_ns: int) -> float:
        return max(0.0, round((t_ns - self._start_ns) / 1e9, 6))

    def _take_process(self, line: WatchedProcess) -> None:
        at_s = self._seconds(line["t_ns"])
        process = self._table.at(line["pid"], at_s + _NEAR_S)
        if process is not None and process.end_s is not None and process.end_s < at_s - _NEAR_S:
            process = None  # this was an earlier process with the same PID
        watched = model.WatchedProcess(
            process=None if process is None else process.id,
            pid=line["pid"],
            inherited=line["inherited"],
            user=line.get("user"),
        )
        self._watched[line["number"]] = watched
        self._snapshots.processes.append(watched)

    def _take_points(self, line: RssPoints) -> None:
        watched = self._watched[line["process"]]
        last: tuple[float, int | None] = (0.0, None)
        if watched.time_s:
            last = watched.time_s[-1], watched.rss[-1]
        all_shared = line.get("shared", repeat(0))
        columns = line["t_ns"], line["rss"], all_shared, line["apart_ns"]
        for t_ns, rss, shared, apart_ns in zip(*columns, strict=False):
            point = self._seconds(t_ns), rss
            if point != last and point[0] >= last[0]:
                watched.time_s.append(point[0])
                watched.rss.append(rss)
                watched.shared.append(shared)
                watched.apart_s.append(apart_ns / 1e9)
                last = point

    def _take_faults(self, line: Faults) -> None:
        faults = self._watched[line["process"]].faults
        time_s = self._seconds(line["t_ns"])
        threads = sorted(line["threads"].items())
        faults.append(model.PageFaults(time_s, threads, line["lost"]))
        _drop_early(faults)

    def _take_ranges(self, line: Ranges) -> None:
        changes = self._watched[line["process"]].ranges
        time_s = self._seconds(line["t_ns"])
        change = model.RangeChange(time_s, line["came"], line["went"], line["heap"])
        changes.append(change)
        _drop_early(changes)

    def _take_window(self, line: Window) -> None:
        threads = []
        for thread, changes in sorted(line["threads"].items()):
            times = [self._seconds(change.t_ns) for change in changes]
            intake.check_rising(times, "$.window.threads")
            stacks = model.ThreadStacks(
                thread=thread,
                time_s=times,
                stacks=[change.stack for change in changes],
                same=[self._without_hook(change.stack, change.same) for change in changes],
                still=[self._without_hook(change.stack, change.still) for change in changes],
            )
            threads.append(stacks)
        times = [self._seconds(t_ns) for t_ns in line["t_ns"]]
        window = model.StackWindow(time_s=times, threads=threads)
        self._watched[line["process"]].windows.append(window)

    def _without_hook(self, stack: int | None, depth: int) -> int:
        """Return how many of the ``depth`` outermost frames are not frames of our hook."""
        return depth - bisect_left(self._stacks.hooked[stack], depth)

    def _take_mappings(self, line: Mappings) -> None:
        processes = []
        for number, groups in line["processes"]:
            mapped = []
            for kind, file, sizes in groups:
                path = self._stacks.redaction.text(file)
                mapped.append(model.MappingGroup(kind, path, *sizes))
            watched = self._watched.get(number)
            process = None if watched is None else watched.process
            processes.append(model.ProcessMappings(process, mapped))
        time_s = self._seconds(line["t_ns"])
        moment = model.MappingsMoment(time_s=time_s, total=line["total"], processes=processes)
        self._snapshots.mappings.append(moment)

    def _describe(self, problem: Problem) -> str:
        watched = self._watched.get(problem["process"])
        who = "a process" if watched is None else f"process {watched.pid}"
        texts = {
            "refused": f"the kernel does not allow reading the stacks of {who}",
            "no_python": f"memory grew only in programs that do not run Python, such as {who}",
        }
        return texts.get(problem["text"], f"the stacks of {who} could not be read: {problem['text']}")


def _drop_early(readings: list[_Reading]) -> None:
    if len(readings) > 1 and readings[-1].time_s < readings[-2].time_s:
        readings.pop()


_MOST_FILES = 200
_MOST_LINES = 2_000
_LARGEST = 8 << 20
_LONGEST = 160
_LONGEST_READ = 2_000
"""At most this many bytes of a line of code are read."""
_MOST_STEPS = 400
"""The path to a file has at most this many folders and links."""
_PRECISION_S = 0.02
"""Tolerance in seconds. The kernel rounds the start of a process, and the time of a change to a file, down to ticks of
up to 10 ms."""


class _Code(NamedTuple):
    """The lines of a file that were seen in stacks, and facts about the processes that ran these lines."""

    lines: set[int]
    users: set[int | None]
    starts_s: set[float]
    """Start of each program, in seconds since the start of the session; -inf if unknown."""


def take_sources(session: SessionData, redaction: Redaction, is_own: Callable[[str], bool]) -> None:
    """Add the text of the user's own lines of code to a session.

    A file is the user's own if ``is_own`` returns True.
    """
    snapshots = session.snapshots or Snapshots()
    codes = _find_code(session, snapshots, is_own)
    for file in [*codes][:_MOST_FILES]:
        code = codes[file]
        with contextlib.suppress(OSError, ValueError, LookupError, SyntaxError):
            start_s = intake.moment(session.start.utc or "").timestamp() + min(code.starts_s)
            content = _read_unchanged(file, code.users, start_s + _PRECISION_S)
            snapshots.sources[file] = dict(_read_lines(content, code.lines, redaction))


def _find_code(session: SessionData, snapshots: Snapshots, is_own: Callable[[str], bool]) -> dict[str, _Code]:
    own = [number for number, frame in enumerate(snapshots.frames) if is_own(frame.file)]
    processes: dict[int | None, Process] = {process.id: process for process in session.processes}
    first_s = min([process.start_s or 0.0 for process in session.processes], default=-inf)
    codes: dict[str, _Code] = {}
    for watched in snapshots.processes:
        start_s = _start_of_program(processes.get(watched.process), watched.user, first_s)
        for number in watched.frames(snapshots.stacks).intersection(own[:_MOST_LINES]):
            frame = snapshots.frames[number]
            code = codes.setdefault(frame.file, _Code(set(), set(), set()))
            # the line between two lines in stacks may also take memory
            code.lines.update((frame.line, frame.line + 1) if frame.line else ())
            code.users.add(watched.user)
            code.starts_s.add(start_s)
    return codes


def _start_of_program(process: Process | None, user: int | None, first_s: float) -> float:
    """Return the start of a process's program, in seconds since the start of the session.

    Return -inf if the start is unknown, or if the process may have had another root folder. In another root folder, the
    same path leads to a different file. With -inf, no source file counts as unchanged, so no source text is read.
    """
    if process is None or user is None:
        return -inf
    if process.apart and user in {0, os.geteuid()}:
        return -inf
    if process.forked_copy or process.parent is None:  # the code was read by an earlier process
        return first_s
    return process.start_s or first_s


def _read_unchanged(path: str, users: set[int | None], before_s: float) -> bytes:
    """Return the content of a file, if unchanged since ``before_s`` (Unix time) and readable for all of ``users``.

    Raises OSError, ValueError.
    """
    with contextlib.ExitStack() as folders, open(_open_step_by_step(path, users, folders), "rb") as file:
        content = file.read(_LARGEST)
        status = os.fstat(file.fileno())
    if max(status.st_mtime, status.st_ctime) > before_s:
        raise OSError
    return content


def _open_step_by_step(path: str, users: set[int | None], folders: contextlib.ExitStack) -> int:
    """Open a file and return the descriptor.

    Every folder on the way stays open, so that nobody can replace a folder by a link.
    """
    trusted = {0, os.geteuid()}
    names = [*PurePosixPath(path).parts[::-1]]
    folder = -1  # -1: a relative path is never found
    for _ in range(_MOST_STEPS):
        step = os.open(names.pop(), os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
        folders.callback(os.close, step)
        status = os.fstat(step)
        if stat.S_ISLNK(status.st_mode) and status.st_uid in trusted | users:
            names += PurePosixPath(os.readlink("", dir_fd=step)).parts[::-1]
        elif not all(_may_use(status, user) for user in users - trusted):
            raise PermissionError
        elif stat.S_ISDIR(status.st_mode):
            folder = step
        elif stat.S_ISREG(status.st_mode) and not names and 0 < status.st_size <= _LARGEST:
            return os.open(f"/proc/self/fd/{step}", os.O_NONBLOCK)
        else:
            break
    raise OSError


def _may_use(status: os.stat_result, user: int | None) -> bool:
    """Return whether ``user`` may read a file or enter a folder. Permissions by group do not count."""
    permission = stat.S_IXOTH if stat.S_ISDIR(status.st_mode) else stat.S_IROTH
    if status.st_uid == user:
        permission <<= 6
    return bool(status.st_mode & permission)


def _read_lines(content: bytes, lines: Collection[int], redaction: Redaction) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of lines. Raises SyntaxError, LookupError, ValueError for an unknown encoding."""
    from tokenize import detect_encoding

    encoding, _ = detect_encoding(io.BytesIO(content).readline)
    for number, line in enumerate(content.splitlines(), start=1):
        if number in lines:
            text = line[:_LONGEST_READ].decode(encoding, "replace").encode(errors="replace").decode()
            yield number, shortened(redaction.code(" ".join(text.split())), _LONGEST)
