"""Takes the stacks of processes while they grow, right after each reading of their memory, and writes timelines.

Each stack and each frame is written to the log once; later lines name it by its number.
"""

from __future__ import annotations

import time
from binascii import b2a_base64
from itertools import compress, count
from operator import ne

from nncftools.journal.writing import MOST_OF_TABLES
from nncftools.snapshot_rules import is_waiting
from nncftools.snapshots.finding import python_memory
from nncftools.snapshots.python_memory import Code, EndedError, UnknownPythonError, UnreadableError

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nncftools.journal.writing import Writer
    from nncftools.sampler.tree import Process
    from nncftools.snapshots.budget import Budget
    from nncftools.snapshots.python_memory import Frame, PythonMemory, RawStack
    from nncftools.snapshots.tree_watch import Watched

    Change = tuple[int, int | None, int, int]
    """When a thread's stack was first seen, its number (None for none), how many outer frames were in the same call at
    the reading before, and how many of these stood still."""

_MOST_HELD = 50_000
"""Frames that are known by their code object."""
_MOST_TEXT = 16 << 20
"""Characters of the names and files of all frames; a later frame is left out."""
_MOST_FRAMES = 400
_OUTER_FRAMES = 100
CUT = Code(b"", ("…", ""), 0, b"", local_bytes=0, size=0), 0
"""Stands for the middle of a very deep stack."""


class Interned:
    """The stacks and frames of a log so far."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._tables: dict[tuple[str, str, int, bytes], int] = {}
        self._places: dict[tuple[str, str, int, int | None, int], int] = {}
        """By name, file and first line of a function, its table, and the instruction."""
        self._frames: dict[Frame, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._loops: set[int] = set()
        self._tables_left, self._text_left = MOST_OF_TABLES, _MOST_TEXT

    def stack(self, frames: Sequence[Frame], version: int) -> int:
        """Return the number of a stack of Python 3.``version``; write it first if it is new.

        The middle of a very deep one is left out.
        """
        if len(frames) > _MOST_FRAMES:
            frames = [*frames[:_OUTER_FRAMES], CUT, *frames[_OUTER_FRAMES - _MOST_FRAMES :]]
        known = self._frames
        numbers = tuple([known[frame] if frame in known else self._new(frame, version) for frame in frames])
        number = self._stacks.get(numbers)
        if number is None:
            number = self._stacks[numbers] = len(self._stacks)
            self._writer.line("stack", [number, numbers])
        return number

    def _new(self, frame: Frame, version: int) -> int:
        code, offset = CUT if self._text_left < 0 else frame
        if len(self._frames) >= _MOST_HELD:
            self._frames.clear()
        place = code.name, code.file, code.first_line, self._table(code, version), offset
        if place not in self._places:
            self._places[place] = len(self._places)
            self._text_left -= len(code.name) + len(code.file)
            self._writer.line("frame", [self._places[place], *place])
        number = self._frames[frame] = self._places[place]
        return number

    def _table(self, code: Code, version: int) -> int | None:
        """Return the number of a line table; None for none, or if all tables together would be too long."""
        if code.lines:
            of_code = code.name, code.file, code.first_line, code.lines  # several processes may run the same
            if of_code not in self._tables and len(code.lines) <= self._tables_left:
                self._tables_left -= len(code.lines)
                self._tables[of_code] = len(self._tables)
                table = b2a_base64(code.lines, newline=False).decode()
                self._writer.line("table", [self._tables[of_code], version, table])
            code.table, code.lines = self._tables.get(of_code), b""
        return code.table

    def loop(self, frame: Frame) -> None:
        """Write that a frame makes other calls without a trace in its variables, once; not in the middle left out."""
        number = self._frames.get(frame)
        if number is not None and number not in self._loops:
            self._loops.add(number)
            self._writer.line("loop", number)


_MOST_CALLS = 100


class Calls:
    """The calls of one thread that go on from one reading to the next.

    A frame is in the same call if its caller stands at the same instruction with the same variables: in a loop, some of
    these change. Where none does, the caller is seen to call what it had called before, after something else.
    """

    def __init__(self) -> None:
        self._past: list[list[int]] = []
        """What each frame was seen to call in its call, the outermost frame first."""

    def follow(self, now: RawStack, before: RawStack, equal: int) -> tuple[int, bool]:
        """Take a reading, whose first ``equal`` frames are as they were at the reading before.

        Return how many outer frames are in the same call, and whether the last of them is in such a loop.
        """
        progressed = zip(now[equal : equal + 1], before[equal : equal + 1], strict=False)
        same = equal + sum(frame[:2] == frame_before[:2] for frame, frame_before in progressed)
        del self._past[same:]
        self._past += [[] for _ in range(len(self._past), same)]
        if not same:
            return 0, False
        past = self._past[-1]
        for stack in before, now:
            calls = [hash((stack[same - 1], code)) for _, code, *_ in stack[same : same + 1]]
            if calls != past[-1:]:
                past += calls
        del past[:-_MOST_CALLS]
        return same, len(now) > same and past[-1] in past[:-1]


_MS = 1_000_000
_S = 1_000 * _MS
_SMALLEST = 4 << 20
"""A Python holds more from its start on."""
_REST_NS = 30 * _S
"""Stacks are read until memory has not risen for so long."""
_GAP_NS = 1 * _S
"""Nothing is known of a stack between two readings that are so far apart."""
_EARLY = 0.5
"""Distances of polls vary by half: what rose until the next one may be more than a step."""
_READINGS = 200
"""Of a line."""
_TRIES = 3
"""A reading of a process that runs is torn in up to 5 %: a generator may have no caller for a moment."""
_EXEC_NS = 20 * _MS
"""The pause before the memory of a process that executes a program is looked at again."""
_FIRST_PAUSE_NS = 100 * _MS
_MOST_PAUSES = 10
_MOST_PROBLEMS = 20
_FAULTS_SHARE, _FAULTS_SHARE_OF_SEVERAL = 0.001, 0.01
"""The part of a core's time for reading page faults of threads, if one thread runs Python, and if several do."""
_NEAREST_NS, _FARTHEST_NS, _PART_OF_REST = 15 * _MS, 700 * _MS, 10
"""While nothing rises, stacks are read again after this part of the time since the last rise, within these bounds."""


