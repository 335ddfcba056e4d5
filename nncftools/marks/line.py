"""Lines of the marks log, and how they are written: each line is one write(2) to an existing file.

Runs in any marked program (Python 3.8 and later, the standard library only), as a separate copy from the one in
nncftools.
"""

from __future__ import annotations

import itertools
import os
import sys
from _thread import get_native_id
from stat import S_ISREG

try:
    from resource import RUSAGE_SELF, getrusage
except ImportError:  # not on Windows, where there is no /proc either
    RUSAGE_SELF = getrusage = None  # type: ignore[assignment,misc]

VARIABLE = "NNCF_TOOLS_MARKS"
"""The environment variable that names the log."""
OUTPUT = "output"
"""The source of marks made from lines of the command's output."""
_FLAGS = os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_IN_MEMORY = b"/proc/"
"""A log in memory (memfd): its path is a link of the kernel."""
_HIGH, _LOW, _AFTER = 0xD800, 0xDC00, 0xE000
_TWO_UNITS = 0x10000
_STATM = 128
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

operations = itertools.count(1 if __name__.startswith("nncftools.") else 2, 2)
"""Numbers for ``op``, unique within a process: odd for the API, even for the hook's copy of this module."""


def flags(path: bytes) -> int:
    """Return the flags to open a log. Another user may have put a link or FIFO there: do not follow, do not block."""
    return _FLAGS if path.startswith(_IN_MEMORY) else _FLAGS | _NO_LINK


def append(path: bytes, text: str) -> None:
    """Append a line; do nothing when there is no such file or it cannot be written: a FIFO could wait for a reader."""
    how = flags(path)
    try:
        descriptor = os.open(path, how)
        try:
            if S_ISREG(os.fstat(descriptor).st_mode):
                os.write(descriptor, text.encode("ascii"))
        finally:
            os.close(descriptor)
    except OSError:
        # The program's signal handlers may run between these lines: an error that they raise has a frame below ours.
        here = sys.exc_info()[2]
        if here is not None and here.tb_next is not None:
            raise


def quoted(text: str) -> str:
    """Return text as an ASCII JSON string; unpaired surrogates, which JSON readers reject, become U+FFFD."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    code = ord(character)
    if " " <= character <= "~" and character not in '"\\':
        return character
    if _HIGH <= code < _AFTER:
        return "\\ufffd"
    if code < _TWO_UNITS:
        return f"\\u{code:04x}"
    code -= _TWO_UNITS
    return f"\\u{_HIGH + (code >> 10):04x}\\u{_LOW + (code & 0x3FF):04x}"


def common_members(
    name: str, source: str, kind: str | None = None, call: str | None = None, *, step: bool = False
) -> str:
    """Return the JSON members that all lines of an operation share; built once, used for every call."""
    members = '"name":' + quoted(name)
    if kind:
        members += ',"kind":' + quoted(kind)
    if call:
        members += ',"call":' + quoted(call)
    return members + ',"source":' + quoted(source) + (',"step":true' if step else "")


def here() -> str:
    """Return the members for this process and thread; call again after a fork."""
    return f'"pid":{os.getpid()},"tid":{get_native_id()}'


def own_memory() -> str:
    """Return the members for RSS and high-water mark of this process, in bytes; empty where the kernel does not tell.

    With them, a peak that was shorter than the distance of two samples belongs to the right operation. It takes 7 µs.
    After exec, the mark is still that of the program before (``ru_maxrss``, getrusage(2)) if that is larger.
    """
    try:
        descriptor = os.open("/proc/self/statm", os.O_RDONLY)
        try:
            rss = int(os.read(descriptor, _STATM).split()[1]) * _PAGE
        finally:
            os.close(descriptor)
    except (OSError, ValueError, IndexError):
        return ""
    mark = max(rss, getrusage(RUSAGE_SELF).ru_maxrss * 1024)  # the kernel counts both a little late
    return f',"rss":{rss},"high_water_mark":{mark}'


def moment(members: str, t_ns: int, where: str | None = None) -> str:
    """Return the line of a mark that ends at the next one; times are CLOCK_MONOTONIC."""
    return f'{{{members},"t_ns":{t_ns},{where or here()}{own_memory()}}}\n'


def begin(op: int, members: str, t_ns: int, where: str | None = None) -> str:
    """Return the line for the start of an operation."""
    return f'{{"event":"begin","op":{op},{members},"t_ns":{t_ns},{where or here()}{own_memory()}}}\n'


def end(op: int, t_ns: int, error: str | None = None, facts: str = "", where: str | None = None) -> str:
    """Return the line for the end of an operation; ``error`` names the exception, ``facts`` are further members."""
    if error is not None:
        facts = f',"error":{quoted(error)}{facts}'
    return f'{{"event":"end","op":{op},"t_ns":{t_ns},{where or here()}{own_memory()}{facts}}}\n'


def started(t_ns: int) -> str:
    """Return the line of a Python that the hook runs in."""
    return f'{{"python":"{".".join(map(str, sys.version_info[:3]))}","pid":{os.getpid()},"t_ns":{t_ns}}}\n'


def failure(error: str, cause: str | None, t_ns: int, *, fatal: bool) -> str:
    """Return the line of an exception, by the name of its class, and what it says that ran out."""
    members = f'"failure":{quoted(error)},"pid":{os.getpid()},"t_ns":{t_ns}'
    if cause is not None:
        members += ',"cause":' + quoted(cause)
    return "{" + members + (',"fatal":true' if fatal else "") + "}\n"


def warning(text: str) -> str:
    """Return a line with a warning, which the report repeats."""
    return f'{{"warning":{quoted(text)}}}\n'
