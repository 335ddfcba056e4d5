"""Finds a symbol of a program or library in memory: from its ELF file (elf(5)) and the process's mappings."""

from __future__ import annotations

import os
import re
from struct import Struct

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAPPING = re.compile(rb"^([0-9a-f]+)-\S+ \S+ 00000000 \S+ \d+ +(/[^\n]*)$", re.MULTILINE)
"""The first mapping of a file: its begin, and the file's path."""
_HEADER = Struct("<16sHHIQQQIHHHHHH")
_SECTION = Struct("<IIQQQQIIQQ")
_SEGMENT = Struct("<IIQQQQQQ")
_SYMBOL = Struct("<IBBHQQ")
_MAGIC = b"\x7fELF\x02\x01"
"""64 bits, little-endian."""
_RELOCATABLE = 3
_DYNAMIC_SYMBOLS = 11
_LOADED = 1
_MOST_SECTIONS = 1_000
_LARGEST_TABLE = 1 << 24
_PAGE = 4096


def mapped_files(maps: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the files of ``/proc/PID/maps``, each with the address at which it begins."""
    for begin, path in _MAPPING.findall(maps):
        yield int(begin, 16), path


def symbols(path: str, names: dict[bytes, str]) -> tuple[dict[str, int], bool]:
    """Return the values of dynamic symbols of a file, and whether they are relative to its first address.

    Raises OSError and ValueError.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return _symbols(file, names)
    finally:
        os.close(file)


def _symbols(file: int, names: dict[bytes, str]) -> tuple[dict[str, int], bool]:
    header = _read(file, _HEADER.size, 0)
    if not header.startswith(_MAGIC):
        raise ValueError("no ELF file of 64 bits")
    _, kind, _, _, _, segments_at, sections_at, _, _, _, segment_count, _, section_count, _ = _HEADER.unpack(header)
    sections = list(_SECTION.iter_unpack(_read(file, min(section_count, _MOST_SECTIONS) * _SECTION.size, sections_at)))
    loaded = [
        address
        for what, _, _, address, *_ in _SEGMENT.iter_unpack(_read(file, segment_count * _SEGMENT.size, segments_at))
        if what == _LOADED
    ]
    base = min(loaded) // _PAGE * _PAGE if loaded and kind == _RELOCATABLE else 0
    found = {}
    for section in sections:
        if section[1] == _DYNAMIC_SYMBOLS and section[6] < len(sections):
            _, _, _, _, at, size, *_ = sections[section[6]]
            strings = _read(file, size, at)
            wanted = {strings.find(b"\0" + name + b"\0") + 1: key for name, key in names.items()}
            for place, _, _, where, value, _ in _SYMBOL.iter_unpack(_read(file, section[5], section[4])):
                if place in wanted and place and where:
                    found[wanted[place]] = value - base
    return found, kind == _RELOCATABLE


def _read(file: int, size: int, at: int) -> bytes:
    if size > _LARGEST_TABLE:
        raise ValueError("the ELF file is damaged")
    data = os.pread(file, size, at)
    if len(data) != size:
        raise ValueError("the ELF file is cut off")
    return data
