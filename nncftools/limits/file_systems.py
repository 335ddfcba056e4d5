"""Which file systems a command probably writes to."""

from __future__ import annotations

import itertools
import os
import pathlib
import re
import tempfile
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_MOST_WORDS, _MOST_INSIDE = 1000, 8
_OF_KERNEL = ("/dev/", "/proc/", "/sys/")
_INSIDE = re.compile(r"/[\w.+@%~-]+(?:/[\w.+@%~-]+)*")
"""Paths inside of a word: of a line for a shell, of ``of=/data/model.bin``."""


def file_systems(argv: Sequence[str], output: pathlib.Path) -> list[tuple[str, str]]:
    """Return role and folder of each file system that a run may fill, each file system once.

    These are those of the working folder, of TMPDIR, of the recording's ``output``, and of paths among the arguments.
    """
    found: dict[int, tuple[str, str]] = {}
    for role, path in _candidates(argv, output):
        folder = _existing(path)
        try:
            if os.statvfs(folder).f_blocks:  # 0 of /proc, /sys and the like
                found.setdefault(folder.stat().st_dev, (_free_name(role, found.values()), str(folder)))
        except OSError:
            continue
    return list(found.values())


class Room(NamedTuple):
    """A file system: what a run probably writes to it, and the bytes that are free."""

    folder: str
    needed: int
    free: int


def rooms(used: Mapping[str, int], argv: Sequence[str], output: pathlib.Path) -> list[Room]:
    """Return the file systems of a run that are here, by what it used of them elsewhere, by role.

    Two roles that had file systems of their own there may share one here.
    """
    folders = {role: str(path) for role, path in _candidates(argv, output)} | dict(file_systems(argv, output))
    found: dict[int, Room] = {}
    for role, size in used.items():
        folder = _existing(pathlib.Path(folders.get(role, "")))
        try:
            device, facts = folder.stat().st_dev, os.statvfs(folder)
        except OSError:
            continue
        before = found.get(device, Room(str(folder), 0, facts.f_bavail * facts.f_frsize))
        found[device] = before._replace(needed=before.needed + size)
    return list(found.values())


def _candidates(argv: Sequence[str], output: pathlib.Path) -> Iterable[tuple[str, pathlib.Path]]:
    yield "cwd", pathlib.Path()
    yield "TMPDIR", pathlib.Path(tempfile.gettempdir())
    yield "output", output
    for word in argv[1:_MOST_WORDS]:
        path = word.partition("=")[2] if word.startswith("-") else word
        for part in dict.fromkeys([path, *itertools.islice(_INSIDE.findall(word), _MOST_INSIDE)]):
            is_path = os.sep in part and len(part) < os.pathconf("/", "PC_PATH_MAX") and "\0" not in part
            if is_path and not part.startswith(_OF_KERNEL):
                yield "argument", pathlib.Path(part)


def _existing(path: pathlib.Path) -> pathlib.Path:
    """Return the nearest folder that exists: the command may make the others."""
    try:
        path = path.absolute()
        return next((one for one in (path, *path.parents) if one.is_dir()), path)
    except (OSError, ValueError):
        return path


def _free_name(role: str, taken: Iterable[tuple[str, str]]) -> str:
    """Return the role, with a number if another file system has it already."""
    count = sum(name == role or name.startswith(f"{role}-") for name, _ in taken)
    return f"{role}-{count + 1}" if count else role
