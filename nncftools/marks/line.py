"""Lines of the marks log, and how they are written: each line is one write(2) to an existing file.

At the end: what an exception says about memory or disk space that ran out.

Runs in any marked program (Python 3.10 and later, the standard library only), as a separate copy from the one in
nncftools.
"""

from __future__ import annotations

import itertools
import os
import sys
from _thread import get_ident, get_native_id
from stat import S_ISREG
from time import monotonic_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

try:
    from resource import RUSAGE_SELF, getrusage
except ImportError:  # not on Windows, where there is no /proc either
    RUSAGE_SELF = getrusage = None  # type: ignore[assignment,misc]

VARIABLE = "NNCF_TOOLS_MARKS"
"""The environment variable that names the log."""
OWNER = "NNCF_TOOLS_MARKS_OWNER"
"""The number of the user to whom it belonged when it was made."""
OUTPUT = "output"
"""The source of marks made from lines of the command's output."""
_FLAGS = os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
_NO_LINK = _FLAGS | getattr(os, "O_NOFOLLOW", 0)
_MOST_KEPT = 1 << 16
"""Bytes of lines that wait until the log can be written again."""
_IN_MEMORY = b"/proc/"
"""A log in memory (memfd): its path is a link of the kernel."""
_HIGH, _LOW, _AFTER = 0xD800, 0xDC00, 0xE000
_TWO_UNITS = 0x10000
_SMALL = 4096
_ANY_CHILD = getattr(os, "WEXITED", 0) | getattr(os, "WNOHANG", 0) | getattr(os, "WNOWAIT", 0)
_MOST_DESCENDANTS, _MOST_PARENTS = 16, 4
"""Descendants that are read at a mark, at 2 to 5 µs each. Children are asked for children of theirs if they are few."""
_AT_ONCE_NS = 2_000_000
"""A reading that takes longer was interrupted: each file gives other threads the GIL, for 5 ms if they compute."""
_ONE_THREAD = 3
"""The links of ``/proc/self/task``: a folder for each thread, besides its own."""
_NONE = ',"descendants":[]'
_GROWN = 64 << 20
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

operations = itertools.count(1 if __name__.startswith("nncftools.") else 2, 2)
"""Numbers for ``op``, unique within a process: odd for the API, even for the hook's copy of this module."""
PROGRAM = f',"program":{hash((VARIABLE, object))}'
"""The member for the number of this program: hashes have a random key, and ``object`` a random address.

Forked processes, all copies of this module and all interpreters of one process have the same number. After exec it is a
new one, unless PYTHONHASHSEED is set and addresses are not random.
"""


def opened(path: bytes) -> int:
    """Open a log for appending. Another user may have put a link, FIFO or file there: do not follow, do not block.

    Raises OSError for all but a regular file with one name, or in memory, without a name, of this user or of the owner
    that the file had at first: that may be another one on a file system of a network.
    """
    descriptor = os.open(path, _FLAGS if path.startswith(_IN_MEMORY) else _NO_LINK)
    facts = os.fstat(descriptor)
    is_ours = facts.st_uid == getattr(os, "geteuid", int)() or str(facts.st_uid) == os.environ.get(OWNER)
    if S_ISREG(facts.st_mode) and facts.st_nlink <= 1 and is_ours:
        return descriptor
    os.close(descriptor)
    raise PermissionError(1, "a file of this user, with one name, expected")  # EPERM


