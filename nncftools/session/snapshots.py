"""The log of the helper process, which watches memory and takes stacks: its lines, and the snapshots that they make.

JSON Lines; bytes, and CLOCK_MONOTONIC in nanoseconds. Every line is an object with one key. Frames and stacks are
numbered from 0, in the order of their lines. A kill may have cut the log off.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, repeat
from typing import TypedDict

import msgspec

from nncftools import intake
from nncftools.intake import Pid, Seconds, Size, Whole
from nncftools.journal.writing import MOST_OF_TABLES
from nncftools.redaction import Redaction
from nncftools.session import model
from nncftools.session.model import MOST_FRAMES, Frame, Snapshots

_HOOK_FILE = "<frozen importlib._bootstrap nncf-tools>"
"""Frames of the hook: see ``marks/hook/sitecustomize.py``."""
WRONG = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LookupError, TypeError, ValueError)
"""What a damaged line raises."""


class HelperStarted(TypedDict):
    """The first line; it also has ``pid``, ``t_ns``, ``share`` and ``least_s``, the budget."""

    missing: str | None
    """Why it takes no stacks, or not of every process."""


class IntroducedProcess(TypedDict):
    """A process of the tree."""

    number: Whole
    """Its number in this log."""
    pid: Pid
    t_ns: Whole
    """When it was first seen."""
    inherited: Whole


class WatchedProcess(IntroducedProcess, total=False):
    """A process of the tree; logs of earlier versions have no ``user``."""

    user: Whole | None
    """The ID of the user whose files it opened; null if unknown, or if paths may have led it to other files than us."""


class _SharedPoints(TypedDict, total=False):
    shared: list[Whole]
    """The bytes of ``rss`` that are pages of files and of shared memory; missing in logs of earlier versions."""


class RssPoints(_SharedPoints):
    """The RSS of a process since the line before; between two moments it changed about evenly."""

    process: Whole
    t_ns: list[Whole]
    rss: list[Whole]
    apart_ns: list[Whole]
    """The longest time between two readings since the moment before."""


class Faults(TypedDict):
    """The page faults of a process since its line before."""

    process: Whole
    t_ns: Whole
    threads: dict[Whole, Whole]
    """By thread; none where it is missing."""
    lost: Whole


class Ranges(TypedDict):
    """Which addresses of a process came and went since its line before."""

    process: Whole
    t_ns: Whole
    came: list[Whole]
    """The first page of each range and its number of pages, one after the other."""
    went: list[Whole]
    heap: Whole
    """The size of malloc's heap and arenas in bytes."""


class Change(msgspec.Struct, frozen=True, array_like=True):
    """A stack of a thread that was first seen at this moment."""

    t_ns: Whole
    stack: Size | None
    """Its number; null for none."""
    same: Whole = 0
    """How many of its outer frames were in the same call at the reading before."""
    still: Whole = 0
    """How many of these stood at the same instruction, with the same variables."""


class Window(TypedDict):
    """Readings of the stacks of a process, one soon after the other."""

    process: Whole
    t_ns: list[Whole]
    """The first may be the last of the window before."""
    threads: dict[Whole, list[Change]]


class Mappings(TypedDict):
    """What the resident memory of the largest processes was."""

    t_ns: Whole
    total: Whole
    processes: list[tuple[Whole, list[tuple[str, str, list[Whole]]]]]
    """Of each its number and groups: kind, file, and the sizes in the order of ``model.MappingGroup``."""


class Problem(TypedDict):
    """Why stacks of a process could not be read."""

    process: Whole
    text: str


class HelperEnd(TypedDict):
    """The last line."""

    cpu_s: Seconds
    failed: Whole


class FrameLine(msgspec.Struct, frozen=True, array_like=True):
    """A place in the code."""

    number: Whole
    function: str
    file: str
    line: Whole
    """The first line of the function, if there is a line table; else that of the place."""
    table: Whole | None = None
    offset: Whole = 0
    """Of its instruction."""


