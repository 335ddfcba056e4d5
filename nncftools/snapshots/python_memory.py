"""Reads the stacks of a running Python from its memory (``/proc/PID/mem``, proc(5)), without stopping it.

CPython links its interpreters, their threads, and each thread's frames; ``finding.py`` knows where the fields lie. A
thread that calls code in another interpreter has frames in both: they are one stack. A reading of 80 frames takes
60 µs. The process runs on meanwhile, so each reading is checked: every frame must have a code object. A code object's
memory may be used again, so a known one is compared before it is believed.
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


ABSENT = -1
"""Stands for a field that a version does not have."""
_KERNEL_IDS = 11
"""From this version on, threads know their ID of the kernel."""
_BEFORE_FIRST = -2
"""The offset of the instruction of a function that has not begun."""
_OF_INTERPRETER = 3
UNTAGGED = -8
"""From 3.14 on, the low bits of a reference in a frame are its tag."""
_VERSION, _TABLE, _WITHOUT_VERSIONS = 24, 32, 13
"""Places in a dictionary (CPython's Include/cpython/dictobject.h), and from which version on it has only the table."""
_TABLE_AND_VALUES = Struct("<QQ")
_TABLE_HEADER = Struct("<9xBB13xQ")
"""Log2 of the bytes of the index, whether all keys are texts, and the number of entries (pycore_dict.h)."""
_ENTRY, _ENTRY_OF_TEXT = 24, 16
_IMPORT = "<frozen importlib"
BLOCK = 4096
"""A page."""
MARGIN = 512
"""A frame that begins near the end of a block is read so far."""
_MOST_INTERPRETERS, _MOST_THREADS = 250, 1_000
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
_STAT = 512
"""``/proc/PID/stat`` is shorter."""
_LONGEST_TEXT = 4_096
_LARGEST_TABLE = 1 << 20
"""Of a dictionary, or of bytecode."""
_LONGEST_LINES = 1 << 17
"""A code object with a longer line table counts as one without."""
_LONGEST_OBJECT = 1 << 31
_ENCODINGS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}


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

    is_certain = True
    """Whether two readings tell that a call goes on."""

    def __init__(self, process: str, runtime: int, code_type: int, version: int, layout: dict[str, int]) -> None:
        """Open the memory of the process with this folder in ``/proc``; ``runtime`` is where ``_PyRuntime`` is.

        ``code_type`` is where the type of code objects is, 0 if unknown. Raises OSError.
        """
        self.version = version
        self._runtime, self._code_type = runtime, code_type
        self._layout = layout
        self._words = tuple([layout[field] // 8 for field in ("previous", "code", "instruction", "names")])
        self._frame = Struct(f"<{max(self._words) + 1}Q")
        fields = [layout[field] for field in ("first_line", "file", "name", "lines", "locals_known_by")]
        self._identity = slice(min(fields), max(fields) + 8)
        """The fields of a code object that are compared."""
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
        self._process = process
        self._is_own = version < _KERNEL_IDS
        """Whether this is known not to be the memory of its parent."""
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
        found = self._parsed()
        if found and not self._is_own:
            self._is_own = not self._has_threads_of_parent(found)
            if not self._is_own:
                raise EndedError
        return found

    def _has_threads_of_parent(self, threads: Iterable[int]) -> bool:
        """Return whether this is the parent's memory: a child of vfork(2) shares it until exec.

        Raises EndedError.
        """
        try:
            with open(f"{self._process}/stat", "rb", buffering=0) as file:
                parent = int(file.read(_STAT).rpartition(b")")[2].split()[1])
        except (OSError, LookupError, ValueError) as failure:
            raise EndedError from failure
        return any(os.path.exists(f"/proc/{parent}/task/{thread}") for thread in threads)

    def completed(self, stacks: dict[int, RawStack]) -> dict[int, RawStack]:
        """Return the stacks that were read last, after ``frames``: a new code object says where its variables are."""
        if self._has_new_code:
            with contextlib.suppress(UnreadableError):  # too much to read
                return self._parsed()
        return stacks

    def _parsed(self) -> dict[int, RawStack]:
        try:
            found: dict[int, RawStack] = {}
            for interpreter in self._interpreters():
                for thread, stack in self._threads(interpreter):
                    if thread and stack:  # a thread that runs code in another interpreter has a stack in both
                        found[thread] = found.get(thread, ()) + stack
        except (OSError, error, LookupError, ValueError, OverflowError) as failure:
            raise UnreadableError from failure
        if self.version >= _KERNEL_IDS:
            return found
        if len(found) == 1:
            return dict.fromkeys([self._pid], *found.values())
        return {-self._numbers.setdefault(thread, len(self._numbers) + 1): stack for thread, stack in found.items()}

    def _interpreters(self) -> list[int]:
        """Return the addresses of all interpreters, the main one first."""
        found: list[int] = []
        interpreter = self._word(self._runtime + self._layout["interpreters"])
        while interpreter:
            found.insert(0, interpreter)
            interpreter = self._word(interpreter + self._layout["next_interpreter"])
            if len(found) > _MOST_INTERPRETERS:
                raise UnreadableError
        return found

    def _threads(self, interpreter: int) -> Iterator[tuple[int, RawStack]]:
        """Yield the ID and the stack of each thread; before 3.11, the address that pthreads know it by."""
        layout = self._layout
        state, steps = self._word(interpreter + layout["threads"]), iter(range(_MOST_FRAMES))
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
            begin = frame & -BLOCK
            block = blocks.get(begin) or self._block(begin)
            at = frame - begin
            words = unpack(block, at)
            if owner == ABSENT or block[at + owner] < _OF_INTERPRETER:
                executable = words[code] & UNTAGGED
                variables, known = 0, codes.get(executable)
                if known is None:
                    has_new_code = True
                else:
                    if known.local_bytes:
                        variables = hash(block[at + variables_at : at + variables_at + known.local_bytes])
                    if words[names] and not is_import:  # a module that comprehends has variables in both
                        variables += self._version_of(words[names])
                    is_import = known.is_import
                    has_import |= is_import
                stack.append((frame, executable, words[instruction], variables))
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
        table, values = _TABLE_AND_VALUES.unpack(self._read(names + _TABLE, _TABLE_AND_VALUES.size))
        if values:  # its values lie elsewhere: it counts as changed
            return str(self._until_s).encode()
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
        data = self._read(address, self._identity.stop)
        identity = data[self._identity]
        known = self._codes.get(address)
        if known is None or known.identity != identity:
            if time.process_time() > self._until_s:  # hostile line tables: the rest at the next reading
                raise ValueError
            known = self._decoded(address, data)
            if not self._is_unchanged(address, known):  # its texts may be gone, too
                raise UnreadableError
            self._held += len(known.lines) + len(known.name) + len(known.file) + _CODE
            if self._held > _MOST_HELD:
                self._held = 0
                self._codes.clear()
            self._codes[address] = known
        return known

    def _is_unchanged(self, address: int, code: Code) -> bool:
        return os.pread(self._file, self._identity.stop, address)[self._identity] == code.identity

    def is_known(self, stack: RawStack) -> bool:
        """Return whether the innermost code object is still the one that was read. Raises UnreadableError."""
        try:
            _, code, *_ = stack[-1]
            return self._is_unchanged(code, self._codes[code])
        except (OSError, LookupError, OverflowError) as failure:
            raise UnreadableError from failure

    def _decoded(self, address: int, data: bytes) -> Code:  # noqa: ARG002 — TriedMemory needs the address
        layout = self._layout
        if self._code_type and int.from_bytes(data[8:16], "little") != self._code_type:
            raise ValueError
        first_line = int.from_bytes(data[layout["first_line"] : layout["first_line"] + 4], "little", signed=True)
        places = layout["name"], layout["file"], layout["lines"], layout["locals_known_by"]
        name, file, table, variables = (int.from_bytes(data[at : at + 8], "little") for at in places)
        count = self._size(variables) if self.version >= _WITHOUT_VERSIONS else variables & 0xFFFFFFFF
        size = int.from_bytes(data[16:24], "little") * 2 if self.version >= _KERNEL_IDS else _LARGEST_TABLE
        texts = self._text(name), self._text(file)
        lines = self._bytes(table)
        return Code(data[self._identity], texts, first_line, lines, local_bytes=count * 8, size=size)

    def _size(self, address: int) -> int:
        """Return how many items an object has."""
        return int.from_bytes(self._read(address + 16, 8), "little")

    def _bytes(self, address: int) -> bytes:
        data = self._part(address, BLOCK)
        size = int.from_bytes(data[16:24], "little")
        if size > _LONGEST_OBJECT:
            raise ValueError
        if size > _LONGEST_LINES:
            return b""
        return data[32 : 32 + size] if size <= len(data) - 32 else self._read(address + 32, size)

    def _text(self, address: int) -> str:
        data = self._part(address, _LONGEST_TEXT)
        length, state = int.from_bytes(data[16:24], "little"), data[32]
        kind, is_compact, is_ascii = state >> 2 & 7, state >> 5 & 1, state >> 6 & 1
        start = self._layout["text" if is_ascii else "wide_text"]
        text = data[start : start + length * kind]
        if not is_compact or not length or len(text) != length * kind:
            raise ValueError
        return text.decode(_ENCODINGS[kind], "replace")

    def _word(self, address: int) -> int:
        begin = address & -BLOCK
        block = self._blocks.get(begin) or self._block(begin)
        return int.from_bytes(block[address - begin : address - begin + 8], "little")

    def _block(self, begin: int) -> bytes:
        """Read a block of memory, with some bytes more; each once a reading."""
        block = self._blocks[begin] = self._part(begin, BLOCK + MARGIN)
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
