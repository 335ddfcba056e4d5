"""Windows of ``py-spy record``: when they begin and end, of which process, what they show, and what fails."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from nncftools.journal.writing import Writer
from nncftools.sampler.tree import PAGE, Allowance, Process
from nncftools.snapshots.budget import Budget
from nncftools.snapshots.client import found_py_spy
from nncftools.snapshots.tree_watch import Watched
from nncftools.snapshots.windows import CUT, Interned, RecordError, StackTaker, timelines
from tests.waiting import until

MIB = 1 << 20
STEPS = (
    "import time\ndef first():\n    time.sleep(0.6)\ndef second():\n    time.sleep(1000)\nprint('ready', flush=True)\n"
)


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
    """A process that grows, and the windows of it by a program, which may stand for py-spy."""

    def __init__(self, folder: pathlib.Path, pid: int, program: str | None) -> None:
        super().__init__(folder)
        self.budget = Budget(0.5, 5.0, own_cpu=lambda: 0.0)
        self.stacks = StackTaker(self.writer, self.budget, program)
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

    def begin(self) -> int:
        """Begin windows if it is time to; return how many run."""
        self.stacks.begin(self.every, time.monotonic_ns())
        return len(self.stacks.running)

    def end(self) -> None:
        """Wait for the end of all windows; memory does not rise any more."""

        def has_ended() -> bool:
            self.stacks.finish()
            self.stacks.begin(self.every, time.monotonic_ns())
            return not self.stacks.running

        until(has_ended, "the end of windows")


@pytest.fixture
def program() -> Iterator[int]:
    """Run a Python that calls one function for 0.6 s, then another one; return its PID."""
    words = [sys.executable, "-S", "-c", f"{STEPS}first()\nsecond()"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        yield running.pid
        running.kill()


def py_spy() -> str:
    """Return the path of py-spy."""
    found = found_py_spy()
    assert found is not None
    return found


def script(folder: pathlib.Path, text: str) -> str:
    """Return the path of a program that stands for py-spy."""
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.process
def test_timeline(tmp_path: pathlib.Path, program: int) -> None:
    """A window has the stacks of a thread from when they were first seen; it ends early when memory rests."""
    watch = Watch(tmp_path, program, py_spy())
    assert watch.begin() == 1
    watch.end()
    (window,) = watch.lines("window")
    ((thread, changes),) = window["threads"].items()
    shown = [watch.functions(stack) for _, stack in changes if stack is not None]
    times = [t_ns for t_ns, _ in changes]

    assert int(thread) == program
    assert shown[-1] == ["<module>", "second"]
    assert shown[-2:-1] in ([["<module>", "first"]], [])  # on a busy machine, py-spy starts after 0.6 s
    assert window["from_ns"] <= times[0] <= times[-1] <= window["to_ns"]
    assert window["lost"] == watch.stacks.failed


@pytest.mark.long
@pytest.mark.process
def test_windows_follow_each_other(tmp_path: pathlib.Path, program: int) -> None:
    """While memory grows, the next window begins shortly before the end of one."""
    watch = Watch(tmp_path, program, py_spy())

    def grows() -> bool:
        watch.grow(watch.watched, 2)
        watch.stacks.finish()
        watch.begin()
        time.sleep(0.005)
        return len(watch.lines("window")) == 2

    until(grows, "two windows")
    watch.stacks.close()
    first, second = watch.lines("window")[:2]

    assert second["from_ns"] < first["to_ns"] + 200_000_000


@pytest.mark.process
def test_gain_that_is_too_small(tmp_path: pathlib.Path, program: int) -> None:
    """A process that gained less than 1 MiB gets no window."""
    watch = Watch(tmp_path, program, py_spy())
    watch.watched.growth.looked()

    assert watch.begin() == 0


@pytest.mark.process
def test_budget(tmp_path: pathlib.Path, program: int) -> None:
    """With nothing left to spend there is no window."""
    watch = Watch(tmp_path, program, py_spy())
    watch.budget.add(100)

    assert watch.begin() == 0


@pytest.mark.process
def test_at_most_four(tmp_path: pathlib.Path) -> None:
    """Four processes have windows at once: those that grew most."""
    watch = Watch(tmp_path, os.getpid(), script(tmp_path, "exec sleep 60"))
    watch.every = [watch.process(os.getpid()) for _ in range(6)]
    for number, watched in enumerate(watch.every):
        watch.grow(watched, 10 + number)
    assert watch.begin() == 4
    running = set(watch.stacks.running.values())
    watch.stacks.close()

    assert running == set(watch.every[2:])


@pytest.mark.process
def test_other_program(tmp_path: pathlib.Path, program: int) -> None:
    """What has no file of Python mapped is called native; the Python that started it is read instead."""
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        watch = Watch(tmp_path, program, py_spy())
        watch.watched.growth.looked()
        child = watch.process(sleeping.pid, watch.watched.process)
        watch.every.append(child)
        watch.grow(child, 500)
        assert watch.begin() == 1
        assert set(watch.stacks.running.values()) == {watch.watched}
        watch.end()
        sleeping.kill()

    assert watch.lines("native") == [sleeping.pid]
    assert len(watch.lines("window")) == 1


@pytest.mark.process
def test_only_other_programs(tmp_path: pathlib.Path) -> None:
    """At the end, a line says that no program that grew was Python."""
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        watch = Watch(tmp_path, sleeping.pid, py_spy())
        watch.begin()
        watch.stacks.close()
        sleeping.kill()

    assert watch.lines("problem") == [{"process": sleeping.pid, "text": "no_python"}]


@pytest.mark.process
def test_no_py_spy(tmp_path: pathlib.Path, program: int) -> None:
    """Without py-spy, page faults are read, and no stacks."""
    watch = Watch(tmp_path, program, None)

    assert watch.begin() == 0
    assert watch.lines("faults")


@pytest.mark.process
def test_refused(tmp_path: pathlib.Path, program: int) -> None:
    """A process that the kernel does not allow to be read is not tried again."""
    watch = Watch(tmp_path, program, script(tmp_path, "echo 'Error: Permission Denied' >&2; exit 1"))
    watch.begin()
    watch.end()
    watch.grow(watch.watched, 10)

    assert watch.begin() == 0
    assert watch.lines("problem") == [{"process": program, "text": "refused"}]


@pytest.mark.process
def test_failures(tmp_path: pathlib.Path, program: int) -> None:
    """A py-spy that fails is tried again, each time later; at last, a line has what it said."""
    watch = Watch(tmp_path, program, script(tmp_path, "echo 'Error: no luck' >&2; exit 1"))

    def has_problem() -> bool:
        watch.grow(watch.watched, 2)
        watch.begin()
        watch.stacks.finish()
        return bool(watch.lines("problem"))

    until(has_problem, "a line about the problem")
    assert watch.lines("problem") == [{"process": program, "text": "Error: no luck"}]


@pytest.mark.process
def test_hangs(tmp_path: pathlib.Path, program: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A py-spy that runs on after its time is killed."""
    monkeypatch.setattr("nncftools.snapshots.windows._LONGEST_OVER_NS", 0)
    watch = Watch(tmp_path, program, script(tmp_path, "trap '' INT; exec sleep 60"))
    watch.begin()
    watch.end()

    assert watch.stacks.failed == 1