class Timeline:
    """The stacks of one process since its last line in the log, which knows it by ``number``."""

    def __init__(self, number: int, memory: PythonMemory, interned: Interned) -> None:
        self._number, self._memory, self._interned = number, memory, interned
        self._raw: dict[int, RawStack] = {}
        self._numbers: dict[int, int] = {}
        self._calls: dict[int, Calls] = {}
        self._works: dict[int, bool] = {}
        self.read_ns = 0
        """When the stacks were read last."""
        self._begin(0)

    @property
    def has_several_workers(self) -> bool:
        """Whether several threads run Python, and do not wait."""
        return sum(self._works.values()) > 1

    def _begin(self, t_ns: int) -> None:
        self._times = [t_ns] if t_ns else []
        numbers = self._numbers.items()
        self._threads: dict[int, list[Change]] = {thread: [(t_ns, number, 0, 0)] for thread, number in numbers}

    def read(self) -> bool:
        """Read the stacks now; return whether that was possible. Raises EndedError."""
        for _ in range(_TRIES):
            self.read_ns = t_ns = time.monotonic_ns()
            try:
                raw = self._memory.stacks()
                # with another outermost code object, it is torn
                if all(stack[0][1] == self._raw.get(thread, stack)[0][1] for thread, stack in raw.items()):
                    self._take(t_ns, raw)
                    return True
            except UnreadableError:
                continue
        self._raw = {}
        return False

    def _take(self, t_ns: int, raw: dict[int, RawStack]) -> None:
        """Take a reading. Raises UnreadableError."""
        past = self._raw if self._memory.is_certain else {}
        changed = {}
        for thread, stack in raw.items():
            before = past.get(thread, ())
            equal = next(compress(count(), map(ne, stack, before)), min(len(stack), len(before)))
            if len(stack) == len(before) == equal:
                if self._memory.is_known(stack):
                    continue
                equal = 0  # another code object is in the place of one of these
            changed[thread] = equal, self._memory.frames(stack, equal)
        raw = self._memory.completed(raw)
        for thread, (equal, frames) in changed.items():
            number = self._interned.stack(frames, self._memory.version)
            calls = self._calls.setdefault(thread, Calls())
            same, is_loop = calls.follow(raw[thread], past.get(thread, ()), equal)
            if is_loop:
                self._interned.loop(frames[same - 1])
            if self._numbers.get(thread) != number or equal < len(frames):
                self._numbers[thread] = number
                self._works[thread] = not is_waiting(frames[-1][0].file)
                most = len(frames) if len(frames) <= _MOST_FRAMES else _OUTER_FRAMES
                change = t_ns, number, min(same, most), min(equal, most)
                self._threads.setdefault(thread, []).append(change)
        for thread in self._numbers.keys() - raw.keys():
            del self._numbers[thread], self._calls[thread], self._works[thread]
            self._threads[thread].append((t_ns, None, 0, 0))
        self._raw = raw
        self._times.append(t_ns)

    def write(self, writer: Writer, now_ns: int, *, is_end: bool) -> None:
        """Write what was read if it is time to, and begin the next line where this one ends.

        At the end, close the memory.
        """
        is_cut = is_end or (bool(self._times) and now_ns - self._times[-1] > _GAP_NS)
        if self._times and (is_cut or len(self._times) > _READINGS):
            writer.line("window", {"process": self._number, "t_ns": self._times, "threads": self._threads})
            if is_cut:
                self._numbers, self._raw, self._calls, self._works = {}, {}, {}, {}
            self._begin(0 if is_cut else self._times[-1])
        if is_end:
            self._memory.close()


