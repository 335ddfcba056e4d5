"""The standard input of a command that runs several times."""

from __future__ import annotations

import contextlib
import os
import stat


class RepeatedInput:
    """Our standard input, the same for each run: a file from where it is now, or nothing."""

    def __init__(self) -> None:
        self._start: int | None = None
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.fstat(0).st_mode):
                self._start = os.lseek(0, 0, os.SEEK_CUR)
        if self._start is None:
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.set_inheritable(0, True)
            if nothing:
                os.close(nothing)

    def rewind(self) -> None:
        """Make the next run read what the first one read."""
        if self._start is not None:
            os.lseek(0, self._start, os.SEEK_SET)
