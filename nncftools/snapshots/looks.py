"""Decides when to read the stacks of which process, runs ``py-spy dump`` on it, and writes them to the log.

One dump takes 7 to 9 ms of CPU time, 19 ms with 20 threads of 40 frames, and 115 ms with 200 threads. Each stack and
each frame is written once; later lines name it by its number.
"""

from __future__ import annotations

import json
import os
import signal
import time

from nncftools.sampler.tree import exit_watch
from nncftools.snapshots.budget import step
from nncftools.snapshots.tree_watch import EXPECTED_S

TYPE_CHECKING = False

if TYPE_CHECKING:
    import select
    from collections.abc import Collection, Mapping, Sequence

    from nncftools.journal.writing import Writer
    from nncftools.snapshots.budget import Budget
    from nncftools.snapshots.tree_watch import Watched

    Frame = tuple[str, str, int]
    """Function, file and line."""

LONGEST_S = 1.0
"""A dump that takes longer is ended."""
_READ_BEFORE_END_NS = 1_000_000
"""py-spy reads the stacks at the end of a dump, then prints them."""
_MOST_FRAMES = 400
_OUTER_FRAMES = 100
CUT = ("…", "", 0)
"""Stands for the middle of a very deep stack."""
_ROOTS = ("<module>", "_bootstrap", "_bootstrap_inner", "run", "run_code")
_LARGEST = 1 << 26
_WRONG = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What the output of another program than py-spy can raise."""


class Stack:
    """The Python stack of a thread, the outermost frame first."""

    def __init__(self, thread: int | None, frames: Sequence[Frame]) -> None:
        self.thread = thread
        """The kernel's ID; None where Python (before 3.11) does not keep it."""
        self.frames = frames


class Dump:
    """A running ``py-spy dump``."""

    def __init__(self, program: str, pid: int, *, blocking: bool) -> None:
        """Start it; with ``blocking``, it stops the process while it reads. Raises OSError."""
        words = [program, "dump", "--pid", str(pid), "--json", "--full-filenames"]
        words += [] if blocking else ["--nonblocking"]
        self._output = os.memfd_create("stacks")
        self._errors = os.memfd_create("errors")
        self.cpu_s = 0.0
        self.at_ns = 0
        """When the stacks were read, on CLOCK_MONOTONIC."""
        self._begun_s = time.monotonic()
        self._failed = self._is_late = False
        environment = {"PATH": os.defpath, "RUST_BACKTRACE": "0"}
        outputs = (os.POSIX_SPAWN_DUP2, self._output, 1), (os.POSIX_SPAWN_DUP2, self._errors, 2)
        files = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), *outputs
        try:
            self._pid = os.posix_spawn(program, words, environment, file_actions=files, setsigmask=[])
        except OSError:
            self._close()
            raise
        self.watch = exit_watch(self._pid)
        """A descriptor that becomes readable at its end; None where the kernel has none (Linux before 5.3)."""

    def has_ended(self) -> bool:
        """Return whether it has ended; end it when it takes too long."""
        self._is_late = time.monotonic() - self._begun_s > LONGEST_S
        if self._is_late:
            os.kill(self._pid, signal.SIGKILL)  # nobody has reaped it
        pid, status, usage = os.wait4(self._pid, 0 if self._is_late else os.WNOHANG)
        if not pid:
            return False
        self.at_ns = time.monotonic_ns() - _READ_BEFORE_END_NS
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self._failed = status != 0
        return True

    def stop(self) -> None:
        """End it without its result."""
        os.kill(self._pid, signal.SIGKILL)
        os.wait4(self._pid, 0)
        self._close()

    def result(self) -> list[Stack]:
        """Return the stacks of all threads that run Python code. Raises DumpError."""
        try:
            if self._failed and self._is_late:
                raise DumpError(f"py-spy took more than {LONGEST_S:g} s", is_late=True)
            if self._failed:
                raise DumpError(_text(self._errors))
            return _stacks(_text(self._output))
        finally:
            self._close()

    def _close(self) -> None:
        for descriptor in (self._output, self._errors, getattr(self, "watch", None)):
            if descriptor is not None:
                os.close(descriptor)


class DumpError(Exception):
    """The stacks could not be read; the message is what py-spy printed."""

    def __init__(self, text: str, *, is_late: bool = False) -> None:
        super().__init__(text)
        self.is_late = is_late
        """Whether it was ended because it took too long."""

    @property
    def is_refusal(self) -> bool:
        """Whether the kernel does not allow it."""
        text = str(self).lower()
        return "permission denied" in text or "operation not permitted" in text


def _text(descriptor: int) -> str:
    return os.pread(descriptor, _LARGEST, 0).decode("utf-8", "replace")


def _stacks(text: str) -> list[Stack]:
    try:
        return [stack_of(thread) for thread in json.loads(text) if thread["frames"]]
    except _WRONG as error:
        raise DumpError(f"py-spy printed something else than stacks ({type(error).__name__})") from error


