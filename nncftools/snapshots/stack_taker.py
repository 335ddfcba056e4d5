"""Reads the stacks of growing processes, right after each reading of memory, and writes the stacks to the log.

Each stack and each frame is written to the log once. Later lines have only the index of the stack or frame
in the log.
"""

from __future__ import annotations

import time
from binascii import b2a_base64

from nncftools.journal.writing import MOST_OF_TABLES
from nncftools.snapshot_rules import is_waiting
from nncftools.snapshots.finding import python_memory
from nncftools.snapshots.python_memory import Code, EndedError, NoStackError, UnknownPythonError, UnreadableError

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nncftools.journal.writing import Writer
    from nncftools.snapshots.python_memory import Frame, PythonMemory, RawStack, Stacks
    from nncftools.snapshots.tree_watch import Processes, Watched

    Place = tuple[str, str, int, int | None, int]
    """A position in code: name, file and first line of the function; index of the line table in the log, or None if the
    log has no line table of the function; offset of the instruction in the bytecode, in bytes.
    """
    Change = tuple[int, int | None, int, int]
    """A change of a thread's stack: the time of the reading in nanoseconds; the index of the new stack in the log, or
    None if there is no stack; the number of outer frames that are still in the same call; the number of outer frames
    that are also at the same instruction with the same variables."""

_MOST_HELD = 50_000
"""The helper keeps at most this many frames in memory."""
_MOST_TEXT = 16 << 20
"""The function names and file names of all frames together have at most this many characters. Later frames are left
out.
"""
_MOST_FRAMES = 400
_OUTER_FRAMES = 100
_NO_CODE = Code(b"", ("…", ""), 0, b"", local_bytes=0, size=0)
CUT = _NO_CODE, 0
"""This frame stands for the middle of a very deep stack."""


