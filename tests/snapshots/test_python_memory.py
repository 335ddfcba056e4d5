"""Stacks that are read from the memory of running Pythons, and the files in which their symbols are."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

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
from tests.snapshots.made_up_layout import layout_of
from tests.waiting import until

if TYPE_CHECKING:
    from nncftools.snapshots.python_memory import RawStack

VERSIONS = sorted(pathlib.Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python"))
PYTHONS = {path: int(path.parts[-3].split(".")[1]) for path in VERSIONS}
PYTHONS = {path: minor for path, minor in PYTHONS.items() if minor >= 10} or {
    pathlib.Path(sys.executable): sys.version_info.minor
}
"""The minor version of each Python here whose stacks can be read."""
STEPS = """\
import sys, threading, time


class Model:
    def forward(self):
        for _ in numbers(
            1,
        ):
            pass


def numbers(first):
    yield first
    print("ready", flush=True)
    time.sleep(1000)


def grüße():
    exec("\\n\\nModel().forward()")


if len(sys.argv) > 1:
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
grüße()
"""


@contextlib.contextmanager
def running(words: list[str]) -> Iterator[int]:
    """Run a program until it has said that it is ready; yield its PID."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid
        process.kill()


def opened(pid: int) -> PythonMemory:
    """Return the memory of a Python."""
    memory = python_memory(f"/proc/{pid}", pathlib.Path(f"/proc/{pid}/maps").read_bytes())
    assert memory is not None
    return memory


def places(memory: PythonMemory, stack: RawStack, same: int = 0) -> list[tuple[str, str, int]]:
    """Return function, file and line of each frame."""
    return [
        (code.name, code.file, LineTable(memory.version, code.lines).line_at(code.first_line, offset))
        for code, offset in memory.frames(stack, same)
    ]


@pytest.mark.process
@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.parts[-3])
def test_stack(tmp_path: pathlib.Path, python: pathlib.Path) -> None:
    """Functions, files and lines are right in each version: methods, generators, code from texts, other letters."""
    program = tmp_path / "steps.py"
    program.write_text(STEPS, encoding="utf-8")
    with running([str(python), "-S", str(program)]) as pid:
        memory = opened(pid)
        until(lambda: places(memory, memory.stacks()[pid])[-1][2] == 15, "the line after print")
        ((thread, stack),) = memory.stacks().items()
        frames = places(memory, stack)
        again = places(memory, stack, len(stack))
        memory.close()

    file, method = str(program), "Model.forward" if PYTHONS[python] >= 11 else "forward"
    assert thread == pid
    assert frames == again
    assert frames == [
        ("<module>", file, 24),
        ("grüße", file, 19),
        ("<module>", "<string>", 3),
        (method, file, 6),
        ("numbers", file, 15),
    ]


@pytest.mark.process
@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.parts[-3])
def test_threads(tmp_path: pathlib.Path, python: pathlib.Path) -> None:
    """Threads have the kernel's IDs from 3.11 on; before, several have numbers below 0."""
    program = tmp_path / "steps.py"
    program.write_text(STEPS, encoding="utf-8")
    with running([str(python), "-S", str(program), "thread"]) as pid:
        memory = opened(pid)
        threads = set(memory.stacks())
        tasks = {int(path.name) for path in pathlib.Path(f"/proc/{pid}/task").iterdir()}
        memory.close()

    assert len(threads) == 2
    assert threads in (tasks, {-1, -2})
    assert (threads == tasks) == (PYTHONS[python] >= 11)


