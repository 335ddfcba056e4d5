"""Stacks of processes that grow: whose are read and when, what is written of them, and what cannot be read."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import time
from bisect import bisect
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from nncftools.journal.writing import Writer
from nncftools.sampler.tree import PAGE, Common, Process
from nncftools.snapshots import stack_taker
from nncftools.snapshots.finding import python_memory
from nncftools.snapshots.python_memory import Code, NoStackError, UnknownPythonError, UnreadableError
from nncftools.snapshots.stack_taker import CUT, Calls, StackLog, StackTaker
from nncftools.snapshots.tree_watch import Watched
from tests.pythons import python
from tests.waiting import until

if TYPE_CHECKING:
    from nncftools.snapshots.python_memory import RawStack

long = functools.partial(pytest.param, marks=pytest.mark.long)
VERSIONS = [
    pytest.param(version, marks=() if version in {"3.11", "3.15"} else pytest.mark.long)
    for version in ("3.10", "3.11", "3.12", "3.13", "3.14", "3.15")
]
MIB = 1 << 20
MS = 1_000_000
S = 1_000 * MS
STEPS = """import sys, time
def first():
    (print('ready', flush=True), sys.stdin.readline())
def second():
    (print('ready', flush=True), time.sleep(1000))
first()
second()
"""


class Log:
    """The log of a helper."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "log"
        self.writer = Writer(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND))

    def lines(self, kind: str) -> list[Any]:
        """Return what was written of a kind."""
        self.writer.flush()
        written = [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]
        return [line[kind] for line in written if kind in line]

    def functions(self, stack: int | None) -> list[str]:
        """Return the names of a stack's frames."""
        names = [name for _, name, *_ in self.lines("frame")]
        return [] if stack is None else [names[frame] for frame in self.lines("stack")[stack][1]]

    def changes(self, thread: int) -> list[tuple[int, list[str]]]:
        """Return the stacks that a thread had from some moments on, in all windows; a window tells them again."""
        windows = [of["threads"].get(str(thread), ()) for of in self.lines("window")]
        of_windows = [[(t_ns, self.functions(stack)) for t_ns, stack, *_ in changes] for changes in windows]
        return [of for stacks in of_windows for before, of in pairwise([(0, None), *stacks]) if of[1] != before[1]]


