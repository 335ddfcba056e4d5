"""The memory charged to a control group: ``memory.current`` (v2) or ``memory.usage_in_bytes`` (v1).

On a hybrid system the memory controller belongs to one of the two (cgroups(7)): if ``/proc/PID/cgroup`` has a group for
v1's memory controller, to v1, otherwise to v2.
"""

from __future__ import annotations

import os

from nncftools.sampler.probes import SYSTEM

_V1 = "memory.usage_in_bytes"
_V2 = "memory.current"


class Cgroup:
    """Memory of the control group that the command was started in, including other processes in that group."""

    kind = SYSTEM
    metrics = ("cgroup",)
    source = "memory.current or memory.usage_in_bytes"
    cost = "3 µs"

    def __init__(self, root: str, pid: int) -> None:
        path = _file_of(root, pid)
        self._file = None if path is None else os.open(path, os.O_RDONLY)

    def read(self) -> tuple[int | None]:
        """Return the bytes; None when the group is gone or its memory is not accounted."""
        if self._file is None:
            return (None,)
        try:
            return (int(os.pread(self._file, 64, 0)),)
        except OSError:
            return (None,)


def why_unavailable(root: str) -> str:
    """Return why the memory of our own control group cannot be read; empty when it can."""
    return "" if _file_of(root, os.getpid()) else "no memory controller accounts this process's control group"


def _file_of(root: str, pid: int) -> str | None:
    """Return the readable file with the memory of a process's control group; None when there is none."""
    try:
        with open(f"{root}/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file]
        with open(f"{root}/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split() for line in file]
    except OSError:
        return None
    v1 = [group for _, controllers, group in groups if "memory" in controllers.split(",")]
    v2 = [group for number, _, group in groups if number == "0"]
    if v1:
        kind, name, group = "cgroup", _V1, v1[0]
    elif v2:
        kind, name, group = "cgroup2", _V2, v2[0]
    else:
        return None
    candidates = (f"{folder}/{name}" for folder in _folders(mounts, kind, group))
    return next((path for path in candidates if os.access(path, os.R_OK)), None)


def _folders(mounts: list[list[str]], kind: str, group: str) -> list[str]:
    """Return a group's possible folders: one under each mount of its hierarchy, which may show only a part of it."""
    found = []
    for fields in mounts:
        after = fields.index("-")
        mounted, point = _unescaped(fields[3]).rstrip("/"), _unescaped(fields[4])
        right = fields[after + 1] == kind and (kind == "cgroup2" or "memory" in fields[after + 3].split(","))
        if right and f"{group}/".startswith(f"{mounted}/"):
            found.append(f"{point}{group[len(mounted) :]}".rstrip("/"))
    return found


def _unescaped(path: str) -> str:
    """Return a path from mountinfo, which has blanks and backslashes as octal escapes (proc(5)), without escapes."""
    raw = path.encode(errors="surrogateescape").decode("unicode_escape")
    return raw.encode("latin-1").decode(errors="surrogateescape")
