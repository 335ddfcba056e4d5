"""What the resident memory of a process is: its mappings (``/proc/PID/smaps``, proc(5)) in a few groups."""

from __future__ import annotations

import re

_MAPPING = re.compile(
    rb"^[0-9a-f]+-[0-9a-f]+ (?P<rights>\S+) \S+ \S+ \d+ *(?P<name>[^\n]*)\n"
    rb".*?^Rss: +(\d+) kB\n"
    rb".*?^Shared_Clean: +(\d+) kB\n"
    rb"Shared_Dirty: +(\d+) kB\n"
    rb"Private_Clean: +(\d+) kB\n"
    rb"Private_Dirty: +(\d+) kB\n"
    rb".*?^Anonymous: +(\d+) kB\n",
    re.MULTILINE | re.DOTALL,
)
_KIB = 1024
_DELETED = b" (deleted)"
_SHARED = (b"/dev/shm/", b"/memfd:", b"/SYSV", b"/dev/zero", b"/anon_hugepage")
_MOST_FILES = 20
_SMALLEST_FILE = 1 << 20
ANONYMOUS, FILE, OTHER_FILES, LIBRARIES, STACK, SHARED = (
    "anonymous",
    "file",
    "other_files",
    "libraries",
    "stack",
    "shared",
)


def groups(smaps: bytes) -> list[tuple[str, str, list[int]]]:
    """Return kind, name and bytes of each group: RSS, shared clean and dirty, private clean and dirty, anonymous.

    Large files have a group of their own, named by their path. In a group of files, anonymous pages are copies: the
    process has written to its private mapping.
    """
    found: dict[tuple[str, bytes], list[int]] = {}
    executable = set()
    for match in _MAPPING.finditer(smaps):
        rights, name, *sizes = match.groups()
        if b"x" in rights and name.startswith(b"/"):
            executable.add(name)
        if sizes[0] == b"0":
            continue
        key = _kind(name), name
        sums = found.setdefault(key, [0] * len(sizes))
        for place, size in enumerate(sizes):
            sums[place] += int(size) * _KIB
    return _merged(found, executable)


def _kind(name: bytes) -> str:
    if name.startswith(_SHARED):
        return SHARED
    if name.startswith(b"/"):
        return LIBRARIES if b".so" in name.rpartition(b"/")[2] else FILE
    return STACK if name.startswith(b"[stack") else ANONYMOUS


def _merged(found: dict[tuple[str, bytes], list[int]], executable: set[bytes]) -> list[tuple[str, str, list[int]]]:
    sizes = sorted((of[0] for (kind, _), of in found.items() if kind == FILE), reverse=True)
    least = max(_SMALLEST_FILE, sizes[_MOST_FILES - 1] if len(sizes) >= _MOST_FILES else 0)
    merged: dict[tuple[str, str], list[int]] = {}
    for (kind, name), of in found.items():
        key = kind, ""
        if kind == FILE and name in executable:
            key = LIBRARIES, ""
        elif kind == FILE:
            path = name.removesuffix(_DELETED).decode(errors="backslashreplace")
            key = (FILE, path) if of[0] >= least else (OTHER_FILES, "")
        sums = merged.setdefault(key, [0] * len(of))
        for place, size in enumerate(of):
            sums[place] += size
    return [(*key, of) for key, of in sorted(merged.items(), key=lambda item: -item[1][0])]
