"""Reads the header and rows of a CSV file, without interpreting them."""

from __future__ import annotations

import codecs
import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nncftools.compression.columns import MODE
from nncftools.errors import NncfToolsError

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator, Mapping, Sequence

MAX_ROWS = 1000
"""A longer table is unreadable, and a picture has no room for more names."""
MAX_BYTES = 10_000_000
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class Record:
    """One row of the file, numbered as in a spreadsheet: the header is row 1."""

    number: int
    cells: Mapping[str, str]


@dataclass(frozen=True)
class RawTable:
    """The header, with names stripped, and the rows that are not empty."""

    path: pathlib.Path
    header: Sequence[str]
    records: Sequence[Record]
    problems: Sequence[str]
    """Rows with more or fewer cells than the header."""


def read(path: pathlib.Path) -> RawTable:
    """Read a CSV file: UTF-8 with or without a byte order mark, commas, quotes doubled.

    Raises NncfToolsError for any other file, and for one with more than 1,000 rows or 10 MB.
    """
    text = _text(path)
    _check_separator(path, text)
    rows = _rows(path, text)
    header = next(([name.strip() for name in row] for _, row in rows if any(map(str.strip, row))), [])
    if not header:
        raise NncfToolsError(f"{str(path)!r}: the file is empty; a header and rows expected")
    _check_header(path, header)
    records, problems = _records(path, header, rows)
    return RawTable(path, header, records, problems)


def _text(path: pathlib.Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise NncfToolsError(f"cannot read {str(path)!r}: {error.strerror or error}") from error
    if len(content) > MAX_BYTES:
        raise NncfToolsError(f"{str(path)!r}: the file is larger than 10 MB; at most {MAX_ROWS:,} rows are read")
    if content.startswith(_WIDE):
        raise NncfToolsError(f"{str(path)!r}: the file is in UTF-16; save it as UTF-8")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = content.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{content[error.start]:02x} in line {row}"
        raise NncfToolsError(f"{str(path)!r}: the file is not UTF-8 ({found}); save it as UTF-8") from error
    if "\0" in text:
        raise NncfToolsError(f"{str(path)!r}: not a text file (it holds a zero byte); a CSV file in UTF-8 expected")
    return text


def _rows(path: pathlib.Path, text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    number = 0
    try:
        for number, row in enumerate(reader, 1):
            yield number, row
    except csv.Error as error:
        raise NncfToolsError(f"{str(path)!r}: row {number + 1} is not CSV: {error}") from error


def _check_separator(path: pathlib.Path, text: str) -> None:
    first = next(iter(text[: csv.field_size_limit()].lstrip().splitlines()), "")
    for separator, name in ((",", ""), (";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if MODE in {cell.strip() for cell in next(csv.reader([first], delimiter=separator), [])}:
            if name:
                raise NncfToolsError(f"{str(path)!r}: the columns are separated by {name}; commas expected")
            return


def _check_header(path: pathlib.Path, header: Sequence[str]) -> None:
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise NncfToolsError(f"{str(path)!r}: row 1: columns named twice: {', '.join(map(repr, twice))}")


def _records(
    path: pathlib.Path, header: Sequence[str], rows: Iterator[tuple[int, list[str]]]
) -> tuple[list[Record], list[str]]:
    records: list[Record] = []
    problems: list[str] = []
    for number, row in rows:
        if not any(cell.strip() for cell in row):
            continue
        if len(records) + len(problems) == MAX_ROWS:
            raise NncfToolsError(f"{str(path)!r}: more than {MAX_ROWS:,} rows; split the file, or take the best rows")
        if len(row) != len(header):
            problems.append(f"row {number}: {len(header)} cells expected, found {len(row)}")
        else:
            cells = (cell.strip() for cell in row)
            records.append(Record(number, dict(zip(header, cells, strict=True))))
    return records, problems