@pytest.mark.process
def test_reused_code() -> None:
    """Code that is freed gives its memory to other code: the name is always of what runs."""
    names = "abcdefgh"
    text = (
        "import sys\nprint('ready', flush=True)\nwhile True:\n"
        f"    for name in {names!r}:\n"
        "        exec(f'def {name}():\\n    return sum(range(20000))\\n{name}()', {'__name__': name})\n"
        "        exec(f'def x{name}():\\n    return sum(range(20000))\\nx{name}()')"
    )
    with running([sys.executable, "-S", "-c", text]) as pid:
        memory = opened(pid)
        seen: set[tuple[str, ...]] = set()
        before: RawStack = ()

        def has_all() -> bool:
            nonlocal before
            with contextlib.suppress(UnreadableError):
                stack = memory.stacks()[pid]
                same = next((at for at, pair in enumerate(zip(stack, before, strict=False)) if pair[0] != pair[1]), 0)
                seen.add(tuple(code.name for code, _ in memory.frames(stack, same)))
                before = stack
            return len({stack[-1] for stack in seen}) >= 2 * len(names)

        until(has_all, "all names")
        memory.close()

    allowed = {"<module>", *names, *(f"x{name}" for name in names)}
    assert {name for stack in seen for name in stack} <= allowed
    assert all(stack[:1] == ("<module>",) for stack in seen)


@pytest.mark.process
def test_deep_recursion() -> None:
    """A stack that fills several pieces of memory is whole."""
    text = (
        "import sys, time\nsys.setrecursionlimit(9000)\n"
        "def f(n):\n    if n:\n        f(n - 1)\n    else:\n"
        "        print('ready', flush=True)\n        time.sleep(1000)\n"
        "f(3000)"
    )
    with running([sys.executable, "-S", "-c", text]) as pid:
        memory = opened(pid)
        frames = places(memory, memory.stacks()[pid])
        memory.close()

    assert [name for name, _, _ in frames] == ["<module>", *["f"] * 3001]
    assert {line for name, _, line in frames[1:-1]} == {5}


@pytest.mark.process
def test_ended() -> None:
    """The memory of a process that has ended cannot be read."""
    with running([sys.executable, "-S", "-c", "print('ready', flush=True); import time; time.sleep(1000)"]) as pid:
        memory = opened(pid)
    with pytest.raises(EndedError):
        memory.stacks()
    memory.close()


@pytest.mark.process
def test_ended_while_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends between the look at its mappings and that at its memory is one that has ended."""
    maps = pathlib.Path("/proc/self/maps").read_bytes()
    pread = os.pread
    monkeypatch.setattr(module.os, "pread", lambda file, size, at: b"" if size == 4 else pread(file, size, at))
    with pytest.raises(ProcessLookupError):
        python_memory("/proc/self", maps)


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
print("ready", flush=True)
libc.clone(ctypes.cast(libc.sleep, ctypes.c_void_p), top, 0x4100 | 17, ctypes.c_void_p(60))  # VM, VFORK, SIGCHLD
"""


@pytest.mark.process
def test_child_of_vfork() -> None:
    """A child of vfork(2) has the memory of its parent, which stays when it executes: nothing of it is read."""
    with running([sys.executable, "-S", "-c", VFORKED]) as pid:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
        child = int(until(children.read_text, "the child") or 0)
        memory = opened(child)
        with pytest.raises(EndedError):
            memory.stacks()
        memory.close()
        memory = opened(pid)
        names = [name for name, *_ in places(memory, memory.stacks()[pid])]
        memory.close()
        os.kill(child, signal.SIGKILL)

    assert names == ["<module>"]


@contextlib.contextmanager
def made_up(*, threads: int, frames: int, table: bytes) -> Iterator[PythonMemory]:
    """Yield a memory of this process that looks like a Python 3.13: its threads share one stack of many places."""
    room = ctypes.create_string_buffer(1 << 20)
    begin = ctypes.addressof(room)
    at = layout_of(13)
    lines, text, code, interpreter, frame, thread = (
        begin + of for of in (0, 1 << 17, 132_000, 140_000, 1 << 18, 1 << 19)
    )

    def put(address: int, value: int) -> None:
        struct.pack_into("<Q", room, address - begin, value)

    put(lines + 16, len(table))
    room[32 : 32 + len(table)] = table
    put(code + 16, frames + 1)
    put(text + 16, 1)
    put(text + 32, 1 << 2 | 1 << 5 | 1 << 6)
    put(text + at["text"], ord("f"))
    for field, where in (("file", text), ("name", text), ("lines", lines), ("locals_known_by", text + 1_000)):
        put(code + at[field], where)
    put(begin + (1 << 20) - 8, interpreter)
    put(interpreter + at["threads"], thread)
    for number in range(frames):
        here = frame + number * 88
        put(here + at["code"], code)
        put(here + at["previous"], here + 88 if number + 1 < frames else 0)
        put(here + at["instruction"], code + at["bytecode"] + 2 * (frames - number))
    for number in range(threads):
        here = thread + number * 256
        put(here + at["next_thread"], here + 256 if number + 1 < threads else 0)
        put(here + at["thread_id"], number + 1)
        put(here + at["frame"], frame)
    memory = PythonMemory(f"/proc/{os.getpid()}", begin + (1 << 20) - 8 - at["interpreters"], 0, 13, at)
    yield memory
    memory.close()
    assert room


