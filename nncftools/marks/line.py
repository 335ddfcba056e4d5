"""Lines of the marks log, and how they are written: each line is a single write(2) to an existing file.

The end of this file finds out from an exception's message whether memory or disk space ran out.

Runs in any marked program (Python 3.10 and later, the standard library only). The hook loads a separate copy, besides
the copy in nncftools.
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

    Children = list[tuple[bytes, bytes, int]]
    """PID of each child, the thread that began the child, and the pages of the parent."""

try:
    from resource import RUSAGE_SELF, getrusage
except ImportError:  # not on Windows, which has no /proc either
    RUSAGE_SELF = getrusage = None  # type: ignore[assignment,misc]

VARIABLE = "NNCF_TOOLS_MARKS"
"""The environment variable with the path of the log."""
OWNER = "NNCF_TOOLS_MARKS_OWNER"
"""The environment variable with the number of the user who owned the log at first."""
OUTPUT = "output"
"""The ``source`` of marks that were made from the command's output."""
_FLAGS = os.O_WRONLY | os.O_APPEND
for _flag in "O_BINARY", "O_NONBLOCK":
    _FLAGS |= getattr(os, _flag, 0)
_NO_LINK = _FLAGS | getattr(os, "O_NOFOLLOW", 0)
_MOST_KEPT = 1 << 16
"""Bytes of lines that wait until the log can be written again."""
_IN_MEMORY = b"/proc/"
"""The path of a log in memory (memfd) begins like this, and is a link of the kernel."""
_SMALL = 4096
_MOST_DESCENDANTS = 16
"""Descendants to read at a mark, at 2 to 5 µs each."""
_MOST_PARENTS = 4
"""If there are at most this many children, the children's children are read, too."""
_AT_ONCE_NS = 2_000_000
"""A reading that takes longer was interrupted: at each file, another thread may take the GIL, for 5 ms or more."""
_ONE_THREAD = 3
"""The link count of ``/proc/self/task`` with a single thread: two as for any folder, and one for each thread."""
_NONE = ',"descendants":[]'
_GROWN = 64 << 20
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

operations = itertools.count(1 if __name__.startswith("nncftools.") else 2, 2)
"""Numbers for ``op``, unique within a process: the API's copy of this module takes odd numbers, the hook's copy even
numbers.
"""
PROGRAM = f',"program":{hash((VARIABLE, object))}'
"""The JSON member with a random number for this program: the key of hashes and the address of ``object`` are random.

Forked processes, all copies of this module and all interpreters of a process have the same number. After exec the
number is new, unless PYTHONHASHSEED is set and addresses are not random.
"""


def open_log(path: bytes) -> int:
    """Open a log for appending, without following links and without blocking: another user may have replaced the log.

    Raises OSError unless the path is a regular file of this user or of the file's first owner (a network's file system
    may choose another owner). The file must have a single name, or no name for a file in memory.
    """
    descriptor = os.open(path, _FLAGS if path.startswith(_IN_MEMORY) else _NO_LINK)
    status = os.fstat(descriptor)
    user = getattr(os, "geteuid", int)()
    is_ours = status.st_uid == user or str(status.st_uid) == os.environ.get(OWNER)
    if S_ISREG(status.st_mode) and status.st_nlink <= 1 and is_ours:
        return descriptor
    os.close(descriptor)
    raise PermissionError(1, "a file of this user, with one name, expected")  # EPERM


