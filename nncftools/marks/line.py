"""Lines of the marks log, and the one way they are written: a line is one write(2) to a file that exists.

Runs in any program that is marked (Python 3.8 and later, the standard library only), there as a copy of its own
beside that of nncftools.
"""

from __future__ import annotations

import itertools
import os
import sys
from _thread import get_native_id

VARIABLE = "NNCF_TOOLS_MARKS"
"""The environment variable that names the log."""
OUTPUT = "output"
"""The source of a mark that a line of the command's output made."""
_FLAGS = os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_IN_MEMORY = b"/proc/"
"""A log that is no file of any folder: its name is a link of the kernel's."""
_HIGH, _LOW, _AFTER = 0xD800, 0xDC00, 0xE000
_TWO_UNITS = 0x10000

operations = itertools.count(1 if __name__.startswith("nncftools.") else 2, 2)
"""Numbers for ``op``, unique in a process: odd ones for the API, even ones for the hook's copy of this module."""


def flags(path: bytes) -> int:
    """Return how to open a log: not through a link, nor waiting for a FIFO's reader; others may have put it there."""
    return _FLAGS if path.startswith(_IN_MEMORY) else _FLAGS | _NO_LINK


def append(path: bytes, text: str) -> None:
    """Append a line; a file that does not exist or cannot be written stays as it is."""
    how = flags(path)
    try:
        descriptor = os.open(path, how)
        try:
            os.write(descriptor, text.encode("ascii"))
        finally:
            os.close(descriptor)
    except OSError:
        # A signal handler of the program runs between our lines, too: what it raises has a frame below ours.
        here = sys.exc_info()[2]
        if here is not None and here.tb_next is not None:
            raise


def quoted(text: str) -> str:
    """Return text as a JSON string of ASCII; half a surrogate pair, which JSON readers refuse, becomes U+FFFD."""
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


def described(name: str, source: str, kind: str | None = None, call: str | None = None, *, step: bool = False) -> str:
    """Return what the lines of an operation have in common; made once, used for every call."""
    members = '"name":' + quoted(name)
    if kind:
        members += ',"kind":' + quoted(kind)
    if call:
        members += ',"call":' + quoted(call)
    return members + ',"source":' + quoted(source) + (',"step":true' if step else "")


def here() -> str:
    """Return this process and thread, as lines name them; to be asked anew in a forked process."""
    return f'"pid":{os.getpid()},"tid":{get_native_id()}'


def moment(members: str, t_ns: int, where: str | None = None) -> str:
    """Return the line of a mark that the next one ends; times are those of CLOCK_MONOTONIC."""
    return f'{{{members},"t_ns":{t_ns},{where or here()}}}\n'


def begin(op: int, members: str, t_ns: int, where: str | None = None) -> str:
    """Return the line with which an operation begins."""
    return f'{{"event":"begin","op":{op},{members},"t_ns":{t_ns},{where or here()}}}\n'


def end(op: int, t_ns: int, error: str | None = None, facts: str = "", where: str | None = None) -> str:
    """Return the line with which it ends; ``error`` names the exception, ``facts`` are further members."""
    if error is not None:
        facts = f',"error":{quoted(error)}{facts}'
    return f'{{"event":"end","op":{op},"t_ns":{t_ns},{where or here()}{facts}}}\n'


def started(t_ns: int) -> str:
    """Return the line of a Python in which functions are marked."""
    return f'{{"python":"{".".join(map(str, sys.version_info[:3]))}","pid":{os.getpid()},"t_ns":{t_ns}}}\n'


def warning(text: str) -> str:
    """Return a line that the report repeats."""
    return f'{{"warning":{quoted(text)}}}\n'
