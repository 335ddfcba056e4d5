"""Dumps of stacks by py-spy."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import pytest

from nncftools.snapshots import looks
from nncftools.snapshots.client import found_py_spy
from tests.waiting import until

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
def program(tmp_path: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program with two threads."""
    script = tmp_path / "pro gram.py"
    script.write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        yield running
        running.kill()


def dumped(program: str, pid: int, *, blocking: bool = False) -> tuple[looks.Dump, list[looks.Stack]]:
    """Return a finished dump and its stacks. Raises DumpError."""
    dump = looks.Dump(program, pid, blocking=blocking)
    until(dump.has_ended, "the end of py-spy")
    return dump, dump.result()


def own() -> str:
    """Return the path of py-spy."""
    path = found_py_spy()
    assert path is not None
    return path


@pytest.mark.process
@pytest.mark.parametrize("blocking", [False, True])
def test_stacks(program: subprocess.Popen[str], blocking: bool) -> None:  # noqa: FBT001 — a parameter of the test
    """Each thread has its kernel's ID and its frames, the outermost first; the dump knows its cost and moment."""
    before_ns = time.monotonic_ns()

    dump, stacks = dumped(own(), program.pid, blocking=blocking)

    frames = {stack.thread: stack.frames for stack in stacks}[program.pid]
    assert [name for name, _, _ in frames] == ["<module>", "outer", "inner"]
    assert [line for _, _, line in frames] == [8, 4, 6]
    assert frames[0][1].endswith("/pro gram.py")
    assert len(stacks) == 2
    assert dump.cpu_s > 0
    assert before_ns < dump.at_ns < time.monotonic_ns()


@pytest.mark.process
def test_not_a_python() -> None:
    """Of another program, py-spy says why there are no stacks."""
    with subprocess.Popen(["sleep", "1000"]) as running:
        with pytest.raises(looks.DumpError, match=r"[Pp]ython"):
            dumped(own(), running.pid)
        running.kill()


@pytest.mark.process
def test_ended(program: subprocess.Popen[str]) -> None:
    """A process that has ended is an error, and no refusal."""
    program.kill()
    program.wait()

    with pytest.raises(looks.DumpError) as error:
        dumped(own(), program.pid)
    assert not error.value.is_refusal


@pytest.mark.process
def test_hangs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dump that hangs is ended."""
    monkeypatch.setattr(looks, "LONGEST_S", 0.05)
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
def test_refused(tmp_path: pathlib.Path, text: str, is_refusal: bool) -> None:  # noqa: FBT001 — the same
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
def test_stop(program: subprocess.Popen[str]) -> None:
    """A dump that is stopped leaves no process behind."""
    dump = looks.Dump(own(), program.pid, blocking=False)

    dump.stop()

    assert program.poll() is None
    program.send_signal(signal.SIGTERM)


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
