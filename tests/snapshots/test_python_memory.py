"""Stacks from the memory of Pythons, real and made-up: functions, files and lines as the programs see them."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nncftools.session.snapshots import LineTable
from nncftools.snapshots import finding
from nncftools.snapshots import python_memory as module
from nncftools.snapshots.finding import python_memory, table_layout
from nncftools.snapshots.python_memory import (
    EndedError,
    PythonMemory,
    UnknownPythonError,
    UnreadableError,
)
from tests.pythons import python
from tests.snapshots.made_up_layout import layout_of
from tests.surroundings import HANGING_S
from tests.waiting import until

if TYPE_CHECKING:
    from nncftools.snapshots.python_memory import RawStack

VERSIONS = ["3.10", "3.11", "3.12", "3.13", "3.14", "3.15"]
SOME = [pytest.param(version, marks=() if version in {"3.10", "3.13"} else pytest.mark.long) for version in VERSIONS]
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
    (print(json.dumps(told()), flush=True), sys.stdin.readline())
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
    "constructor": """
class Made:
    def __init__(self, number):
        if number == 99:
            hold()
for number in range(100):
    Made(number)
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
ALL = "for name, text in PROGRAMS.items():\n    try: exec(compile(text, name, 'exec'))\n    except Exception: pass\n"
Frames = list[list[Any]]


@contextlib.contextmanager
def running(words: Sequence[object]) -> Iterator[subprocess.Popen[str]]:
    """Run a program and kill it at the end."""
    pipe = subprocess.PIPE
    with subprocess.Popen(list(map(str, words)), stdin=pipe, stdout=pipe, text=True, encoding="utf-8") as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> Any:  # noqa: ANN401 — JSON
    """Return the next line that a program writes."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


@contextlib.contextmanager
def told(folder: Path, version: str, text: str) -> Iterator[tuple[int, Any]]:
    """Run a program with this Python; yield its PID and the first line that it writes."""
    path = folder / "program.py"
    path.write_text(TOLD + text, encoding="utf-8")
    with running([python(version), "-S", "-E", path]) as process:
        yield process.pid, line_of(process)


def memory_of(pid: int) -> PythonMemory:
    """Return the memory of a Python."""
    found = python_memory(f"/proc/{pid}", Path(f"/proc/{pid}/maps").read_bytes())
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
def test_stack(tmp_path: Path, version: str) -> None:
    """Functions, files and lines are those that the program itself sees, also where frames are those of before."""
    path = tmp_path / "program.py"
    path.write_text(f"{TOLD}PROGRAMS = {PROGRAMS!r}\n{ALL}", encoding="utf-8")
    expected, found = {}, {}
    before: RawStack = ()
    memory: PythonMemory | None = None
    with running([python(version), "-S", "-E", path]) as process:
        assert process.stdin is not None
        for name in PROGRAMS:
            expected[name] = line_of(process)
            memory = memory or memory_of(process.pid)
            stacks(memory)  # the second reading knows all code
            ((thread, stack),) = memory.stacks().items()
            assert thread == process.pid
            same = [now == frame for now, frame in zip(stack, before, strict=False)]
            found[name] = places(memory, stack, [*same, False].index(False))
            before = stack
            process.stdin.write("\n")
            process.stdin.flush()

    assert found == expected


@pytest.mark.process
@pytest.mark.parametrize("version", SOME)
def test_threads(tmp_path: Path, version: str) -> None:
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
@pytest.mark.parametrize("version", SOME[3:])
def test_interpreters(tmp_path: Path, version: str) -> None:
    """A thread's stack goes on in the interpreter that it calls; another interpreter does not hide the main one."""
    text = """
import _interpreters
code = "import time\\ndef inside(): (print(0, flush=True), time.sleep(1000))\\ninside()"
def enter(): _interpreters.exec(_interpreters.create(), code)
threading.Thread(target=enter).start()
_interpreters.create()
enter()
"""
    expected = ["<module>", "enter", "<module>", "inside"]
    with told(tmp_path, version, text) as (pid, _):
        memory = memory_of(pid)

        def names() -> list[list[str]]:
            found = stacks(memory)
            return [[name for name, *_ in found[thread]] for thread in sorted(found, key=lambda thread: thread != pid)]

        until(lambda: [stack[-1] for stack in names()] == ["inside"] * 2, "both threads to sleep")
        main, other = names()

    assert main == expected
    assert other == ["Thread._bootstrap", "Thread._bootstrap_inner", "Thread.run", *expected[1:]]