class SnapshotLine(TypedDict, total=False):
    """A line; it has one of these keys."""

    helper: HelperStarted
    process: WatchedProcess
    table: tuple[Whole, Whole, bytes]
    """Its number, the minor version of Python, and the line table of a code object."""
    frame: FrameLine
    stack: tuple[Whole, list[Whole]]
    """Its number, and the numbers of its frames, the outermost first."""
    loop: Whole
    """The number of a frame that calls again and again with equal variables."""
    native: Whole
    """The number of a process that grew without any file of Python."""
    rss: RssPoints
    faults: Faults
    ranges: Ranges
    window: Window
    mappings: Mappings
    problem: Problem
    failure: str
    """The error that ended the helper."""
    end: HelperEnd


def decoded(text: bytes) -> SnapshotLine:
    """Return a line. Raises one of ``WRONG``."""
    return msgspec.json.decode(text, type=SnapshotLine)


_NOT_FIRST = bytes(range(128))
"""In tables of 3.11 and later, only the first byte of an entry has the highest bit."""
_SIZES = bytes(range(2, 18, 2)) * 32
"""By first byte: the bytes of bytecode."""
_SHORT_STEPS = bytes(0xD8) + b"\1" * 8 + b"\2" * 8 + bytes(24)
"""By first byte: the step of the line, where it is not a number of any size."""
_LONG_ENTRY = re.compile(rb"([\xe8-\xf7][\x00-\x7f]*)")
"""Such a number follows the first byte."""
_MOST_BITS = 30
_NO_LINE = -128
_LOCATIONS, _UNITS = 11, 10
"""From these versions on, tables are written another way."""


class LineTable:
    """The table of one code object."""

    def __init__(self, version: int, table: bytes) -> None:
        """Take the bytes of a table as Python 3.``version`` writes them; damaged ones give some line."""
        self._version = version
        self._table = table

    @cached_property
    def _places(self) -> tuple[array[int], array[int]]:
        """Where each piece of bytecode ends; and the line of each, after that before the first one."""
        if self._version >= _LOCATIONS:
            sizes, steps = self._table.translate(_SIZES, _NOT_FIRST), _located_steps(self._table)
        else:
            sizes, steps = self._table[::2], _steps(self._table, self._version)
        return array("q", accumulate(sizes)), array("q", accumulate(steps, initial=0))

    def line_at(self, first_line: int, offset: int) -> int:
        """Return the line of the bytecode at an offset, in a function that begins in ``first_line``."""
        ends, lines = self._places
        return first_line + lines[min(bisect_right(ends, offset) + 1, len(lines) - 1)]


def _located_steps(table: bytes) -> list[int]:
    """Return the step of the line before each entry, by CPython's Objects/locations.md."""
    steps: list[int] = []
    for number, piece in enumerate(_LONG_ENTRY.split(table)):
        if number % 2:
            steps.append(_signed(piece[1:]))
        else:
            steps += piece.translate(_SHORT_STEPS, _NOT_FIRST)
    return steps


def _steps(table: bytes, version: int) -> list[int]:
    """Return the step of each pair by CPython's Objects/lnotab_notes.txt; before 3.10, it is behind its bytecode."""
    steps = [(step ^ 128) - 128 for step in table[1::2]]
    if version < _UNITS:
        return [0, *steps]
    return [0 if step == _NO_LINE else step for step in steps]


def _signed(data: bytes) -> int:
    """Return the number at the beginning: six bits a byte, the lowest first, and the lowest bit of all is the sign."""
    number = shift = 0
    for byte in data:
        number |= (byte & 63) << shift
        shift += 6
        if not byte & 64 or shift > _MOST_BITS:
            break
    return -(number >> 1) if number & 1 else number >> 1


class LostError(Exception):
    """A frame or a stack is missing: later lines may name another one by its number."""