class StackLog:
    """Writes stacks, frames and line tables to the log, and remembers the index of each written object."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self._tables: dict[tuple[str, str, int, bytes], int] = {}
        self._places: dict[Place, int] = {}
        self._frames: dict[Frame, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._loops: set[int] = set()
        self._tables_left = MOST_OF_TABLES
        self._text_left = _MOST_TEXT

    def write_stack(self, frames: Sequence[Frame], version: int) -> int:
        """Return the index of a stack in the log. Write the stack first if the log does not have the stack yet.

        The stack belongs to Python 3.``version``. The middle of a very deep stack is left out.
        """
        if len(frames) > _MOST_FRAMES:
            frames = [*frames[:_OUTER_FRAMES], CUT, *frames[_OUTER_FRAMES - _MOST_FRAMES :]]
        if len(self._frames) >= _MOST_HELD:
            self._frames.clear()
        for frame in frames:
            if frame not in self._frames:
                self._write_frame(frame, version)
        numbers = tuple([self._frames[frame] for frame in frames])
        if numbers not in self._stacks:
            self._stacks[numbers] = len(self._stacks)
            self.writer.line("stack", [self._stacks[numbers], numbers])
        return self._stacks[numbers]

    def _write_frame(self, frame: Frame, version: int) -> None:
        code, offset = CUT if self._text_left < 0 else frame
        place = code.name, code.file, code.first_line, self._write_table(code, version), offset
        if place not in self._places:
            self._places[place] = len(self._places)
            self._text_left -= len(code.name) + len(code.file)
            self.writer.line("frame", [self._places[place], *place])
        self._frames[frame] = self._places[place]

    def _write_table(self, code: Code, version: int) -> int | None:
        """Return the index of a code object's line table in the log. Write the table first if it is not in the log yet.

        Return None if the code object has no table, or if all tables together would be too long for the log.
        """
        if code.lines:
            key = code.name, code.file, code.first_line, code.lines  # several processes may run the same code
            if key not in self._tables and len(code.lines) <= self._tables_left:
                self._tables_left -= len(code.lines)
                self._tables[key] = len(self._tables)
                table = b2a_base64(code.lines, newline=False).decode()
                self.writer.line("table", [self._tables[key], version, table])
            code.table = self._tables.get(key)
            code.lines = b""
        return code.table

    def write_loop(self, frame: Frame) -> None:
        """Write that a frame runs a loop: the frame makes new calls, but none of its variables change.

        This is written once for each frame.
        """
        number = self._frames.get(frame)  # None: the frame is in the middle of a deep stack, and the middle is left out
        if number is not None and number not in self._loops:
            self._loops.add(number)
            self.writer.line("loop", number)


_MOST_CALLS = 100


class Calls:
    """Finds which calls of a thread continue from one reading to the next reading.

    A frame is in the same call if the caller is at the same instruction and has the same variables. A caller that runs
    a loop makes new calls. Usually some variables of the caller change in a loop. If no variable changes, the order of
    the calls shows the loop: the caller calls A, then B, then A again.
    """

    def __init__(self) -> None:
        self._past: list[list[int]] = []
        """The calls that readings have seen each frame make, as hash values: a list for each frame, the outermost frame
        first.
        """

    def follow(self, now: RawStack, before: RawStack, equal: int) -> tuple[int, bool]:
        """Add the reading ``now``, after the reading ``before``. The first ``equal`` frames are unchanged.

        Return how many outer frames are in the same call, and whether the last of these frames is in a loop that
        changes no variable.
        """
        same = equal
        if equal < min(len(now), len(before)):
            same += now[equal][:2] == before[equal][:2]
        del self._past[same:]
        while len(self._past) < same:
            self._past.append([])
        if not same:
            return 0, False
        past = self._past[-1]
        for stack in before, now:
            if len(stack) > same:
                call = hash((stack[same - 1], stack[same][1]))
                if past[-1:] != [call]:
                    past.append(call)
        del past[:-_MOST_CALLS]
        return same, len(now) > same and past[-1] in past[:-1]


_MS = 1_000_000
_S = 1_000 * _MS
_SMALLEST = 4 << 20
"""The stacks of a process with less memory are not read: every Python has more memory from the start."""
_REST_NS = 30 * _S
"""If memory has not risen for this time, stacks are not read any more."""
_GAP_NS = 1 * _S
"""If two readings are further apart than this, the stack in between is unknown."""
_EARLY = 0.5
"""Stacks are read when memory has risen by this fraction of ``Pace.step`` (the growth after which stacks are due). The
fraction is below 1 because the time between two polls is 0.5 to 1.5 times the mean time."""
_READINGS = 200
"""A line of the log has at most about this many readings."""
_TRIES = 3
"""A reading is tried at most this many times. Up to 5 % of the readings of a running process are torn, that is,
inconsistent: for example, a generator has no caller for a moment.
"""
_EXEC_NS = 20 * _MS
"""After an exec of a process, stacks are not read for this time."""
_FIRST_PAUSE_NS = 100 * _MS
_MOST_FAILURES = 2
"""If a Python newer than the reader has no stack, it is tried again this many times."""
_FAULTS_SHARE = 0.001
"""Reading page faults takes this share of a core's time, if only a single thread of the process runs Python."""
_FAULTS_SHARE_OF_SEVERAL = 0.01
_NEAREST_NS = 15 * _MS
_FARTHEST_NS = 700 * _MS
_PART_OF_REST = 10
"""While memory does not rise, stacks are read again after 1 / 10 of the time since the last rise."""


