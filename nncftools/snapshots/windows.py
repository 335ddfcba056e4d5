"""Records the stacks of processes that grow: ``py-spy record`` in windows of seconds, each a timeline of all threads.

A reading costs 0.15 ms and 4 µs a frame; a start costs 10 ms. py-spy writes its file at the end of a window, or within
25 ms of SIGINT; SIGTERM and SIGKILL lose it. ``--nonblocking`` never stops the process. Each stack and each frame is
written to the log once; later lines name it by its number.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from nncftools.journal.writing import Writer
    from nncftools.snapshots.budget import Budget
    from nncftools.snapshots.tree_watch import Watched

    Frame = tuple[str, str, int]
    """Function, file and line."""
    Change = tuple[int, int | None]
    """When a thread's stack was first seen, and its number; None for none."""

_MOST_FRAMES = 400
_OUTER_FRAMES = 100
CUT = ("…", "", 0)
"""Stands for the middle of a very deep stack."""
_ROOTS = ("<module>", "_bootstrap", "_bootstrap_inner", "run", "run_code")
_LARGEST = 1 << 23
_WRONG = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What the output of another program than py-spy can raise."""
_THREAD = re.compile(r"thread \((\d+)\)")
"""The outermost frame. Python before 3.11 keeps no ID of the kernel: ``thread (0x7F18…)``."""
_ERRORS = re.compile(rb"Errors: (\d+)")


class RecordError(Exception):
    """The stacks could not be read; the message is what py-spy printed."""

    @property
    def is_refusal(self) -> bool:
        """Whether the kernel does not allow it."""
        text = str(self).lower()
        return "permission denied" in text or "operation not permitted" in text


class PySpy:
    """A running py-spy, whose output only this process can open."""

    def __init__(self, program: str, words: Sequence[str], expected_s: float) -> None:
        """Start it; it should take ``expected_s`` CPU seconds. Raises OSError."""
        self.expected_s = expected_s
        self.cpu_s = 0.0
        self._output, self._errors = os.memfd_create("stacks"), os.memfd_create("errors")
        self._failed = False
        environment = {"PATH": os.defpath, "RUST_BACKTRACE": "0"}
        outputs = [(os.POSIX_SPAWN_DUP2, self._output, 3), *((os.POSIX_SPAWN_DUP2, self._errors, to) for to in (1, 2))]
        files = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), *outputs]
        self.begun_ns = time.monotonic_ns()
        try:
            self.pid = os.posix_spawn(program, [program, *words], environment, file_actions=files, setsigmask=[])
        except OSError:
            self._close()
            raise

    def has_ended(self) -> bool:
        """Return whether it has ended."""
        pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        if pid:
            self.cpu_s, self._failed = usage.ru_utime + usage.ru_stime, status != 0
        return bool(pid)

    def send(self, number: int) -> None:
        """Send a signal: nobody has reaped it."""
        os.kill(self.pid, number)

    def output(self) -> tuple[str, int]:
        """Return what it wrote, and how many readings failed; close its files. Raises RecordError."""
        try:
            said = os.pread(self._errors, _LARGEST, 0)
            if self._failed:
                raise RecordError(said.decode("utf-8", "replace").partition("\n")[0])
            failed = _ERRORS.search(said)
            return os.pread(self._output, _LARGEST, 0).decode("utf-8", "replace"), int(failed[1]) if failed else 0
        finally:
            self._close()

    def _close(self) -> None:
        os.close(self._output)
        os.close(self._errors)


class Interned:
    """The stacks and frames of a log so far."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._frames: dict[Frame, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}

    def stack(self, frames: Sequence[Frame]) -> int:
        """Return the number of a stack; write it first if it is new. The middle of a very deep one is left out."""
        if len(frames) > _MOST_FRAMES:
            frames = [*frames[:_OUTER_FRAMES], CUT, *frames[_OUTER_FRAMES - _MOST_FRAMES :]]
        numbers = tuple([self._frame(frame) for frame in frames])
        number = self._stacks.get(numbers)
        if number is None:
            number = self._stacks[numbers] = len(self._stacks)
            self._writer.line("stack", [number, numbers])
        return number

    def _frame(self, frame: Frame) -> int:
        number = self._frames.get(frame)
        if number is None:
            number = self._frames[frame] = len(self._frames)
            self._writer.line("frame", [number, *frame])
        return number


def _harmless(text: object) -> str:
    """Return text that JSON readers accept: unpaired surrogates are replaced."""
    return str(text).encode("utf-8", "replace").decode()


