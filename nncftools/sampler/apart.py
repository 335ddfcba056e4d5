"""What keeps a process from the marks log of its recording: another user, another root folder, another clock."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nncftools.sampler.tree import Process

USER, ROOT, CLOCK = "user", "root", "clock"
_USERS = b"\nUid:"
_OF_FILES = 3
"""Of the four users of a process, the one that decides which files it may open (proc(5))."""


def apart(process: Process) -> list[str]:
    """Return which of these differ from our own; what the kernel does not tell is left out."""
    found = []
    if _user(process) not in {None, 0, os.geteuid()}:
        found.append(USER)
    if _differs(process, "root", "/"):
        found.append(ROOT)
    if _differs(process, "ns/time", "/proc/self/ns/time"):
        found.append(CLOCK)
    return found


def _user(process: Process) -> int | None:
    """Return the user as whom a process opens files; None for unknown."""
    try:
        return int(process.read("status").partition(_USERS)[2].split(None, _OF_FILES + 1)[_OF_FILES])
    except (OSError, IndexError, ValueError):
        return None


def _differs(process: Process, file: str, ours: str) -> bool:
    """Return whether a link of a process leads elsewhere than ours. The kernel shows it to its own user and to root."""
    try:
        return not os.path.samestat(os.stat(f"{process.path}/{file}"), os.stat(ours))
    except OSError:
        return False
