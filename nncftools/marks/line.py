"""Builds the lines of the marks log, and appends each line to an existing file by a single write(2).

The last part of this file finds out from an exception whether memory, disk space or the memory of a device ran out.

Runs in any marked program (Python 3.10 or later, the standard library only). The hook (``sitecustomize.py`` in the
program) loads a separate copy of this module, besides the copy in nncftools.
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
    """Child processes as tuples ``(PID, thread, pages)``. ``thread`` is the path in /proc of the thread that started
    the child, if the child is the thread's newest child; otherwise empty. ``pages`` is the RSS of the parent process in
    pages."""

try:
    from resource import RUSAGE_SELF, getrusage
except ImportError:  # Windows has neither this module nor /proc
    RUSAGE_SELF = getrusage = None  # type: ignore[assignment,misc]

VARIABLE = "NNCF_TOOLS_MARKS"
"""The environment variable with the path of the log."""
OWNER = "NNCF_TOOLS_MARKS_OWNER"
"""The environment variable with the user ID that owned the log when the log was created."""
OUTPUT = "output"
"""The ``source`` of marks that come from lines of the command's output."""
_FLAGS = os.O_WRONLY | os.O_APPEND
for _flag in "O_BINARY", "O_NONBLOCK":
    _FLAGS |= getattr(os, _flag, 0)
_NO_LINK = _FLAGS | getattr(os, "O_NOFOLLOW", 0)
_MOST_KEPT = 1 << 16
"""Lines that cannot be written wait for the next attempt, up to this many bytes. Further lines are dropped."""
_IN_MEMORY = b"/proc/"
"""The first part of the path of a log in memory (memfd). Such a path is a link that the kernel makes."""
_SMALL = 4096
_MOST_DESCENDANTS = 16
"""If there are more descendants than this, a mark contains none of them, because each takes 2 to 5 µs to read."""
_MOST_PARENTS = 4
"""If there are at most this many children, the children's children are read, too."""
_LONGEST_READING_NS = 2_000_000
"""If the reading of this process and of its descendants takes longer, the reading was interrupted. Each reading opens
several files of /proc, and at each file another thread may take the GIL for 5 ms or more."""
_ONE_THREAD = 3
"""The link count of ``/proc/self/task`` in a process with a single thread: two for the folder, and one for each thread.
"""
_NONE = ',"descendants":[]'
_GROWN = 64 << 20
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

operations = itertools.count(1 if __name__.startswith("nncftools.") else 2, 2)
"""Counter for the key ``op``, unique within a process. The copy of this module in nncftools yields odd numbers, the
hook's copy even numbers.
"""
PROGRAM = f',"program":{hash((VARIABLE, object))}'
"""The JSON member with a random number for this program, from Python's random hash key and the address of ``object``.

Forked processes, all copies of this module and all interpreters of a process have the same number. After exec the
number is new, unless PYTHONHASHSEED is set and addresses are not random.
"""


def open_log(path: bytes) -> int:
    """Open a log for appending, without following links and without blocking: another user may have replaced the log.

    Raises OSError unless the file is regular and belongs to this user or to the user ``OWNER``. (On a network file
    system, a new file may belong to another user.) The file must have a single hard link, or none if the file is in
    memory.
    """
    descriptor = os.open(path, _FLAGS if path.startswith(_IN_MEMORY) else _NO_LINK)
    status = os.fstat(descriptor)
    user = getattr(os, "geteuid", int)()
    is_ours = status.st_uid == user or str(status.st_uid) == os.environ.get(OWNER)
    if S_ISREG(status.st_mode) and status.st_nlink <= 1 and is_ours:
        return descriptor
    os.close(descriptor)
    raise PermissionError(1, "expected a regular file that belongs to this user and has a single hard link")  # EPERM


class Unwritten:
    """The lines of a log that this process could not write."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lines = b""
        """The waiting lines, which are written before the next line."""
        self.lost = 0
        """The number of lines that were dropped, because too many lines waited."""
        self.lost_ns = 0
        """The time when the first line was dropped."""
        self.cut = 0
        """The number of lines that were only partly written. They are written again."""

    def note(self) -> bytes:
        """Return a log line with the numbers of dropped and partly written lines; empty if both numbers are 0."""
        if not self.lost and not self.cut:
            return b""
        facts = b'{"lost":%d,"cut":%d,"pid":%d,"t_ns":%d}\n' % (self.lost, self.cut, self.pid, self.lost_ns)
        return b"\n" + facts if self.cut else facts

    def keep(self, data: bytes, written: int, noted: int, added: int) -> None:
        """Keep the lines of ``data`` that are not complete in the log: only the first ``written`` bytes were written.

        ``data`` begins with a note of ``noted`` bytes, and ends with a new line of ``added`` bytes. If too many bytes
        wait, the new line is dropped.
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
    """Return the path of the source file that raised the current error.

    If this is not a file of nncf-tools, a signal handler of the program has run between our lines and raised the error.
    Such an error must reach the program.
    """
    innermost = sys.exc_info()[2]
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    return "" if innermost is None else innermost.tb_frame.f_code.co_filename


