"""Reads the stacks of a running Python from its memory (``/proc/PID/mem``, proc(5)), without stopping it.

CPython links its thread states, and each one's frames. ``_LAYOUTS`` says where the fields lie, from CPython's headers.
A reading of 80 frames takes 60 µs. The process runs on meanwhile, so what was read is checked: every frame must have a
code object. A code object's memory may be used again, so a known one is compared before it is believed.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from struct import Struct, error

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator

    Frame = tuple["Code", int]
    """A code object, and the offset of an instruction in it."""
    RawFrame = tuple[int, int, int, int]
    """Its address, that of its code object, that of its instruction, and a digest of its variables."""
    RawStack = tuple[RawFrame, ...]
    """The outermost frame first."""


class UnreadableError(Exception):
    """The stacks could not be read now: the process changed them meanwhile."""


class EndedError(Exception):
    """This memory is gone: the process has ended, or runs another program, which may be the same one anew."""


class UnknownPythonError(Exception):
    """The stacks of this Python cannot be read; the message says why."""


_FIELDS = (
    "interpreters",  # in _PyRuntime
    "threads",  # in the interpreter
    "thread_id",
    "frame",  # in the thread: the innermost frame, or the C frame that knows it
    "c_frame",  # in the C frame
    "previous",
    "code",
    "instruction",
    "owner",  # in the frame: the interpreter's own frames have no code of Python
    "names",  # in the frame: the dictionary of variables of a module or class
    "locals",  # in the frame: other variables
    "local_count",
    "first_line",
    "file",
    "name",
    "lines",
    "bytecode",  # in the code object
    "text",  # in a string of ASCII
)
_NONE = -1
_LAYOUTS = {
    10: (32, 8, 176, 24, _NONE, 24, 32, 96, _NONE, 56, 352, 28, 40, 104, 112, 120, 0, 48),
    11: (40, 16, 160, 56, 8, 48, 32, 56, _NONE, 24, 72, 76, 72, 112, 128, 136, 184, 48),
    12: (40, 72, 144, 56, 0, 8, 0, 56, 70, 40, 72, 72, 68, 112, 128, 136, 192, 40),
    13: (632, 7344, 160, 72, _NONE, 8, 0, 56, 70, 40, 72, 72, 68, 112, 128, 136, 200, 40),
}
"""Where these fields lie, in bytes, by minor version; of builds for 64 bits with the global lock."""
_NEXT_THREAD = 8
_KERNEL_IDS = 11
"""From this version on, threads know their ID of the kernel."""
_BEFORE_FIRST = -2
"""The offset of the instruction of a function that has not begun."""
_OF_INTERPRETER = 3
_VERSION, _TABLE, _WITHOUT_VERSIONS = 24, 32, 13
"""Places in a dictionary (CPython's Include/cpython/dictobject.h), and from which version on it has only the table."""
_TABLE_HEADER = Struct("<9xBB13xQ")
"""Log2 of the bytes of the index, whether all keys are texts, and the number of entries (pycore_dict.h)."""
_ENTRY, _ENTRY_OF_TEXT = 24, 16
_IMPORT = "<frozen importlib"
_PYTHON = re.compile(rb"/(?:lib)?python(?:3\.(\d+)(t?))?[^/]*$")
"""A file of Python; ``t`` for a build without the global lock, whose layout is another one."""
_SYMBOLS = {b"_PyRuntime": "runtime", b"Py_Version": "version"}
_BLOCK = 4096
"""A page."""
_MARGIN = 512
"""A frame that begins near the end of a block is read so far."""
_MOST_THREADS = 1_000
_MOST_FRAMES = 20_000
"""Of all threads together."""
_MOST_HELD = 8 << 20
"""Bytes of what is known of code objects."""
_MOST_READ = 16 << 20
"""Bytes that one reading of stacks takes from the memory of the process."""
_CODE, _PLACE = 1_500, 250
"""Of a code object without its texts and its line table, and of a place in it."""
_LONGEST_S = 0.2
"""CPU time of a reading."""
_MOST_FILES = 8
_LONGEST_TEXT = 4_096
_LARGEST_TABLE = 1 << 20
"""Of a dictionary, or of bytecode."""
_LONGEST_LINES = 1 << 17
"""A code object with a longer line table counts as one without."""
_LONGEST_OBJECT = 1 << 31
_ENCODINGS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
_known_symbols: dict[tuple[int, int], tuple[dict[str, int], bool]] = {}
"""By device and inode."""


class Code:
    """A code object, and the places in it that were seen. The helper collects no garbage: nothing here is a circle."""

    def __init__(  # noqa: PLR0913 — one for each field
        self, identity: bytes, texts: tuple[str, str], first_line: int, lines: bytes, *, local_bytes: int, size: int
    ) -> None:
        """Take its fields; ``identity`` are those from the first line to the line table, ``texts`` name and file.

        No instruction is at ``size`` or behind it.
        """
        self.identity, (self.name, self.file) = identity, texts
        self.first_line, self.lines, self.local_bytes, self.size = first_line, lines, local_bytes, size
        self.is_import = self.file.startswith(_IMPORT)
        self.table: int | None = None
        """The number of its line table in the log."""
        self.offsets: dict[int, int] = {}
        """By instruction."""


class PythonMemory:
    """The memory of one Python process."""

    def __init__(self, process: str, runtime: int, version: int) -> None:
        """Open the memory of the process with this folder in ``/proc``; ``runtime`` is where ``_PyRuntime`` is.

        Its minor version is ``version``. Raises OSError.
        """
        self._runtime, self.version = runtime, version
        self._layout = dict(zip(_FIELDS, _LAYOUTS[version], strict=True))
        fields = [self._layout[field] // 8 for field in ("previous", "code", "instruction")]
        self._frame = Struct(f"<{max(fields) + 1}Q")
        self._words = (*fields, self._layout["names"] // 8)
        self._blocks: dict[int, bytes] = {}
        self._versions: dict[int, int] = {}
        """Of the dictionaries that this reading has met."""
        self._codes: dict[int, Code] = {}
        self._held = self._left = 0
        self._has_new_code = False
        self._until_s = 0.0
        self._numbers: dict[int, int] = {}
        """Of threads without an ID of the kernel, from 1."""
        self._pid = int(process.rpartition("/")[2])
        self._file = os.open(f"{process}/mem", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the memory."""
        os.close(self._file)

    def stacks(self) -> dict[int, RawStack]:
        """Return the stack of every thread that has one. Raises UnreadableError, EndedError."""
        self._blocks.clear()
        self._versions.clear()
        self._has_new_code = False
        self._left = _MOST_READ
        self._until_s = time.process_time() + _LONGEST_S
        return self._parsed()

    def completed(self, stacks: dict[int, RawStack]) -> dict[int, RawStack]:
        """Return the stacks that were read last, after ``frames``: a new code object says where its variables are."""
        if self._has_new_code:
            with contextlib.suppress(UnreadableError):  # too much to read
                return self._parsed()
        return stacks

    def _parsed(self) -> dict[int, RawStack]:
        try:
            interpreter = self._word(self._runtime + self._layout["interpreters"])
            threads = self._threads(interpreter) if interpreter else ()
            found = {thread: stack for thread, stack in threads if thread and stack}
        except (OSError, error, LookupError, ValueError, OverflowError) as failure:
            raise UnreadableError from failure
        if self.version >= _KERNEL_IDS:
            return found
        if len(found) == 1:
            return dict.fromkeys([self._pid], *found.values())
        return {-self._numbers.setdefault(thread, len(self._numbers) + 1): stack for thread, stack in found.items()}

    def _threads(self, interpreter: int) -> Iterator[tuple[int, RawStack]]:
        """Yield the ID and the stack of each thread; before 3.11, the address that pthreads know it by."""
        layout = self._layout
        state, steps = self._word(interpreter + layout["threads"]), iter(range(_MOST_FRAMES))
        for _ in range(_MOST_THREADS):
            if not state:
                return
            frame = self._word(state + layout["frame"])
            if layout["c_frame"] != _NONE and frame:
                frame = self._word(frame + layout["c_frame"])
            yield self._word(state + layout["thread_id"]), self._stack(frame, steps)
            state = self._word(state + _NEXT_THREAD)
        raise UnreadableError

    def _stack(self, frame: int, steps: Iterator[int]) -> RawStack:
        blocks, unpack, codes = self._blocks, self._frame.unpack_from, self._codes
        previous, code, instruction, names = self._words
        owner, variables_at = self._layout["owner"], self._layout["locals"]
        stack: list[RawFrame] = []
        is_import = has_import = has_new_code = False
        checked = -1
        for step in steps:
            if not frame:
                self._has_new_code |= has_new_code and not has_import  # imports meet new code all the time
                return tuple(stack[::-1])
            if frame == checked:  # torn: a circle, after at most as many frames again as were read so far (Brent)
                raise UnreadableError
            if not step & step - 1:
                checked = frame
            begin = frame & -_BLOCK
            block = blocks.get(begin) or self._block(begin)
            at = frame - begin
            words = unpack(block, at)
            if owner == _NONE or block[at + owner] < _OF_INTERPRETER:
                variables, known = 0, codes.get(words[code])
                if known is None:
                    has_new_code = True
                else:
                    if known.local_bytes:
                        variables = hash(block[at + variables_at : at + variables_at + known.local_bytes])
                    elif words[names] and not is_import:
                        variables = self._version_of(words[names])
                    is_import = known.is_import
                    has_import |= is_import
                stack.append((frame, words[code], words[instruction], variables))
            frame = words[previous]
        raise UnreadableError

    def _version_of(self, names: int) -> int:
        """Return what changes when a module or class sets a variable: its dictionary's version, or a digest of it.

        A statement that imports a module needs none: it imports it once.
        """
        if self.version < _WITHOUT_VERSIONS:
            return self._word(names + _VERSION)
        if names not in self._versions:  # recursive code of a module shares one dictionary
            self._versions[names] = hash(self._table_of(names))
        return self._versions[names]

    def _table_of(self, names: int) -> bytes:
        table = self._word(names + _TABLE)
        index_bytes, is_of_texts, count = _TABLE_HEADER.unpack(self._read(table, _TABLE_HEADER.size))
        entry = _ENTRY_OF_TEXT if is_of_texts else _ENTRY
        return self._read(table, min(_TABLE_HEADER.size + (1 << index_bytes) + count * entry, _LARGEST_TABLE))

    def frames(self, stack: RawStack, same: int) -> list[Frame]:
        """Return the frames of a stack, the outermost first.

        The outer frames that are the ``same`` as at the last reading need no check. Raises UnreadableError.
        """
        codes = self._codes
        try:
            known = [(codes[code], instruction) for _, code, instruction, _ in stack[:same]]
            frames = [(code, code.offsets[instruction]) for code, instruction in known]
            return frames + [self._known(code, instruction) for _, code, instruction, _ in stack[same:]]
        except (OSError, error, LookupError, ValueError, OverflowError) as failure:
            raise UnreadableError from failure

    def _known(self, address: int, instruction: int) -> Frame:
        """Return a frame, whose code object may be another one than at the last reading."""
        code = self._code_at(address)
        if instruction not in code.offsets:
            self._held += _PLACE
            if self.version >= _KERNEL_IDS:
                offset = instruction - address - self._layout["bytecode"]
            else:  # the number of the instruction, each of two bytes
                offset = ((instruction & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)) * 2
            if not _BEFORE_FIRST <= offset < code.size:  # a frame that is being made holds what was there before
                raise ValueError
            code.offsets[instruction] = offset
        return code, code.offsets[instruction]

    def _code_at(self, address: int) -> Code:
        data = self._read(address, self._layout["lines"] + 8)
        identity = data[self._layout["first_line"] :]
        known = self._codes.get(address)
        if known is None or known.identity != identity:
            if time.process_time() > self._until_s:  # hostile line tables: the rest at the next reading
                raise ValueError
            known = self._decoded(data, identity)
            if not self._is_unchanged(address, known):  # its texts may be gone, too
                raise UnreadableError
            self._held += len(known.lines) + len(known.name) + len(known.file) + _CODE
            if self._held > _MOST_HELD:
                self._held = 0
                self._codes.clear()
            self._codes[address] = known
        return known

    def _is_unchanged(self, address: int, code: Code) -> bool:
        return os.pread(self._file, self._layout["lines"] + 8, address)[self._layout["first_line"] :] == code.identity

    def is_known(self, stack: RawStack) -> bool:
        """Return whether the innermost code object is still the one that was read. Raises UnreadableError."""
        try:
            _, code, *_ = stack[-1]
            return self._is_unchanged(code, self._codes[code])
        except (OSError, LookupError, OverflowError) as failure:
            raise UnreadableError from failure

    def _decoded(self, data: bytes, identity: bytes) -> Code:
        layout = self._layout
        first_line = int.from_bytes(data[layout["first_line"] : layout["first_line"] + 4], "little", signed=True)
        places = layout["name"], layout["file"], layout["lines"]
        name, file, table = (int.from_bytes(data[at : at + 8], "little") for at in places)
        count = int.from_bytes(data[layout["local_count"] : layout["local_count"] + 4], "little")
        size = int.from_bytes(data[16:24], "little") * 2 if self.version >= _KERNEL_IDS else _LARGEST_TABLE
        texts = self._text(name), self._text(file)
        return Code(identity, texts, first_line, self._bytes(table), local_bytes=count * 8, size=size)

    def _bytes(self, address: int) -> bytes:
        data = self._part(address, _BLOCK)
        size = int.from_bytes(data[16:24], "little")
        if size > _LONGEST_OBJECT:
            raise ValueError
        if size > _LONGEST_LINES:
            return b""
        return data[32 : 32 + size] if size <= len(data) - 32 else self._read(address + 32, size)

    def _text(self, address: int) -> str:
        data = self._part(address, _LONGEST_TEXT)
        length, state, start = int.from_bytes(data[16:24], "little"), data[32], self._layout["text"]
        kind, is_compact, is_ascii = state >> 2 & 7, state >> 5 & 1, state >> 6 & 1
        if not is_ascii:
            start += 16 if self.version > _KERNEL_IDS else 24
        text = data[start : start + length * kind]
        if not is_compact or not length or len(text) != length * kind:
            raise ValueError
        return text.decode(_ENCODINGS[kind], "replace")

    def _word(self, address: int) -> int:
        begin = address & -_BLOCK
        block = self._blocks.get(begin) or self._block(begin)
        return int.from_bytes(block[address - begin : address - begin + 8], "little")

    def _block(self, begin: int) -> bytes:
        """Read a block of memory, with some bytes more; each once a reading."""
        block = self._blocks[begin] = self._part(begin, _BLOCK + _MARGIN)
        if not block:  # an address that is not mapped is an error, and no end
            raise EndedError
        return block

    def _read(self, address: int, size: int) -> bytes:
        data = self._part(address, size)
        if len(data) != size:
            raise ValueError
        return data

    def _part(self, address: int, size: int) -> bytes:
        """Return bytes, fewer at the end of a mapping. Raises OSError, and ValueError after ``_MOST_READ``."""
        self._left -= size
        if self._left < 0:
            raise ValueError
        return os.pread(self._file, size, address)


def python_memory(process: str, maps: bytes) -> PythonMemory | None:
    """Return the memory of the process with this folder in ``/proc``; None if it has no file of Python mapped.

    Raises OSError, UnknownPythonError.
    """
    why = ""
    pythons = [(begin, path, named) for begin, path in _MAPPING.findall(maps) if (named := _PYTHON.search(path))]
    for begin, path, named in pythons[:_MOST_FILES]:
        why = "its Python has no symbol _PyRuntime"
        with contextlib.suppress(FileNotFoundError, ValueError, error):
            found, is_relative = _symbols(f"{process}/root{os.fsdecode(path)}")
            if "runtime" in found:
                offset = int(begin, 16) if is_relative else 0
                version = int(named[1] or 0)
                if "version" in found:
                    with open(f"{process}/mem", "rb", buffering=0) as memory:
                        version = _minor(os.pread(memory.fileno(), 4, offset + found["version"]))
                if version in _LAYOUTS and not named[2]:
                    return PythonMemory(process, offset + found["runtime"], version)
                why = f"the layout of Python 3.{version}{'t' if named[2] else ''} is not known"
    if why:
        raise UnknownPythonError(why)
    return None


def _minor(version: bytes) -> int:
    if len(version) < 4:  # noqa: PLR2004 — bytes of PY_VERSION_HEX
        raise ProcessLookupError
    return version[2]


def _symbols(path: str) -> tuple[dict[str, int], bool]:
    """Return where a file has ``_SYMBOLS``, and whether that is relative to its first address; each file is read once.

    Raises OSError, ValueError.
    """
    status = os.stat(path)
    key = status.st_dev, status.st_ino
    if key not in _known_symbols:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            _known_symbols[key] = _symbols_of(file)
        finally:
            os.close(file)
    return _known_symbols[key]


_MAPPING = re.compile(rb"^([0-9a-f]+)-\S+ \S+ 00000000 \S+ \d+ +(/[^\n]*)$", re.MULTILINE)
"""The first mapping of a file: its begin, and the file's path."""
_HEADER = Struct("<16sHHIQQQIHHHHHH")
_SECTION = Struct("<IIQQQQIIQQ")
_SEGMENT = Struct("<IIQQQQQQ")
_SYMBOL = Struct("<IBBHQQ")
_MAGIC = b"\x7fELF\x02\x01"
"""64 bits, little-endian."""
_RELOCATABLE = 3
_DYNAMIC_SYMBOLS = 11
_LOADED = 1
_MOST_SECTIONS = 1_000
_LARGEST_SECTION = 1 << 21


def _symbols_of(file: int) -> tuple[dict[str, int], bool]:
    """Return what ``_symbols`` does, of an open file (elf(5)). Raises ValueError."""
    header = _read_file(file, _HEADER.size, 0)
    if not header.startswith(_MAGIC):
        raise ValueError("no ELF file of 64 bits")
    _, kind, _, _, _, segments_at, sections_at, _, _, _, segment_count, _, section_count, _ = _HEADER.unpack(header)
    table = _read_file(file, min(section_count, _MOST_SECTIONS) * _SECTION.size, sections_at)
    sections = list(_SECTION.iter_unpack(table))
    segments = _SEGMENT.iter_unpack(_read_file(file, segment_count * _SEGMENT.size, segments_at))
    loaded = [address for what, _, _, address, *_ in segments if what == _LOADED]
    base = min(loaded) // _BLOCK * _BLOCK if loaded and kind == _RELOCATABLE else 0
    found = {}
    for section in sections:
        if section[1] == _DYNAMIC_SYMBOLS and section[6] < len(sections):
            _, _, _, _, at, size, *_ = sections[section[6]]
            strings = _read_file(file, size, at)
            wanted = {strings.find(b"\0" + name + b"\0") + 1: key for name, key in _SYMBOLS.items()}
            for place, _, _, where, value, _ in _SYMBOL.iter_unpack(_read_file(file, section[5], section[4])):
                if place in wanted and place and where:
                    found[wanted[place]] = value - base
            break  # a file has one such section (elf(5))
    return found, kind == _RELOCATABLE


def _read_file(file: int, size: int, at: int) -> bytes:
    if size > _LARGEST_SECTION:
        raise ValueError("the ELF file is damaged")
    try:
        data = os.pread(file, size, at)
    except (OSError, OverflowError) as failure:  # a FIFO, or a place that cannot be
        raise ValueError("no ELF file") from failure
    if len(data) != size:
        raise ValueError("the ELF file is cut off")
    return data