def timelines(text: str, interned: Interned, pid: int, begun_ns: int) -> tuple[dict[int, list[Change]], int, int]:
    """Return the timeline of each thread, and the first and the last moment, of a file in the format chrometrace.

    It has begin and end of frames, only where they change, in microseconds since the start of py-spy. A thread without
    an ID of the kernel gets that of the process if it is the only one, else one below 0. Raises RecordError.
    """
    threads: dict[tuple[int, str], _Thread] = {}
    latest: dict[int, _Thread] = {}
    """By the address of the thread, which the next thread may have again."""
    first_us, last_us = 1 << 62, 0
    try:
        for event in json.loads(text):
            at_us, address, place = int(event["ts"]), event["tid"], event["args"]
            first_us, last_us = min(first_us, at_us), max(last_us, at_us)
            frame = _harmless(event["name"]), _harmless(place["filename"]), int(place["line"])
            if event["ph"] == "B" and (address not in latest or not latest[address].frames):
                latest[address] = threads.setdefault((address, frame[0]), _Thread(frame[0]))
            latest[address].take(at_us, frame, begins=event["ph"] == "B")
    except _WRONG as error:
        raise RecordError(f"py-spy wrote something else than stacks ({type(error).__name__})") from error
    by_number: dict[int, list[Change]] = {}
    for number, thread in enumerate(threads.values(), start=1):
        known = thread.number or (pid if len(threads) == 1 else -number)
        by_number[known] = [
            (begun_ns + at_us * 1000, None if frames is None else interned.stack(frames))
            for at_us, frames in thread.stacks(last_us)
        ]
    return by_number, begun_ns + min(first_us, last_us) * 1000, begun_ns + last_us * 1000


class _Thread:
    """The stack of a thread while events are read."""

    def __init__(self, name: str) -> None:
        """Take the name of its outermost frame, which is not one of Python."""
        known = _THREAD.match(name)
        self.number = 0 if known is None else int(known[1])
        self.frames: list[Frame] = []
        self._changes: list[tuple[int, list[Frame] | None]] = []
        self._at_us = -1

    def take(self, at_us: int, frame: Frame, *, begins: bool) -> None:
        """Take the begin or the end of a frame."""
        if at_us != self._at_us:
            self._note()
            self._at_us = at_us
        if begins:
            self.frames.append(frame)
        else:
            self.frames.pop()

    def _note(self) -> None:
        """Note the stack since the last moment, unless it lost its root: py-spy may read a stack while it changes."""
        stack = self.frames[1:]
        root = stack[0][0].rpartition(".")[2] if stack else ""
        before = next((frames for _, frames in reversed(self._changes) if frames), None)
        if self._at_us >= 0 and (not stack or root in _ROOTS or before is None or before[0][:2] == stack[0][:2]):
            self._changes.append((self._at_us, stack or None))

    def stacks(self, last_us: int) -> Iterator[tuple[int, list[Frame] | None]]:
        """Yield the moments of changes, and the stacks; at the end of the window, all frames end."""
        self._note()
        for at_us, stack in self._changes:
            if at_us < last_us or stack:
                yield at_us, stack


_MS = 1_000_000
_S = 1_000 * _MS
_LEAST_GAIN = 1 << 20
_MOST_AT_ONCE = 4
_START_S = 0.020
"""CPU time of a start: 10 to 20 ms."""
_EXPECTED_S, _LEAST_COST_S = 0.0008, 0.0001
"""CPU time of a reading before the first window of a process has ended, and the least; imports have deep stacks."""
_SPREAD_S = 30.0
"""What is left of the budget would be spent in about this time."""
_FASTEST, _FIRST, _SLOWEST = 100, 40, 2
"""Readings a second; in the first window of a process, whose cost is not known."""
_FIRST_S, _LATER_S, _LONGEST_S = 1, 5, 10
"""The length of windows: the cost of the first one sets the rate of the next; the longest where little is left."""
_SLOW = 0.016
"""CPU seconds per second: with less, starts would take a quarter of a window's."""
_LARGEST_FILE = 2_000_000
"""Of a window, in bytes: a file of 4 MB takes 42 ms and 14 MiB to read."""
_OVERLAP_NS = 120 * _MS
"""The next window starts so long before the end of one: py-spy needs 30 ms until its first reading."""
_REST_NS = 1 * _S
"""A window ends early when memory has not risen for so long."""
_STILL_NS = 200 * _MS
"""A process that has not grown for so long leaves its part of the budget to others."""
_LONGEST_OVER_NS = 2 * _S
"""A py-spy that runs on for so long hangs."""
_RETRY_NS = 20 * _MS
_FIRST_PAUSE_NS = 100 * _MS
_MOST_PAUSES = 10
_MOST_PROBLEMS = 20
_LONGEST_PROBLEM = 200
_FAULTS_SHARE = 0.001
"""The part of a core's time for reading page faults of threads."""
_STARTER_EVERY_NS = 5 * _S
"""A Python program that waits for another one is read so often."""
_STARTER_SHARE = 0.05
"""Another program that gained less of all memory is not worth it."""


