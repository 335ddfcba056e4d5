"""Reads the header and rows of a CSV file, without interpreting them."""

from __future__ import annotations

import csv
import errno
import io
import itertools
import os
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from nncftools import intake
from nncftools.compression.columns import MODE
from nncftools.compression.errors import MissingInputError, ResultsError
from nncftools.errors import SessionFileError
from nncftools.intake import limits

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterable, Iterator, Mapping, Sequence

UNNAMED = re.compile(r"(Unnamed: [\d.]+)?")
"""What pandas writes above an index without a name, and above that column after it has read such a file."""


class Record(NamedTuple):
    """One row of the file, numbered as in a spreadsheet: the header is row 1."""

    number: int
    cells: Mapping[str, str]


class RawTable(NamedTuple):
    """The header, with names stripped, and the rows that are not empty; without an index column of pandas."""

    path: pathlib.Path
    header: Sequence[str]
    records: Sequence[Record]
    problems: Sequence[str]
    """Rows with more or fewer cells than the header."""


def read(path: pathlib.Path) -> RawTable:
    """Read a CSV file: UTF-8 with or without a byte order mark, commas, quotes doubled.

    Raises ResultsError for any other file, and for one with more rows or bytes than the limits; MissingInputError for
    none.
    """
    text = _text(path)
    _check_separator(path, text)
    most = limits().table_rows
    (_, header), *rows = list(itertools.islice(_rows(path, text), most + 2)) or [(0, [])]
    if not header:
        raise ResultsError(f"{str(path)!r}: the file is empty; a header and rows expected")
    if len(rows) > most:
        why = f"more than {most:,} rows; split the file, or take the best rows"
        raise ResultsError(f"{str(path)!r}: {why}", mended_by="size")
    twice = sorted(name for name, count in Counter(header).items() if name and count > 1)
    if twice:
        raise ResultsError(f"{str(path)!r}: row 1: columns named twice: {', '.join(map(repr, twice))}")
    columns = zip(header, zip(*(cells for _, cells in rows if len(cells) == len(header)), strict=True), strict=False)
    start = len(list(itertools.takewhile(_is_index, columns)))
    records: list[Record] = []
    problems: list[str] = []
    for number, cells in rows:
        if len(cells) != len(header):
            problems.append(f"row {number}: {len(header)} cells expected, found {len(cells)}")
        else:
            records.append(Record(number, dict(zip(header[start:], cells[start:], strict=True))))
    return RawTable(path, header[start:], records, problems)


def _text(path: pathlib.Path) -> str:
    if not path.exists():
        raise MissingInputError(f"cannot read {str(path)!r}: {os.strerror(errno.ENOENT)}")
    try:
        content = intake.whole(path, most=limits().table_bytes)
    except intake.TooLargeError as error:
        most = f"at most {limits().table_rows:,} rows are read"
        raise ResultsError(f"{error}; {most}", mended_by=error.mended_by) from error
    except SessionFileError as error:
        raise ResultsError(str(error)) from error
    if content.startswith(intake.UTF_16_MARKS):
        raise ResultsError(f"{str(path)!r}: the file is in UTF-16; save it as UTF-8")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        row = content.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{content[error.start]:02x} in line {row}"
        raise ResultsError(f"{str(path)!r}: the file is not UTF-8 ({found}); save it as UTF-8") from error
    if "\0" in text:
        raise ResultsError(f"{str(path)!r}: not a text file (it holds a zero byte); a CSV file in UTF-8 expected")
    return text


def _rows(path: pathlib.Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield number and stripped cells of each row that is not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    number = 0
    try:
        for number, row in enumerate(reader, 1):
            cells = [cell.strip() for cell in row]
            if any(cells):
                yield number, cells
    except csv.Error as error:
        raise ResultsError(f"{str(path)!r}: row {number + 1} is not CSV: {error}") from error


def _is_index(column: tuple[str, Iterable[str]]) -> bool:
    """Return whether a column, its name and its cells, has no name and holds only whole numbers or nothing."""
    name, cells = column
    return UNNAMED.fullmatch(name) is not None and all(not cell or cell.isdecimal() for cell in cells)


def _check_separator(path: pathlib.Path, text: str) -> None:
    first = next(iter(text[: csv.field_size_limit()].lstrip().splitlines()), "")
    for separator, name in ((",", ""), (";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if MODE in {cell.strip() for cell in next(csv.reader([first], delimiter=separator), [])}:
            if name:
                raise ResultsError(f"{str(path)!r}: the columns are separated by {name}; commas expected")
            return
