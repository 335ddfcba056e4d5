"""Reads the stacks of a running Python from its memory (``/proc/PID/mem``, proc(5)), without stopping the process.

CPython links interpreters, threads, and the frames of each thread; ``finding.py`` knows the offsets of the fields. If a
thread calls code in another interpreter, the thread has frames in both interpreters. They are joined to a single stack.
A reading of 80 frames takes 60 µs. The process runs on during the reading, so each reading is checked: every frame must
have a code object. CPython may use the memory of an old code object for another object, so a known code object is
compared before each use.
"""

from __future__ import annotations

import contextlib
import os
import time
from struct import Struct, error

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Frame = tuple["Code", int]
    """A code object, and the offset of the current instruction in the bytecode."""
    RawFrame = tuple[int, int, int, int]
    """The addresses of the frame, the code object and the instruction, and a digest of the variables."""
    RawStack = tuple[RawFrame, ...]
    """The frames of a stack, the outermost frame first."""
    Stacks = dict[int, RawStack]
    """The stack of each thread, by thread ID."""


class UnreadableError(Exception):
    """The process changed the stacks during the reading."""


class EndedError(Exception):
    """The process has ended, or has begun a new program."""


class UnknownPythonError(Exception):
    """The stacks of this Python cannot be read; the message says why."""


class NoStackError(Exception):
    """No thread of a Python has a stack: the Python has just started, or its layout is unknown."""


ABSENT = -1
"""This offset stands for a field that a Python version does not have."""
_KERNEL_IDS = 11
"""From Python 3.11 on, CPython's struct of a thread has the thread ID of the kernel."""
_CONSTRUCTION = "__init__", "__init__"
"""Name and file of the code that CPython runs around ``__init__`` from Python 3.13 on (``_Py_InitCleanup`` in
Objects/codeobject.c). Tracebacks do not show this code.
"""
_BEFORE_FIRST = -2
"""The offset of the instruction in a function that has not begun."""
_INTERPRETER_OWNED = 3
UNTAGGED = -8
"""This mask removes a tag: from 3.14 on, the low bits of a reference in a frame are a tag."""
_VERSION = 24
"""The offset in bytes of a dictionary's version number in CPython's struct (Include/cpython/dictobject.h)."""
_TABLE = 32
"""The offset in bytes of the pointer to a dictionary's table of keys (``ma_keys``) in CPython's struct."""
_WITHOUT_VERSIONS = 13
"""From Python 3.13 on, dictionaries have no version number."""
_TABLE_AND_VALUES = Struct("<QQ")
_TABLE_HEADER = Struct("<9xBB13xQ")
"""The header of a dictionary's table of keys: log2 of the index's size in bytes, whether all keys are texts, and the
number of entries (pycore_dict.h).
"""
_ENTRY = 24
_TEXT_ENTRY = 16
_IMPORT = "<frozen importlib"
BLOCK = 4096
"""The size of a page in bytes."""
MARGIN = 512
"""This many bytes after each block are read, too, because a frame may begin near the end of the block."""
_MOST_INTERPRETERS = 250
_MOST_THREADS = 1_000
_MOST_FRAMES = 20_000
"""All threads of an interpreter together have at most this many frames in a reading."""
_MOST_HELD = 8 << 20
"""The code objects that the helper keeps take at most about this many bytes."""
_CODE = 1_500
"""A code object in the helper takes about this many bytes, without texts and line table."""
_PLACE = 250
"""Each instruction in ``Code.offsets`` takes about this many bytes."""
_MOST_READ = 16 << 20
"""A reading reads at most this many bytes of the process's memory."""
_LONGEST_S = 0.2
"""A reading takes at most this many CPU seconds."""
_STAT = 512
"""The size of the buffer for ``/proc/PID/stat``. The file is shorter."""
_LONGEST_TEXT = 4_096
_LARGEST_TABLE = 1 << 20
"""The largest size in bytes of a dictionary's table, or of a function's bytecode."""
_LONGEST_LINES = 1 << 17
"""A line table with more bytes is ignored."""
_LONGEST_OBJECT = 1 << 31
_ENCODINGS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
_TORN = (OSError, error, LookupError, ValueError, OverflowError)
"""Errors that occur if the process changes its memory during a reading."""


