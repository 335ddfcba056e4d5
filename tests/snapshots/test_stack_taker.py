"""Which processes' stacks are read, and what is written of them."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from nncftools.journal.writing import Writer
from nncftools.sampler.tree import PAGE, Allowance, Process
from nncftools.snapshots import stack_taker
from nncftools.snapshots.budget import Budget
from nncftools.snapshots.python_memory import UnreadableError
from nncftools.snapshots.stack_taker import CUT, Interned, StackTaker, Timeline
from nncftools.snapshots.tree_watch import Watched
from tests.waiting import until

MIB = 1 << 20
STEPS = """
import sys, time
def first():
    print("ready", flush=True)
    sys.stdin.readline()
def second():
    print("ready", flush=True)
    time.sleep(1000)
first()
second()
"""


class Log:
    """The log of a helper."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._path = folder / "log"
        self.writer = Writer(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND))

    def lines(self, kind: str) -> list[Any]:
        """Return what was written of a kind."""
        self.writer.flush()
        written = [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]
        return [line[kind] for line in written if kind in line]

    def functions(self, stack: int) -> list[str]:
        """Return the names of a stack's frames."""
        names = [name for _, name, *_ in self.lines("frame")]
        return [names[frame] for frame in self.lines("stack")[stack][1]]


class Watch(Log):
    """A process that grows, and what is taken of it."""

    def __init__(self, folder: pathlib.Path, pid: int, *, is_allowed: bool = True, spent_s: float = 0.0) -> None:
        super().__init__(folder)
        self.stacks = StackTaker(self.writer, Budget(0.5, 5.0, own_cpu=lambda: spent_s), is_allowed=is_allowed)
        self.watched = self.process(pid)
        self.every = [self.watched]
        self.grow(self.watched, 100)

    def process(self, pid: int, parent: Process | None = None) -> Watched:
        """Return a process that has no memory yet."""
        watched = Watched(Process("/proc", pid, parent, pid, (), allowance=Allowance()), 0)
        watched.is_introduced = True
        return watched

    def grow(self, watched: Watched, mib: int) -> None:
        """Let a process gain memory, now."""
        watched.growth.add(time.monotonic_ns(), (watched.growth.rss + mib * MIB) // PAGE)

    def look(self) -> int:
        """Read stacks if it is time to; return how many readings there were so far."""
        self.stacks.look(self.every, time.monotonic_ns())
        return self.stacks.taken

    def changes(self) -> dict[int, list[str]]:
        """End; return the stacks of each thread, as they were written."""
        self.stacks.close()
        found: dict[int, list[str]] = {}
        for line in self.lines("window"):
            for thread, changes in line["threads"].items():
                names = ["-" if stack is None else " ".join(self.functions(stack)) for _, stack in changes]
                found.setdefault(int(thread), []).extend(names)
        return found


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    """Run a Python that calls one function until it is told to go on, then another one."""
    words = [sys.executable, "-S", "-c", STEPS]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        yield running
        running.kill()


def go_on(program: subprocess.Popen[str]) -> None:
    """Let the program call its other function."""
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write("\n")
    program.stdin.flush()
    assert program.stdout.readline() == "ready\n"


@pytest.mark.process
def test_timeline(tmp_path: pathlib.Path, program: subprocess.Popen[str]) -> None:
    """A line has the moments of readings, and of each thread the stacks from when they were first seen."""
    watch = Watch(tmp_path, program.pid)
    for _ in range(3):
        watch.look()
    go_on(program)
    taken = watch.look()
    found = watch.changes()
    (window,) = watch.lines("window")
    changes = window["threads"][str(program.pid)]

    assert taken == len(window["t_ns"]) == 4
    assert {stack.split()[1] for stack in found[program.pid]} == {"first", "second"}
    assert window["t_ns"] == sorted(window["t_ns"])
    assert [t_ns for t_ns, _ in changes] == [t_ns for t_ns in window["t_ns"] if t_ns in dict(changes)]


@pytest.mark.process
def test_long_timeline(tmp_path: pathlib.Path, program: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A long timeline is written in several lines; each begins with the last reading of the one before."""
    monkeypatch.setattr(stack_taker, "_READINGS", 3)
    watch = Watch(tmp_path, program.pid)
    for _ in range(9):
        watch.look()
    watch.stacks.close()
    windows = watch.lines("window")

    assert len(windows) > 2
    assert all(one["t_ns"][-1] == other["t_ns"][0] for one, other in pairwise(windows))
    assert all(len(window["threads"][str(program.pid)]) == 1 for window in windows)


@pytest.mark.process
def test_rest(tmp_path: pathlib.Path, program: subprocess.Popen[str]) -> None:
    """A process whose memory has rested for a second is not read, and what was read is written."""
    watch = Watch(tmp_path, program.pid)
    watch.look()
    watch.watched.growth.rose_ns -= 2 * 10**9

    assert watch.look() == 1
    assert len(watch.lines("window")) == 1


@pytest.mark.process
def test_budget(tmp_path: pathlib.Path, program: subprocess.Popen[str]) -> None:
    """With nothing left to spend nothing is read."""
    watch = Watch(tmp_path, program.pid, spent_s=100.0)

    assert watch.look() == 0


@pytest.mark.process
def test_not_allowed(tmp_path: pathlib.Path, program: subprocess.Popen[str]) -> None:
    """Where stacks are not to be read, page faults are."""
    watch = Watch(tmp_path, program.pid, is_allowed=False)

    assert watch.look() == 0
    assert watch.lines("faults")


@pytest.mark.process
def test_faults_after_the_last_rise(tmp_path: pathlib.Path, program: subprocess.Popen[str]) -> None:
    """Page faults are read once more after the last rise, as soon as that may be."""
    watch = Watch(tmp_path, program.pid)
    watch.look()
    watch.grow(watch.watched, 1)
    go_on(program)
    watch.watched.faults_after_ns = 0
    watch.look()

    assert len(watch.lines("faults")) == 2


@pytest.mark.process
def test_other_program(tmp_path: pathlib.Path, program: subprocess.Popen[str]) -> None:
    """What has no file of Python mapped is called native; the Python that started it is read instead."""
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        watch = Watch(tmp_path, program.pid)
        watch.watched.growth.rose_ns -= 2 * 10**9
        child = watch.process(sleeping.pid, watch.watched.process)
        watch.every.append(child)
        watch.grow(child, 500)
        taken = watch.look()
        watch.stacks.close()
        sleeping.kill()

    assert taken == 1
    assert watch.lines("native") == [sleeping.pid]
    assert [line["process"] for line in watch.lines("window")] == [program.pid]


@pytest.mark.process
def test_only_other_programs(tmp_path: pathlib.Path) -> None:
    """At the end, a line says that no program that grew was Python."""
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        watch = Watch(tmp_path, sleeping.pid)
        watch.look()
        watch.stacks.close()
        sleeping.kill()

    assert watch.lines("problem") == [{"process": sleeping.pid, "text": "no_python"}]


@pytest.mark.process
def test_exec(tmp_path: pathlib.Path) -> None:
    """A Python that becomes another program is read as that one, a little later."""
    other = "import time; print('ready', flush=True); time.sleep(1000)"
    to = [sys.executable, "-S", "-c", other]
    text = f"import os; print('ready', flush=True); input(); os.execv({to[0]!r}, {to!r})"
    words = [sys.executable, "-S", "-c", text]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        watch = Watch(tmp_path, running.pid)
        watch.look()
        running.stdin.write("\n")
        running.stdin.flush()
        assert running.stdout.readline() == "ready\n"

        def is_read() -> bool:
            watch.grow(watch.watched, 1)
            return watch.look() > 1

        until(is_read, "the second Python")
        running.kill()
    watch.stacks.close()

    assert not watch.lines("problem")


@pytest.mark.process
def test_refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that the kernel does not allow to be read is not tried again."""
    tried = []

    def refuse(process: str, _maps: bytes) -> None:
        tried.append(process)
        raise PermissionError

    monkeypatch.setattr(stack_taker, "python_memory", refuse)
    watch = Watch(tmp_path, os.getpid())
    watch.look()
    watch.grow(watch.watched, 10)

    assert watch.look() == 0
    assert len(tried) == 1
    assert watch.lines("problem") == [{"process": os.getpid(), "text": "refused"}]


@pytest.mark.process
def test_ended_process(tmp_path: pathlib.Path) -> None:
    """A process that has ended is not read, and is no problem."""
    with subprocess.Popen(["sleep", "60"]) as ended:
        watch = Watch(tmp_path, ended.pid)
        ended.kill()

    assert watch.look() == 0
    assert not watch.lines("problem")


class Memory:
    """A Python whose stacks a test says: texts such as ``main f``, or None for a reading that fails."""

    def __init__(self, *readings: dict[int, str] | None) -> None:
        self._readings = list(readings)
        self._names: list[str] = []

    def stacks(self) -> dict[int, tuple[int, ...]]:
        """Return the next reading."""
        reading = self._readings.pop(0)
        if reading is None:
            raise UnreadableError
        return {thread: self._raw(text) for thread, text in reading.items()}

    def _raw(self, text: str) -> tuple[int, ...]:
        numbers: list[int] = []
        for name in reversed(text.split()):
            if name not in self._names:
                self._names.append(name)
            numbers += [self._names.index(name), 0]
        return tuple(numbers)

    def frames(self, stack: tuple[int, ...], _before: tuple[int, ...]) -> list[tuple[str, str, int]]:
        """Return the frames of a stack."""
        return [(self._names[code], "a.py", 1) for code in reversed(stack[::2])]


def read(folder: pathlib.Path, memory: Memory, times: int) -> tuple[list[bool], dict[int, list[str]]]:
    """Return whether each reading was possible, and the stacks of each thread."""
    log = Log(folder)
    timeline = Timeline(memory, Interned(log.writer))  # type: ignore[arg-type]
    done = [timeline.read() for _ in range(times)]
    found: dict[int, list[str]] = {}
    for line in timeline.lines(time.monotonic_ns(), is_end=True):
        for thread, changes in line["threads"].items():  # type: ignore[attr-defined]
            found[thread] = ["-" if stack is None else " ".join(log.functions(stack)) for _, stack in changes]
    return done, found


def test_thread_that_ended(tmp_path: pathlib.Path) -> None:
    """A thread that is not there any more has no stack."""
    memory = Memory({1: "main", 2: "run f"}, {1: "main"}, {1: "main g"})

    assert read(tmp_path, memory, 3) == ([True] * 3, {1: ["main", "main g"], 2: ["run f", "-"]})


def test_torn_stack(tmp_path: pathlib.Path) -> None:
    """A stack that lost its root was read while it changed: it is read again."""
    memory = Memory({1: "main f"}, {1: "f"}, {1: "main g"})

    assert read(tmp_path, memory, 2) == ([True, True], {1: ["main f", "main g"]})


def test_failing_reading(tmp_path: pathlib.Path) -> None:
    """After three failures there is no reading; the next one is taken, with a new root, too."""
    memory = Memory({1: "main f"}, None, None, None, {1: "other g"})

    assert read(tmp_path, memory, 3) == ([True, False, True], {1: ["main f", "other g"]})


def test_very_deep_stack(tmp_path: pathlib.Path) -> None:
    """The middle of a very deep stack is left out."""
    log = Log(tmp_path)
    log.functions(Interned(log.writer).stack([(f"f{number}", "f.py", 1) for number in range(1000)]))
    functions = log.functions(0)

    assert len(functions) == 401
    assert (functions[99:102], functions[-1]) == (["f99", CUT[0], "f700"], "f999")
