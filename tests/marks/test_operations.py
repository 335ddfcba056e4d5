from __future__ import annotations

import asyncio
import inspect
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nncftools
from nncftools.api.recorder import acquire_log, release_log
from nncftools.marks.line import VARIABLE
from nncftools.marks.operations import mark_from_outside


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Send marks to an empty log, as in a recorded run."""
    path = tmp_path / "marks.jsonl"
    path.touch()
    monkeypatch.setenv(VARIABLE, str(path))
    return path


def lines(log: Path) -> list[dict[str, Any]]:
    """Return the lines of the log."""
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_mark_operation(log: Path) -> None:
    """A mark is one line with its moment, process and thread."""
    nncftools.mark_operation('Export "ü"')
    (line,) = lines(log)

    assert (line["name"], line["pid"], line["tid"]) == ('Export "ü"', os.getpid(), threading.get_native_id())
    assert line["source"] == "api"
    assert "event" not in line


@pytest.mark.process
def test_number_of_a_program(log: Path) -> None:
    """The first mark of a program has its number, which forks and copies of our modules share; exec makes another."""
    again = "import nncftools; nncftools.mark_operation('new')"
    code = (
        "import importlib, os, sys, nncftools; from nncftools.marks import autoload, line, operations\n"
        "def mark():\n"
        "    for _ in range(2): operations.mark_operation('a')\n"
        "mark()\n"
        "if not os.fork():\n"
        "    mark(); os._exit(0)\n"
        "os.wait(); importlib.reload(line); importlib.reload(operations); mark(); autoload.start()\n"
        "os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])"
    )
    subprocess.run([sys.executable, "-c", code, again], check=True)
    first, second, child, after, copy, later, hook, new = (line.get("program") for line in lines(log))

    assert (second, after, later) == (None, None, None)
    assert first == child == copy == hook
    assert None is not new != first


@pytest.mark.process
def test_number_of_a_program_of_several_interpreters() -> None:
    """All interpreters of a process have the same number of the program."""
    say = "from nncftools.marks import line; print(line.PROGRAM, flush=True)"
    is_new = sys.version_info >= (3, 13)
    module, kind = ("_interpreters", "'legacy'") if is_new else ("_xxsubinterpreters", "isolated=False")
    code = f"{say}; import {module} as made; made.run_string(made.create({kind}), {say!r})"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    (first, second) = result.stdout.split()

    assert first == second


def test_exceptions_pass_and_are_named(log: Path) -> None:
    """An exception ends the operation, is named in its end line, and propagates."""
    with pytest.raises(KeyError, match="mine"), nncftools.operation("Export"):
        raise KeyError("mine")

    assert lines(log)[1]["error"] == "KeyError"


def around(log: Path) -> list[tuple[str, str]]:
    """Return the name of each operation, and that of the one around it."""
    begun = [line for line in lines(log) if line.get("event") != "end"]
    names = {0: "", **{line["op"]: line["name"] for line in begun if "op" in line}}
    return [(line["name"], names[line["in"]]) for line in begun]


def test_tasks_stand_beside_each_other(log: Path) -> None:
    """Parallel tasks are not inside of one another, but inside of what was open where they were made."""

    async def task(name: str) -> None:
        """Run two operations, one inside of the other."""
        with nncftools.operation(name):
            await asyncio.sleep(0.001)
            with nncftools.operation(f"in {name}"):
                await asyncio.sleep(0.001)

    async def main() -> None:
        """Run two tasks, then two inside of an operation."""
        await asyncio.gather(task("a"), task("b"))
        with nncftools.operation("both"):
            await asyncio.gather(task("c"), task("d"))

    asyncio.run(main())

    assert sorted(around(log)) == [
        *(("a", ""), ("b", ""), ("both", ""), ("c", "both"), ("d", "both")),
        *(("in a", "a"), ("in b", "b"), ("in c", "c"), ("in d", "d")),
    ]


def test_threads_stand_beside_the_main_thread(log: Path) -> None:
    """A thread is inside of no operation, unless it runs in a copy of the context."""

    def work(name: str) -> None:
        """Mark."""
        with nncftools.operation(name):
            nncftools.mark_operation(f"moment in {name}")

    with nncftools.operation("main"):
        for run in (threading.Thread(target=work, args=("beside",)), threading.Thread(target=work, args=("too",))):
            run.start()
            run.join()
        asyncio.run(asyncio.to_thread(work, "inside"))

    assert around(log) == [
        *(("main", ""), ("beside", ""), ("moment in beside", "beside"), ("too", ""), ("moment in too", "too")),
        *(("inside", "main"), ("moment in inside", "inside")),
    ]


def test_what_runs_later_is_marked_to_its_end(log: Path) -> None:
    """Decorated coroutine and generator functions are marked while they run, and stay what they are."""

    @nncftools.operation("coroutine")
    async def coroutine() -> int:
        """Wait, then mark."""
        await asyncio.sleep(0)
        nncftools.mark_operation("end of it")
        return 5

    @nncftools.operation("generator")
    def generator() -> Iterator[int]:
        """Yield once, then mark."""
        yield 1
        nncftools.mark_operation("end of it")

    assert asyncio.run(coroutine()) == 5
    for _ in generator():
        nncftools.mark_operation("between")

    assert inspect.iscoroutinefunction(coroutine)
    assert inspect.isgeneratorfunction(generator)
    assert around(log) == [
        *(("coroutine", ""), ("end of it", "coroutine")),
        *(("generator", ""), ("between", ""), ("end of it", "generator")),
    ]


def test_a_function_is_decorated_once_for_all(log: Path) -> None:
    """A method is marked, too, and a decorated function may call itself."""

    class Model:
        """Has a method."""

        @nncftools.operation("run")
        def run(self, deeper: int) -> int:
            """Return a number."""
            return self.run(deeper - 1) + 1 if deeper else 0

    assert Model().run(2) == 2
    assert around(log) == [("run", ""), ("run", "run"), ("run", "run")]


def test_one_object_for_parallel_tasks(log: Path) -> None:
    """Each block ends its own operation, also if several tasks use one object."""
    shared = nncftools.operation("shared")

    async def task(seconds: float) -> None:
        """Be open for some time."""
        with shared:
            await asyncio.sleep(seconds)

    async def main() -> None:
        """Run two; the first one ends last."""
        await asyncio.gather(task(0.02), task(0.001))

    asyncio.run(main())
    first, second = (line["op"] for line in lines(log) if line["event"] == "begin")

    assert [line["op"] for line in lines(log) if line["event"] == "end"] == [second, first]


@pytest.mark.parametrize("path", [None, "", "/no/such/log"])
def test_without_a_recording(path: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """When nothing is recording, or the log was removed, marks do nothing and create no file."""
    if path is None:
        monkeypatch.delenv(VARIABLE, raising=False)
    else:
        monkeypatch.setenv(VARIABLE, path)
    nncftools.mark_operation("a")
    with nncftools.operation("b"):
        done = True

    assert done
    assert not Path("/no").exists()


def test_from_outside(log: Path) -> None:
    """A mark from outside names no process."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    mark_from_outside(descriptor, "Export", "shell")
    os.close(descriptor)
    (line,) = lines(log)

    assert (line["name"], line["source"], "pid" in line) == ("Export", "shell", False)