class Stacks:
    """The stacks of a log."""

    def __init__(self, redaction: Redaction) -> None:
        """Hide secrets in file names."""
        self.redaction = redaction
        self._tables: dict[int, LineTable] = {}
        self._table_bytes = 0
        self.frames: list[Frame] = []
        self.stacks: list[list[int]] = []
        """Indexes of ``frames``, the outermost first; without frames of the hook."""
        self.hooked: dict[int | None, list[int]] = {None: []}
        """Of each stack, where frames of the hook were."""

    def take(self, line: SnapshotLine) -> None:
        """Take a line if it is about stacks. Raises LostError, LookupError."""
        if "frame" in line:
            frame = line["frame"]
            _expect(frame.number, len(self.frames))
            number = frame.line if frame.table is None else self._tables[frame.table].line_at(frame.line, frame.offset)
            self.frames.append(Frame(frame.function, self.redaction.text(frame.file), number))
        elif "table" in line:
            number, version, table = line["table"]
            self._table_bytes += len(table)
            self._tables[number] = LineTable(version, table if self._table_bytes <= MOST_OF_TABLES else b"")
        elif "stack" in line:
            number, stack = line["stack"]
            _expect(number, len(self.stacks))
            if len(stack) > MOST_FRAMES or not all(0 <= frame < len(self.frames) for frame in stack):
                raise LostError("the line was damaged")
            self.hooked[number] = [at for at, frame in enumerate(stack) if self.frames[frame].file == _HOOK_FILE]
            self.stacks.append([frame for frame in stack if self.frames[frame].file != _HOOK_FILE])


def _expect(number: int, expected: int) -> None:
    if number != expected:
        raise LostError(f"number {expected} is missing")


def snapshots_from(
    data: bytes, start: model.Start, processes: Sequence[model.Process], redact: Sequence[str] | None
) -> Snapshots | None:
    """Return what the helper's log ``data`` contains; None if it is empty.

    Unreadable lines are left out; after a lost frame or stack, nothing more is read.
    """
    if start.monotonic_ns is None or not data:
        return None
    reader = _SnapshotReader(start.monotonic_ns, processes, Redaction(redact))
    for text in filter(None, data.split(b"\n")):
        try:
            reader.take(decoded(text))
        except LostError as error:
            return reader.finished(f"the log of the helper is damaged ({error})")
        except WRONG:
            continue
    return reader.finished("the helper process ended early")