_unwritten: dict[bytes, Unwritten] = {}
"""The waiting lines, by the path of the log."""
_flushed: set[bytes] = set()
"""Paths of logs whose waiting lines are written at the end of the process."""


def append(path: bytes, text: str) -> None:
    """Append a line to a log. If the log cannot be written now, keep the line until the next call.

    Waiting lines are written first. If the text is empty, only the waiting lines are written.
    """
    kept = _unwritten.pop(path, None)
    if kept is None or kept.pid != os.getpid():  # after a fork, only the parent writes the waiting lines
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
    """Return text as an ASCII JSON string. Unpaired surrogates become U+FFFD, because JSON readers reject them."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    from json.encoder import encode_basestring_ascii

    return encode_basestring_ascii(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def common_members(
    name: str, source: str, kind: str | None = None, call: str | None = None, *, step: bool = False
) -> str:
    """Return the JSON members that all lines of an operation share. The members are built once for all calls."""
    members = '"name":' + quote(name)
    if kind:
        members += ',"kind":' + quote(kind)
    if call:
        members += ',"call":' + quote(call)
    return members + ',"source":' + quote(source) + (',"step":true' if step else "")


def describe_thread() -> str:
    """Return the JSON members with PID and thread ID. After a fork, call this function again."""
    return f'"pid":{os.getpid()},"tid":{get_native_id()}'


def own_memory() -> str:
    """Return the JSON members with RSS and high-water mark of this process, and with the memory of descendants.

    The text is empty if the kernel does not give the memory. The values make memory at marks exact, and assign a peak
    between two samples to the right operation. A reading takes 8 µs without children. After exec, the high-water mark
    is the higher mark of the two programs (``ru_maxrss``, getrusage(2)).

    If the reading was interrupted, processes may have begun or ended during the reading, so the text lacks the list of
    descendants. Exception: if this process has a single thread and no children, no child can begin during the reading,
    so the text contains an empty list.
    """
    begun_ns = monotonic_ns()
    try:
        pages = _pages(b"/proc/self/statm")
    except (OSError, ValueError, IndexError):
        return ""
    rss = pages * _PAGE
    mark = max(rss, getrusage(RUSAGE_SELF).ru_maxrss * 1024)  # the kernel updates both a little late
    descendants = _descendants(pages)
    is_interrupted = monotonic_ns() - begun_ns > _LONGEST_READING_NS
    if is_interrupted and (descendants != _NONE or not _has_one_thread()):
        descendants = ""
    return f',"rss":{rss},"high_water_mark":{mark}{descendants}{read_devices()}'


_uuids: dict[tuple[str, int], str] = {}
_asking: set[int] = set()
"""IDs of threads that are asking torch for figures. A mark on such a thread reads no devices."""


def read_devices() -> str:
    """Return the JSON member with the memory that torch's allocator uses on each GPU; empty if torch uses no GPU.

    The reading takes 3 µs per device, starts no driver, and loads no part of torch. The member also has the highest
    value so far. This value comes from the allocator and is never reset here. Each device has a UUID, because torch may
    see only some devices, in another order than other programs.
    """
    if "torch" not in sys.modules or get_ident() in _asking:
        return ""
    devices = []
    try:
        _asking.add(get_ident())
        for kind in ("cuda", "xpu"):
            backend: Any = sys.modules.get(f"torch.{kind}")
            # Reading an attribute of a lazy package would load the package; reading the dictionary does not.
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
    """Return whether a signal handler of the program raised the current error.

    An error of a handler must reach the program. Python passes the interrupted frame to the handler, and the same frame
    is the handler's caller (``signal.signal``).
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
    """Return the bytes in use by the allocator of a device: now, and the highest value so far."""
    statistics = getattr(backend, "memory_stats_as_nested_dict", None)
    if statistics is None:
        return backend.memory_allocated(number), backend.max_memory_allocated(number)
    total = statistics(number)["allocated_bytes"]["all"]  # ``memory_allocated`` would take 100 µs
    return total["current"], total["peak"]


