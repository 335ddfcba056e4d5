"""The problems of a log: one warning per kind, with a count and the first occurrence."""

from __future__ import annotations

_SHOWN = 60
_COARSE_S = 0.05


class Problems:
    """Counts the lines and samples of a log that could not be used."""

    def __init__(self) -> None:
        """Start without problems."""
        self.first_unreadable = ""
        """The first unreadable line, and why; empty when all are readable."""
        self._unreadable = 0
        self._first_left_out = ""
        self._left_out = 0
        self._warnings: dict[str, None] = {}

    def unreadable(self, number: int, line: bytes, why: object) -> None:
        """Count an unreadable line."""
        self.first_unreadable = self.first_unreadable or f"line {number}: {shown(line)}: {why}"
        self._unreadable += 1

    def went_back(self, number: int, before_s: float, after_s: float) -> None:
        """Count a sample that was left out because time goes back at this line; seconds since the start."""
        digits = 2 if before_s - after_s >= _COARSE_S else 6
        message = f"time goes back at line {number}, from {before_s:.{digits}f} s to {after_s:.{digits}f} s"
        self._first_left_out = self._first_left_out or message
        self._left_out += 1

    def warn(self, text: str) -> None:
        """Add a warning, unless it is already there."""
        self._warnings[text] = None

    def warnings(self) -> list[str]:
        """Return all warnings."""
        found = []
        if self._unreadable == 1:
            found.append(f"1 line could not be read, {self.first_unreadable}")
        elif self._unreadable:
            found.append(f"{self._unreadable:,} lines could not be read, the first is {self.first_unreadable}")
        if self._left_out:
            counted = "1 sample was" if self._left_out == 1 else f"{self._left_out:,} samples were"
            found.append(f"{self._first_left_out}: {counted} left out")
        return [*found, *self._warnings]


def shown(line: bytes) -> str:
    """Return a line as a message quotes it: short, printable, in quotation marks."""
    text = line[:_SHOWN].decode("utf-8", "backslashreplace")
    plain = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return f"'{plain}{'…' if len(line) > _SHOWN else ''}'"