class _SnapshotReader:
    def __init__(self, start_ns: int, processes: Sequence[model.Process], redaction: Redaction) -> None:
        self._stacks = Stacks(redaction)
        self._snapshots = Snapshots(frames=self._stacks.frames, stacks=self._stacks.stacks)
        self._start_ns = start_ns
        self._processes: dict[int | None, list[model.Process]] = {}
        """By PID, which may be used again."""
        for process in processes:
            self._processes.setdefault(process.pid, []).append(process)
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
            self._stacks.frames[line["loop"]]  # raises where it is missing
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
            snapshots.missing = snapshots.missing or self._problem(line["problem"])
        elif "failure" in line:
            snapshots.missing = f"the helper process failed ({line['failure']})"
        elif "end" in line:
            snapshots.cpu_s, snapshots.failed = line["end"]["cpu_s"], line["end"]["failed"]

    def finished(self, why: str) -> Snapshots:
        """Return what was read; say ``why`` there is no last line, if there is none."""
        snapshots = self._snapshots
        for watched in snapshots.processes:
            if not any(watched.shared):  # a log of an earlier version
                watched.shared = []
        if snapshots.cpu_s is None and snapshots.missing is None:
            last_s = max((watched.time_s[-1] for watched in snapshots.processes if watched.time_s), default=0.0)
            snapshots.missing = f"{why}, after {last_s:.1f} s"
        return snapshots

    def _seconds(self, t_ns: int) -> float:
        return max(0.0, round((t_ns - self._start_ns) / 1e9, 6))

    def _take_process(self, line: WatchedProcess) -> None:
        at_s = self._seconds(line["t_ns"])
        same = [process.id for process in self._processes.get(line["pid"], ()) if _lives(process, at_s)]
        watched = model.WatchedProcess(
            process=same[-1] if same else None,
            pid=line["pid"],
            inherited=line["inherited"],
            user=line.get("user"),
        )
        self._watched[line["number"]] = watched
        self._snapshots.processes.append(watched)

    def _take_points(self, line: RssPoints) -> None:
        watched = self._watched[line["process"]]
        sizes = zip(line["rss"], line.get("shared", repeat(0)), strict=False)
        for t_ns, (rss, shared), apart_ns in zip(line["t_ns"], sizes, line["apart_ns"], strict=False):
            time_s = self._seconds(t_ns)
            before = (watched.time_s[-1], watched.rss[-1]) if watched.time_s else (0.0, None)
            if (time_s, rss) != before and time_s >= before[0]:
                watched.time_s.append(time_s)
                watched.rss.append(rss)
                watched.shared.append(shared)
                watched.apart_s.append(apart_ns / 1e9)

    def _take_faults(self, line: Faults) -> None:
        readings = self._watched[line["process"]].faults
        reading = model.PageFaults(self._seconds(line["t_ns"]), sorted(line["threads"].items()), line["lost"])
        intake.check_rising([*(before.time_s for before in readings[-1:]), reading.time_s], "$.faults.t_ns")
        readings.append(reading)

    def _take_ranges(self, line: Ranges) -> None:
        changes = self._watched[line["process"]].ranges
        change = model.RangeChange(self._seconds(line["t_ns"]), line["came"], line["went"], line["heap"])
        intake.check_rising([*(before.time_s for before in changes[-1:]), change.time_s], "$.ranges.t_ns")
        changes.append(change)

    def _take_window(self, line: Window) -> None:
        threads = []
        for thread, changes in sorted(line["threads"].items()):
            times = [self._seconds(change.t_ns) for change in changes]
            intake.check_rising(times, "$.window.threads")
            stacks = [change.stack for change in changes]
            same = [self._without_hook(change.stack, change.same) for change in changes]
            still = [self._without_hook(change.stack, change.still) for change in changes]
            threads.append(model.ThreadStacks(thread, times, stacks, same, still))
        window = model.StackWindow(time_s=[self._seconds(t_ns) for t_ns in line["t_ns"]], threads=threads)
        self._watched[line["process"]].windows.append(window)

    def _without_hook(self, stack: int | None, depth: int) -> int:
        """Return how many of the outer frames of a stack are not those of our hook."""
        return depth - bisect_left(self._stacks.hooked[stack], depth)

    def _take_mappings(self, line: Mappings) -> None:
        listed = []
        for number, groups in line["processes"]:
            watched, text = self._watched.get(number), self._stacks.redaction.text
            mapped = [model.MappingGroup(kind, text(file), *sizes) for kind, file, sizes in groups]
            listed.append(model.ProcessMappings(None if watched is None else watched.process, mapped))
        moment = model.MappingsMoment(time_s=self._seconds(line["t_ns"]), total=line["total"], processes=listed)
        self._snapshots.mappings.append(moment)

    def _problem(self, line: Problem) -> str:
        watched = self._watched.get(line["process"])
        who = "a process" if watched is None else f"process {watched.pid}"
        texts = {
            "refused": f"the kernel does not allow reading the stacks of {who}",
            "no_python": f"no program whose memory grew runs Python: {who}, for instance",
        }
        return texts.get(line["text"], f"the stacks of {who} could not be read: {line['text']}")


def _lives(process: model.Process, at_s: float) -> bool:
    near_s = 0.2
    return (process.start_s or 0.0) - near_s <= at_s and (process.end_s is None or at_s <= process.end_s + near_s)