def test_own_log_is_shared_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All recorders of a program share one log; the last one removes it."""
    monkeypatch.delenv(VARIABLE, raising=False)
    first, second = acquire_log(), acquire_log()
    known = os.environ[VARIABLE]
    release_log()
    there = first.exists()
    release_log()

    assert first == second == Path(known)
    assert there
    assert not first.exists()
    assert VARIABLE not in os.environ


def test_log_of_the_recording_around(log: Path) -> None:
    """Inside a recorded run, marks go to the run's log, which is kept."""
    assert acquire_log() == log
    release_log()

    assert log.exists()
    assert os.environ[VARIABLE] == str(log)


@pytest.mark.process
def test_log_without_a_temporary_folder() -> None:
    """When no file can be written, the log is in memory."""
    script = (
        "import os, tempfile; from nncftools.api.recorder import acquire_log, release_log; import nncftools\n"
        "def mkstemp(**_): raise OSError\n"
        "tempfile.mkstemp = mkstemp\n"
        "path = acquire_log(); nncftools.mark_operation('a'); print(path.read_text()); release_log()\n"
        "print('NNCF_TOOLS_MARKS' in os.environ)"
    )
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)

    assert '"name":"a"' in result.stdout
    assert result.stdout.splitlines()[-1] == "False"
