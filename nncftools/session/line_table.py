"""The line tables of CPython's code objects: which line an instruction belongs to."""

from __future__ import annotations

import re

_ONE_LINE, _LONG, _NO_PLACE = 10, 13, 15
"""Kinds of entries: below the first, the line stays; from the second on, steps are numbers of any size."""
_ENTRY = re.compile(rb"([\x80-\xff])([\x00-\x7f]*)", re.DOTALL)
"""An entry of 3.11 and later: only its first byte has the highest bit."""
_MOST_BITS = 30
_NO_LINE = 128
_LOCATIONS, _UNITS = 11, 10
"""From these versions on, tables are written another way."""


class LineTable:
    """The table of one code object."""

    def __init__(self, version: int, table: bytes) -> None:
        """Take the bytes of a table as Python 3.``version`` writes them; damaged ones give some line."""
        self._version, self._table = version, table
        self._decoded = 0, 0, 0
        """How far the table was decoded last, the end of the bytecode until there, and its line: modules go on."""

    def line_at(self, first_line: int, offset: int) -> int:
        """Return the line of the bytecode at an offset, in a function that begins in ``first_line``."""
        if self._version >= _LOCATIONS:
            return first_line + self._located(offset)
        return first_line + (self._old(offset) if self._version >= _UNITS else self._oldest(offset))

    def _located(self, offset: int) -> int:
        """Return the lines since the first one, by CPython's Objects/locations.md."""
        at, end, line = self._decoded = self._decoded if offset >= self._decoded[1] else (0, 0, 0)
        for entry in _ENTRY.finditer(self._table, at):
            self._decoded = entry.start(), end, line
            first, rest = entry[1][0], entry[2]
            kind = first >> 3 & 15
            if _ONE_LINE <= kind < _LONG:
                line += kind - _ONE_LINE
            elif _LONG <= kind < _NO_PLACE:
                line += _signed(rest)
            end += (first & 7) * 2 + 2
            if end > offset:
                break
        return line

    def _old(self, offset: int) -> int:
        """Return the lines since the first one, by CPython 3.10's Objects/lnotab_notes.txt."""
        line = end = 0
        for size, step in zip(self._table[::2], self._table[1::2], strict=False):
            line += 0 if step == _NO_LINE else (step ^ 128) - 128
            end += size
            if end > offset:
                break
        return line

    def _oldest(self, offset: int) -> int:
        """Return the lines since the first one, by CPython 3.8's Objects/lnotab_notes.txt."""
        line = end = 0
        for size, step in zip(self._table[::2], self._table[1::2], strict=False):
            end += size
            if end > offset:
                break
            line += (step ^ 128) - 128
        return line


def _signed(data: bytes) -> int:
    """Return the number at the beginning: six bits a byte, the lowest first, and the lowest bit of all is the sign."""
    number = shift = 0
    for byte in data:
        number |= (byte & 63) << shift
        shift += 6
        if not byte & 64 or shift > _MOST_BITS:
            break
    return -(number >> 1) if number & 1 else number >> 1
