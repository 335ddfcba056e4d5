"""Rules that the helper process and the analysis of the helper's log share; imports only the standard library."""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Range = tuple[int, int]
"""A range of addresses or pages: the first, and the first after the end of the range."""
_WAITING = (
    "threading.py",
    "/thread.py",
    "queue.py",
    "selectors.py",
    "socket.py",
    "subprocess.py",
    "connection.py",
    "popen_fork.py",
)
"""Endings of file names in the standard library. If the innermost frame of a thread is in such a file, the thread
waits."""


def is_waiting(innermost_file: str) -> bool:
    """Return whether a thread waits, by the file of the innermost frame. A waiting thread takes no memory."""
    return innermost_file.endswith(_WAITING) and "site-packages" not in innermost_file


def subtract_ranges(ranges: Iterable[Range], others: Sequence[Range]) -> list[Range]:
    """Return the parts of ``ranges`` that are not covered by ``others``. Both lists are sorted."""
    parts: list[Range] = []
    first = 0
    for begin, end in ranges:
        while first < len(others) and others[first][1] <= begin:
            first += 1
        number = first
        rest = begin
        while number < len(others) and others[number][0] < end:
            other_begin, other_end = others[number]
            if other_begin > rest:
                parts.append((rest, other_begin))
            rest = max(rest, other_end)
            number += 1
        if rest < end:
            parts.append((rest, end))
    return parts
