"""Which recording a path or word on the command line means: a file, a folder, ``latest``, ``latest~1``."""

from __future__ import annotations

import contextlib
import pathlib
import re
from typing import TYPE_CHECKING

from nncftools.cli.destination import JOURNAL_ENDING, LATEST, SESSION
from nncftools.errors import NncfToolsError
from nncftools.units import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

WORDS = (LATEST, "last")
_WORD = re.compile(rf"(?:{'|'.join(WORDS)})(?:~(\d{{1,6}}))?")
_PATTERNS = (SESSION, f"*{JOURNAL_ENDING}", f"*/{SESSION}", f"*/*{JOURNAL_ENDING}")


def recording(path: pathlib.Path, log_dir: pathlib.Path) -> pathlib.Path:
    """Return the session or journal that a path means.

    A folder stands for its newest recording, ``latest`` or ``last`` for the newest in ``log_dir``, ``latest~1`` for the
    one before it; a file or folder of such a name comes first. Raises NncfToolsError if there is none.
    """
    if path.is_dir():
        return newest(path)
    word = _WORD.fullmatch(path.name)
    if word is None or path.exists():
        return path
    return newest(log_dir if path.parent == pathlib.Path() else path.parent, int(word[1] or 0))


def newest(log_dir: pathlib.Path, before: int = 0) -> pathlib.Path:
    """Return the newest session or journal in a folder, or the one so many before it.

    Raises NncfToolsError if there is none.
    """
    found = in_order(log_dir)
    if not found:
        message = f"no session under {str(log_dir)!r}; record one with `nncf-tools profile COMMAND`, or name a file"
        raise NncfToolsError(message)
    if before >= len(found):
        count = "1 recording" if len(found) == 1 else f"{len(found):,} recordings"
        raise NncfToolsError(f"there is no {LATEST}~{before}: {str(log_dir)!r} holds {count}")
    return found[before]


def in_order(log_dir: pathlib.Path) -> list[pathlib.Path]:
    """Return the sessions and journals in a folder and its folders, the newest first."""
    return sorted(set(_recordings(log_dir)), key=written_ns, reverse=True)


def _recordings(log_dir: pathlib.Path) -> Iterator[pathlib.Path]:
    for pattern in _PATTERNS:
        for path in log_dir.glob(pattern):
            is_link = LATEST in path.relative_to(log_dir).parts[:-1]  # to a run that has its own name
            if not is_link and not path.is_fifo():  # reading a FIFO that another user put there would never end
                yield path


def written_ns(path: pathlib.Path) -> int:
    """Return the time of the last write; 0 if the file is gone, because its recorder has just replaced it."""
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns
    return 0


def check_there(path: pathlib.Path, log_dir: pathlib.Path) -> None:
    """Raise NncfToolsError for a path that does not exist, if there is one that was probably meant."""
    if path.exists():
        return
    with contextlib.suppress(OSError):
        files = {str(path.with_name(found.name)) for found in path.parent.iterdir()}
        words = set() if path.name == str(path) and not log_dir.is_dir() else {*WORDS}
        meant = nearest(str(path), files | words)
        if meant:
            raise NncfToolsError(f"{path}: cannot be read: No such file or directory; did you mean {meant}?")