@pytest.mark.process
@pytest.mark.parametrize("found_at", [sys.executable, "/usr/bin/python3"])
def test_where_it_is_built_in(found_at: str) -> None:
    """A Python can be read wherever its code is: in a library beside it, or in the program."""
    if not Path(found_at).exists():
        pytest.skip(f"no {found_at} here")
    with running([found_at, "-c", f"{TOLD}hold()"]) as process:
        expected = line_of(process)

        assert stacks(memory_of(process.pid)) == {process.pid: expected}


@pytest.mark.process
def test_too_deep(tmp_path: Path) -> None:
    """A chain of more than 20,000 frames is not followed to its end: it may be damaged, or a circle."""
    text = PROGRAMS["deep"].replace("10_000", "90_000").replace("5_000", "25_000").replace("hold()", "quiet()")
    text = f"def quiet(): print(0, flush=True); time.sleep(1000)\n{text}"
    with told(tmp_path, "3.12", text) as (pid, _):
        memory = memory_of(pid)
        with pytest.raises(UnreadableError):
            memory.stacks()


@pytest.mark.process
def test_ended(tmp_path: Path) -> None:
    """A process that has ended has no stacks."""
    with told(tmp_path, "3.12", "hold()\n") as (pid, _):
        memory = memory_of(pid)
        stack = memory.stacks()[pid]
        os.kill(pid, 9)
        until(lambda: "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text("utf-8"), "its end")

        with pytest.raises(EndedError):
            memory.stacks()
        with pytest.raises(UnreadableError):
            memory.frames(stack, 0)


@pytest.mark.process
@pytest.mark.parametrize(
    "version, why",
    [
        ("2.7", "its Python has no symbol _PyRuntime"),
        ("3.7", "the layout of Python 3.7 is not known"),
        ("3.9", "the layout of Python 3.9 is not known"),
    ],
)
def test_older_pythons(version: str, why: str) -> None:
    """Of a Python before 3.10, it says so."""
    with running([python(version), "-S", "-uc", "import sys; print(0); sys.stdin.read()"]) as process:
        assert line_of(process) == 0
        maps = Path(f"/proc/{process.pid}/maps").read_bytes()
        with pytest.raises(UnknownPythonError, match=f"^{why}$"):
            python_memory(f"/proc/{process.pid}", maps)


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
@pytest.mark.parametrize("version", VERSIONS)
def test_lines(version: str) -> None:
    """The line of each instruction of large modules is the one that Python finds, in any order of asking."""
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


@pytest.mark.process
@pytest.mark.parametrize("version", range(10, 16))
def test_hostile_memory(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """Whatever the memory contains, a reading ends, and fails in one of two ways at most."""
    chance = random.Random(version)  # noqa: S311 — the same memory each time

    def pread(_file: int, size: int, _at: int) -> bytes:
        if chance.random() < 0.02:
            raise OSError
        small = [chance.choice((0, 1, 8, 4096, 70_000, 1 << 20, chance.getrandbits(64))) for _ in range(64)]
        words = struct.pack("<64Q", *small) * (size // 512 + 1)
        return words[: chance.choice((size, size, size, chance.randrange(size + 1)))]

    layout = table_layout(version) if version in finding._TABLES else layout_of(version)
    memory = PythonMemory(f"/proc/{os.getpid()}", 4096, 0, version, layout)
    monkeypatch.setattr(module.os, "pread", pread)
    for _ in range(100):
        with contextlib.suppress(UnreadableError, EndedError):
            for stack in memory.stacks().values():
                memory.frames(stack, chance.randrange(len(stack)))
    monkeypatch.undo()
    memory.close()


VFORKED = """
import ctypes, os, time
libc = ctypes.CDLL(None)
stack = ctypes.create_string_buffer(1 << 16)
top = ctypes.c_void_p(ctypes.addressof(stack) + (1 << 16) - 64 & ~15)
libc.clone(ctypes.cast(libc.sleep, ctypes.c_void_p), top, 0x4100 | 17, ctypes.c_void_p(60))  # VM, VFORK, SIGCHLD
"""


@pytest.mark.process
def test_child_of_vfork() -> None:
    """A child of vfork(2) has the memory of its parent, which stays when it executes: nothing of it is read."""
    with running([sys.executable, "-S", "-c", VFORKED]) as process:
        pid = process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children")
        child = int(until(children.read_text, "the child"))
        with pytest.raises(EndedError):
            memory_of(child).stacks()
        names = [name for name, *_ in stacks(memory_of(pid))[pid]]
        os.kill(child, signal.SIGKILL)

    assert names == ["<module>"]


@pytest.mark.process
def test_damaged_stack(tmp_path: Path) -> None:
    """The line of a frame that is being made is not known: its instruction may be larger than any number of the log."""
    with told(tmp_path, "3.12", "hold()\n") as (pid, _):
        memory = memory_of(pid)
        stack = memory.stacks()[pid]
        memory.frames(stack, 0)
        address, code, instruction, variables = stack[-1]
        for wrong in (0, instruction + 1_000, 2**64 - 1):
            with pytest.raises(UnreadableError):
                memory.frames((*stack[:-1], (address, code, wrong, variables)), 0)
        memory.close()


def mapping(path: object) -> bytes:
    """Return the line of a mapped file in ``/proc/PID/maps``."""
    return f"00400000-00500000 r--p 00000000 08:01 7    {path}\n".encode()


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"#!/bin/sh\n" * 100, "/dev/zero", sys.executable])
def test_no_library(tmp_path: Path, content: bytes | str) -> None:
    """A file that only has the name of a Python has no symbol of it; a link or device is not read."""
    path = tmp_path / "libpython3.11.so.1.0"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.symlink_to(content)
    with pytest.raises(UnknownPythonError, match="no symbol _PyRuntime"):
        python_memory("/proc/self", mapping(path))


def test_other_files(tmp_path: Path) -> None:
    """A deleted file, as of another root directory, is named; a script or package of Python is not an interpreter."""
    with pytest.raises(UnknownPythonError, match=r"^the file of its Python was not found"):
        python_memory("/proc/self", mapping(tmp_path / "python3.11 (deleted)"))
    assert python_memory("/proc/self", mapping(tmp_path / "lib" / "python3.11" / "math.so")) is None


@pytest.mark.parametrize("symbol", ["runtime", "version", "code_type"])
@pytest.mark.parametrize("address", [(1 << 64) - 16, 1 << 63, (1 << 63) - 1, 16])
def test_symbols_at_odd_addresses(monkeypatch: pytest.MonkeyPatch, symbol: str, address: int) -> None:
    """A file whose symbols are at addresses that no memory has loses its stacks, and no error gets out."""
    here = ctypes.create_string_buffer(2_048)
    symbols = {**dict.fromkeys(("runtime", "version", "code_type"), ctypes.addressof(here)), symbol: address}
    monkeypatch.setattr(finding, "_symbols", lambda _: (symbols, False))
    memory = None
    with contextlib.suppress(UnknownPythonError, OSError):
        memory = python_memory(f"/proc/{os.getpid()}", mapping("/usr/bin/python3.11"))
    if memory is not None:
        with pytest.raises(UnreadableError):
            memory.stacks()
