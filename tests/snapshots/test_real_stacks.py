"""Stacks from the memory of real Pythons: functions, files and lines as these tell them themselves."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import pytest

from nncftools.session.snapshots import LineTable
from nncftools.snapshots.finding import python_memory
from nncftools.snapshots.python_memory import (
    EndedError,
    PythonMemory,
    UnknownPythonError,
    UnreadableError,
)
from tests.pythons import python
from tests.surroundings import HANGING_S
from tests.waiting import until

if TYPE_CHECKING:
    from nncftools.snapshots.python_memory import RawStack

VERSIONS = ["3.10", "3.11", "3.12", "3.13", "3.14", "3.15"]
KERNEL_IDS = 11
TOLD = """import json, sys, threading, time
def told():
    frame, frames = sys._getframe(1), []
    while frame is not None:
        code = frame.f_code
        frames.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return frames[::-1]
def hold():
    (print(json.dumps(told()), flush=True), time.sleep(1000))
"""
PROGRAMS = {
    "functions": """
class Outer:
    def method(self):
        def inner(
            value,
        ):
            return max(
                value,
                hold(),
            )
        return (lambda: inner(1))()
Outer().method()
""",
    "generators": """
def numbers():
    yield 1
    yield hold()
def through():
    yield from numbers()
list(value for value in through())
""",
    "coroutines": """
import asyncio
async def inner():
    await asyncio.sleep(0)
    hold()
async def outer():
    await asyncio.gather(inner())
asyncio.run(outer())
""",
    "class body": """
class Outer:
    class Inner:
        hold()
""",
    "exec": """
exec(compile("\\n" * 300 + "def made():\\n    hold()\\n\\n\\nmade()", "<made>", "exec"), {"hold": hold})
""",
    "callbacks": """
import functools
class Order:
    def __lt__(self, other):
        hold()
functools.partial(sorted)([Order(), Order()])
""",
    "far and back": "def far():\n    a = 1\n"
    + "\n" * 700
    + "    return (\n"
    + "\n" * 300
    + "        a +\n\n        a if not a else hold(\n\n        ),\n"
    + "\n" * 200
    + "    )\nfar()\n",
    "long line": "def long(a):\n    x = [" + "a + 1, " * 600 + "]; y = hold()\n    return x, y\nlong(1)\n",
    "import system": """
import types
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "absent":
            hold()
sys.meta_path.insert(0, Finder)
import absent
""",
    "names": """
def größe():
    量子化()
def 量子化():
    𐍈𐍈()
def 𐍈𐍈():
    exec(compile("hold()", "/mödel/量子/𐍈.py", "exec"), {"hold": hold})
größe()
""",
    "deep": """
sys.setrecursionlimit(10_000)
def deep(depth):
    if depth:
        return deep(depth - 1)
    return hold()
deep(5_000)
""",
}
"""Each calls ``hold`` once."""
Frames = list[list[Any]]


@contextlib.contextmanager
def running(words: Sequence[object]) -> Iterator[tuple[int, IO[str]]]:
    """Run a program; yield its PID and its output."""
    with subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        assert process.stdout is not None
        try:
            yield process.pid, process.stdout
        finally:
            process.kill()


@contextlib.contextmanager
def told(folder: pathlib.Path, version: str, text: str) -> Iterator[tuple[int, Any]]:
    """Run a program with this Python; yield its PID and the first line that it writes."""
    path = folder / "program.py"
    path.write_text(TOLD + text, encoding="utf-8")
    with running([python(version), "-S", "-E", path]) as (pid, output):
        yield pid, json.loads(output.readline())


def memory_of(pid: int) -> PythonMemory:
    """Return the memory of a Python."""
    found = python_memory(f"/proc/{pid}", pathlib.Path(f"/proc/{pid}/maps").read_bytes())
    assert found is not None
    return found


def places(memory: PythonMemory, stack: RawStack, same: int = 0) -> Frames:
    """Return function, file and line of each frame."""
    return [
        [code.name, code.file, LineTable(memory.version, code.lines).line_at(code.first_line, offset)]
        for code, offset in memory.frames(stack, same)
    ]


def stacks(memory: PythonMemory) -> dict[int, Frames]:
    """Return the stacks of all threads, read again while it changes them."""

    def read() -> dict[int, Frames] | None:
        try:
            return {thread: places(memory, stack) for thread, stack in memory.stacks().items()}
        except UnreadableError:
            return None

    found = until(read, "a reading")
    assert found is not None
    return found


@pytest.mark.process
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_stack(tmp_path: pathlib.Path, version: str, name: str) -> None:
    """Functions, files and lines are those that the program itself sees; the thread is that of the process."""
    with told(tmp_path, version, PROGRAMS[name]) as (pid, expected):
        memory = memory_of(pid)
        found = stacks(memory)
        memory.close()

    assert found == {pid: expected}


@pytest.mark.process
@pytest.mark.parametrize("version", VERSIONS)
def test_threads(tmp_path: pathlib.Path, version: str) -> None:
    """Each thread has its stack. From 3.11 on, its ID is that of the kernel; before, it is a number below 0."""
    text = """