class Unwritten:
    """What this process could not write to a log."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lines = b""
        """Lines that come before the next one."""
        self.lost = self.lost_ns = 0
        """How many further lines were dropped, and when the first one was."""
        self.cut = 0
        """How many lines were written in part; they come again."""

    def note(self) -> bytes:
        """Return the line that says what is missing, and ends a line that was cut; empty when nothing is missing."""
        facts = b'{"lost":%d,"cut":%d,"pid":%d,"t_ns":%d}\n' % (self.lost, self.cut, self.pid, self.lost_ns)
        return b"\n" * bool(self.cut) + facts if self.lost or self.cut else b""

    def keep(self, data: bytes, written: int, noted: int, added: int) -> None:
        """Keep what was not written of ``data``: a note of so many bytes, the lines, and so many of a further one."""
        start = data.rfind(b"\n", 0, written) + 1
        if start >= noted:
            self.lost = self.lost_ns = self.cut = 0
        self.lines = data[max(start, noted) :]
        self.cut += written > start
        if len(self.lines) > _MOST_KEPT:
            self.lines = self.lines[: len(self.lines) - added]
            self.lost_ns = self.lost_ns or monotonic_ns()
            self.lost += 1


def file_of_error() -> str:
    """Return which file the error that is handled comes from.

    The program's signal handlers may run between our lines: what they raise is not for us.
    """
    here = sys.exc_info()[2]
    while here is not None and here.tb_next is not None:
        here = here.tb_next
    return "" if here is None else here.tb_frame.f_code.co_filename


_unwritten: dict[bytes, Unwritten] = {}
"""By log."""
_flushed: set[bytes] = set()
"""The logs that get what is kept at the end of the process."""


def append(path: bytes, text: str) -> None:
    """Append a line after those that could not be written before; keep it if the log cannot be written now.

    An empty text only appends what is kept.
    """
    kept = _unwritten.pop(path, None)
    if kept is None or kept.pid != os.getpid():  # after a fork, the parent keeps its lines
        kept = Unwritten()
    note = kept.note()
    data = note + kept.lines + text.encode("ascii")
    written = 0
    try:
        descriptor = opened(path)
        try:
            written = os.write(descriptor, data)
        finally:
            os.close(descriptor)
    except OSError:
        if file_of_error() != append.__code__.co_filename:
            raise
    if written < len(data):
        kept.keep(data, written, len(note), len(text))
        other = _unwritten.get(path)  # of another thread, meanwhile
        if other is not None:
            other.lines, other.lost, other.cut = other.lines + kept.lines, other.lost + kept.lost, other.cut + kept.cut
            other.lost_ns = other.lost_ns or kept.lost_ns
        _unwritten[path] = other or kept
        if path not in _flushed:
            import atexit

            _flushed.add(path)
            atexit.register(append, path, "")


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
    """Return the members for RSS and high-water mark of this process, and for what descendants hold.

    Empty where the kernel does not tell. With them, figures at marks are exact, and a peak that was shorter than the
    distance of two samples belongs to the right operation. It takes 8 µs without children. After exec, the mark is
    still that of the program before (``ru_maxrss``, getrusage(2)) if that is larger. What an interrupted reading says
    of descendants is left out: they may have begun or ended since this process was read. Only a process of one thread
    that has no children has begun none meanwhile.
    """
    begun_ns = monotonic_ns()
    try:
        pages = _pages(b"/proc/self/statm")
    except (OSError, ValueError, IndexError):
        return ""
    rss = pages * _PAGE
    mark = max(rss, getrusage(RUSAGE_SELF).ru_maxrss * 1024)  # the kernel counts both a little late
    descendants = _descendants(pages)
    if monotonic_ns() - begun_ns > _AT_ONCE_NS and (descendants != _NONE or not _has_one_thread()):
        descendants = ""
    return f',"rss":{rss},"high_water_mark":{mark}{descendants}{of_devices()}'


_uuids: dict[tuple[str, int], str] = {}
_asking: set[int] = set()
"""The threads that ask torch: what is marked in a function of torch meanwhile says nothing of devices."""


def of_devices() -> str:
    """Return the member for what torch's allocator has given out of each GPU; empty where torch uses none.

    It takes 3 µs a device, and begins nothing: a driver that is not in use stays so, and a part of torch that is not
    loaded, too. The most is the allocator's own mark, which is never reset here. Other programs name devices by UUID:
    torch may see few of them, in another order.
    """
    if "torch" not in sys.modules or get_ident() in _asking:
        return ""
    found = []
    try:
        _asking.add(get_ident())
        for kind in ("cuda", "xpu"):
            of: Any = sys.modules.get(f"torch.{kind}")
            # Attributes of a package that is loaded lazily would load it; what it holds by now does not.
            holds = {} if of is None else object.__getattribute__(of, "__dict__")
            for number in range(of.device_count()) if holds.get("is_initialized", bool)() else ():
                held, most = _allocated(of, number)
                if most:
                    if (kind, number) not in _uuids:
                        _uuids[kind, number] = str(getattr(of.get_device_properties(number), "uuid", ""))
                    found.append(f'["{kind}{number}",{quoted(_uuids[kind, number])},{held:d},{most:d}]')
    except Exception:  # of torch, or of a package that has changed it
        if _is_of_handler():
            raise
        return ""
    finally:
        _asking.discard(get_ident())
    return ',"devices":[' + ",".join(found) + "]" if found else ""


def _is_of_handler() -> bool:
    """Return whether the error that is handled passed a signal handler of the program: then it is not for us.

    Python calls a handler with the frame that it interrupts, which is also the frame below (``signal.signal``).
    """
    here = sys.exc_info()[2]
    while here is not None:
        given = here.tb_frame.f_locals.values()
        of_any = [value for values in given if type(values) is tuple for value in values[:2]]  # ``handler(*arguments)``
        if any(value is here.tb_frame.f_back is not None for value in (*given, *of_any)):
            return True
        here = here.tb_next
    return False


def _allocated(of: Any, number: int) -> tuple[int, int]:
    """Return what the allocator of a device has given out, and the most so far, in bytes."""
    statistics = getattr(of, "memory_stats_as_nested_dict", None)
    if statistics is None:
        return of.memory_allocated(number), of.max_memory_allocated(number)
    of_all = statistics(number)["allocated_bytes"]["all"]  # ``memory_allocated`` would take all of it apart, in 100 µs
    return of_all["current"], of_all["peak"]


def _has_one_thread() -> bool:
    return os.stat("/proc/self/task").st_nlink == _ONE_THREAD


def _descendants(pages: int) -> str:
    """Return the members for the descendants of this process, which has this many pages.

    ``descendants`` has PID and RSS in bytes of each, parents first, and ``listed`` says whether it contains the
    children's children. Empty for unknown: there are too many, or a child was reaped meanwhile by another thread.
    """
    try:
        os.waitid(os.P_ALL, 0, _ANY_CHILD)  # 1 µs; reaps nothing
    except ChildProcessError:
        return _NONE
    except (AttributeError, OSError):
        return ""
    for _ in range(2):
        try:
            return _read_descendants(pages)
        except (OSError, ValueError, IndexError):  # it was reaped after its parent's children had been listed
            continue
    return ""


def _read_descendants(pages: int) -> str:
    """Return the members, as ``_descendants`` does. Raises OSError, ValueError, IndexError."""
    if _has_one_thread():
        children = [(pid, b"", 0) for pid in _content("/proc/thread-self/children").split()]
    else:
        threads = os.listdir("/proc/self/task")
        children = [child for thread in threads for child in _children(f"/proc/self/task/{thread}".encode(), pages)]
    is_listed = len(children) <= _MOST_PARENTS
    listed = ""
    for pid, beginner, above in children:  # grows while it is read
        if len(children) > _MOST_DESCENDANTS:
            return ""
        pages_of_child = _pages(b"/proc/%b/statm" % pid)
        if beginner and pages_of_child * 4 > above * 3:
            pages_of_child = _of_copy(pid, beginner)
        if is_listed:
            children += _children(b"/proc/%b/task/%b" % (pid, pid), pages_of_child)
        listed += f",[{pid.decode()},{pages_of_child * _PAGE}]"
    return f',"descendants":[{listed[1:]}]' + (',"listed":true' if is_listed else "")


def _children(thread: bytes, pages: int) -> list[tuple[bytes, bytes, int]]:
    """Return the children of a thread whose process has so many pages; the newest one with the thread."""
    pids = _content(thread + b"/children").split()
    return [(pid, thread if pid is pids[-1] else b"", pages) for pid in pids]


def _of_copy(pid: bytes, beginner: bytes) -> int:
    """Return the pages of a child that has about as many as its parent, 0 for a child of vfork(2) before its exec.

    Such a child shows its parent's memory, and the thread that began it waits in the kernel (state D, proc(5)). It is
    the thread's newest child. A process of one thread cannot mark meanwhile. Raises OSError, ValueError, IndexError.
    """
    state = _content(beginner + b"/stat").rpartition(b")")[2].split(None, 1)[0]
    return 0 if state == b"D" else _pages(b"/proc/%b/statm" % pid)


def _pages(path: bytes) -> int:
    """Return the RSS of a process in pages (statm, proc(5)); 0 for a zombie. Raises OSError, ValueError, IndexError."""
    return int(_content(path).split(None, 2)[1])


def _content(path: str | bytes) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, _SMALL)
    finally:
        os.close(descriptor)


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


def describe_python(t_ns: int, members: str = PROGRAM) -> str:
    """Return the line of a Python that the hook runs in, which starts or has run all its code."""
    return f'{{"python":"{".".join(map(str, sys.version_info[:3]))}","pid":{os.getpid()},"t_ns":{t_ns}{members}}}\n'


def has_grown() -> bool:
    """Return whether this program ever held so much that its memory at the end matters.

    ``ru_maxrss`` would be that of the parent before exec. Raises OSError, ValueError, IndexError.
    """
    return int(_content("/proc/self/status").partition(b"VmHWM:")[2].split(None, 1)[0]) * 1024 >= _GROWN


def warning(text: str) -> str:
    """Return a line with a warning, which the report repeats."""
    return f'{{"warning":{quoted(text)}}}\n'


MEMORY, DISK, DEVICE = "memory", "disk", "device"
_DEEPEST = 20
_TEXTS = (
    ("no space left on device", DISK),
    ("os error 28", DISK),
    ("disk quota exceeded", DISK),
    ("can't allocate memory", MEMORY),
    ("cannot allocate memory", MEMORY),
    ("unable to allocate", MEMORY),
    ("not enough memory", MEMORY),
    ("bad_alloc", MEMORY),
    ("bad allocation", MEMORY),
)
"""Parts of messages, in lower case: libraries in C++ and Rust report what ran out as a RuntimeError of their own."""
_OF_LIBRARIES = (RuntimeError, OSError, SystemError, ImportError)
"""Built-in exceptions that libraries raise for errors of their own; others may only quote such a message."""
_OTHER_MEMORY = ("cuda", "hip ", "xpu", "mps ", "cublas", "cudnn")
"""A message with one of these is about the memory of a device."""
_RAN_OUT_THERE = ("out of memory", "alloc_failed")


def cause_of(error: BaseException) -> tuple[str | None, BaseException]:
    """Return what ran out, ``memory``, ``disk`` or ``device``, and which exception says so: one of its causes."""
    source: BaseException | None = error
    for _ in range(_DEEPEST):
        if source is None:
            break
        cause = _own_cause(source)
        if cause is not None:
            return cause, source
        source = source.__cause__ or source.__context__
    return None, error


def _own_cause(error: BaseException) -> str | None:
    if isinstance(error, MemoryError):
        return MEMORY
    import errno

    numbers = {errno.ENOMEM: MEMORY, errno.ENOSPC: DISK, errno.EDQUOT: DISK}
    if isinstance(error, OSError) and error.errno in numbers:
        return numbers[error.errno]
    if type(error).__module__ == "builtins" and not isinstance(error, _OF_LIBRARIES):
        return None
    text = error.args[0].lower() if error.args and isinstance(error.args[0], str) else ""
    if any(word in text for word in _OTHER_MEMORY):
        return DEVICE if any(part in text for part in _RAN_OUT_THERE) else None
    return next((cause for part, cause in _TEXTS if part in text), None)


def report(path: bytes, error: BaseException, *, fatal: bool = False) -> None:
    """Write to the log what ran out; ``fatal``, the exception ended the program, and is written in any case."""
    cause, source = cause_of(error)
    if cause is not None or fatal:
        members = f'"failure":{quoted(type(source).__name__)},"pid":{os.getpid()},"t_ns":{monotonic_ns()}'
        if cause is not None:
            members += ',"cause":' + quoted(cause)
        if cause == DEVICE:
            members += ',"device":' + quoted(_device(source)) + of_devices()
        append(path, "{" + members + (',"fatal":true' if fatal else "") + "}\n")


def _device(error: BaseException) -> str:
    """Return the device that torch's message names, by torch's own name, or its kind (``cuda``) if there is no number.

    ``GPU 1 has a total capacity of …``, before PyTorch 2.2 ``(GPU 1; 79.15 GiB total capacity; …``.
    """
    text = error.args[0].lower() if error.args and isinstance(error.args[0], str) else ""
    return ("xpu" if "xpu" in text else "cuda") + "".join(itertools.takewhile(str.isdigit, text.partition("gpu ")[2]))


def report_at_exit(path: bytes) -> None:
    """Report the exception that ends the program: Python keeps it before it shows it."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if isinstance(error, BaseException):
        report(path, error, fatal=True)
