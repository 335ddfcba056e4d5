"""What the processes of a program note while they run.

Times are nanoseconds of CLOCK_MONOTONIC, sizes are bytes.

=======================  ==============================================================================
``s T PID PARENT``       the process did not exist before T
``r T0 T1 PID RSS ...``  the sizes of one or several processes, read between T0 and T1
``m T0 T1 PID TID KIND NAME``  an operation begins or ends, or a moment is marked, between T0 and T1
``g T PID``              the process has ended at T at the latest
=======================  ==============================================================================
"""

from __future__ import annotations

import os
from collections import deque
from select import PIPE_BUF
from time import monotonic_ns

TYPE_CHECKING = False  # typing is 2 MiB in each child
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BEGAN, READ, MARKED, GONE = "srmg"
BEGIN, END, MOMENT = "begin", "end", "moment"
ENDED = FileNotFoundError, ProcessLookupError
"""What a file of a process in /proc raises if the process has ended."""
_STATM = 128
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Notes:
    """Writes to a file or a FIFO, when the process has time."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._lines: deque[bytes] = deque()  # all threads use it at the same time

    def write(self, *words: object) -> None:
        """Add a line."""
        self._lines.append((" ".join(map(str, words)) + "\n").encode("ascii"))

    def flush(self) -> None:
        """Write what was added, without mixing it with what other processes write."""
        text = b""
        while self._lines:
            line = self._lines.popleft()
            if len(text) + len(line) > PIPE_BUF:
                os.write(self._descriptor, text)
                text = b""
            text += line
        os.write(self._descriptor, text)

    def began(self, not_before_ns: int, pid: int, parent: int) -> None:
        """Note that a process exists, at once."""
        self.write(BEGAN, not_before_ns, pid, parent)
        self.flush()

    def gone(self, pid: int) -> None:
        """Note that a process has ended."""
        self.write(GONE, monotonic_ns(), pid)

    def forget(self) -> None:
        """Leave out what was added: the parent of this process has it, too."""
        self._lines.clear()

    def own(self) -> None:
        """Note what the calling process holds."""
        pid = os.getpid()
        self.read(lambda: {pid: resident(pid)})

    def read(self, sizes: Callable[[], Mapping[int, int]]) -> None:
        """Note what processes hold."""
        self.write(*reading(sizes))


def reading(sizes: Callable[[], Mapping[int, int]]) -> list[object]:
    """Return the words of a line with the sizes of processes, by PID."""
    from_ns = monotonic_ns()
    found = sizes()
    return [READ, from_ns, monotonic_ns(), *(word for size in found.items() for word in size)]


def resident(pid: int) -> int:
    """Return the RSS of a process, 0 if it has ended."""
    try:
        descriptor = os.open(f"/proc/{pid}/statm", os.O_RDONLY)
    except ENDED:
        return 0
    try:
        return int(os.read(descriptor, _STATM).split()[1]) * _PAGE
    except ENDED:
        return 0
    finally:
        os.close(descriptor)
