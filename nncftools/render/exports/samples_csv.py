"""The samples as CSV: a column per metric, bytes and seconds, an empty cell for unknown."""

from __future__ import annotations

import csv
import io
from math import isnan
from typing import TYPE_CHECKING

import msgspec

from nncftools.session.samples import TIME, are_whole

if TYPE_CHECKING:
    from array import array

    from nncftools.render.view import View
    from nncftools.session.session import Session

_ROWS = 10_000
"""Converted to text at a time: until then, every cell is an object, which takes memory."""


def report(session: Session, _view: View) -> str:
    """Return all samples with all metrics."""
    names = [TIME, *session.samples.metrics]
    columns = [session.samples[name] for name in names]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(names)
    for begin in range(0, len(session.samples), _ROWS):
        cells = (_cells(name, column[begin : begin + _ROWS]) for name, column in zip(names, columns, strict=True))
        text.writelines(f"{row}\n" for row in map(",".join, zip(*cells, strict=True)))
    return text.getvalue()


def _cells(name: str, values: array[float]) -> list[str]:
    """Return values as text: bytes and counts as integers, unknown values as empty cells."""
    numbers: list[float | None] | array[float] = values
    if are_whole(name, values):
        numbers = [None if isnan(value) else round(value) for value in values]
    text = msgspec.json.encode(list(numbers)).decode()  # NaN is null; repr() is slower
    return text[1:-1].replace("null", "").split(",")