class Watch(Log):
    """Processes that grow when a test says so."""

    def __init__(self, folder: Path, pid: int, *, is_allowed: bool = True) -> None:
        super().__init__(folder)
        self.spent_s = 0.0
        self.stacks = StackTaker(self.writer, lambda: self.spent_s < 5, is_allowed=is_allowed)
        self.every: dict[Process, Watched] = {}
        self.watched = self.add(pid)

    def add(self, pid: int, parent: Process | None = None) -> Watched:
        """Watch another process, which has 100 MiB."""
        watched = Watched(Process("/proc", pid, parent, pid, files=(), common=Common()), 0)
        watched.is_introduced = True
        self.every[watched.process] = watched
        self.grow(watched, 100)
        return watched

    def grow(self, watched: Watched, mib: int) -> None:
        """Let a process gain memory, now."""
        watched.growth.add(time.monotonic_ns(), (watched.growth.rss + mib * MIB) // PAGE, 0)

    def look(self, later_ns: int = 0, step: float = 0) -> int:
        """Look at the processes, as if so much later; return how many readings there are."""
        self.stacks.look(self.every, time.monotonic_ns() + later_ns, lambda _: None, step)
        return self.stacks.taken

    def read(self) -> None:
        """Look until there is one more reading: a program that runs may change its stacks meanwhile."""
        before = self.stacks.taken
        until(lambda: self.look() > before, "a reading")


class Program:
    """A program that waits for a line, twice."""

    def __init__(self, words: list[str]) -> None:
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        self.ready()

    def ready(self) -> None:
        """Wait for its line."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def go(self) -> None:
        """Let it go on to its next line."""
        self.send()
        self.ready()

    def send(self) -> None:
        """Let it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.communicate()


Start = Callable[..., Program]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start programs; end them after the test."""
    running: list[Program] = []

    def begun(text: str = STEPS, *words: str) -> Program:
        running.append(Program([*(words or (sys.executable, "-S", "-c")), text]))
        return running[-1]

    yield begun
    for program in running:
        program.end()


@pytest.mark.process
def test_timeline(tmp_path: Path, start: Start) -> None:
    """A line has the moments of all readings, and of each thread its stacks from when they were first seen."""
    text = """import sys, threading, time
thread = threading.Thread(target=sys.stdin.readline)
def first():
    (thread.start(), print('ready', flush=True), thread.join())
def second():
    (print('ready', flush=True), time.sleep(1000))
first()
second()
"""
    program = start(text)
    watch = Watch(tmp_path, program.pid)
    watch.read()
    watch.read()
    program.go()
    watch.read()
    watch.stacks.close()
    (window,) = watch.lines("window")
    (ended,) = (changes for thread, changes in window["threads"].items() if thread != str(program.pid))
    changes = [(t_ns, functions[:2]) for t_ns, functions in watch.changes(program.pid)]

    assert window["process"] == program.pid
    assert len(window["t_ns"]) == watch.stacks.taken == 3
    assert window["t_ns"] == sorted(window["t_ns"])
    assert changes[0] == (window["t_ns"][0], ["<module>", "first"])
    assert changes[-1] == (window["t_ns"][2], ["<module>", "second"])
    assert (ended[0][1] is None, ended[-1]) == (False, [window["t_ns"][2], None, 0, 0])


@pytest.mark.process
def test_rest(tmp_path: Path, start: Start) -> None:
    """The line is written seconds after memory rose, or a second after a reading; then the next one begins."""
    program = start()
    watch = Watch(tmp_path, program.pid)
    watch.read()
    watch.look(later_ns=40 * S)
    assert (watch.stacks.taken, len(watch.lines("window"))) == (1, 1)

    watch.grow(watch.watched, 1)
    watch.read()
    watch.watched.growth.rose_ns += 3 * S
    watch.look(later_ns=4 * S)
    watch.stacks.close()

    assert [len(of["t_ns"]) for of in watch.lines("window")] == [1, 1, 1]
    assert [functions for _, functions in watch.changes(program.pid)] == [["<module>", "first"]] * 3


@pytest.mark.process
def test_long_growth(tmp_path: Path, start: Start) -> None:
    """While memory grows, a line has 200 readings; the next one begins with its last reading and the same stacks."""
    program = start()
    watch = Watch(tmp_path, program.pid)
    while watch.stacks.taken < 300:
        watch.grow(watch.watched, 1)
        watch.read()
    watch.stacks.close()
    first, second = watch.lines("window")

    assert second["t_ns"][0] == first["t_ns"][-1]
    assert len(first["t_ns"]) == 201
    assert second["threads"][str(program.pid)] == [[first["t_ns"][-1], first["threads"][str(program.pid)][-1][1], 0, 0]]


@pytest.mark.process
def test_not_now(tmp_path: Path, start: Start) -> None:
    """Nothing is read with nothing left to spend, nor of a process that may exec in a moment."""
    watch = Watch(tmp_path, start().pid)
    watch.spent_s = 5.0
    assert watch.look() == 0

    watch.spent_s = 0.0
    watch.watched.is_introduced = False
    assert watch.look() == 0


@pytest.mark.process
def test_step(tmp_path: Path, start: Start) -> None:
    """Stacks are read when memory has risen by half a step at least."""
    watch = Watch(tmp_path, start().pid)
    watch.read()
    watch.grow(watch.watched, 1)
    before = watch.stacks.taken
    assert watch.look(step=4 * MIB) == before

    watch.grow(watch.watched, 1)
    until(lambda: watch.look(step=4 * MIB) > before, "a reading after a step")
    before = watch.stacks.taken
    assert watch.look(step=4 * MIB) == before


@pytest.mark.process
def test_not_allowed(tmp_path: Path, start: Start) -> None:
    """If stacks cannot be read here, page faults are read, and no stacks."""
    watch = Watch(tmp_path, start().pid, is_allowed=False)

    assert watch.look() == 0
    assert watch.lines("faults")


@pytest.mark.process
def test_several(tmp_path: Path, start: Start) -> None:
    """All processes that grow are read, each has its line; frames and stacks have the numbers of one log."""
    one, other = start(), start()
    watch = Watch(tmp_path, one.pid)
    watch.add(other.pid)
    until(lambda: watch.look() >= 2, "readings")
    watch.stacks.close()

    assert [of["process"] for of in watch.lines("window")] == [one.pid, other.pid]
    assert [functions for _, functions in watch.changes(other.pid)] == [["<module>", "first"]]
    assert {tuple(watch.functions(number)) for number, _ in watch.lines("stack")} == {("<module>", "first")}


@pytest.mark.process
def test_native_programs_around_a_python(tmp_path: Path, start: Start) -> None:
    """What has no file of Python mapped is called native; for its memory, the Python that started it is read."""
    text = "import subprocess; child = subprocess.Popen(['sleep', '9']); print('ready', flush=True); print(child.pid)"
    shell = start(f'{sys.executable} -uSc "{text}; input()"; :', "sh", "-c")
    assert shell._process.stdout is not None
    child = int(shell._process.stdout.readline())
    (pid,) = map(int, Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text("ascii").split())
    watch = Watch(tmp_path, shell.pid)
    middle = watch.add(pid, watch.watched.process)
    middle.growth.rose_ns -= 50 * S
    watch.add(child, middle.process)
    watch.read()
    watch.stacks.close()
    shell.send()
    os.kill(child, 9)

    assert watch.lines("native") == [shell.pid, child]
    assert [of["process"] for of in watch.lines("window")] == [pid]
    assert watch.changes(pid)[0][1][0] == "<module>"
    assert watch.lines("problem") == []


@pytest.mark.process
def test_only_native_programs(tmp_path: Path) -> None:
    """At the end, a line says that no program that grew was Python."""
    with subprocess.Popen(["sleep", "1000"]) as sleeping:
        watch = Watch(tmp_path, sleeping.pid)
        watch.look()
        watch.stacks.close()
        sleeping.kill()

    assert watch.lines("problem") == [{"process": sleeping.pid, "text": "no_python"}]


def test_native_program_is_seldom_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a native program has loaded Python meanwhile is looked at again, each time later."""
    find = mock.Mock(return_value=None)
    monkeypatch.setattr("nncftools.snapshots.stack_taker.python_memory", find)
    watch = Watch(tmp_path, os.getpid())
    watch.watched.growth.rose_ns += 100 * S
    begun_ns = time.monotonic_ns()
    found = []
    for at_ms in range(0, 2_000, 10):
        watch.stacks.look(watch.every, begun_ns + at_ms * MS, lambda _: None, 0)
        found.append(find.call_count)

    assert [found.index(count) * 10 for count in range(1, 6)] == [0, 100, 300, 700, 1500]


def test_python_without_a_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer Python whose threads still have no stack at the third try is refused by name."""
    find = mock.Mock(side_effect=NoStackError("the layout is not known"))
    monkeypatch.setattr("nncftools.snapshots.stack_taker.python_memory", find)
    watch = Watch(tmp_path, os.getpid())
    for at_ms in (0, 100, 300):
        assert watch.watched.may_look
        watch.stacks.look(watch.every, time.monotonic_ns() + at_ms * MS, lambda _: None, 0)
    watch.stacks.close()

    assert watch.lines("problem") == [{"process": os.getpid(), "text": "the layout is not known"}]


@pytest.mark.process
@pytest.mark.parametrize(
    "failing, error, text",
    [
        ("python_memory", PermissionError(), "refused"),
        ("python_memory", UnknownPythonError("the layout of Python 3.7 is not known"), None),
        ("python_memory", OverflowError("odd"), "OverflowError('odd')"),
        ("Timeline.read", OverflowError("odd"), "OverflowError('odd')"),
    ],
)
def test_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, error: Exception, text: str | None
) -> None:
    """Whatever goes wrong with the memory of a process, only that process is lost; a line has the reason."""
    fail = mock.Mock(side_effect=error)
    monkeypatch.setattr(f"nncftools.snapshots.stack_taker.{failing}", fail)
    watch = Watch(tmp_path, os.getpid())
    watch.look()
    watch.grow(watch.watched, 10)
    watch.look()
    watch.stacks.close()

    assert fail.call_count == 1
    assert watch.lines("problem") == [{"process": os.getpid(), "text": text or str(error)}]


@pytest.mark.process
def test_exec(tmp_path: Path, start: Start) -> None:
    """If a process execs another Python while it grows, the stacks of that one are read from then on."""
    text = (
        "import os, sys\ndef before():\n (print('ready', flush=True), sys.stdin.readline())\nbefore()\n"
        f"os.execv(sys.executable, [sys.executable, '-S', '-c', {STEPS!r}])"
    )
    program = start(text)
    watch = Watch(tmp_path, program.pid)
    watch.read()
    program.go()

    def has_second() -> bool:
        watch.grow(watch.watched, 1)
        watch.look()
        return len(watch.lines("stack")) > 1

    until(has_second, "a stack of the other program")
    watch.stacks.close()
    found = [functions for _, functions in watch.changes(program.pid) if functions]

    assert found == [["<module>", "before"], ["<module>", "first"]]


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize("version", VERSIONS)
def test_name_that_is_not_running(tmp_path: Path, start: Start, version: str) -> None:
    """A code object in the memory of another one is not taken for it: no name is told that did not run then."""
    text = """
import json, sys, time, types
def spin():
    while time.monotonic_ns() < until_ns: pass
def run(number):
    global until_ns
    name, from_ns = "f%d" % number, time.monotonic_ns()
    names = {"co_name": name, "co_qualname": name} if sys.version_info >= (3, 11) else {"co_name": name}
    until_ns = from_ns + 3_000_000
    function = types.FunctionType(spin.__code__.replace(**names), globals())
    function()
    return name, from_ns, time.monotonic_ns(), id(function.__code__)
print("ready", flush=True)
ran = [run(number) for number in range(1000, 1400)]
print("ready", flush=True)
print(json.dumps([of[:3] for of in ran]), flush=True)
print(sum(one[3] == other[3] for one, other in zip(ran, ran[1:])), flush=True)
time.sleep(1000)
"""
    program = start(text, python(version), "-S", "-E", "-c")
    watch = Watch(tmp_path, program.pid)
    ends_ns: list[int] = []
    deadline_ns = time.monotonic_ns() + 2 * S
    while time.monotonic_ns() < deadline_ns:
        watch.grow(watch.watched, 1)
        watch.look()
        ends_ns.append(time.monotonic_ns())
        time.sleep(0.001)
    watch.stacks.close()
    program.ready()
    assert program._process.stdout is not None
    ran = {name: (from_ns, to_ns) for name, from_ns, to_ns in json.loads(program._process.stdout.readline())}
    assert int(program._process.stdout.readline()) > 100  # had the memory of the one before
    wrong, right = [], 0
    for window in watch.lines("window"):
        ((_, changes),) = window["threads"].items()
        told = {t_ns: stack for t_ns, stack, *_ in changes}
        now: int | None = None
        for t_ns in window["t_ns"]:
            now = told.get(t_ns, now)
            for name in watch_names(watch, now):
                from_ns, to_ns = ran[name]
                is_right = from_ns <= ends_ns[bisect(ends_ns, t_ns)] and t_ns <= to_ns
                right += is_right
                wrong += [] if is_right else [(name, t_ns - to_ns, t_ns - from_ns)]

    assert right > 100
    assert wrong == []


def watch_names(watch: Watch, stack: int | None) -> list[str]:
    """Return the names of a stack that are those of numbered functions."""
    return [name for name in watch.functions(stack) if name[1:].isdigit()]


def code(name: str) -> Code:
    """Return a code object that begins in line 1."""
    return Code(b"", (name, "f.py"), 1, b"table", local_bytes=0, size=100)


def test_very_deep_stack(tmp_path: Path) -> None:
    """The middle of a very deep stack is left out."""
    log = Log(tmp_path)
    log.functions(StackLog(log.writer).write_stack([(code(f"f{number}"), 0) for number in range(1000)], 13))
    functions = log.functions(0)

    assert len(functions) == 401
    assert (functions[99:102], functions[-1]) == (["f99", CUT[0].name, "f700"], "f999")


def test_lines_are_different_places(tmp_path: Path) -> None:
    """Another instruction of the same function is another frame and stack; the table of its lines is written once."""
    log = Log(tmp_path)
    stack_log, function = StackLog(log.writer), code("f")

    assert [stack_log.write_stack([(function, offset)], 13) for offset in (2, 4, 2)] == [0, 1, 0]
    assert log.lines("table") == [[0, 13, "dGFibGU="]]
    assert log.lines("frame") == [[0, "f", "f.py", 1, 0, 2], [1, "f", "f.py", 1, 0, 4]]


def raw(text: str) -> RawStack:
    """Return a stack, the outermost frame first: of each frame its function, its instruction and its variables."""
    frames = [frame.split(":") for frame in text.split()]
    return tuple(
        (depth, int.from_bytes(name.encode(), "big"), int(instruction), variables.encode())
        for depth, (name, instruction, variables) in enumerate(frames)
    )


@pytest.mark.parametrize(
    "readings, expected",
    [
        (["loop:1:i=0 takes:1:n=0", "loop:1:i=0 takes:5:n=7"], (2, False)),
        (["loop:1:i=0 computes:1: sum:1:", "loop:1:i=1 computes:1: sum:1:"], (1, False)),
        (["loop:1: first:1:", "loop:2: second:1:"], (1, False)),
        (["loop:1: takes:1:", "loop:2: computes:1:", "loop:1: takes:1:"], (1, True)),
        (["loop:1: a:1:", "loop:1:", "loop:1: a:1:"], (1, False)),
        (["loop:1: key:1:", "loop:1: less:1:", "loop:1: key:1:"], (1, True)),
    ],
    ids=[
        "goes on in its caller",
        "next turn of a loop with a variable",
        "another call",
        "loop without variables",
        "torn reading without the callee",
        "C code that calls two functions in turn",
    ],
)
def test_calls(readings: list[str], expected: tuple[int, bool]) -> None:
    """A frame is in the same call if its caller and its variables have not moved; a repeated call is a loop."""
    calls, before, found = Calls(), raw(""), None
    for now in map(raw, readings):
        same = [frame == frame_before for frame, frame_before in zip(now, before, strict=False)]
        found = calls.follow(now, before, [*same, False].index(False))
        before = now

    assert found == expected


TURNS = """import sys, time
def first():
    end = time.monotonic() + 0.05
    while time.monotonic() < end: pass
def second(): first()
def turns():
    for number in range(1000):
        second()
print('ready', flush=True)
"""


@pytest.mark.process
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "loop, outer",
    [
        long("for number in range(1000): second()", 1, id="module"),
        long("[number for number in ()]\nfor number in range(1000): second()", 1, id="module that comprehends"),
        long("class Turns:\n    for number in range(1000): second()", 2, id="class"),
        pytest.param("turns()", 2, id="function"),
        long("list(second() for number in range(1000))", 2, id="generator"),
        long("def comprehend(): return [second() for number in range(1000)]\ncomprehend()", 0, id="comprehension"),
    ],
)
def test_turns_of_a_loop(version: str, loop: str, outer: int) -> None:
    """In each Python, the turns of a loop are different calls, and what is called within one is the same.

    From 3.12 on, a comprehension is a part of its function, and its variables are there.
    """
    outer = outer or 3 - (int(version[2:]) >= 12)
    words = [python(version), "-S", "-E", "-c", TURNS + loop]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        memory = python_memory(f"/proc/{program.pid}", Path(f"/proc/{program.pid}/maps").read_bytes())
        assert memory is not None
        calls, said = Calls(), list[int]()
        before: RawStack = ()
        for _ in range(200):
            with contextlib.suppress(UnreadableError):
                now = memory.stacks()[program.pid]
                memory.frames(now, 0)
                same = [frame == frame_before for frame, frame_before in zip(now, before, strict=False)]
                said.append(calls.follow(now, before, [*same, False].index(False))[0])
                before = now
            time.sleep(0.005)
        memory.close()
        program.kill()

    assert said.count(outer) > 3  # another turn
    assert said.count(outer + 2) > 20  # the same call of the innermost function


def test_line_tables_have_a_common_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When all line tables are too long together, later frames have none; a table that was written has its number."""
    monkeypatch.setattr(stack_taker, "MOST_OF_TABLES", 12)
    log = Log(tmp_path)
    stack_log = StackLog(log.writer)
    for name in "abca":
        stack_log.write_stack([(code(name), 0), (code(name), 2)], 13)

    assert [number for number, *_ in log.lines("table")] == [0, 1]
    assert [line[4] for line in log.lines("frame")] == [0, 0, 1, 1, None, None]


def test_names_have_a_common_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When names and files are too long together, later frames are left out, as in a very deep stack."""
    monkeypatch.setattr(stack_taker, "_MOST_TEXT", 9)
    log = Log(tmp_path)
    stack = StackLog(log.writer).write_stack([(code(name), 0) for name in "abcde"], 13)

    assert log.functions(stack) == ["a", "b", CUT[0].name, CUT[0].name, CUT[0].name]