def _has_one_thread() -> bool:
    return os.stat("/proc/self/task").st_nlink == _ONE_THREAD


def _descendants(pages: int) -> str:
    """Return the JSON members with the descendants of this process; ``pages`` is the RSS of this process.

    ``descendants`` is a list of PID and RSS in bytes, parents first. ``listed`` is true if the list includes the
    children's children. The text is empty if the descendants are unknown, because there are too many, or because
    another thread reaped a child during the reading.
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # takes 1 µs, and reaps no child
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
    """Return the PID and RSS of each descendant as JSON members; empty if there are more than 16 descendants.

    Raises OSError, ValueError, IndexError.
    """
    children: Children = []
    if _has_one_thread():  # this thread is running, so it does not wait for a child of vfork
        children += [(pid, b"", 0) for pid in _content("/proc/thread-self/children").split()]
    else:
        for thread in os.listdir("/proc/self/task"):
            children += _children(f"/proc/self/task/{thread}".encode(), pages)
    is_listed = len(children) <= _MOST_PARENTS
    listed = ""
    for pid, beginner, parent_pages in children:  # the list grows during the loop
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
    """Return the children that a thread started.

    ``thread`` is the path of the thread in /proc; ``pages`` is the RSS of the thread's process in pages.
    """
    pids = _content(thread + b"/children").split()
    children = [(pid, b"", pages) for pid in pids]
    if pids:  # a thread that waits for a child of vfork starts no other child, so only the last one may be this child
        children[-1] = (pids[-1], thread, pages)
    return children


def _pages_of_copy(pid: bytes, beginner: bytes) -> int:
    """Return the RSS in pages of a child that seems as large as the parent; 0 for a child of vfork(2) before exec.

    Before exec, /proc shows the parent's memory for a child of vfork. ``beginner`` is the path in /proc of the thread
    that started the child. This thread waits in the kernel (state D, proc(5)) until the child calls exec. Raises
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
    """Return the line of an operation that ends at the next mark; ``t_ns`` is the time on CLOCK_MONOTONIC."""
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
    """Return a log line with the Python version and the PID, for the start or the end of the program.

    ``t_ns`` is the time on CLOCK_MONOTONIC. ``members`` is JSON text that is added to the line, such as
    ``,"ended":true``.
    """
    version = ".".join(map(str, sys.version_info[:3]))
    return f'{{"python":"{version}","pid":{os.getpid()},"t_ns":{t_ns}{members}}}\n'


def has_grown() -> bool:
    """Return whether the RSS of this program ever reached 64 MiB. If not, the memory at the end is not reported.

    The figure is VmHWM, because ``ru_maxrss`` would include the program before exec. Raises OSError, ValueError,
    IndexError.
    """
    following = _content("/proc/self/status").partition(b"VmHWM:")[2]
    return int(following.split(None, 1)[0]) * 1024 >= _GROWN


def warning(text: str) -> str:
    """Return a line with a warning for the report."""
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
"""Parts of error messages in lower case, and the resource that ran out. Libraries in C++ and Rust raise RuntimeError
instead of MemoryError.
"""
_LIBRARY_ERRORS = (RuntimeError, OSError, SystemError, ImportError)
"""Built-in exceptions whose messages are searched for ``_TEXTS``. In other built-in exceptions, a message about memory
or disk may be only a quotation.
"""
_DEVICE_WORDS = ("cuda", "hip ", "xpu", "mps ", "cublas", "cudnn")
"""A message with any of these words is about a device."""
_DEVICE_RAN_OUT = ("out of memory", "alloc_failed")


def cause_of(error: BaseException) -> tuple[str | None, BaseException]:
    """Return the resource that ran out (``memory``, ``disk``, ``device`` or None), and the exception that says so.

    The exception is ``error``, or an exception that caused ``error``.
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
    """Log an error if it says that a resource ran out, or if it ends the program (``fatal``)."""
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
    """Return torch's name for the device in a message: ``cuda1``, or ``cuda`` if the message has no number.

    Messages contain ``GPU 1 has a total capacity of …``; before PyTorch 2.2, ``(GPU 1; 79.15 GiB total capacity; …``.
    """
    text = _message(error)
    number = "".join(itertools.takewhile(str.isdigit, text.partition("gpu ")[2]))
    return ("xpu" if "xpu" in text else "cuda") + number


def report_at_exit(path: bytes) -> None:
    """Report the exception that ends the program, if any. Python has stored the exception in the module ``sys``."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if isinstance(error, BaseException):
        report(path, error, fatal=True)