class StackTaker:
    """Takes the stacks of one recording, if that ``is_allowed``."""

    def __init__(self, writer: Writer, budget: Budget, *, is_allowed: bool) -> None:
        self._writer = writer
        self._budget = budget
        self._is_allowed = is_allowed
        self._interned = Interned(writer)
        self._timelines: dict[Watched, Timeline] = {}
        self._problems = 0
        self._native: set[int] = set()
        """The processes that grew without a file of Python mapped."""
        self.taken = self.failed = 0

    def look(
        self, processes: dict[Process, Watched], now_ns: int, poll_again: Callable[[Watched], object], step: float
    ) -> None:
        """Read the stacks of processes that grow, or of the Python programs that started them, and page faults.

        Stacks are read after each ``step`` of bytes. ``poll_again`` reads a process's memory.
        """
        growing: dict[Watched, list[Watched]] = {}
        """By the process whose stacks tell why these grow."""
        for watched in processes.values():
            if not watched.is_introduced or now_ns - watched.growth.rose_ns > _REST_NS:
                continue
            if watched.growth.rose_ns > watched.faults_read_ns and now_ns >= watched.faults_after_ns:
                self._read_faults(watched, now_ns)
            if self._is_allowed and (reader := self._python(watched, processes, now_ns)) is not None:
                growing.setdefault(reader, []).append(watched)
        for watched in list(self._timelines):
            self._write(watched, now_ns, is_end=watched not in growing)
        for watched, grown in growing.items():
            risen = sum([of.growth.risen for of in grown])
            rest_ns = now_ns - max([of.growth.rose_ns for of in grown])
            again_ns = min(_FARTHEST_NS, max(_NEAREST_NS, rest_ns // _PART_OF_REST))
            is_due = risen > 0 or now_ns >= self._timelines[watched].read_ns + again_ns
            if is_due and risen >= step * _EARLY and self._budget.left_s > 0:
                for of in grown:
                    of.growth.risen = 0
                self._read(watched, now_ns)
                poll_again(watched)

    def _python(self, watched: Watched, processes: dict[Process, Watched], now_ns: int) -> Watched | None:
        """Return the process, or else the nearest above it, that runs Python."""
        nearest: Watched | None = watched
        while nearest is not None and not self._is_python(nearest, now_ns):
            above = nearest.process.parent
            nearest = None if above is None else processes.get(above)
        return nearest

    def _is_python(self, watched: Watched, now_ns: int) -> bool:
        """Return whether its memory can be read as that of a Python; if not, look again later, each time later."""
        if watched in self._timelines:
            return True
        if now_ns < watched.look_after_ns or not watched.may_look or watched.growth.rss < _SMALLEST:
            return False
        if watched.has_execed():
            watched.begin_program()
        try:
            memory = python_memory(watched.process.path, watched.process.read("maps"))
        except PermissionError:
            self._refuse(watched, "refused")
        except UnknownPythonError as error:
            self._refuse(watched, str(error))
        except OSError:  # it has ended
            pass
        except Exception as failure:  # noqa: BLE001 — whatever its files and its memory say, only this process is lost
            self._refuse(watched, repr(failure))
        else:
            if memory is not None:
                self._timelines[watched] = Timeline(watched.process.number, memory, self._interned)
                return True
            if watched.process.number not in self._native:
                self._native.add(watched.process.number)
                self._writer.line("native", watched.process.number)
        watched.look_after_ns = now_ns + _FIRST_PAUSE_NS * 2 ** min(watched.failures, _MOST_PAUSES)
        watched.failures += 1
        return False

    def _read(self, watched: Watched, now_ns: int) -> None:
        try:
            is_read = self._timelines[watched].read()
        except EndedError:
            self._write(watched, now_ns, is_end=True)
            watched.begin_program()
            watched.look_after_ns = now_ns + _EXEC_NS
            return
        except Exception as failure:  # noqa: BLE001 — as above
            self._write(watched, now_ns, is_end=True)
            self._refuse(watched, repr(failure))
            return
        self.taken += is_read
        self.failed += not is_read

    def _write(self, watched: Watched, now_ns: int, *, is_end: bool) -> None:
        """Write a timeline if it is time to; at rest or at its end, close the memory."""
        self._timelines[watched].write(self._writer, now_ns, is_end=is_end)
        if is_end:
            del self._timelines[watched]

    def _read_faults(self, watched: Watched, now_ns: int) -> None:
        """Write which threads touched new memory since the last reading."""
        begun_s = time.process_time()
        try:
            faults, lost = watched.threads.read()
        except OSError:  # it has ended
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
        self._problems += 1
        if self._problems <= _MOST_PROBLEMS:
            self._writer.line("problem", {"process": watched.process.number, "text": text})

    def close(self) -> None:
        """Write what is not written yet; and a line if no program that grew was Python."""
        for watched in list(self._timelines):
            self._write(watched, time.monotonic_ns(), is_end=True)
        if self._native and not (self._problems or self.taken):
            self._writer.line("problem", {"process": min(self._native), "text": "no_python"})