def work(name, found):
    def wait(): found[threading.get_native_id()] = told(); time.sleep(1000)
    wait()
found = {}
for name in range(3): threading.Thread(target=work, args=(name, found), daemon=True).start()
while len(found) < 3: time.sleep(0.01)
found[threading.get_native_id()] = told(); print(json.dumps(found), flush=True); time.sleep(1000)
"""
    with told(tmp_path, version, text) as (pid, said):
        expected = {int(thread): frames for thread, frames in said.items()}
        memory = memory_of(pid)
        found, again = stacks(memory), stacks(memory)
        memory.close()

    if int(version[2:]) >= KERNEL_IDS:
        assert found == expected
    else:
        assert set(found) == {-1, -2, -3, -4}
        assert sorted(found.values()) == sorted(expected.values())
    assert again == found


@pytest.mark.process
@pytest.mark.parametrize("version", ["3.13", "3.14", "3.15"])
@pytest.mark.parametrize("place", ["same_thread", "another_thread"])
def test_interpreters(tmp_path: pathlib.Path, version: str, place: str) -> None:
    """A thread's stack goes on in the interpreter that it calls; another interpreter does not hide the main one."""
    text = """
import _interpreters
inner = _interpreters.create()
_interpreters.create()
code = "import time\\ndef inside(): (print(0, flush=True), time.sleep(1000))\\ninside()"
def enter(): _interpreters.exec(inner, code)
"""
    if place == "same_thread":
        text += "enter()\n"
        expected = [["<module>", "enter", "<module>", "inside"]]
    else:
        text += "threading.Thread(target=enter).start()\ntime.sleep(1000)\n"
        started = ["Thread._bootstrap", "Thread._bootstrap_inner", "Thread.run"]
        expected = [["<module>"], [*started, "enter", "<module>", "inside"]]
    with told(tmp_path, version, text) as (pid, _):
        memory = memory_of(pid)

        def names() -> dict[int, list[str]]:
            return {thread: [name for name, *_ in frames] for thread, frames in stacks(memory).items()}

        until(lambda: sorted(names().values()) == expected, "all threads to sleep")
        found = names()
        memory.close()

    assert found[pid] == expected[0]


@pytest.mark.process
@pytest.mark.parametrize("found_at", [sys.executable, "/usr/bin/python3"])
def test_where_it_is_built_in(tmp_path: pathlib.Path, found_at: str) -> None:
    """A Python can be read wherever its code is: in a library beside it, or in the program."""
    if not pathlib.Path(found_at).exists():
        pytest.skip(f"no {found_at} here")
    path = tmp_path / "program.py"
    path.write_text(TOLD + "hold()\n", encoding="utf-8")
    with running([found_at, path]) as (pid, output):
        expected = json.loads(output.readline())
        memory = memory_of(pid)

        assert stacks(memory) == {pid: expected}