class Unwritten:
    """The lines that this process could not write to a log."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lines = b""
        """Lines to write before the next line."""
        self.lost = 0
        """How many further lines were dropped."""
        self.lost_ns = 0
        """When the first line was dropped."""
        self.cut = 0
        """How many lines were written in part, and are written again."""

    def note(self) -> bytes:
        """Return a line that counts the missing lines and ends a cut line; empty if nothing is missing."""
        if not self.lost and not self.cut:
            return b""
        facts = b'{"lost":%d,"cut":%d,"pid":%d,"t_ns":%d}\n' % (self.lost, self.cut, self.pid, self.lost_ns)
        return b"\n" + facts if self.cut else facts

    def keep(self, data: bytes, written: int, noted: int, added: int) -> None:
        """Keep the rest of ``data``, after ``written`` bytes.

        ``data`` begins with ``noted`` bytes of a note, and ends with ``added`` bytes of a new line.
        """
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
    """Return the file in which the current error was raised.

    The program's signal handlers may run between our lines, and their errors must reach the program.
    """
    innermost = sys.exc_info()[2]
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    return "" if innermost is None else innermost.tb_frame.f_code.co_filename


_unwritten: dict[bytes, Unwritten] = {}
"""The waiting lines of each log."""
_flushed: set[bytes] = set()
"""The logs whose waiting lines are written at the end of the process."""


def append(path: bytes, text: str) -> None:
    """Append a line after the waiting lines; if the log cannot be written now, the line waits, too.

    An empty text appends only the waiting lines.
    """
    kept = _unwritten.pop(path, None)
    if kept is None or kept.pid != os.getpid():  # after a fork, the parent keeps the lines
        kept = Unwritten()
    note = kept.note()
    data = note + kept.lines + text.encode("ascii")
    written = 0
    try:
        descriptor = open_log(path)
        try:
            written = os.write(descriptor, data)
        finally:
            os.close(descriptor)
    except OSError:
        if file_of_error() != append.__code__.co_filename:
            raise
    if written == len(data):
        return
    kept.keep(data, written, len(note), len(text))
    other = _unwritten.setdefault(path, kept)
    if other is not kept:  # another thread failed at the same time
        other.lines += kept.lines
        other.lost += kept.lost
        other.cut += kept.cut
        other.lost_ns = other.lost_ns or kept.lost_ns
    if path not in _flushed:
        import atexit

        _flushed.add(path)
        atexit.register(append, path, "")


def quote(text: str) -> str:
    """Return text as an ASCII JSON string. JSON readers reject unpaired surrogates, which become U+FFFD."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    from json.encoder import encode_basestring_ascii

    return encode_basestring_ascii(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def common_members(
    name: str, source: str, kind: str | None = None, call: str | None = None, *, step: bool = False
) -> str:
    """Return the JSON members that all lines of an operation share. They are built once and used for every call."""
    members = '"name":' + quote(name)
    if kind:
        members += ',"kind":' + quote(kind)
    if call:
        members += ',"call":' + quote(call)
    return members + ',"source":' + quote(source) + (',"step":true' if step else "")


def describe_thread() -> str:
    """Return the members for this process and thread; call again after a fork."""
    return f'"pid":{os.getpid()},"tid":{get_native_id()}'


def own_memory() -> str:
    """Return the members for RSS and high-water mark of this process, and for the memory of descendants.

    Empty where the kernel does not give these figures. With these figures, memory at marks is exact, and a peak between
    two samples belongs to the right operation. A reading takes 8 µs without children. After exec, the high-water mark
    is the larger mark of the two programs (``ru_maxrss``, getrusage(2)). An interrupted reading leaves out the
    descendants, because they may have begun or ended meanwhile; only a process with a single thread and no children
    keeps them.
    """
    begun_ns = monotonic_ns()
    try:
        pages = _pages(b"/proc/self/statm")
    except (OSError, ValueError, IndexError):
        return ""
    rss = pages * _PAGE
    mark = max(rss, getrusage(RUSAGE_SELF).ru_maxrss * 1024)  # the kernel updates both a little late
    descendants = _descendants(pages)
    is_interrupted = monotonic_ns() - begun_ns > _AT_ONCE_NS
    if is_interrupted and (descendants != _NONE or not _has_one_thread()):
        descendants = ""
    return f',"rss":{rss},"high_water_mark":{mark}{descendants}{read_devices()}'


_uuids: dict[tuple[str, int], str] = {}
_asking: set[int] = set()
"""The threads that are inside a call of torch; marks there read no devices."""


def read_devices() -> str:
    """Return the member for the memory that torch's allocator uses on each GPU; empty where torch uses no GPU.

    The reading takes 3 µs a device, and starts no driver, and loads no part of torch. The maximum is the allocator's
    own, and is never reset here. Other programs name devices by UUID: torch may see only some devices, in another
    order.
    """
    if "torch" not in sys.modules or get_ident() in _asking:
        return ""
    devices = []
    try:
        _asking.add(get_ident())
        for kind in ("cuda", "xpu"):
            backend: Any = sys.modules.get(f"torch.{kind}")
            # Attributes of a lazy package would load the package; its dictionary does not.
            loaded = {} if backend is None else object.__getattribute__(backend, "__dict__")
            if not loaded.get("is_initialized", bool)():
                continue
            for number in range(backend.device_count()):
                held, most = _allocated(backend, number)
                if most:
                    if (kind, number) not in _uuids:
                        _uuids[kind, number] = str(getattr(backend.get_device_properties(number), "uuid", ""))
                    devices.append(f'["{kind}{number}",{quote(_uuids[kind, number])},{held:d},{most:d}]')
    except Exception:  # an error of torch, or of a package that has changed torch
        if _is_from_handler():
            raise
        return ""
    finally:
        _asking.discard(get_ident())
    return ',"devices":[' + ",".join(devices) + "]" if devices else ""


def _is_from_handler() -> bool:
    """Return whether the current error came from a signal handler of the program, and must reach the program.

    Python calls a handler with the interrupted frame, which is also the handler's caller (``signal.signal``).
    """
    step = sys.exc_info()[2]
    while step is not None:
        caller = step.tb_frame.f_back
        for value in step.tb_frame.f_locals.values():
            arguments = value[:2] if type(value) is tuple else (value,)  # ``handler(*arguments)``
            if caller is not None and any(argument is caller for argument in arguments):
                return True
        step = step.tb_next
    return False


def _allocated(backend: Any, number: int) -> tuple[int, int]:
    """Return the bytes that the allocator of a device has given out, now and at most so far."""
    statistics = getattr(backend, "memory_stats_as_nested_dict", None)
    if statistics is None:
        return backend.memory_allocated(number), backend.max_memory_allocated(number)
    total = statistics(number)["allocated_bytes"]["all"]  # ``memory_allocated`` would take 100 µs
    return total["current"], total["peak"]


def _has_one_thread() -> bool:
    return os.stat("/proc/self/task").st_nlink == _ONE_THREAD


def _descendants(pages: int) -> str:
    """Return the JSON members for the descendants of this process, whose RSS is ``pages``.

    ``descendants`` has PID and RSS in bytes of each, parents first, and ``listed`` says whether the children's children
    are included. Empty if unknown: there are too many, or another thread reaped a child during the reading.
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # 1 µs; reaps nothing
    except ChildProcessError:
        return _NONE
    except (AttributeError, OSError):
        return ""
    for _ in range(2):
        try:
            return _read_descendants(pages)
        except (OSError, ValueError, IndexError):  # a child was reaped after it had been listed
            continue
    return ""


def _read_descendants(pages: int) -> str:
    """Return the members, as ``_descendants`` does. Raises OSError, ValueError, IndexError."""
    children: Children = []
    if _has_one_thread():
        children += [(pid, b"", 0) for pid in _content("/proc/thread-self/children").split()]
    else:
        for thread in os.listdir("/proc/self/task"):
            children += _children(f"/proc/self/task/{thread}".encode(), pages)
    is_listed = len(children) <= _MOST_PARENTS
    listed = ""
    for pid, beginner, parent_pages in children:  # grows during the loop
        if len(children) > _MOST_DESCENDANTS:
            return ""
        child_pages = _pages(b"/proc/%b/statm" % pid)
        if beginner and child_pages * 4 > parent_pages * 3:
            child_pages = _pages_of_copy(pid, beginner)
        if is_listed:
            children += _children(b"/proc/%b/task/%b" % (pid, pid), child_pages)
        listed += f",[{pid.decode()},{child_pages * _PAGE}]"
    return f',"descendants":[{listed[1:]}]' + (',"listed":true' if is_listed else "")


def _children(thread: bytes, pages: int) -> Children:
    """Return a PID, the thread and ``pages`` for each child of a thread; the thread only for the newest child."""
    pids = _content(thread + b"/children").split()
    children = [(pid, b"", pages) for pid in pids]
    if pids:
        children[-1] = (pids[-1], thread, pages)
    return children


def _pages_of_copy(pid: bytes, beginner: bytes) -> int:
    """Return the pages of a child that has about as many pages as the parent; 0 for a child of vfork(2) before exec.

    Such a child shows the parent's memory, while the thread that began the child waits in the kernel (state D,
    proc(5)). The child is the thread's newest. A process with a single thread cannot mark during the wait. Raises
    OSError, ValueError, IndexError.
    """
    following = _content(beginner + b"/stat").rpartition(b")")[2]
    return 0 if following.startswith(b" D") else _pages(b"/proc/%b/statm" % pid)


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
    """Return the line of a mark that ends at the next mark; times are CLOCK_MONOTONIC."""
    return f"{{{members},{_read_at(t_ns, where)}}}\n"


def begin(op: int, members: str, t_ns: int, where: str | None = None) -> str:
    """Return the line for the start of an operation."""
    return f'{{"event":"begin","op":{op},{members},{_read_at(t_ns, where)}}}\n'


def end(op: int, t_ns: int, error: str | None = None, facts: str = "", where: str | None = None) -> str:
    """Return the line for the end of an operation; ``error`` names the exception, ``facts`` are further members."""
    if error is not None:
        facts = f',"error":{quote(error)}{facts}'
    return f'{{"event":"end","op":{op},{_read_at(t_ns, where)}{facts}}}\n'


def _read_at(t_ns: int, where: str | None) -> str:
    return f'"t_ns":{t_ns},{where or describe_thread()}{own_memory()}'


def describe_python(t_ns: int, members: str = PROGRAM) -> str:
    """Return the line of a Python with the hook, at the start or after all code of the program."""
    version = ".".join(map(str, sys.version_info[:3]))
    return f'{{"python":"{version}","pid":{os.getpid()},"t_ns":{t_ns}{members}}}\n'


def has_grown() -> bool:
    """Return whether this program ever had enough memory to report the memory at the end.

    ``ru_maxrss`` would include the program before exec. Raises OSError, ValueError, IndexError.
    """
    following = _content("/proc/self/status").partition(b"VmHWM:")[2]
    return int(following.split(None, 1)[0]) * 1024 >= _GROWN


def warning(text: str) -> str:
    """Return a line with a warning that the report repeats."""
    return f'{{"warning":{quote(text)}}}\n'


MEMORY = "memory"
DISK = "disk"
DEVICE = "device"
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
"""Parts of messages, in lower case: libraries in C++ and Rust raise a RuntimeError instead of a MemoryError."""
_LIBRARY_ERRORS = (RuntimeError, OSError, SystemError, ImportError)
"""Built-in exceptions that libraries raise for their own errors; other exceptions may only quote such a message."""
_DEVICE_WORDS = ("cuda", "hip ", "xpu", "mps ", "cublas", "cudnn")
"""A message with any of these words is about the memory of a device."""
_DEVICE_RAN_OUT = ("out of memory", "alloc_failed")


def cause_of(error: BaseException) -> tuple[str | None, BaseException]:
    """Return the resource that ran out (``memory``, ``disk`` or ``device``), and the exception that says so.

    The exception may be a cause of ``error``.
    """
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
    if type(error).__module__ == "builtins" and not isinstance(error, _LIBRARY_ERRORS):
        return None
    text = _message(error)
    if any(word in text for word in _DEVICE_WORDS):
        return DEVICE if any(part in text for part in _DEVICE_RAN_OUT) else None
    return next((cause for part, cause in _TEXTS if part in text), None)


def _message(error: BaseException) -> str:
    text = error.args[0] if error.args else ""
    return text.lower() if isinstance(text, str) else ""


def report(path: bytes, error: BaseException, *, fatal: bool = False) -> None:
    """Write to the log that a resource ran out. A ``fatal`` exception ends the program, and is always written."""
    cause, source = cause_of(error)
    if cause is None and not fatal:
        return
    members = f'"failure":{quote(type(source).__name__)},"pid":{os.getpid()},"t_ns":{monotonic_ns()}'
    if cause is not None:
        members += ',"cause":' + quote(cause)
    if cause == DEVICE:
        members += ',"device":' + quote(_device(source)) + read_devices()
    if fatal:
        members += ',"fatal":true'
    append(path, "{" + members + "}\n")


def _device(error: BaseException) -> str:
    """Return torch's name of the device in a message, or only the kind (``cuda``) if the message has no number.

    ``GPU 1 has a total capacity of …``, before PyTorch 2.2 ``(GPU 1; 79.15 GiB total capacity; …``.
    """
    text = _message(error)
    number = "".join(itertools.takewhile(str.isdigit, text.partition("gpu ")[2]))
    return ("xpu" if "xpu" in text else "cuda") + number


def report_at_exit(path: bytes) -> None:
    """Report the exception that ends the program: Python stores the exception before showing it."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if isinstance(error, BaseException):
        report(path, error, fatal=True)
