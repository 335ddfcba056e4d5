"""Finds the Python interpreter of a process, and the offsets of fields in the interpreter's structs.

A layout is a dictionary of these offsets. ``_TABLES`` has the layouts of Python 3.10 to 3.12, from CPython's headers.
Later Pythons publish the layout: ``_PyRuntime`` begins with a cookie, the version, and many offsets
(``_Py_DebugOffsets``, pycore_debug_offsets.h).
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from struct import Struct, error

from nncftools.snapshots.python_memory import (
    ABSENT,
    BLOCK,
    MARGIN,
    UNTAGGED,
    EndedError,
    NoStackError,
    PythonMemory,
    UnknownPythonError,
    UnreadableError,
)

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nncftools.snapshots.python_memory import Code, RawStack

    Symbols = tuple[dict[str, int], bool]
    """A pair: the addresses of the symbols ``_SYMBOLS`` in a file, and whether these addresses count from the file's
    first address in memory.
    """

_FIELDS = (
    "interpreters",  # in _PyRuntime: the newest interpreter
    "next_interpreter",  # in the interpreter
    "threads",
    "thread_id",
    "frame",  # in the thread: the innermost frame, or the C frame that refers to the innermost frame
    "c_frame",  # in the C frame
    "previous",
    "code",
    "instruction",
    "owner",  # in the frame: the interpreter's own frames have no Python code
    "names",  # in the frame: the dictionary of variables of a module or class
    "locals",  # in the frame: other variables
    "locals_known_by",  # in the code object: the number of other variables; from 3.13 on, the tuple of the names
    "first_line",
    "file",
    "name",
    "lines",
    "bytecode",  # in the code object
    "text",  # in a string of ASCII
    "wide_text",  # in any other string
    "next_thread",
)
_TABLES = {
    10: (32, 0, 8, 176, 24, ABSENT, 24, 32, 96, ABSENT, 56, 352, 28, 40, 104, 112, 120, 0, 48, 72, 8),
    11: (40, 0, 16, 160, 56, 8, 48, 32, 56, ABSENT, 24, 72, 76, 72, 112, 128, 136, 184, 48, 72, 8),
    12: (40, 0, 72, 144, 56, 0, 8, 0, 56, 70, 40, 72, 72, 68, 112, 128, 136, 192, 40, 56, 8),
}
"""Maps a minor version of Python 3 to the offsets of ``_FIELDS`` in bytes, in builds of 64 bits."""

_COOKIE = b"xdebugpy"
_ORDERS = {
    13: """runtime.size finalizing interpreters
        interpreter.size id next threads gc imports_modules sysdict builtins ceval_gil gil_runtime_state gil_enabled
        gil_locked gil_holder
        thread.size previous next interpreter frame pthread_id thread_id datastack_chunk status
        frame.size previous code instruction locals owner
        code.size file plain_name name lines first_line argument_count local_names local_kinds bytecode
        object.size type
        type.size name repr flags
        tuple.size items count
        list.size items count
        dict.size keys values
        float.size value
        int.size tag digits
        bytes.size count bytes
        string.size state length ascii_size""",
    14: """runtime.size finalizing interpreters
        interpreter.size id next threads main_thread gc imports_modules sysdict builtins ceval_gil gil_runtime_state
        gil_enabled gil_locked gil_holder code_object_generation tlbc_generation
        thread.size previous next interpreter frame pthread_id thread_id datastack_chunk status
        frame.size previous code instruction locals owner stack_pointer tlbc_index
        code.size file plain_name name lines first_line argument_count local_names local_kinds bytecode tlbc
        object.size type
        type.size name repr flags
        tuple.size items count
        list.size items count
        set.size used table mask
        dict.size keys values
        float.size value
        int.size tag digits
        bytes.size count bytes
        string.size state length ascii_size""",
    15: """runtime.size finalizing interpreters
        interpreter.size id next threads main_thread gc imports_modules sysdict builtins ceval_gil gil_runtime_state
        gil_enabled gil_locked gil_holder code_object_generation tlbc_generation
        thread.size previous next interpreter frame base_frame profiled_frame profiled_frame_number pthread_id thread_id
        datastack_chunk status holds_gil gil_requested current_exception exc_state exc_value
        frame.size previous code instruction locals owner stack_pointer tlbc_index
        code.size file plain_name name lines first_line argument_count local_names local_kinds bytecode tlbc
        object.size type
        type.size name repr flags basicsize dictoffset
        heap_type.size cached_keys
        tuple.size items count
        list.size items count
        set.size used table mask
        dict.size keys values
        float.size value
        int.size tag digits
        bytes.size count bytes
        string.size state length ascii_size wide_size""",
}
"""Maps a minor version of Python 3 to the names of the offsets that Python publishes in ``_Py_DebugOffsets``, in order.
The first value of each struct is its size.
"""
_FINAL = 0xF0
"""The low byte of the version number of a final release. Before a final release, the order of offsets may be different.
"""
_PUBLISHED = {
    "interpreters": "runtime.interpreters",
    "next_interpreter": "interpreter.next",
    "threads": "interpreter.threads",
    "thread_id": "thread.thread_id",
    "frame": "thread.frame",
    "next_thread": "thread.next",
    "previous_thread": "thread.previous",
    "interpreter": "thread.interpreter",
    "previous": "frame.previous",
    "code": "frame.code",
    "instruction": "frame.instruction",
    "locals": "frame.locals",
    "locals_known_by": "code.local_names",
    "file": "code.file",
    "name": "code.name",
    "plain_name": "code.plain_name",
    "local_kinds": "code.local_kinds",
    "lines": "code.lines",
    "text": "string.ascii_size",
    "owner": "frame.owner",
    "first_line": "code.first_line",
    "argument_count": "code.argument_count",
    "bytecode": "code.bytecode",
}
"""Maps our name of a field in CPython's structs (as in ``_FIELDS``) to the name of the same field in ``_ORDERS``."""
_NOT_ALIGNED = 4
"""The number of fields at the end of ``_PUBLISHED`` that are not words of eight bytes."""
_NAMES = 40
"""The offset of the field ``names`` of a frame. Python does not publish this offset."""
_WIDE_TEXT_EXTRA = 16
"""The text of a string that is not ASCII begins later than the text of an ASCII string, by this many bytes."""
_SAME = {
    "object.size": 16,
    "object.type": 8,
    "tuple.count": 16,
    "bytes.count": 16,
    "bytes.bytes": 32,
    "dict.keys": 32,
    "dict.values": 40,
    "string.state": 32,
    "string.length": 16,
}
"""The offsets that are constants in the code of ``PythonMemory``, because they are equal in all known versions."""
_LARGEST = {"frame": MARGIN // 2, "code": BLOCK}
_LARGEST_STRUCT = 1 << 24
_WORD = 8
_MOST_WORDS = 128


def published_layout(memory: bytes) -> tuple[int, dict[str, int], bool]:
    """Return the minor version of Python 3, the layout, and whether the order of offsets is known for this release.

    ``memory`` is the beginning of ``_PyRuntime``. Raises UnknownPythonError.
    """
    count = len(memory) // _WORD
    _, number, is_free_threaded, *words = Struct(f"<{count}Q").unpack_from(memory)
    version = number >> 16 & 0xFF
    unknown = UnknownPythonError(f"the layout of Python 3.{version}{'t' * bool(is_free_threaded)} is not known")
    order = _ORDERS.get(version, _ORDERS[max(_ORDERS)]).split()
    if is_free_threaded or version < min(_ORDERS) or len(words) < len(order):
        raise unknown
    offsets: dict[str, int] = {}
    struct = ""
    for name, offset in zip(order, words, strict=False):
        if name.endswith(".size"):
            struct = name.removesuffix(".size")
            largest = _LARGEST.get(struct, _LARGEST_STRUCT)
            is_possible = 0 < offset <= largest and offset % _WORD == 0
        else:
            is_possible = offset < offsets[f"{struct}.size"]
        if not is_possible:
            raise unknown
        offsets[f"{struct}.{name.rpartition('.')[2]}"] = offset
    layout = {field: offsets[name] for field, name in _PUBLISHED.items()}
    aligned = list(layout.values())[:-_NOT_ALIGNED]
    is_last = layout["bytecode"] == offsets["code.size"] - _WORD
    is_same = _SAME.items() <= offsets.items()
    if not is_last or not is_same or any(offset % _WORD for offset in aligned):
        raise unknown
    layout.update(c_frame=ABSENT, names=_NAMES, wide_text=layout["text"] + _WIDE_TEXT_EXTRA)
    return version, layout, version in _ORDERS and number & 0xFF >= _FINAL


_LINE_ENTRY = re.compile(rb"[\x80-\xff][\x00-\x7f]*")
_SHORT_STEPS = {11: 1, 12: 2}
_LONG_STEPS = (13, 14)
"""Line table entries of these kinds end with a number: the difference from the line number of the entry before."""
_MOST_SOURCES = 50
_LARGEST_SOURCE = 4 << 20
_TRIES = 20


class TriedMemory(PythonMemory):
    """The memory of a Python that is newer than this reader.

    The reader assumes the order of offsets of the newest known version, and checks each reading. No reading is certain,
    because nobody knows how this Python's frames store variables.
    """

    is_certain = False

    def check(self) -> None:
        """Take two readings, and check that the outermost functions are the same.

        Raises UnknownPythonError if the check fails, NoStackError if there is no stack yet.
        """
        self._sources: dict[str, list[bytes]] = {}
        unknown = f"the layout of Python 3.{self.version} is not known"
        for _ in range(_TRIES):
            with contextlib.suppress(UnreadableError):
                functions = self._outermost_functions()
                if not functions:
                    raise NoStackError(unknown)
                if self._pid in functions and self._outermost_functions() == functions:
                    return
        raise UnknownPythonError(unknown)

    def _outermost_functions(self) -> dict[int, tuple[str, str]]:
        functions = {}
        try:
            for thread, stack in self.stacks().items():
                code, _ = self.frames(stack, 0)[0]
                functions[thread] = code.name, code.file
        except EndedError as failure:
            raise ProcessLookupError from failure
        return functions

    def _threads(self, interpreter: int) -> Iterator[tuple[int, RawStack]]:
        """Yield ID and stack of each thread. Raises UnreadableError if the links between threads are inconsistent."""
        previous = 0
        state = self._word(interpreter + self._layout["threads"])
        for thread, stack in super()._threads(interpreter):
            links = [self._word(state + self._layout[field]) for field in ("interpreter", "previous_thread")]
            if links != [interpreter, previous] or not os.path.exists(f"{self._process}/task/{thread}"):
                raise UnreadableError
            previous = state
            state = self._word(state + self._layout["next_thread"])
            yield thread, stack

    def _stack(self, frame: int, steps: Iterator[int]) -> RawStack:
        """Return a stack. Raises UnreadableError if the owner of a frame contradicts the frame's code.

        A frame that belongs to the interpreter has no code object, and any other frame has a code object. The outermost
        frame of a thread must belong to the interpreter.
        """
        stack = super()._stack(frame, steps)
        with_code = {address for address, *_ in stack}
        has_code = False
        while frame:
            executable = self._word(frame + self._layout["code"]) & UNTAGGED
            has_code = self._word(executable + 8) == self._code_type
            known = self._codes.get(executable)
            is_hidden = known is not None and known.is_hidden
            if has_code != (is_hidden or frame in with_code):
                raise UnreadableError
            frame = self._word(frame + self._layout["previous"])
        if has_code:
            raise UnreadableError
        return stack

    def _version_of(self, names: int) -> int:  # noqa: ARG002 — no variable is certain
        return 0

    def _decode(self, address: int, data: bytes) -> Code:
        """Return a code object. Raises ValueError if the fields contradict each other or the source file."""
        code = super()._decode(address, data)
        if code.is_hidden:
            return code
        layout = self._layout
        plain_name = self._text(self._word(address + layout["plain_name"]))
        kinds = self._bytes(self._word(address + layout["local_kinds"]))
        arguments = self._word(address + layout["argument_count"]) & 0xFFFFFFFF
        lines = _lines_of(code)
        source = self._source_of(code.file)
        text = b"\n".join(source[code.first_line - 1 : max(lines)])
        agrees = (
            (code.name == plain_name or code.name.endswith("." + plain_name)),
            (code.name + code.file).isprintable(),
            arguments <= len(kinds) == code.local_bytes // 8,
            code.first_line > 0 <= min(lines),
            not source or max(lines) <= len(source),
            not source or plain_name.startswith("<") or plain_name.encode() in text,
        )
        if not self._code_type or not all(agrees):
            raise ValueError
        return code

    def _source_of(self, path: str) -> list[bytes]:
        """Return the lines of a Python file. Empty if the file cannot be read."""
        if path not in self._sources and len(self._sources) < _MOST_SOURCES and path.endswith(".py"):
            self._sources[path] = []
            with contextlib.suppress(OSError, ValueError):
                file = _open_regular(f"{self._process}/root{path}")
                try:
                    self._sources[path] = os.pread(file, _LARGEST_SOURCE, 0).splitlines()
                finally:
                    os.close(file)
        return self._sources.get(path, [])


def _lines_of(code: Code) -> list[int]:
    """Return all line numbers in the line table of a code object (CPython's Objects/locations.md).

    Raises ValueError if the table does not cover the whole bytecode.
    """
    entries = _LINE_ENTRY.findall(code.lines)
    instructions = sum([(entry[0] & 7) + 1 for entry in entries])
    if b"".join(entries) != code.lines or instructions * 2 != code.size:
        raise ValueError
    line = code.first_line
    lines = [line]
    for entry in entries:
        kind = entry[0] >> 3 & 15
        line += _long_step(entry) if kind in _LONG_STEPS else _SHORT_STEPS.get(kind, 0)
        lines.append(line)
    return lines


def _long_step(entry: bytes) -> int:
    """Return the number after the first byte of an entry.

    Each byte has six bits of the number, the lowest bits first. The lowest bit of the number is the sign.
    """
    number = shift = 0
    for byte in entry[1:]:
        number |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            break
    return -(number >> 1) if number & 1 else number >> 1


_PYTHON = re.compile(rb"/(?:lib)?python(?:3\.(\d+))?[^/]*$")
"""Matches the file name of a Python, or of the library of a Python."""
_SYMBOLS = {b"_PyRuntime": "runtime", b"Py_Version": "version", b"PyCode_Type": "code_type"}
_MOST_FILES = 8
_NO_FILE = (
    "the file of its Python was not found: the file was replaced, or the process is in a chroot (start nncf-tools in "
    "the chroot)"
)
_known_symbols: dict[tuple[int, int], Symbols] = {}
"""The symbols of each file, with ``(device, inode)`` as key."""


def python_memory(process: str, maps: bytes) -> PythonMemory | None:
    """Open the memory of a process. Return None if the process has mapped no file of a Python interpreter.

    ``process`` is the folder of the process in ``/proc``, ``maps`` is the content of ``/proc/PID/maps``. Raises
    OSError, UnknownPythonError, NoStackError.
    """
    why = ""
    files = 0
    for begin, path in _MAPPING.findall(maps):
        named = _PYTHON.search(path)
        if named is None or files == _MOST_FILES:
            continue
        files += 1
        why = "its Python has no symbol _PyRuntime"
        try:
            symbols, is_relative = _symbols(f"{process}/root{os.fsdecode(path)}")
            if "runtime" in symbols:
                base = int(begin, 16) if is_relative else 0
                addresses = {symbol: base + value for symbol, value in symbols.items()}
                return _open_memory(process, addresses, int(named[1] or 0))
        except UnknownPythonError as failure:
            why = str(failure)
        except FileNotFoundError:
            os.stat(process)  # raises OSError if the process has ended
            why = _NO_FILE
        except (ValueError, OverflowError, error):  # the file is damaged
            continue
    if why:
        raise UnknownPythonError(why)
    return None


def _open_memory(process: str, symbols: dict[str, int], version: int) -> PythonMemory:
    """Open the memory of a Python process. ``process`` is the folder of the process in ``/proc``.

    ``symbols`` maps names such as ``runtime`` (the values of ``_SYMBOLS``) to addresses. ``version`` is the minor
    version in the file name of the interpreter: 11 for ``python3.11``, 0 if the name has none. Raises OSError,
    UnknownPythonError.
    """
    with open(f"{process}/mem", "rb", buffering=0) as memory:
        begin = os.pread(memory.fileno(), _MOST_WORDS * _WORD, symbols["runtime"])
        number = bytes([0, 0, version, 0])  # in the format of PY_VERSION_HEX
        if "version" in symbols:
            number = os.pread(memory.fileno(), 4, symbols["version"])
    if not begin or len(number) < 4:  # noqa: PLR2004 — bytes of PY_VERSION_HEX
        raise ProcessLookupError
    version = number[2]
    places = process, symbols["runtime"], symbols.get("code_type", 0)
    if not begin.startswith(_COOKIE):
        if version not in _TABLES:
            raise UnknownPythonError(f"the layout of Python 3.{version} is not known")
        return PythonMemory(*places, version, table_layout(version))
    version, layout, is_known = published_layout(begin)
    if is_known:
        return PythonMemory(*places, version, layout)
    tried = TriedMemory(*places, version, layout)
    try:
        tried.check()
    except BaseException:
        tried.close()
        raise
    return tried


def table_layout(version: int) -> dict[str, int]:
    """Return the layout (``{field: offset in bytes}``) of Python 3.``version``, which must be a key of ``_TABLES``."""
    return dict(zip(_FIELDS, _TABLES[version], strict=True))


def _symbols(path: str) -> Symbols:
    """Return the symbols of a file. Read each file only once. Raises OSError, ValueError."""
    file = _open_regular(path)
    try:
        status = os.fstat(file)
        key = status.st_dev, status.st_ino
        if key not in _known_symbols:
            _known_symbols[key] = _read_symbols(file)
        return _known_symbols[key]
    finally:
        os.close(file)


def _open_regular(path: str) -> int:
    """Open a regular file, not a link: opening a device may have effects, and opening a FIFO waits.

    Raises OSError, ValueError.
    """
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("not a regular file")
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    finally:
        os.close(handle)


_MAPPING = re.compile(rb"^([0-9a-f]+)-\S+ \S+ 00000000 \S+ \d+ +(/[^\n]*)$", re.MULTILINE)
"""Matches the first mapping of a file in ``/proc/PID/maps``. The groups are the first address and the path."""
_HEADER = Struct("<16sHHIQQQIHHHHHH")
_SECTION = Struct("<IIQQQQIIQQ")
_SEGMENT = Struct("<IIQQQQQQ")
_SYMBOL = Struct("<IBBHQQ")
_MAGIC = b"\x7fELF\x02\x01"
"""The first bytes of an ELF file of 64 bits, little-endian."""
_RELOCATABLE = 3
_DYNAMIC_SYMBOLS = 11
_LOADED = 1
_MOST_SECTIONS = 1_000
_LARGEST_SECTION = 1 << 21


def _read_symbols(file: int) -> Symbols:
    """Return the symbols in an ELF file (elf(5)). Raises ValueError."""
    header = _read_file(file, _HEADER.size, 0)
    if not header.startswith(_MAGIC):
        raise ValueError("not an ELF file of 64 bits")
    _, kind, _, _, _, segments_at, sections_at, *counts = _HEADER.unpack(header)
    _, _, _, segment_count, _, section_count, _ = counts
    is_relative = kind == _RELOCATABLE
    table = _read_file(file, min(section_count, _MOST_SECTIONS) * _SECTION.size, sections_at)
    sections = list(_SECTION.iter_unpack(table))
    segments = _SEGMENT.iter_unpack(_read_file(file, segment_count * _SEGMENT.size, segments_at))
    loaded = [segment[3] for segment in segments if segment[0] == _LOADED]
    base = min(loaded) // BLOCK * BLOCK if loaded and is_relative else 0
    symbols: dict[str, int] = {}
    for _, section_kind, _, _, offset, size, link, *_ in sections:
        if section_kind != _DYNAMIC_SYMBOLS or link >= len(sections):
            continue
        strings = _read_file(file, sections[link][5], sections[link][4])
        wanted = {}
        for name, key in _SYMBOLS.items():
            wanted[strings.find(b"\0" + name + b"\0") + 1] = key
        table = _read_file(file, size, offset)
        for name_at, _, _, section, value, _ in _SYMBOL.iter_unpack(table):
            if name_at in wanted and name_at and section:
                symbols[wanted[name_at]] = value - base
        break  # a file has a single section of this kind (elf(5))
    return symbols, is_relative


def _read_file(file: int, size: int, at: int) -> bytes:
    if size > _LARGEST_SECTION:
        raise ValueError("the ELF file is damaged")
    try:
        data = os.pread(file, size, at)
    except (OSError, OverflowError) as failure:  # the offset is impossible
        raise ValueError("not an ELF file") from failure
    if len(data) != size:
        raise ValueError("the ELF file is cut off")
    return data