class Code:
    """A code object of the process, with those of its instructions that readings have found in frames.

    Objects of this class must not refer to each other in circles, because the helper runs no garbage collection.
    """

    def __init__(  # noqa: PLR0913 — an argument for each field
        self, identity: bytes, texts: tuple[str, str], first_line: int, lines: bytes, *, local_bytes: int, size: int
    ) -> None:
        """``identity`` are bytes that show whether the code object has changed, ``texts`` are name and file.

        ``local_bytes`` is the size of the variables in a frame, ``size`` is the length of the bytecode.
        """
        self.identity = identity
        self.name, self.file = texts
        self.first_line = first_line
        self.lines = lines
        self.local_bytes = local_bytes
        self.size = size
        self.is_import = self.file.startswith(_IMPORT)
        self.is_hidden = texts == _CONSTRUCTION
        """Whether the code has no place in a stack."""
        self.table: int | None = None
        """The index of the line table in the log. None if the log has no line table of this code object."""
        self.offsets: dict[int, int] = {}
        """Maps the address of an instruction to the offset in the bytecode."""


class PythonMemory:
    """The memory of a Python process."""

    is_certain = True
    """Whether a comparison of two readings can show that a call still goes on."""

    def __init__(self, process: str, runtime: int, code_type: int, version: int, layout: dict[str, int]) -> None:
        """Open the memory of a process. ``process`` is the folder of the process in ``/proc``. Raises OSError.

        ``runtime`` is the address of ``_PyRuntime``. ``code_type`` is the address of the type of code objects, 0 if
        unknown.
        """
        self.version = version
        self._runtime = runtime
        self._code_type = code_type
        self._layout = layout
        self._words = [layout[field] // 8 for field in ("previous", "code", "instruction", "names")]
        self._frame = Struct(f"<{max(self._words) + 1}Q")
        fields = [layout[field] for field in ("first_line", "file", "name", "lines", "locals_known_by")]
        self._identity = slice(min(fields), max(fields) + 8)
        """The part of a code object that is compared with an earlier reading: from the first to the last of ``fields``.
        """
        self._blocks: dict[int, bytes] = {}
        self._versions: dict[int, int] = {}
        """Maps the address of a dictionary to a number that changes with the content of the dictionary. Cleared before
        each reading.
        """
        self._codes: dict[int, Code] = {}
        self._held = self._left = 0
        self._has_new_code = False
        self._until_s = 0.0
        self._numbers: dict[int, int] = {}
        """Python 3.10 does not store the kernel's thread IDs. Maps the thread ID of pthreads to a number, counted from
        1.
        """
        self._pid = int(process.rpartition("/")[2])
        self._process = process
        self._is_separate = version < _KERNEL_IDS
        """Whether the memory is known to belong to this process alone; before Python 3.11, this is assumed. A child of
        vfork(2) uses the memory of its parent.
        """
        self._file = os.open(f"{process}/mem", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the memory."""
        os.close(self._file)

    def stacks(self) -> Stacks:
        """Return the stack of every thread that runs Python. Raises UnreadableError, EndedError."""
        self._blocks.clear()
        self._versions.clear()
        self._has_new_code = False
        self._left = _MOST_READ
        self._until_s = time.process_time() + _LONGEST_S
        stacks = self._parse()
        if stacks and not self._is_separate:
            if self._has_threads_of_parent(stacks):
                raise EndedError
            self._is_separate = True
        return stacks

    def _has_threads_of_parent(self, threads: Iterable[int]) -> bool:
        """Return whether the memory belongs to the parent. Raises EndedError.

        A child of vfork(2) uses the memory of the parent until exec.
        """
        try:
            with open(f"{self._process}/stat", "rb", buffering=0) as file:
                fields = file.read(_STAT).rpartition(b")")[2].split()
            parent = int(fields[1])
        except (OSError, LookupError, ValueError) as failure:
            raise EndedError from failure
        return any(os.path.exists(f"/proc/{parent}/task/{thread}") for thread in threads)

    def completed(self, stacks: Stacks) -> Stacks:
        """Return ``stacks`` with the variables of all frames. Parse the memory again if variables are missing.

        The variables of a frame can be read only if its code object is known. After the first parsing, the method
        ``frames`` reads the unknown code objects, so the second parsing finds all variables.
        """
        if self._has_new_code:
            with contextlib.suppress(UnreadableError):  # too many bytes to read
                return self._parse()
        return stacks

    def _parse(self) -> Stacks:
        stacks: Stacks = {}
        try:
            for interpreter in self._interpreters():
                for thread, stack in self._threads(interpreter):
                    if thread and stack:  # a thread that runs code in another interpreter has a stack in both
                        stacks[thread] = stacks.get(thread, ()) + stack
        except _TORN as failure:
            raise UnreadableError from failure
        if self.version >= _KERNEL_IDS:
            return stacks
        if len(stacks) == 1:
            return dict.fromkeys([self._pid], *stacks.values())
        numbered = {}
        for thread, stack in stacks.items():
            number = self._numbers.setdefault(thread, len(self._numbers) + 1)
            numbered[-number] = stack
        return numbered

    def _interpreters(self) -> list[int]:
        """Return the addresses of all interpreters, the main interpreter first."""
        interpreters: list[int] = []
        interpreter = self._word(self._runtime + self._layout["interpreters"])
        while interpreter:
            interpreters.insert(0, interpreter)
            interpreter = self._word(interpreter + self._layout["next_interpreter"])
            if len(interpreters) > _MOST_INTERPRETERS:
                raise UnreadableError
        return interpreters

    def _threads(self, interpreter: int) -> Iterator[tuple[int, RawStack]]:
        """Yield ID and stack of each thread. Before Python 3.11, the ID is the address that pthreads use."""
        layout = self._layout
        steps = iter(range(_MOST_FRAMES))
        state = self._word(interpreter + layout["threads"])
        for _ in range(_MOST_THREADS):
            if not state:
                return
            frame = self._word(state + layout["frame"])
            if layout["c_frame"] != ABSENT and frame:
                frame = self._word(frame + layout["c_frame"])
            yield self._word(state + layout["thread_id"]), self._stack(frame, steps)
            state = self._word(state + layout["next_thread"])
        raise UnreadableError

    def _stack(self, frame: int, steps: Iterator[int]) -> RawStack:
        blocks = self._blocks
        unpack = self._frame.unpack_from
        codes = self._codes
        previous, code, instruction, names = self._words
        owner = self._layout["owner"]
        locals_offset = self._layout["locals"]
        stack: list[RawFrame] = []
        is_import = has_import = has_new_code = False
        checked = -1
        for step in steps:
            if not frame:
                # imports run new code all the time, so they cause no second parsing
                self._has_new_code |= has_new_code and not has_import
                return tuple(stack[::-1])
            if frame == checked:  # the frames form a circle: Brent's method finds a circle within two rounds
                raise UnreadableError
            if not step & step - 1:
                checked = frame
            begin = frame & -BLOCK
            block = blocks.get(begin) or self._block(begin)
            offset = frame - begin
            words = unpack(block, offset)
            if owner == ABSENT or block[offset + owner] < _INTERPRETER_OWNED:
                executable = words[code] & UNTAGGED
                variables = 0
                known = codes.get(executable)
                if known is None:
                    has_new_code = True
                elif known.is_hidden:
                    frame = words[previous]
                    continue
                else:
                    if known.local_bytes:
                        first = offset + locals_offset
                        variables = hash(block[first : first + known.local_bytes])
                    # Code that waits for an import needs no version: the same import statement imports only once.
                    if words[names] and not is_import:  # a comprehension in a module has variables in both
                        variables += self._version_of(words[names])
                    is_import = known.is_import
                    has_import |= is_import
                stack.append((frame, executable, words[instruction], variables))
            frame = words[previous]
        raise UnreadableError

    def _version_of(self, names: int) -> int:
        """Return a number that changes when the code of a module or class sets a variable.

        ``names`` is the address of the dictionary with the variables. Before Python 3.13 the number is the version of
        the dictionary, later a hash of the content.
        """
        if self.version < _WITHOUT_VERSIONS:
            return self._word(names + _VERSION)
        # several frames may share a dictionary, for example in recursive code of a module
        if names not in self._versions:
            self._versions[names] = hash(self._table_of(names))
        return self._versions[names]

    def _table_of(self, names: int) -> bytes:
        table, values = _TABLE_AND_VALUES.unpack(self._read(names + _TABLE, _TABLE_AND_VALUES.size))
        if values:  # the values are in another table, so the dictionary counts as changed
            return str(self._until_s).encode()
        header = self._read(table, _TABLE_HEADER.size)
        index_bytes, has_text_keys, count = _TABLE_HEADER.unpack(header)
        entry = _TEXT_ENTRY if has_text_keys else _ENTRY
        size = len(header) + (1 << index_bytes) + count * entry
        return self._read(table, min(size, _LARGEST_TABLE))

    def frames(self, stack: RawStack, same: int) -> list[Frame]:
        """Return the frames of a stack, the outermost first.

        The first ``same`` frames have not changed since the last reading, and need no check. Raises UnreadableError.
        """
        frames: list[Frame] = []
        try:
            for number, (_, address, instruction, _) in enumerate(stack):
                code = self._codes[address] if number < same else self._checked_code(address, instruction)
                if code.is_hidden:  # the next reading leaves this frame out
                    raise UnreadableError
                frames.append((code, code.offsets[instruction]))
        except _TORN as failure:
            raise UnreadableError from failure
        return frames

    def _checked_code(self, address: int, instruction: int) -> Code:
        """Return the code object at ``address``. Read the code object first if it is new or has changed.

        Raises ValueError if the address ``instruction`` is not in its bytecode.
        """
        code = self._code_at(address)
        if instruction not in code.offsets:
            self._held += _PLACE
            if self.version >= _KERNEL_IDS:
                offset = instruction - address - self._layout["bytecode"]
            else:  # the field has the number of the instruction, and an instruction has two bytes
                offset = ((instruction & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)) * 2
            if not _BEFORE_FIRST <= offset < code.size:  # a new frame may still have the instruction of an older frame
                raise ValueError
            code.offsets[instruction] = offset
        return code

    def _code_at(self, address: int) -> Code:
        data = self._read(address, self._identity.stop)
        code = self._codes.get(address)
        if code is None or code.identity != data[self._identity]:
            # too many huge line tables: this reading fails, and the next reading continues
            if time.process_time() > self._until_s:
                raise ValueError
            code = self._decode(address, data)
            # CPython may have used the memory of the texts for other objects in the meantime
            if not self._is_unchanged(address, code):
                raise UnreadableError
            self._held += _CODE + len(code.lines) + len(code.name + code.file)
            if self._held > _MOST_HELD:
                self._held = 0
                self._codes.clear()
            self._codes[address] = code
        return code

    def _is_unchanged(self, address: int, code: Code) -> bool:
        data = os.pread(self._file, self._identity.stop, address)
        return data[self._identity] == code.identity

    def is_known(self, stack: RawStack) -> bool:
        """Return whether the innermost code object of a stack is unchanged in memory. Raises UnreadableError."""
        try:
            _, code, *_ = stack[-1]
            return self._is_unchanged(code, self._codes[code])
        except (OSError, LookupError, OverflowError) as failure:
            raise UnreadableError from failure

    def _decode(self, address: int, data: bytes) -> Code:  # noqa: ARG002 — TriedMemory needs the address
        layout = self._layout
        if self._code_type and _number(data, 8) != self._code_type:
            raise ValueError
        line_offset = layout["first_line"]
        first_line = int.from_bytes(data[line_offset : line_offset + 4], "little", signed=True)
        variables = _number(data, layout["locals_known_by"])
        if self.version >= _WITHOUT_VERSIONS:
            count = _number(self._read(variables + 16, 8), 0)
        else:
            count = variables & 0xFFFFFFFF
        size = _number(data, 16) * 2 if self.version >= _KERNEL_IDS else _LARGEST_TABLE
        name = self._text(_number(data, layout["name"]))
        file = self._text(_number(data, layout["file"]))
        lines = self._bytes(_number(data, layout["lines"]))
        identity = data[self._identity]
        return Code(identity, (name, file), first_line, lines, local_bytes=count * 8, size=size)

    def _bytes(self, address: int) -> bytes:
        data = self._part(address, BLOCK)
        size = _number(data, 16)
        if size > _LONGEST_OBJECT:
            raise ValueError
        if size > _LONGEST_LINES:
            return b""
        part = data[32 : 32 + size]
        return part if len(part) == size else self._read(address + 32, size)

    def _text(self, address: int) -> str:
        data = self._part(address, _LONGEST_TEXT)
        length = _number(data, 16)
        state = data[32]
        kind = state >> 2 & 7
        is_compact = state >> 5 & 1
        is_ascii = state >> 6 & 1
        start = self._layout["text" if is_ascii else "wide_text"]
        text = data[start : start + length * kind]
        if not is_compact or not length or len(text) != length * kind:
            raise ValueError
        return text.decode(_ENCODINGS[kind], "replace")

    def _word(self, address: int) -> int:
        begin = address & -BLOCK
        return _number(self._blocks.get(begin) or self._block(begin), address - begin)

    def _block(self, begin: int) -> bytes:
        """Read a block of memory, and ``MARGIN`` bytes after the block. A reading reads each block only once."""
        block = self._part(begin, BLOCK + MARGIN)
        if not block:  # the process has ended: for an address without memory, the read raises an error
            raise EndedError
        self._blocks[begin] = block
        return block

    def _read(self, address: int, size: int) -> bytes:
        data = self._part(address, size)
        if len(data) != size:
            raise ValueError
        return data

    def _part(self, address: int, size: int) -> bytes:
        """Return ``size`` bytes from an address, or fewer bytes at the end of a mapping.

        Raises OSError, or ValueError if the reading has used up ``_MOST_READ`` bytes.
        """
        self._left -= size
        if self._left < 0:
            raise ValueError
        return os.pread(self._file, size, address)


def _number(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 8], "little")