@pytest.mark.process
def test_program_that_cannot_be_started(tmp_path: pathlib.Path, program: int) -> None:
    """Why it cannot be started is written, once."""
    watch = Watch(tmp_path, program, str(tmp_path / "absent"))

    assert watch.begin() == 0
    assert watch.lines("problem") == [
        {"process": program, "text": "py-spy cannot be started: No such file or directory"}
    ]


@pytest.mark.process
def test_ended_process(tmp_path: pathlib.Path) -> None:
    """A process that has ended has no windows and no problems."""
    with subprocess.Popen(["sleep", "60"]) as ended:
        watch = Watch(tmp_path, ended.pid, py_spy())
        ended.kill()

    assert watch.begin() == 0
    assert not watch.lines("problem")


def event(sign: str, at_us: int, name: str, thread: int = 1, line: int = 1) -> dict[str, Any]:
    """Return an event of a trace."""
    return {"ph": sign, "ts": at_us, "name": name, "tid": thread, "args": {"filename": f"{name}.py", "line": line}}


def changes(folder: pathlib.Path, events: Sequence[dict[str, Any]], pid: int = 7) -> dict[int, list[tuple[int, str]]]:
    """Return what a trace says: by thread, microseconds and stacks as texts."""
    log = Log(folder)
    found, _, _ = timelines(json.dumps(list(events)), Interned(log.writer), pid, 0)
    return {
        thread: [(t_ns // 1000, "-" if stack is None else ">".join(log.functions(stack))) for t_ns, stack in of]
        for thread, of in found.items()
    }


def test_reused_address(tmp_path: pathlib.Path) -> None:
    """A new thread may have the address of one that ended: the name of the outermost frame tells them apart."""
    events = [event("B", 1, "thread (10): a"), event("B", 1, "f")]
    events += [event("E", 5, "f"), event("E", 5, "thread (10): a"), event("B", 5, "thread (11): b"), event("B", 5, "g")]
    events += [event("E", 9, "g"), event("E", 9, "thread (11): b")]

    assert changes(tmp_path, events) == {10: [(1, "f"), (5, "-")], 11: [(5, "g")]}


def test_threads_without_number(tmp_path: pathlib.Path) -> None:
    """Before Python 3.11, the only thread is that of the process; several have numbers below 0."""
    main = [event("B", 1, "thread (0x7F): "), event("B", 1, "f")]
    other = [event("B", 2, "thread (0x8F): ", 2), event("B", 2, "g", 2)]

    assert list(changes(tmp_path, main)) == [7]
    assert list(changes(tmp_path, main + other)) == [-1, -2]


def test_torn_stack(tmp_path: pathlib.Path) -> None:
    """A stack that lost its root was read while it changed: the one before goes on."""
    whole = [event("B", 1, "thread (7): "), event("B", 1, "main"), event("B", 1, "f")]
    torn = [event("E", 3, "f"), event("E", 3, "main"), event("B", 3, "f")]
    again = [event("E", 5, "f"), event("B", 5, "main"), event("B", 5, "g")]

    assert changes(tmp_path, [*whole, *torn, *again])[7] == [(1, "main>f"), (5, "main>g")]


def test_lines_are_different_places(tmp_path: pathlib.Path) -> None:
    """Another line of the same function is another stack."""
    events = [event("B", 1, "thread (7): "), event("B", 1, "f", line=2), event("E", 3, "f", line=2)]

    assert changes(tmp_path, [*events, event("B", 3, "f", line=4)])[7] == [(1, "f"), (3, "f")]


def test_very_deep_stack(tmp_path: pathlib.Path) -> None:
    """The middle of a very deep stack is left out."""
    log = Log(tmp_path)
    log.functions(Interned(log.writer).stack([(f"f{number}", "f.py", 1) for number in range(1000)]))
    functions = log.functions(0)

    assert len(functions) == 401
    assert (functions[99:102], functions[-1]) == (["f99", CUT[0], "f700"], "f999")


def test_unpaired_surrogate(tmp_path: pathlib.Path) -> None:
    """A name that JSON readers would reject is replaced."""
    text = json.dumps([event("B", 1, "thread (7): "), event("B", 1, "f\ud800")])
    log = Log(tmp_path)
    timelines(text, Interned(log.writer), 7, 0)

    assert log.functions(0) == ["f?"]


@pytest.mark.parametrize("text", ["", "[1]", '[{"ts": 1}]', '[{"ts":1,"tid":1,"ph":"E","name":"f","args":{}}]'])
def test_wrong_output(tmp_path: pathlib.Path, text: str) -> None:
    """What another program writes is an error of one line."""
    with pytest.raises(RecordError, match="something else than stacks"):
        timelines(text, Interned(Log(tmp_path).writer), 7, 0)
