"""Rules that the helper, which takes snapshots, and the analysis of its log share; only the standard library."""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Range = tuple[int, int]
"""The first address or page of a range, and the next address or page after it."""
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
"""Files of the standard library in which a thread waits."""


def is_waiting(innermost_file: str) -> bool:
    """Return whether a thread waits, and takes no memory, whose innermost frame is in this file."""
    return innermost_file.endswith(_WAITING) and "site-packages" not in innermost_file


def subtract_ranges(ranges: Iterable[Range], others: Sequence[Range]) -> list[Range]:
    """Return the parts of some ranges that are in none of the others; both are sorted."""
    parts: list[Range] = []
    first = 0
    for begin, end in ranges:
        at = begin
        while first < len(others) and others[first][1] <= at:
            first += 1
        number = first
        while number < len(others) and others[number][0] < end:
            other_begin, behind = others[number]
            if other_begin > at:
                parts.append((at, other_begin))
            at = max(at, behind)
            number += 1
        if at < end:
            parts.append((at, end))
    return parts