class _Window:
    """A running window of a process, or a single reading of it."""

    def __init__(self, program: str, watched: Watched, rate: int, length_s: int, cost_s: float) -> None:
        words = ["--nonblocking", "--full-filenames", "--pid", str(watched.process.pid)]
        words += ["--threads", "--idle", "--format", "chrometrace", "--output", "/proc/self/fd/3"]
        words += ["--rate", str(rate), "--duration", str(length_s)]
        self.rate = rate
        self.py_spy = PySpy(program, ["record", *words], _START_S + rate * length_s * cost_s)
        self.until_ns = self.py_spy.begun_ns + length_s * _S
        self.is_stopped = False

    def stop(self) -> None:
        """End it early, with its result."""
        self.py_spy.send(signal.SIGINT)
        self.is_stopped, self.until_ns = True, time.monotonic_ns()


class StackTaker:
    """Takes the stacks of one recording, by py-spy at ``program``; none if that is None."""

    def __init__(self, writer: Writer, budget: Budget, program: str | None) -> None:
        self._writer = writer
        self._budget = budget
        self._program = program
        self._interned = Interned(writer)
        self.running: dict[_Window, Watched] = {}
        self._problems = 0
        self._native: set[int] = set()
        """The processes that grew without a file of Python mapped."""
        self.taken = self.failed = 0

    def begin(self, processes: Collection[Watched], now_ns: int) -> None:
        """Begin windows for the processes that gained most, end those of processes at rest, read page faults."""
        for window, watched in list(self.running.items()):
            if now_ns > window.until_ns + _LONGEST_OVER_NS:
                window.py_spy.send(signal.SIGKILL)
            elif not window.is_stopped and now_ns - watched.growth.rose_ns > _REST_NS:
                window.stop()
        for watched in processes:
            if watched.growth.rose_ns >= watched.faults_after_ns <= now_ns and watched.is_introduced:
                self._read_faults(watched, now_ns)
        if self._program is None or len(self.running) >= _MOST_AT_ONCE:
            return
        due = [watched for watched in processes if self._is_due(watched, now_ns)]
        due.sort(key=lambda watched: -watched.growth.gained)
        whole = sum([watched.growth.rss for watched in processes])
        for watched in due[: _MOST_AT_ONCE - len(self.running)]:
            if self._may_be_python(watched, now_ns):
                self._begin(self._program, watched, now_ns, _LATER_S if watched.cost_s else _FIRST_S)
            elif watched.growth.gained > whole * _STARTER_SHARE:
                self._begin_of_starter(self._program, watched, processes, now_ns)

    def _is_due(self, watched: Watched, now_ns: int) -> bool:
        if watched.growth.gained < _LEAST_GAIN or not watched.is_introduced or now_ns < watched.look_after_ns:
            return False
        if now_ns - watched.growth.rose_ns > _REST_NS or not watched.may_look:
            return False
        remaining = [window.until_ns - now_ns for window, of in self.running.items() if of is watched]
        return not remaining or (watched.cost_s > 0 and max(remaining) < _OVERLAP_NS)

    def _begin_of_starter(self, program: str, watched: Watched, processes: Collection[Watched], now_ns: int) -> None:
        """Read the stack of the nearest Python program above: it started this one, or waits for it."""
        above = watched.process.parent
        by_process = {of.process: of for of in processes}
        while above is not None:
            starter = by_process.get(above)
            if starter is not None and starter.is_introduced and self._may_be_python(starter, now_ns):
                watched.look_after_ns = now_ns + _STARTER_EVERY_NS
                if starter not in self.running.values() and now_ns >= starter.look_after_ns:
                    starter.look_after_ns = now_ns + _STARTER_EVERY_NS // 2
                    self._begin(program, starter, now_ns, 1, _SLOWEST)
                return
            above = above.parent

    def _may_be_python(self, watched: Watched, now_ns: int) -> bool:
        """Return whether it has a file of Python mapped; if not, look again later, each time later."""
        if watched.has_execed():
            watched.begin_program()
        if watched.is_python:
            return True
        try:
            watched.is_python = b"python" in watched.process.read("maps")
        except OSError as error:
            if isinstance(error, PermissionError):  # otherwise, it has ended
                self._refuse(watched)
            return False
        if not watched.is_python:
            if watched.process.number not in self._native:
                self._native.add(watched.process.number)
                self._writer.line("native", watched.process.number)
            self._postpone(watched, now_ns)
        return watched.is_python

    def _begin(self, program: str, watched: Watched, now_ns: int, length_s: int, most: int = _FASTEST) -> None:
        cost_s = watched.cost_s or _EXPECTED_S
        others = {of.process for of in self.running.values() if now_ns - of.growth.rose_ns < _STILL_NS}
        others.discard(watched.process)
        speed = self._budget.speed(_SPREAD_S) / (len(others) + 1)
        if speed < _SLOW and length_s == _LATER_S:
            length_s = _LONGEST_S
        wanted = int((length_s * speed - _START_S) / (length_s * cost_s)) if watched.cost_s else _FIRST
        rate = min(most, max(_SLOWEST, wanted), _LARGEST_FILE // (watched.size * length_s))
        if _START_S + rate * length_s * cost_s > self._budget.left_s:
            watched.look_after_ns = now_ns + _FIRST_PAUSE_NS
            return
        try:
            window = _Window(program, watched, rate, length_s, cost_s)
        except OSError as error:
            self._problem(watched, f"py-spy cannot be started: {error.strerror or error}")
            self._program = None
            return
        self._budget.add(window.py_spy.expected_s)
        self.running[window] = watched
        watched.growth.looked()

    def _read_faults(self, watched: Watched, now_ns: int) -> None:
        """Write which threads touched new memory since the last reading."""
        begun_s = time.process_time()
        try:
            faults, lost = watched.threads.read()
        except OSError:  # it has ended
            return
        watched.faults_after_ns = now_ns + int((time.process_time() - begun_s) / _FAULTS_SHARE * _S)
        if faults or lost:
            facts = {"process": watched.process.number, "t_ns": time.monotonic_ns()}
            self._writer.line("faults", {**facts, "threads": faults, "lost": lost})

    def finish(self) -> bool:
        """Take the results of the windows that have ended; return whether there was one."""
        ended = [window for window in self.running if window.py_spy.has_ended()]
        for window in ended:
            watched = self.running.pop(window)
            self._budget.add(window.py_spy.cpu_s - window.py_spy.expected_s)
            try:
                self._take(window, watched)
            except RecordError as error:
                self._fail(watched, error)
        return bool(ended)

    def _take(self, window: _Window, watched: Watched) -> None:
        """Write a window. Raises RecordError."""
        begun_s = time.process_time()
        text, lost = window.py_spy.output()
        threads, from_ns, to_ns = timelines(text, self._interned, watched.process.pid, window.py_spy.begun_ns)
        every_ns = _S // window.rate
        readings = (to_ns - from_ns) // every_ns + 1
        cost_s = window.py_spy.cpu_s - _START_S + time.process_time() - begun_s
        watched.cost_s = max(_LEAST_COST_S, cost_s / readings)
        watched.size = max(100, len(text) // readings)
        watched.failures = 0
        self.taken += readings
        self.failed += lost
        for thread, changes in threads.items():
            if ended_ns := watched.threads.ended.get(thread):
                changes[:] = [*(change for change in changes if change[0] < ended_ns), (ended_ns, None)]
        facts = {"process": watched.process.number, "from_ns": from_ns, "to_ns": to_ns, "every_ns": every_ns}
        self._writer.line("window", {**facts, "lost": lost, "threads": threads})

    def _fail(self, watched: Watched, error: RecordError) -> None:
        self.failed += 1
        if error.is_refusal and os.path.exists(watched.process.path):
            self._refuse(watched)
            return
        self._postpone(watched, time.monotonic_ns(), _RETRY_NS)
        if watched.failures > _MOST_PAUSES // 2:
            self._problem(watched, str(error)[:_LONGEST_PROBLEM])

    def _refuse(self, watched: Watched) -> None:
        watched.may_look = False
        self._problem(watched, "refused")

    def _postpone(self, watched: Watched, now_ns: int, first_ns: int = _FIRST_PAUSE_NS) -> None:
        watched.look_after_ns = now_ns + first_ns * 2 ** min(watched.failures, _MOST_PAUSES)
        watched.failures += 1

    def _problem(self, watched: Watched, text: str) -> None:
        self._problems += 1
        if self._problems <= _MOST_PROBLEMS:
            self._writer.line("problem", {"process": watched.process.number, "text": text})

    def close(self) -> None:
        """End the windows that still run, with their results; write a line if no program that grew was Python."""
        for window in self.running:
            window.py_spy.send(signal.SIGINT)
        until_s = time.monotonic() + _LAST_S
        while self.running and time.monotonic() < until_s:
            self.finish()
            time.sleep(0.005)
        for window in self.running:
            window.py_spy.send(signal.SIGKILL)
        if self._native and not (self._problems or self.taken):
            self._writer.line("problem", {"process": min(self._native), "text": "no_python"})


_LAST_S = 0.3
"""The starter waits a second for the end of the helper."""