TABLE = b"\xf8" * 1_000
"""Entries without a place: the line stays."""


class TestMadeUp:
    """A program that only looks like Python takes neither time nor memory of the helper."""

    def test_frames_of_all_threads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Threads with deep stacks, which may be the same, have no more frames together than one may have."""
        monkeypatch.setattr(module, "_MOST_FRAMES", 1_000)
        with made_up(threads=3, frames=300, table=TABLE) as memory:
            assert [len(stack) for stack in memory.stacks().values()] == [300] * 3
        with made_up(threads=4, frames=300, table=TABLE) as memory, pytest.raises(UnreadableError):
            memory.stacks()

    def test_places_that_are_known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is known of code is forgotten when it is too much."""
        monkeypatch.setattr(module, "_MOST_HELD", 50_000)
        with made_up(threads=1, frames=100, table=TABLE) as memory:
            for _ in range(5):
                memory._codes.clear()
                memory.stacks()
                memory.frames(memory.stacks()[1], 0)
                assert memory._held <= 50_000 + 100 * module._PLACE

    def test_one_dictionary_of_all_frames(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The dictionary of a recursive module is read once in each reading, and a change of it is seen."""
        with made_up(threads=1, frames=200, table=TABLE) as memory:
            ((stack),) = memory.stacks().values()
            memory.frames(stack, 0)
            names = ctypes.create_string_buffer(128)
            entries = ctypes.addressof(names) + 48
            struct.pack_into("<Q", names, module._TABLE, entries)
            struct.pack_into("<9xBB13xQ", names, 48, 3, 1, 2)
            for address, *_ in stack:
                ctypes.memmove(address + memory._layout["names"], struct.pack("<Q", ctypes.addressof(names)), 8)
            read = []
            pread = os.pread
            monkeypatch.setattr(module.os, "pread", lambda file, size, at: read.append(at) or pread(file, size, at))
            first, again = memory.stacks()[1], memory.stacks()[1]
            names[100] = b"x"
            changed = memory.stacks()[1]
            monkeypatch.undo()

        assert first == again
        assert {frame[:3] for frame in first} == {frame[:3] for frame in changed}
        assert len({*first} & {*changed}) == 0
        assert read.count(entries) == 2 * 3  # its header, and the whole

    def test_bytes_of_a_reading(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A program with stacks in more memory than a reading takes is not read; the next reading begins anew."""
        with made_up(threads=1, frames=200, table=TABLE) as memory:
            monkeypatch.setattr(module, "_MOST_READ", 20_000)
            with pytest.raises(UnreadableError):
                memory.stacks()
            monkeypatch.setattr(module, "_MOST_READ", 100_000)
            assert [len(memory.stacks()[1]) for _ in range(3)] == [200] * 3

    def test_long_line_table(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A function with a very long line table has its first line."""
        monkeypatch.setattr(module, "_LONGEST_LINES", len(TABLE) - 1)
        with made_up(threads=1, frames=1, table=TABLE) as memory:
            (((code, _),)) = memory.frames(memory.stacks()[1], 0)

        assert (code.name, code.lines) == ("f", b"")

    def test_forgotten_code(self) -> None:
        """Code that is forgotten takes no memory, though the helper collects no garbage."""
        gc.disable()
        try:
            with made_up(threads=1, frames=10, table=TABLE) as memory:
                (code, _), *_ = memory.frames(memory.stacks()[1], 0)
                forgotten = weakref.ref(code)
                del code, _
                memory._codes.clear()
                assert forgotten() is None
        finally:
            gc.enable()

    @pytest.mark.parametrize("length", [1, 2, 7, 150])
    def test_circle(self, length: int) -> None:
        """A circle of frames, as torn readings have it, is left soon: following it took 12 ms each time."""
        with made_up(threads=1, frames=200, table=TABLE) as memory:
            ((stack),) = memory.stacks().values()
            last, first = stack[-1][0], stack[-length][0]
            ctypes.memmove(first + memory._layout["previous"], struct.pack("<Q", last), 8)
            memory._blocks.clear()
            steps = iter(range(10_000))
            with pytest.raises(UnreadableError):
                memory._stack(last, steps)

        assert next(steps) <= 3 * length + 2

    def test_frame_that_is_being_made(self) -> None:
        """A frame whose instruction is outside of its code has what was in its place before: its line is not known.

        Such a number may have more bits than a line of the log may have; all lines after it would be lost.
        """
        with made_up(threads=1, frames=3, table=TABLE) as memory:
            ((stack),) = memory.stacks().values()
            memory.frames(stack, 0)
            address, code, instruction, variables = stack[-1]
            for wrong in (0, instruction + 100, 2**64 - 1):
                with pytest.raises(UnreadableError):
                    memory.frames((*stack[:-1], (address, code, wrong, variables)), 0)

    def test_variables_that_grow_meanwhile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A module whose dictionary moves while it is read is not read now."""
        with made_up(threads=1, frames=1, table=TABLE) as memory:
            ((stack),) = memory.stacks().values()
            memory.frames(stack, 0)
            names = memory._layout["names"]
            ctypes.memmove(stack[0][0] + names, struct.pack("<Q", stack[0][1]), 8)
            pread = os.pread
            monkeypatch.setattr(module.os, "pread", lambda file, size, at: pread(file, size, at)[: max(8, size - 1)])
            with pytest.raises(UnreadableError):
                memory.stacks()
            monkeypatch.undo()

    def test_many_files(self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of many mapped files that are called like Python, the first are looked at."""
        seen = []
        monkeypatch.setattr(finding, "_symbols", lambda path: (seen.append(path) or {}, False))
        with pytest.raises(UnknownPythonError):
            python_memory("/proc/self", b"".join(mapping(tmp_path / f"python{number}") for number in range(100)))

        assert len(seen) == finding._MOST_FILES

    def test_many_sections(self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only one section of an ELF file is read as its dynamic symbols."""
        header = finding._HEADER.pack(finding._MAGIC + bytes(10), 3, 62, 1, 0, 0, 64, 0, 64, 0, 0, 64, 500, 0)
        (tmp_path / "python3").write_bytes(header + finding._SECTION.pack(0, 11, 0, 0, 0, 24, 0, 0, 8, 24) * 500)
        read = finding._read_file
        sizes = []
        monkeypatch.setattr(finding, "_read_file", lambda file, size, at: sizes.append(size) or read(file, size, at))
        finding._symbols(str(tmp_path / "python3"))

        assert len(sizes) == 5


@pytest.mark.process
def test_other_program() -> None:
    """A program without a file of Python has no stacks."""
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        until(lambda: b"sleep" in pathlib.Path(f"/proc/{sleeping.pid}/maps").read_bytes(), "the program")
        found = python_memory(f"/proc/{sleeping.pid}", pathlib.Path(f"/proc/{sleeping.pid}/maps").read_bytes())
        sleeping.kill()

    assert found is None


def mapping(path: pathlib.Path) -> bytes:
    """Return the line of a mapped file in ``/proc/PID/maps``."""
    return f"00400000-00500000 r--p 00000000 08:01 7    {path}\n".encode()


def test_unknown_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version whose layout is not known is named."""
    monkeypatch.setattr(finding, "_TABLES", {})
    monkeypatch.setattr(finding, "_COOKIE", b"another")
    with pytest.raises(UnknownPythonError, match=rf"Python 3\.{sys.version_info[1]} is not known"):
        python_memory("/proc/self", pathlib.Path("/proc/self/maps").read_bytes())


@pytest.mark.parametrize(
    "damage", ["not_elf", "empty", "cut_off", "sections", "odd_table", "no_symbols", "link", "device"]
)
def test_damaged_file(tmp_path: pathlib.Path, damage: str) -> None:
    """A file that is called like a Python and has no symbols is said to have none; a link or device is not read."""
    path = tmp_path / "python3.11"
    source = pathlib.Path(shutil.which("true") or "/bin/true")
    data = bytearray(source.read_bytes())
    if damage == "cut_off":
        del data[len(data) // 2 :]
    elif damage == "sections":
        data[40:48] = b"\xff" * 7 + b"\x7f"
    elif damage == "odd_table":
        (at,) = struct.unpack_from("<Q", data, 40)
        for section in range(at, len(data) - 63, 64):
            if struct.unpack_from("<I", data, section + 4)[0] == 11:  # the dynamic symbols
                struct.pack_into("<Q", data, section + 32, 25)
    if damage in {"link", "device"}:
        path.symlink_to(sys.executable if damage == "link" else "/dev/zero")
    else:
        path.write_bytes({"not_elf": b"#!/bin/sh\n", "empty": b""}.get(damage, bytes(data)))
    with pytest.raises(UnknownPythonError, match="no symbol _PyRuntime"):
        python_memory("/proc/self", mapping(path))


def test_fifo(tmp_path: pathlib.Path) -> None:
    """A FIFO is not opened, so nobody who waits for its reader goes on."""
    os.mkfifo(tmp_path / "python3.11")
    opened = []
    writer = threading.Thread(target=lambda: opened.append((tmp_path / "python3.11").open("wb")), daemon=True)
    writer.start()
    stat = pathlib.Path(f"/proc/self/task/{writer.native_id}/stat")
    until(lambda: b") S " in stat.read_bytes(), "the writer to wait")
    with pytest.raises(UnknownPythonError, match="no symbol _PyRuntime"):
        python_memory("/proc/self", mapping(tmp_path / "python3.11"))
    writer.join(0.05)
    assert not opened
    with (tmp_path / "python3.11").open("rb"):
        writer.join()
    opened[0].close()


def elf(**symbols: int) -> bytes:
    """Return an ELF file with these dynamic symbols at these addresses."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in symbols)
    entries = [(names.index(b"\0" + name.encode() + b"\0") + 1, 0, 0, 1, at, 8) for name, at in symbols.items()]
    table = b"".join(finding._SYMBOL.pack(*entry) for entry in entries)
    at = finding._HEADER.size
    of_names = finding._SECTION.pack(0, 3, 0, 0, at, len(names), 0, 0, 1, 0)
    of_symbols = finding._SECTION.pack(0, 11, 0, 0, at + len(names), len(table), 0, 0, 8, 24)
    sections_at = at + len(names) + len(table)
    header = finding._HEADER.pack(finding._MAGIC + bytes(10), 2, 62, 1, 0, 0, sections_at, 0, 64, 0, 0, 64, 2, 0)
    return header + names + table + of_names + of_symbols


@pytest.mark.parametrize("symbol", ["_PyRuntime", "Py_Version", "PyCode_Type"])
@pytest.mark.parametrize("address", [(1 << 64) - 16, 1 << 63, (1 << 63) - 1, 16])
def test_symbols_at_odd_addresses(tmp_path: pathlib.Path, symbol: str, address: int) -> None:
    """A file whose symbols are at addresses that no memory has loses its stacks, and no error gets out."""
    here = ctypes.create_string_buffer(2_048)
    symbols = {**dict.fromkeys(("_PyRuntime", "Py_Version", "PyCode_Type"), ctypes.addressof(here)), symbol: address}
    (tmp_path / "python3.11").write_bytes(elf(**symbols))
    memory = None
    with contextlib.suppress(UnknownPythonError, OSError):
        memory = python_memory(f"/proc/{os.getpid()}", mapping(tmp_path / "python3.11"))
    if memory is not None:
        with pytest.raises(UnreadableError):
            memory.stacks()
        memory.close()
