"""Adds a row to a CSV file of results, or fills the gaps of one."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nncftools.compression.checking import number, shown
from nncftools.compression.columns import DESCRIBING, INT4, INT8, LORA_RANK, MODE, PLOT_NAME, SIZE, STANDARD
from nncftools.compression.reading import read
from nncftools.errors import NncfToolsError
from nncftools.files import replacing

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Mapping, Sequence

    from nncftools.compression.reading import Record


@dataclass(frozen=True)
class Key:
    """Identifies a row; None matches anything."""

    mode: str
    model: str | None = None
    int4: float | None = None
    int8: float | None = None
    lora_rank: int | None = None
    plot_name: str | None = None

    def cells(self) -> dict[str, str]:
        """Return the given values, by column."""
        given = {INT4: self.int4, INT8: self.int8, LORA_RANK: self.lora_rank, PLOT_NAME: self.plot_name}
        texts = {column: f"{value:.6g}" if isinstance(value, float) else str(value) for column, value in given.items()}
        return {MODE: self.mode, **{column: texts[column] for column, value in given.items() if value is not None}}


@dataclass(frozen=True)
class Filled:
    """The row that was filled."""

    number: int
    """The row in the file; the header is row 1."""
    is_new: bool
    gaps: Sequence[str]
    """The columns of the standard table that are still empty."""


def fill(path: pathlib.Path, setup: str, key: Key, figures: Mapping[str, float], *, force: bool = False) -> Filled:
    """Write figures into the row that matches ``key``, or into a new one; create the file if needed.

    ``setup`` names the first column of a new file. A cell with a different figure is only replaced with ``force``.
    Raises NncfToolsError, OSError; the file is unchanged then.
    """
    header, rows = _opened(path, setup)
    model = key.model or _only_model(path, rows, header[0])
    given = {header[0]: model, **key.cells()}
    found = [place for place, row in enumerate(rows) if all(_matches(row, *one) for one in given.items())]
    if len(found) > 1:
        numbers = ", ".join(str(place + 2) for place in found)
        raise NncfToolsError(f"{str(path)!r}: rows {numbers} all match", mended_by="row")
    if not found:
        rows.append({**dict.fromkeys(header, ""), **_shares(key)})
    place = found[0] if found else len(rows) - 1
    row = rows[place]
    texts = {column: repr(value) for column, value in figures.items()}
    _check(path, place + 2, row, texts, force=force)
    row.update(given if not found else {column: text for column, text in given.items() if not row[column]})
    row.update(texts)
    header += [column for column in texts if column not in header]
    _save(path, header, rows)
    needed = (MODE, INT4, INT8, SIZE, *(metric.column for metric in STANDARD))
    return Filled(place + 2, not found, [column for column in needed if not row[column]])


def _opened(path: pathlib.Path, setup: str) -> tuple[list[str], list[dict[str, str]]]:
    standard = [*DESCRIBING, *(metric.column for metric in STANDARD)]
    if not path.exists():
        return [setup, *standard], []
    table = read(path)
    if table.problems:
        raise NncfToolsError("; ".join(f"{str(path)!r}: {problem}" for problem in table.problems[:3]))
    if MODE not in table.header or table.header[0] in standard:
        raise NncfToolsError(f"{str(path)!r}: not a weight-compression result file: row 1 lacks {MODE!r} or the model")
    header = [*table.header, *(column for column in standard if column not in table.header)]
    return header, [_padded(record, header) for record in table.records]


def _padded(record: Record, header: Sequence[str]) -> dict[str, str]:
    return {column: record.cells.get(column, "") for column in header}


def _only_model(path: pathlib.Path, rows: Sequence[Mapping[str, str]], first: str) -> str:
    models = {row[first] for row in rows}
    if len(models) != 1:
        raise NncfToolsError(f"{str(path)!r}: it holds {len(models)} models", mended_by="model")
    return models.pop()


def _matches(row: Mapping[str, str], column: str, text: str) -> bool:
    """Return whether a row matches; an empty share matches anything, an empty rank or name does not."""
    return _same(row[column], text) or (column in (INT4, INT8) and not row[column])


def _same(cell: str, text: str) -> bool:
    one, other = number(cell), number(text)
    return one == other if one is not None and other is not None else cell.casefold() == text.casefold()


def _shares(key: Key) -> dict[str, str]:
    """Return the shares of a new row as far as they follow from its mode or from a given share."""
    mode = key.mode.casefold()
    int4 = key.int4 if key.int4 is not None else 0.0 if mode == "fp32" or mode.startswith("int8") else None
    if int4 is None:
        return {}
    return {INT4: f"{int4:.6g}", INT8: "0" if mode == "fp32" else f"{1 - int4:.6g}"}


def _check(path: pathlib.Path, place: int, row: Mapping[str, str], texts: Mapping[str, str], *, force: bool) -> None:
    differ = [
        f"row {place}, column {column!r}: it holds {shown(row[column])}, the new value is {text}"
        for column, text in texts.items()
        if row.get(column) and not _same(row[column], text)
    ]
    if differ and not force:
        raise NncfToolsError(f"{str(path)!r}: {'; '.join(differ)}", mended_by="force")


def _save(path: pathlib.Path, header: Sequence[str], rows: Sequence[Mapping[str, str]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([row.get(column, "") for column in header] for row in rows)
    target = path.resolve() if path.is_symlink() else path
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as beside:
        beside.write_text(text.getvalue(), encoding="utf-8")
