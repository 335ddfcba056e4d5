"""Whether nothing has changed since a sample: then its figures hold again, and nothing is taken apart or compared.

The files of ``/proc`` are read all the same. But where their bytes are equal, all that follows from them is, too. A
tree that sleeps or waits costs half as much in this way; at 10 ms, most of it is what the caches have lost since the
sample before, so what matters is how much code runs at all.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Stillness:
    """The files of a tree with what they said at a sample, while that is expected to last."""

    def __init__(self) -> None:
        self._expected: list[tuple[int, int, bytes]] = []
        self.samples = 0
        """How many samples in a row found nothing new."""
        self.until_s = 0.0
        """The time of the last one of these."""

    def expect(self, files: Sequence[tuple[int, bytes | None]]) -> None:
        """Expect descriptors to say the same again, unless one of them cannot be read."""
        expected = [(file, len(data) + 1, data) for file, data in files if file >= 0 and data]
        self._expected = expected if len(expected) == len(files) else []

    def lasts(self, now_s: float) -> bool:
        """Read again at a sample; return whether everything is as expected, and count the sample if it is."""
        if not self._expected:
            return False
        pread = os.pread
        try:
            for file, size, data in self._expected:
                if pread(file, size, 0) != data:
                    return False
        except OSError:  # a process is gone
            return False
        self.samples += 1
        self.until_s = now_s
        return True

    def end(self) -> None:
        """Expect nothing any more, and forget the samples."""
        self._expected = []
        self.samples = 0
