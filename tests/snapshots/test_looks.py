"""When stacks are read, of which process, and what happens if they cannot be read.

Dumps of stacks by py-spy.
"""

from __future__ import annotations

import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import pytest

from nncftools.journal.writing import Writer
from nncftools.sampler.tree import PAGE, Allowance, Process
from nncftools.snapshots import looks
from nncftools.snapshots.budget import Budget
from nncftools.snapshots.client import found_py_spy
from nncftools.snapshots.looks import StackTaker
from nncftools.snapshots.tree_watch import Watched
from tests.waiting import until

MIB = 1 << 20
NOW_NS = 1_000_000_000


class Watch:
    """A process that has grown, and the looks at it by a program in place of py-spy."""

    def __init__(self, folder: pathlib.Path, pid: int, program: str | None) -> None:
        self._log = folder / "log"
        self.writer = Writer(os.open(self._log, os.O_RDWR | os.O_CREAT | os.O_APPEND))
        self.budget = Budget(0.01, 0.5, own_cpu=lambda: 0.0)
        self.looks = StackTaker(self.writer, self.budget, select.poll(), program)
        self.one = Watched(Process("/proc", pid, None, 0, (), allowance=Allowance()), 0)
        self.one.is_introduced = True
        self.grow(100)

    def grow(self, mib: int) -> None:
        """Let the process gain memory."""
        self.one.growth.add(NOW_NS, (self.one.growth.rss + mib * MIB) // PAGE)

    def look(self, now_ns: int = NOW_NS) -> bool:
        """Begin a look if it is time to, and wait for its end; return whether stacks were written."""
        until(lambda: not self.budget.waits, "the budget")
        self.looks.begin([self.one], now_ns)
        found = False
        while self.looks.running:
            found |= self.looks.finish()
            time.sleep(0.001)
        return found

    def lines(self, kind: str) -> list[dict[str, object]]:
        """Return what was written of a kind."""
        self.writer.flush()
        written = [json.loads(line) for line in self._log.read_text(encoding="utf-8").splitlines()]
        return [line[kind] for line in written if kind in line]


@pytest.fixture
def program() -> Iterator[int]:
    """Run a Python; return its PID."""
    words = [sys.executable, "-S", "-c", "import time; print('ready', flush=True); time.sleep(1000)"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        yield running.pid
        running.kill()


def script(folder: pathlib.Path, text: str) -> str:
    """Return the path of a program that stands for py-spy, and counts its calls."""
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\necho >> {folder}/calls\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def calls(folder: pathlib.Path) -> int:
    """Return how often the program was called."""
    path = folder / "calls"
    return len(path.read_text(encoding="utf-8")) if path.exists() else 0


@pytest.mark.process
def test_stacks_are_written(tmp_path: pathlib.Path, program: int) -> None:
    """A look writes the stacks, and only what changed the next time."""
    watch = Watch(tmp_path, program, found_py_spy())

    assert watch.look()
    watch.grow(50)
    assert watch.look()

    first, second = watch.lines("look")
    assert first["stacks"] == {str(program): 0}
    assert second["stacks"] == {}
    assert watch.one.growth.gained == 0


@pytest.mark.process
def test_gain_that_is_too_small(tmp_path: pathlib.Path, program: int) -> None:
    """After a look, a small gain is not looked at."""
    watch = Watch(tmp_path, program, found_py_spy())
    watch.look()

    watch.one.growth.add(NOW_NS, watch.one.growth.rss // PAGE + 1)

    assert not watch.look()


@pytest.mark.process
def test_others_do_not_count(tmp_path: pathlib.Path, program: int) -> None:
    """The growth of a program that has no stacks is no reason to look at another one."""
    watch = Watch(tmp_path, program, found_py_spy())
    watch.look()
    watch.grow(2)
    with subprocess.Popen(["sleep", "1000"]) as other:
        compiler = Watch(tmp_path, other.pid, None).one
        compiler.may_look = False
        watch.looks._step = 50 * MIB
        watch.looks._step_at_ns = 2 * NOW_NS
        until(lambda: not watch.budget.waits, "the budget")
        watch.looks.begin([watch.one, compiler], NOW_NS)
        other.kill()

    assert watch.looks.running == {}


@pytest.mark.process
def test_no_program(tmp_path: pathlib.Path, program: int) -> None:
    """Without py-spy there are no looks."""
    assert not Watch(tmp_path, program, None).look()


@pytest.mark.process
def test_not_a_python(tmp_path: pathlib.Path) -> None:
    """A program that has no file of Python mapped is not looked at, and asked for later and later."""
    with subprocess.Popen(["sleep", "1000"]) as running:
        watch = Watch(tmp_path, running.pid, script(tmp_path, "exit 1"))
        waits = []
        for _ in range(3):
            assert not watch.look(watch.one.look_after_ns + NOW_NS)
            waits.append(watch.one.look_after_ns)
        running.kill()

    assert calls(tmp_path) == 0
    assert waits[2] - waits[1] > waits[1] - waits[0] > 0


@pytest.mark.process
def test_refused(tmp_path: pathlib.Path, program: int) -> None:
    """After a refusal, the process is never looked at again; the log says so."""
    watch = Watch(tmp_path, program, script(tmp_path, "echo 'Permission denied' >&2; exit 1"))

    for number in range(3):
        watch.look(NOW_NS * (number + 1))

    assert calls(tmp_path) == 1
    assert watch.lines("problem") == [{"process": 0, "text": "refused"}]


@pytest.mark.process
def test_hangs(tmp_path: pathlib.Path, program: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that hangs is ended, and the next one is later."""
    monkeypatch.setattr(looks, "LONGEST_S", 0.5)
    watch = Watch(tmp_path, program, script(tmp_path, "exec sleep 1000"))

    assert not watch.look()
    after_ns = watch.one.look_after_ns
    assert not watch.look()

    assert calls(tmp_path) == 1
    assert after_ns > time.monotonic_ns()
    assert watch.lines("problem")[0]["text"] == "py-spy took more than 0.5 s"


@pytest.mark.process
def test_stack_that_changed(tmp_path: pathlib.Path, program: int) -> None:
    """If stacks were read before, an error is nothing special: it is tried again soon."""
    watch = Watch(tmp_path, program, found_py_spy())
    watch.look()
    watch.looks._program = script(tmp_path, "echo 'Error: Failed to get stack traces' >&2; exit 1")
    watch.grow(50)

    watch.look()

    assert watch.looks.failed == 1
    assert watch.one.look_after_ns <= time.monotonic_ns() + looks._RETRY_NS
    assert watch.lines("problem") == []


@pytest.mark.process
def test_program_that_cannot_be_started(tmp_path: pathlib.Path, program: int) -> None:
    """If py-spy is gone, nothing more is tried, and the log says why."""
    watch = Watch(tmp_path, program, str(tmp_path / "gone"))

    assert not watch.look()
    assert not watch.look()

    assert [line["text"] for line in watch.lines("problem")] == ["py-spy cannot be started: No such file or directory"]


@pytest.mark.process
def test_ended_process(tmp_path: pathlib.Path) -> None:
    """A process that ends during a look leaves nothing."""
    words = [sys.executable, "-S", "-c", "input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as running:
        maps = pathlib.Path(f"/proc/{running.pid}/maps")
        until(lambda: b"python" in maps.read_bytes(), "the program")
        watch = Watch(tmp_path, running.pid, script(tmp_path, f"kill -9 {running.pid}; echo '[]'"))

        watch.look()

    assert watch.lines("problem") == []


@pytest.mark.process
def test_exec(tmp_path: pathlib.Path) -> None:
    """After exec of another program, the old stacks are over, and the new program is looked at in its own right."""
    script = "import os; print('ready', flush=True); input(); os.execvp('sleep', ['sleep', '1000'])"
    words = [sys.executable, "-S", "-c", script]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdout.readline()
        watch = Watch(tmp_path, running.pid, found_py_spy())
        watch.look()
        running.stdin.write("\n")
        running.stdin.flush()
        until(
            lambda: (
                pathlib.Path(f"/proc/{running.pid}/exe").readlink().name != pathlib.Path(sys.executable).resolve().name
            ),
            "the exec",
        )
        watch.grow(50)
        watch.look(2 * NOW_NS)
        watch.looks.close()
        running.kill()

    first, second = watch.lines("look")
    assert first["stacks"] == {str(running.pid): 0}
    assert second["stacks"] == {str(running.pid): None}


@pytest.mark.process
def test_no_python(tmp_path: pathlib.Path) -> None:
    """If nothing that grew runs Python, the log says so at its end."""
    with subprocess.Popen(["sleep", "1000"]) as running:
        watch = Watch(tmp_path, running.pid, found_py_spy())
        watch.look()
        watch.looks.close()
        running.kill()

    assert watch.lines("problem") == [{"process": 0, "text": "no_python"}]


SCRIPT = """
import threading, time
def outer():
    inner()
def inner():
    print("ready", flush=True); time.sleep(1000)
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
outer()
"""


@pytest.fixture
def py_spy_program(tmp_path: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program with two threads."""
    script = tmp_path / "pro gram.py"
    script.write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        yield running
        running.kill()


def dumped(py_spy_program: str, pid: int, *, blocking: bool = False) -> tuple[looks.Dump, list[looks.Stack]]:
    """Return a finished dump and its stacks. Raises DumpError."""
    dump = looks.Dump(py_spy_program, pid, blocking=blocking)
    until(dump.has_ended, "the end of py-spy")
    return dump, dump.result()


def own() -> str:
    """Return the path of py-spy."""
    path = found_py_spy()
    assert path is not None
    return path


@pytest.mark.process
@pytest.mark.parametrize("blocking", [False, True])
def test_stacks(py_spy_program: subprocess.Popen[str], blocking: bool) -> None:  # noqa: FBT001 — a parameter of the test
    """Each thread has its kernel's ID and its frames, the outermost first; the dump knows its cost and moment."""
    before_ns = time.monotonic_ns()

    dump, stacks = dumped(own(), py_spy_program.pid, blocking=blocking)

    frames = {stack.thread: stack.frames for stack in stacks}[py_spy_program.pid]
    assert [name for name, _, _ in frames] == ["<module>", "outer", "inner"]
    assert [line for _, _, line in frames] == [8, 4, 6]
    assert frames[0][1].endswith("/pro gram.py")
    assert len(stacks) == 2
    assert dump.cpu_s > 0
    assert before_ns < dump.at_ns < time.monotonic_ns()


@pytest.mark.process
def test_py_spy_not_a_python() -> None:
    """Of another program, py-spy says why there are no stacks."""
    with subprocess.Popen(["sleep", "1000"]) as running:
        with pytest.raises(looks.DumpError, match=r"[Pp]ython"):
            dumped(own(), running.pid)
        running.kill()


@pytest.mark.process
def test_ended(py_spy_program: subprocess.Popen[str]) -> None:
    """A process that has ended is an error, and no refusal."""
    py_spy_program.kill()
    py_spy_program.wait()

    with pytest.raises(looks.DumpError) as error:
        dumped(own(), py_spy_program.pid)
    assert not error.value.is_refusal


@pytest.mark.process
def test_py_spy_hangs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dump that hangs is ended."""
    monkeypatch.setattr(looks, "LONGEST_S", 0.5)
    hanging = tmp_path / "py-spy"
    hanging.write_text("#!/bin/sh\nexec sleep 1000\n", encoding="utf-8")
    hanging.chmod(0o755)

    with pytest.raises(looks.DumpError, match="took more than") as error:
        dumped(str(hanging), 1)
    assert error.value.is_late


@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "is_refusal"),
    [
        ("Error: Permission Denied: Try running again with elevated permissions", True),
        ("Caused by: Operation not permitted (os error 1)", True),
        ("Error: Failed to get stack traces", False),
    ],
)
def test_py_spy_refused(tmp_path: pathlib.Path, text: str, is_refusal: bool) -> None:  # noqa: FBT001 — the same
    """A refusal of the kernel is told from other errors."""
    refused = tmp_path / "py-spy"
    refused.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit 1\n", encoding="utf-8")
    refused.chmod(0o755)

    with pytest.raises(looks.DumpError) as error:
        dumped(str(refused), 1)
    assert error.value.is_refusal is is_refusal


@pytest.mark.process
@pytest.mark.parametrize(
    "printed",
    [
        "",
        "[{}]",
        "{",
        '[{"frames": [{"name": 3}]}]',
        '[{"frames": {"a": 1}}]',
        "7",
        "[7]",
        '[{"frames": [{"line": 1e999}]}]',
    ],
)
def test_wrong_output(tmp_path: pathlib.Path, printed: str) -> None:
    """Output that is not what py-spy prints is an error, not a crash."""
    wrong = tmp_path / "py-spy"
    wrong.write_text(f"#!/bin/sh\necho '{printed}'\n", encoding="utf-8")
    wrong.chmod(0o755)

    with pytest.raises(looks.DumpError, match="something else"):
        dumped(str(wrong), 1)


@pytest.mark.process
def test_stop(py_spy_program: subprocess.Popen[str]) -> None:
    """A dump that is stopped leaves no process behind."""
    dump = looks.Dump(own(), py_spy_program.pid, blocking=False)

    dump.stop()

    assert py_spy_program.poll() is None
    py_spy_program.send_signal(signal.SIGTERM)


def test_very_deep_stack() -> None:
    """Of a very deep stack, the outermost and the innermost frames stay."""
    frames = [{"name": f"f{number}", "filename": "/a.py", "line": number} for number in range(1_000)]

    stack = looks.stack_of({"frames": frames[::-1], "os_thread_id": 7})

    assert len(stack.frames) == 401
    assert (stack.frames[0][0], stack.frames[100], stack.frames[-1][0]) == ("f0", looks.CUT, "f999")


@pytest.mark.parametrize(
    ("root", "before", "expected"),
    [
        ("<module>", None, True),
        ("_bootstrap", None, True),
        ("callback", None, True),
        ("callback", "callback", True),
        ("inner", "main", False),
    ],
)
def test_torn_stack(root: str, before: str | None, expected: bool) -> None:  # noqa: FBT001 — the same
    """A stack whose root is another one than before has lost its outer frames."""
    earlier = None if before is None else [(before, "/a.py", 1)]

    assert looks.is_whole([(root, "/a.py", 5), ("leaf", "/a.py", 6)], earlier) is expected


def test_unpaired_surrogate() -> None:
    """A file name that is not Unicode does not spoil the log."""
    stack = looks.stack_of({"frames": [{"name": "f", "filename": "/a\ud800.py", "line": 1}]})

    assert stack.frames == [("f", "/a?.py", 1)]