class _Thread:
    """The stack of a thread at the last reading."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.calls = Calls()
        self.is_working = False


class Timeline:
    """The readings of a process's stacks that are not in the log yet."""

    def __init__(self, process: int, memory: PythonMemory, log: StackLog) -> None:
        """``process`` is the number of the process in the log, not the PID."""
        self._process = process
        self._memory = memory
        self._log = log
        self._raw: Stacks = {}
        self._threads: dict[int, _Thread] = {}
        self.read_ns = 0
        """When the stacks were last read."""
        self._begin(0)

    @property
    def has_several_workers(self) -> bool:
        """Whether at least two threads were running Python code, and not waiting, at the latest reading."""
        return sum([thread.is_working for thread in self._threads.values()]) > 1

    def _begin(self, t_ns: int) -> None:
        self._times = [t_ns] if t_ns else []
        self._changes: dict[int, list[Change]] = {}
        for thread, state in self._threads.items():
            self._changes[thread] = [(t_ns, state.number, 0, 0)]

    def read(self) -> bool:
        """Read the stacks now; return whether that was possible. Raises EndedError."""
        for _ in range(_TRIES):
            t_ns = time.monotonic_ns()
            self.read_ns = t_ns
            try:
                raw = self._memory.stacks()
                if not self._is_torn(raw):
                    self._add(t_ns, raw)
                    return True
            except UnreadableError:
                continue
        self._raw = {}
        return False

    def _is_torn(self, raw: Stacks) -> bool:
        """Return whether a reading is inconsistent.

        The outermost function of a thread never changes. So a reading is inconsistent if the outermost code object of a
        thread is different from the previous reading.
        """
        for thread, stack in raw.items():
            outermost = self._raw.get(thread, stack)[0]
            if outermost[1] != stack[0][1]:
                return True
        return False

    def _add(self, t_ns: int, raw: Stacks) -> None:
        """Add a reading. Raises UnreadableError."""
        past = self._raw if self._memory.is_certain else {}
        changed = {}
        for thread, stack in raw.items():
            before = past.get(thread, ())
            equal = _count_equal(stack, before)
            if len(stack) == len(before) == equal:
                if self._memory.is_known(stack):
                    continue
                equal = 0  # CPython has used the memory of a code object for another object
            changed[thread] = equal, self._memory.frames(stack, equal)
        raw = self._memory.completed(raw)
        for thread, (equal, frames) in changed.items():
            state = self._threads.setdefault(thread, _Thread())
            number = self._log.write_stack(frames, self._memory.version)
            before = past.get(thread, ())
            same, is_loop = state.calls.follow(raw[thread], before, equal)
            if is_loop:
                self._log.write_loop(frames[same - 1])
            if state.number != number or equal < len(frames):
                state.number = number
                state.is_working = not is_waiting(frames[-1][0].file)
                most = len(frames) if len(frames) <= _MOST_FRAMES else _OUTER_FRAMES
                change = t_ns, number, min(same, most), min(equal, most)
                self._changes.setdefault(thread, []).append(change)
        for thread in self._threads.keys() - raw.keys():
            del self._threads[thread]
            self._changes[thread].append((t_ns, None, 0, 0))
        self._raw = raw
        self._times.append(t_ns)

    def write(self, now_ns: int, *, is_end: bool) -> None:
        """Write the readings as a line of the log if they are many, after a break, or if ``is_end`` is true.

        The next line begins with the last reading of this line, but not after a break (``_GAP_NS`` without a reading).
        If ``is_end`` is true, no more readings follow: also close ``/proc/PID/mem`` of the process.
        """
        is_cut = is_end or (bool(self._times) and now_ns - self._times[-1] > _GAP_NS)
        if self._times and (is_cut or len(self._times) > _READINGS):
            window = {"process": self._process, "t_ns": self._times, "threads": self._changes}
            self._log.writer.line("window", window)
            if is_cut:
                self._raw = {}
                self._threads = {}
            self._begin(0 if is_cut else self._times[-1])
        if is_end:
            self._memory.close()


def _count_equal(stack: RawStack, before: RawStack) -> int:
    """Return the number of outer frames that are equal in two stacks."""
    count = 0
    for frame, frame_before in zip(stack, before, strict=False):
        if frame != frame_before:
            break
        count += 1
    return count


