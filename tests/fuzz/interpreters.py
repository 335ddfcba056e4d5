"""Memory that looks like a Python's, and a file that looks like its program: for the helper that reads stacks.

The memory begins at ``BEGIN``. Its pointers lead into it, so that an exchange of two words makes circles, shared
objects and tables of any size.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path
from unittest import mock

from nncftools.snapshots import finding, python_memory
from nncftools.snapshots.finding import table_layout
from nncftools.snapshots.python_memory import EndedError, PythonMemory, UnreadableError
from tests.snapshots.made_up_layout import layout_of

BEGIN = 1 << 20
VERSIONS = range(10, 16)
_SIZE = 24_000
_LINES, _TEXT, _CODE, _NAMES, _INTERPRETER, _FRAMES, _THREADS = 0, 2_000, 3_000, 5_000, 6_000, 16_000, 18_000
_ROOT = _SIZE - 8
_STEP = 256
_COUNT = 3
_NUMBERED = 10
"""The version whose frames have the number of their instruction, not the address, and the number of their variables."""
_READINGS = 3
_THREAD_ID = 1 << 23
"""No kernel gives this ID: a thread of the parent process would mean that the memory belongs to the parent."""


def layout(version: int) -> dict[str, int]:
    """Return where the fields of a version's memory are."""
    return table_layout(version) if version in finding._TABLES else layout_of(version)


def image(version: int) -> bytes:
    """Return the memory of a Python with three threads, each with a stack of three frames."""
    at = layout(version)
    room = bytearray(_SIZE)

    def put(address: int, value: int) -> None:
        struct.pack_into("<Q", room, address, value)

    def link(first: int, number: int, field: int) -> None:
        put(first + number * _STEP + field, BEGIN + first + (number + 1) * _STEP if number + 1 < _COUNT else 0)

    put(_LINES + 16, 4)
    room[_LINES + 32 : _LINES + 36] = b"\xf8" * 4
    put(_TEXT + 16, 1)
    put(_TEXT + 32, 1 << 2 | 1 << 5 | 1 << 6)
    room[_TEXT + at["text"]] = ord("f")
    put(_CODE + 16, 8)
    for field, target in (("file", _TEXT), ("name", _TEXT), ("lines", _LINES), ("locals_known_by", _NAMES)):
        put(_CODE + at[field], BEGIN + target)
    if version == _NUMBERED:
        put(_CODE + at["locals_known_by"], 0)
    put(_ROOT, BEGIN + _INTERPRETER)
    put(_INTERPRETER + at["threads"], BEGIN + _THREADS)
    for number in range(_COUNT):
        frame = _FRAMES + number * _STEP
        put(frame + at["code"], BEGIN + _CODE)
        has_addresses = version > _NUMBERED
        put(frame + at["instruction"], (BEGIN + _CODE + at["bytecode"] + 2 * number) if has_addresses else number)
        link(_FRAMES, number, at["previous"])
        thread = _THREADS + number * _STEP
        put(thread + at["thread_id"], _THREAD_ID + number)
        if at["c_frame"] == finding.ABSENT:
            put(thread + at["frame"], BEGIN + _FRAMES)
        else:  # Python 3.11 and 3.12 have a structure between thread and frame
            put(thread + at["frame"], BEGIN + _TEXT)
            put(_TEXT + at["c_frame"], BEGIN + _FRAMES)
        link(_THREADS, number, at["next_thread"])
    return bytes(room)


def read(path: Path, version: int) -> bool:
    """Read the stacks of a memory several times, as the helper does; return whether a stack was found."""
    content = path.read_bytes()

    def pread(_file: int, size: int, address: int) -> bytes:
        begin = address - BEGIN
        if not 0 <= begin < len(content):
            raise OSError
        return content[begin : begin + size]

    at = layout(version)
    memory = PythonMemory(f"/proc/{os.getpid()}", BEGIN + _ROOT - at["interpreters"], 0, version, at)
    count = 0
    with contextlib.closing(memory), mock.patch.object(python_memory.os, "pread", pread):
        for _ in range(_READINGS):
            with contextlib.suppress(UnreadableError, EndedError):
                for stack in memory.stacks().values():
                    count += len(memory.frames(stack, 0))
    return count > 0


def program() -> bytes:
    """Return an ELF file with one dynamic symbol for each that the helper looks for."""
    names = b"\0" + b"\0".join(finding._SYMBOLS) + b"\0"
    symbols = b"".join(
        struct.pack("<IBBHQQ", names.index(name), 1, 0, 1, 0x1000 + 64 * number, 8)
        for number, name in enumerate(finding._SYMBOLS)
    )
    begin = finding._HEADER.size
    sections = begin + len(names) + len(symbols)
    header = finding._HEADER.pack(finding._MAGIC + bytes(10), 3, 62, 1, 0, 0, sections, 0, 64, 0, 0, 64, 2, 0)
    text = finding._SECTION.pack(0, 3, 0, 0, begin, len(names), 0, 0, 1, 0)
    table = finding._SECTION.pack(0, 11, 0, 0, begin + len(names), len(symbols), 0, 0, 8, 24)
    return header + names + symbols + text + table


def read_program(path: Path) -> bool:
    """Look for the symbols of a program; return whether there are some."""
    finding._known_symbols.clear()
    with contextlib.suppress(OSError, ValueError, OverflowError, struct.error):
        symbols, _ = finding._symbols(str(path))
        return bool(symbols)
    return False