@pytest.mark.process
@pytest.mark.parametrize("version", VERSIONS)
def test_moment_later(tmp_path: pathlib.Path, version: str) -> None:
    """Frames that a stack shares with the last one are the same; the others are of now."""
    text = """
def first(): print(json.dumps(told()), flush=True); sys.stdin.readline()
def second(): print(json.dumps(told()), flush=True); time.sleep(1000)
def steps():
    first()
    second()
steps()
"""
    path = tmp_path / "program.py"
    path.write_text(TOLD + text, encoding="utf-8")
    with subprocess.Popen(
        [python(version), "-S", "-E", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        expected = [json.loads(process.stdout.readline())]
        memory = memory_of(process.pid)
        one = memory.stacks()[process.pid]
        found = [places(memory, one)]
        process.stdin.write("\n")
        process.stdin.flush()
        expected.append(json.loads(process.stdout.readline()))
        other = memory.stacks()[process.pid]
        same = [now == before for now, before in zip(other, one, strict=False)].index(False)
        found.append(places(memory, other, same))
        process.kill()

    assert found == expected


@pytest.mark.process
@pytest.mark.parametrize("version", VERSIONS)
def test_torn_readings_are_rare(tmp_path: pathlib.Path, version: str) -> None:
    """Of a program that calls and returns all the time, nearly all readings are stacks that it can have.

    Before 3.11, frames are given back one by one and used again at once: here, up to half of the readings are refused.
    """
    text = """
def even(n): return odd(n - 1) + 1 if n else len([0] * 30_000)
def odd(n): return even(n - 1) + 1 if n else len([0] * 30_000)
print(0, flush=True)
while True: even(30)
"""
    readings, whole = 0, 0
    with told(tmp_path, version, text) as (pid, _):
        memory = memory_of(pid)
        for _ in range(1_000):
            time.sleep(0.0001)  # else, many are of one moment at which the program waits for its core
            with contextlib.suppress(UnreadableError):
                names = [name for name, *_ in places(memory, memory.stacks()[pid])]
                readings += 1
                whole += names == ["<module>", *(("even", "odd")[at % 2] for at in range(len(names) - 1))]
        memory.close()

    is_old = int(version.partition(".")[2]) < KERNEL_IDS
    assert readings >= (200 if is_old else 900)
    assert whole >= (0.6 if is_old else 0.95) * readings


@pytest.mark.process
@pytest.mark.parametrize("version", VERSIONS)
def test_reused_memory(tmp_path: pathlib.Path, version: str) -> None:
    """A code object in the memory of another one is not taken for it: name, file and line belong together.

    A text may be freed while it is read, which is rarer than one frame of a hundred.
    """
    text = """
print(0, flush=True)
number = 1000
while True:
    number = number + 1 if number < 9000 else 1000
    name = "f%d" % number
    text = "\\n" * (number % 50) + "def %s():\\n for _ in range(5000): pass\\n%s()" % (name, name)
    exec(compile(text, "/made/%d.py" % number, "exec"), {})
"""
    seen = wrong = 0
    with told(tmp_path, version, text) as (pid, _):
        memory = memory_of(pid)
        for _ in range(3_000):
            time.sleep(0.0001)
            frames: Frames = []
            with contextlib.suppress(UnreadableError):
                frames = places(memory, memory.stacks().get(pid, ()))
            for name, file, line in frames:
                if name[1:].isdigit():
                    seen += 1
                    wrong += file != f"/made/{name[1:]}.py" or line - int(name[1:]) % 50 not in {1, 2}
        memory.close()

    assert seen > 100
    assert wrong <= seen // 100


@pytest.mark.process
def test_too_deep(tmp_path: pathlib.Path) -> None:
    """A chain of more than 20,000 frames is not followed to its end: it may be damaged, or a circle."""
    text = PROGRAMS["deep"].replace("10_000", "90_000").replace("5_000", "25_000").replace("hold()", "quiet()")
    text = f"def quiet(): print(0, flush=True); time.sleep(1000)\n{text}"
    with told(tmp_path, "3.12", text) as (pid, _):
        memory = memory_of(pid)
        with pytest.raises(UnreadableError):
            memory.stacks()


@pytest.mark.process
@pytest.mark.parametrize("version", VERSIONS)
def test_ended(tmp_path: pathlib.Path, version: str) -> None:
    """A process that has ended has no stacks."""
    with told(tmp_path, version, "hold()\n") as (pid, _):
        memory = memory_of(pid)
        stack = memory.stacks()[pid]
        os.kill(pid, 9)
        until(lambda: "\nState:\tZ" in pathlib.Path(f"/proc/{pid}/status").read_text("utf-8"), "its end")

        with pytest.raises(EndedError):
            memory.stacks()
        with pytest.raises(UnreadableError):
            memory.frames(stack, 0)


@pytest.mark.process
def test_native_program() -> None:
    """A program without a file of Python is none."""
    with running(["sleep", "1000"]) as (pid, _):
        until(lambda: b"sleep" in pathlib.Path(f"/proc/{pid}/maps").read_bytes(), "exec")
        maps = pathlib.Path(f"/proc/{pid}/maps").read_bytes()

        assert python_memory(f"/proc/{pid}", maps) is None


@pytest.mark.process
@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("2.7", "its Python has no symbol _PyRuntime"),
        ("3.6", "its Python has no symbol _PyRuntime"),
        ("3.7", "the layout of Python 3.7 is not known"),
        ("3.8", "the layout of Python 3.8 is not known"),
        ("3.9", "the layout of Python 3.9 is not known"),
    ],
)
def test_older_pythons(version: str, why: str) -> None:
    """Of a Python before 3.10, it says so."""
    text = "import sys, time; sys.stdout.write('ready\\n'); sys.stdout.flush(); time.sleep(1000)"
    with subprocess.Popen([python(version), "-S", "-c", text], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        maps = pathlib.Path(f"/proc/{process.pid}/maps").read_bytes()
        with pytest.raises(UnknownPythonError, match=f"^{why}$"):
            python_memory(f"/proc/{process.pid}", maps)
        process.kill()


def mapped(path: pathlib.Path, begin: int = 0) -> bytes:
    """Return the mappings of a process that has one file."""
    return f"{begin:08x}-{begin + 4096:08x} r--p 00000000 08:01 77                  {path}\n".encode()


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"#!/bin/sh\n" * 100])
def test_no_library(tmp_path: pathlib.Path, content: bytes) -> None:
    """A file that only has the name of a library of Python has no symbol of it."""
    path = tmp_path / "libpython3.11.so.1.0"
    path.write_bytes(content)

    with pytest.raises(UnknownPythonError, match="no symbol _PyRuntime"):
        python_memory("/proc/self", mapped(path))