def stack_of(thread: dict[str, object]) -> Stack:
    """Return the stack of a thread as py-spy prints it; the middle of a very deep one is left out."""
    listed = thread["frames"]
    number = thread.get("os_thread_id")
    if not isinstance(listed, list):
        raise TypeError("a list of frames expected")
    frames = [(_harmless(frame["name"]), _harmless(frame["filename"]), int(frame["line"])) for frame in listed[::-1]]
    if len(frames) > _MOST_FRAMES:
        frames[_OUTER_FRAMES : len(frames) - (_MOST_FRAMES - _OUTER_FRAMES)] = [CUT]
    return Stack(number if isinstance(number, int) else None, frames)


def _harmless(text: object) -> str:
    """Return text that JSON readers accept: unpaired surrogates are replaced."""
    return str(text).encode("utf-8", "replace").decode()


def is_whole(frames: Sequence[Frame], before: Sequence[Frame] | None) -> bool:
    """Return whether a stack has its root: while frames change, py-spy can lose it and still report success."""
    root = frames[0]
    return root[0] in _ROOTS or before is None or before[0][:2] == root[:2]


class Interned:
    """The stacks and frames of a log so far."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._frames: dict[Frame, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}

    def stack(self, frames: Sequence[Frame]) -> int:
        """Return the number of a stack; write it first if it is new."""
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


_MS = 1_000_000
_STALLED_NS = 30 * _MS
_AT_REST = 0.3
"""When memory has stopped rising, this part of the gain is enough: a look shows whether the same code still runs."""
_IMPORTING = 6
"""During an import, the gain must be this many times larger: its modules share their outer frames, and say little."""
_IMPORTS_NS = 1_000 * _MS
"""An import may have ended this long after a look."""
_IMPORT = "<frozen importlib._bootstrap>"
_MOST_AT_ONCE = 4
_LEAST_GAIN = 1 << 20
_STEP_EVERY_NS = 200 * _MS
_RETRY_NS = 20 * _MS
_FIRST_PAUSE_NS = 100 * _MS
_MOST_PAUSES = 10
_MOST_PROBLEMS = 20
_LONGEST_PROBLEM = 200


class StackTaker:
    """Takes the stacks of one recording, by py-spy at ``program``; none if that is None."""

    def __init__(self, writer: Writer, budget: Budget, poller: select.poll, program: str | None) -> None:
        """Watch the ends of dumps by ``poller``."""
        self._writer = writer
        self._budget = budget
        self._poller = poller
        self._program = program
        self._interned = Interned(writer)
        self.running: dict[Watched, Dump] = {}
        """The dumps whose results were not taken."""
        self._step = 0.0
        self._step_at_ns = 0
        self._problems = 0
        self._others: set[int] = set()
        """The processes that grew without a file of Python mapped; empty once a stack was seen."""
        self.taken = 0
        self.failed = 0

    def begin(self, processes: Collection[Watched], now_ns: int) -> None:
        """Begin to read the stacks of what has gained enough, the one that gained most first."""
        if self._program is None or self._budget.waits or len(self.running) >= _MOST_AT_ONCE:
            return
        if now_ns >= self._step_at_ns:
            self._step_at_ns = now_ns + _STEP_EVERY_NS
            self._step = step(self._budget.used, sum([watched.growth.rss for watched in processes]))
            for watched in processes:
                if watched.growth.gained >= _LEAST_GAIN and watched.has_execed():
                    self._forget_stacks(watched, now_ns)
        allowed = [watched for watched in processes if watched.may_look and now_ns >= watched.look_after_ns]
        gained = sum([watched.growth.gained for watched in allowed])
        due = [watched for watched in processes if self._is_due(watched, gained, now_ns)]
        due.sort(key=lambda watched: -watched.growth.gained)
        for watched in due[: _MOST_AT_ONCE - len(self.running)]:
            if self._budget.allows(watched.cost_s) and self._may_be_python(watched, now_ns):
                self._begin(self._program, watched)

    def _is_due(self, watched: Watched, gained: int, now_ns: int) -> bool:
        """Return whether to look at a process, if all together have gained so many bytes since their last looks."""
        if watched.growth.gained < _LEAST_GAIN or not watched.is_introduced or watched in self.running:
            return False
        is_import = watched.imports and now_ns - watched.looked_ns < _IMPORTS_NS
        least = self._step * _IMPORTING if is_import else self._step
        if now_ns - watched.growth.rose_ns >= _STALLED_NS:
            least *= _AT_REST
        return gained >= least and watched.may_look and now_ns >= watched.look_after_ns

    def _forget_stacks(self, watched: Watched, now_ns: int) -> None:
        """Begin as with a new process: it runs another program now."""
        if watched.seen:
            self._write(watched, now_ns, dict.fromkeys(watched.seen), {}, 0)
        watched.begin_program()

    def _write(
        self,
        watched: Watched,
        t_ns: int,
        stacks: Mapping[int, int | None],
        used: Mapping[int, tuple[int, int]],
        lost: int,
    ) -> None:
        """Write the stacks that changed, and the page faults and clock ticks of each thread since the last look."""
        faults = {thread: count for thread, (count, _) in used.items() if count}
        ticks = {thread: count for thread, (_, count) in used.items() if count}
        facts = {"stacks": stacks, "faults": faults, "ticks": ticks, "lost": lost}
        self._writer.line("look", {"process": watched.process.number, "t_ns": t_ns, **facts})

    def _may_be_python(self, watched: Watched, now_ns: int) -> bool:
        """Return whether it has a file of Python mapped; if not, look again later, each time later."""
        if watched.seen:
            return True
        try:
            if b"python" in watched.process.read("maps"):
                return True
        except OSError as error:
            if isinstance(error, PermissionError):  # otherwise, it has ended
                self._refuse(watched)
            return False
        self._others.add(watched.process.number)
        self._postpone(watched, now_ns)
        return False

    def _refuse(self, watched: Watched) -> None:
        watched.may_look = False
        self._problem(watched, "refused")

    def _postpone(self, watched: Watched, now_ns: int) -> None:
        watched.look_after_ns = now_ns + _FIRST_PAUSE_NS * 2 ** min(watched.failures, _MOST_PAUSES)
        watched.failures += 1

    def _begin(self, program: str, watched: Watched) -> None:
        self._budget.begin(watched.cost_s)
        try:
            dump = Dump(program, watched.process.pid, blocking=watched.needs_blocking)
        except OSError as error:
            self._problem(watched, f"py-spy cannot be started: {error.strerror or error}")
            self._program = None
            return
        self.running[watched] = dump
        if dump.watch is not None:
            self._poller.register(dump.watch)

    def finish(self) -> bool:
        """Take the results of the dumps that have ended; return whether stacks were written."""
        taken = self.taken
        for watched, dump in list(self.running.items()):
            if not dump.has_ended():
                continue
            del self.running[watched]
            if dump.watch is not None:
                self._poller.unregister(dump.watch)
            self._budget.add(dump.cpu_s)
            watched.cost_s = (watched.cost_s + max(dump.cpu_s, EXPECTED_S / 2)) / 2
            try:
                stacks = dump.result()
                self._take(watched, dump.at_ns, stacks)
            except DumpError as error:
                self._fail(watched, error)
            except OSError:  # the process has ended
                continue
        return self.taken > taken

    def _fail(self, watched: Watched, error: DumpError) -> None:
        self.failed += 1
        if error.is_refusal and os.path.exists(watched.process.path):
            self._refuse(watched)
            return
        now_ns = time.monotonic_ns()
        if watched.seen and not error.is_late:  # its stack has changed meanwhile
            watched.look_after_ns = now_ns + _RETRY_NS
            return
        self._postpone(watched, now_ns)
        if watched.failures > 1 or error.is_late:
            self._problem(watched, str(error).partition("\n")[0][:_LONGEST_PROBLEM])

    def _problem(self, watched: Watched, text: str) -> None:
        self._problems += 1
        if self._problems <= _MOST_PROBLEMS:
            self._writer.line("problem", {"process": watched.process.number, "text": text})

    def _take(self, watched: Watched, at_ns: int, stacks: list[Stack]) -> None:
        """Write the stacks that changed, and who touched new memory since the last look. Raises OSError."""
        if any(stack.thread is None for stack in stacks) and len(stacks) > 1:  # before Python 3.11
            watched.needs_blocking = True
            return
        used, lost = watched.threads.read()
        now: dict[int, tuple[int, tuple[Frame, ...]]] = {}
        for stack in stacks:
            thread = watched.process.pid if stack.thread is None else stack.thread
            _, before = watched.seen.get(thread, (None, None))
            if is_whole(stack.frames, before):
                frames = tuple(stack.frames)
                now[thread] = self._interned.stack(frames), frames
        changed: dict[int, int | None] = {
            thread: number for thread, (number, _) in now.items() if watched.seen.get(thread, (None,))[0] != number
        }
        changed |= dict.fromkeys(watched.seen.keys() - now.keys())
        watched.seen = now
        watched.imports = any(frame[1] == _IMPORT for _, frames in now.values() for frame in frames)
        watched.looked_ns = at_ns
        watched.failures = 0
        watched.growth.looked()
        self.taken += 1
        self._others.clear()
        self._write(watched, at_ns, changed, used, lost)

    def close(self) -> None:
        """End the dumps that still run; write a line if no program that grew was Python."""
        if self._others and not self._problems:
            self._writer.line("problem", {"process": min(self._others), "text": "no_python"})
        for dump in self.running.values():
            dump.stop()