class StackTaker:
    """Decides when to read the stacks of the processes in a recording, and reads the stacks if ``is_allowed``."""

    def __init__(self, writer: Writer, has_budget: Callable[[], bool], *, is_allowed: bool) -> None:
        self._writer = writer
        self._has_budget = has_budget
        self._is_allowed = is_allowed
        self._log = StackLog(writer)
        self._timelines: dict[Watched, Timeline] = {}
        self._has_problems = False
        self._native: set[int] = set()
        """The processes that grew, but have mapped no file of a Python interpreter: numbers in the log, not PIDs."""
        self.taken = self.failed = 0

    def look(self, processes: Processes, now_ns: int, poll_again: Callable[[Watched], object], step: float) -> None:
        """Read the page faults of growing processes, and the stacks that explain the growth.

        The stacks belong to the growing process itself, or to the nearest ancestor that runs Python. Stacks are read
        when memory has grown by ``step`` bytes. ``poll_again`` reads the memory of a process again.
        """
        growing: dict[Watched, list[Watched]] = {}
        """Maps a process whose stacks are read to the processes whose growth these stacks explain."""
        for watched in processes.values():
            if not watched.is_introduced or now_ns - watched.growth.rose_ns > _REST_NS:
                continue
            if watched.growth.rose_ns > watched.faults_read_ns and now_ns >= watched.faults_after_ns:
                self._read_faults(watched, now_ns)
            python = self._find_python(watched, processes, now_ns) if self._is_allowed else None
            if python is not None:
                growing.setdefault(python, []).append(watched)
        for watched in list(self._timelines):
            self._write(watched, now_ns, is_end=watched not in growing)
        for watched, group in growing.items():
            risen = sum([process.growth.risen for process in group])
            rest_ns = now_ns - max([process.growth.rose_ns for process in group])
            again_ns = min(_FARTHEST_NS, max(_NEAREST_NS, rest_ns // _PART_OF_REST))
            is_due = risen > 0 or now_ns >= self._timelines[watched].read_ns + again_ns
            if is_due and risen >= step * _EARLY and self._has_budget():
                for process in group:
                    process.growth.risen = 0
                self._read(watched, now_ns)
                poll_again(watched)

    def _find_python(self, watched: Watched, processes: Processes, now_ns: int) -> Watched | None:
        """Return the process itself if the process runs Python, otherwise the nearest ancestor that runs Python."""
        nearest: Watched | None = watched
        while nearest is not None and not self._is_python(nearest, now_ns):
            parent = nearest.process.parent
            nearest = None if parent is None else processes.get(parent)
        return nearest

    def _is_python(self, watched: Watched, now_ns: int) -> bool:
        """Return whether a process runs a Python whose memory can be read.

        After a failed try, return False without a new try for a while. The pauses between tries grow.
        """
        if watched in self._timelines:
            return True
        if now_ns < watched.look_after_ns or not watched.may_look or watched.growth.rss < _SMALLEST:
            return False
        if watched.has_execed():
            watched.begin_program()
        number = watched.process.number
        try:
            memory = python_memory(watched.process.path, watched.process.read("maps"))
        except PermissionError:
            self._refuse(watched, "refused")
        except UnknownPythonError as error:
            self._refuse(watched, str(error))
        except NoStackError as error:
            if watched.failures == _MOST_FAILURES:
                self._refuse(watched, str(error))
        except OSError:  # the process has ended
            pass
        except Exception as failure:  # noqa: BLE001 — whatever the files and the memory say, only this process is lost
            self._refuse(watched, repr(failure))
        else:
            if memory is not None:
                self._timelines[watched] = Timeline(number, memory, self._log)
                return True
            if number not in self._native:
                self._native.add(number)
                self._writer.line("native", number)
        watched.look_after_ns = now_ns + _FIRST_PAUSE_NS * 2**watched.failures
        watched.failures += 1
        return False

    def _read(self, watched: Watched, now_ns: int) -> None:
        try:
            is_read = self._timelines[watched].read()
        except EndedError:
            self._write(watched, now_ns, is_end=True)
            watched.begin_program()
            watched.look_after_ns = now_ns + _EXEC_NS
        except Exception as failure:  # noqa: BLE001 — as above
            self._write(watched, now_ns, is_end=True)
            self._refuse(watched, repr(failure))
        else:
            self.taken += is_read
            self.failed += not is_read

    def _write(self, watched: Watched, now_ns: int, *, is_end: bool) -> None:
        self._timelines[watched].write(now_ns, is_end=is_end)
        if is_end:
            del self._timelines[watched]

    def _read_faults(self, watched: Watched, now_ns: int) -> None:
        """Write the number of page faults of each thread since the last reading."""
        begun_s = time.process_time()
        try:
            faults, lost = watched.threads.read()
        except OSError:  # the process has ended
            return
        watched.faults_read_ns = now_ns
        timeline = self._timelines.get(watched)
        has_several = timeline is not None and timeline.has_several_workers
        share = _FAULTS_SHARE_OF_SEVERAL if has_several else _FAULTS_SHARE
        watched.faults_after_ns = now_ns + int((time.process_time() - begun_s) / share * _S)
        if faults or lost:
            facts = {"process": watched.process.number, "t_ns": time.monotonic_ns()}
            self._writer.line("faults", {**facts, "threads": faults, "lost": lost})

    def _refuse(self, watched: Watched, text: str) -> None:
        watched.may_look = False
        self._has_problems = True
        self._writer.line("problem", {"process": watched.process.number, "text": text})

    def close(self) -> None:
        """Write the remaining readings. Report if no stacks were read because no growing program was Python."""
        for watched in list(self._timelines):
            self._write(watched, time.monotonic_ns(), is_end=True)
        if self._native and not self._has_problems and not self.taken:
            self._writer.line("problem", {"process": min(self._native), "text": "no_python"})