def test_deleted_file(tmp_path: pathlib.Path) -> None:
    """A file that is not at its path was deleted since, or is in the path of another root directory."""
    with pytest.raises(UnknownPythonError, match=r"^the file of its Python is not below its root directory"):
        python_memory("/proc/self", mapped(tmp_path / "python3.11 (deleted)"))


def test_no_file_of_python(tmp_path: pathlib.Path) -> None:
    """A script or package of Python is no file of the interpreter."""
    assert python_memory("/proc/self", mapped(tmp_path / "lib" / "python3.11" / "math.so")) is None


LINES = """
import ctypes, importlib.util, json, sys, types
line_of = ctypes.pythonapi.PyCode_Addr2Line
line_of.argtypes = ctypes.py_object, ctypes.c_int
def every(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            for inner in every(constant):
                yield inner
for name in "argparse typing inspect tarfile decimal ast locale unittest.mock pydoc_data.topics".split():
    path = importlib.util.find_spec(name.replace("decimal", "_pydecimal")).origin
    with open(path, encoding="utf-8") as file:
        module = compile(file.read(), path, "exec")
    for code in every(module):
        table = code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab
        lines = [line_of(code, offset) for offset in range(0, len(code.co_code), 2)]
        print(json.dumps([code.co_firstlineno, table.hex(), lines]))
"""


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize("version", ["3.8", "3.9", *VERSIONS])
def test_lines(version: str) -> None:
    """The line of each instruction of large modules is the one that Python finds, in any order of asking.

    Logs of earlier versions have tables of Python 3.8 and 3.9.
    """
    done = subprocess.run([python(version), "-c", LINES], capture_output=True, text=True, timeout=HANGING_S, check=True)
    compared = 0
    for text in done.stdout.splitlines():
        first_line, table, lines = json.loads(text)
        code = LineTable(int(version[2:]), bytes.fromhex(table))
        places = list(range(len(lines)))
        random.Random(len(lines)).shuffle(places)  # noqa: S311 — no secret
        for place in places if len(places) < 2_000 else sorted(places):
            if lines[place] > 0:  # else it has no line
                assert code.line_at(first_line, 2 * place) == lines[place], (version, first_line, 2 * place)
                compared += 1

    assert compared > 10_000
