"""The functions and the names of columns of NNCF's visualizer, for tables of pandas."""

from __future__ import annotations

import math
import os
import pathlib
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nncftools.compression.checking import BASELINE, Model, load, number
from nncftools.compression.outputs import FORMATS, error_text, markdown, percent, rate_text, unnamed_text, write
from nncftools.compression.reading import (
    COMPUTED,
    DESCRIBING,
    STANDARD,
    Metric,
    RawTable,
    Record,
    ResultsError,
    cells_of,
)
from nncftools.compression.results import comparisons, evaluated

if TYPE_CHECKING:
    import pandas as pd


MODE, INT4_RATIO, INT8_RATIO, LORA_RANK, PLOT_NAME, MODEL_SIZE = DESCRIBING
WIKI_PPL, LAMBADA_ACC, LAMBADA_PPL, WWB_SIM = (metric.column for metric in STANDARD)
EXPECTED_COLUMNS = [*DESCRIBING, WIKI_PPL, LAMBADA_ACC, LAMBADA_PPL, WWB_SIM]
GPTQ, INT4, FP32, INT8 = "gptq", "int4", BASELINE, "int8"
EXPECTED_IN_MODE_COLUMN = [GPTQ, INT4, FP32]
AVG_REL_ERROR, COMPRESSION_RATE = COMPUTED
_FIRST_ROW = 2
"""The number of the first row: as in the file, where the header is row 1."""


def check_format(df: pd.DataFrame) -> None:
    """Raise ResultsError, a RuntimeError, for a table whose rows cannot be compared; it names all that is wrong.

    So are columns that are missing, cells without a possible figure, and a mode that no row has: gptq, int4 and fp32.
    """
    _models(df, STANDARD)
    missing = [word for word in EXPECTED_IN_MODE_COLUMN if not any(word in mode.casefold() for mode in df[MODE])]
    if missing:
        raise ResultsError(f"no row has these words in the column {MODE!r}: {', '.join(missing)}")


def add_relative_metrics(df: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the average relative error and the compression rate of each row, sorted by the error.

    They are relative to the row with fp32 of the same model. Raises ResultsError.
    """
    figures = [[math.nan, math.nan] for _ in range(len(df))]
    for model in _models(df, STANDARD):
        for result in evaluated(model, STANDARD):
            figures[result.row.number - _FIRST_ROW] = [result.error, result.rate]
    with_both = df.assign(**dict(zip(COMPUTED, zip(*figures, strict=True), strict=True)))
    in_order: pd.DataFrame = with_both.sort_values(AVG_REL_ERROR, kind="stable")
    return in_order


def to_markdown(df_: pd.DataFrame, output_file: str | os.PathLike[str]) -> None:
    """Write the rows of a table with relative metrics, in their order, as a Markdown table. Raises ResultsError."""
    forms: dict[str, Callable[[float], str]] = {
        INT4_RATIO: percent,
        INT8_RATIO: percent,
        LORA_RANK: "{:g}".format,
        AVG_REL_ERROR: error_text,
        COMPRESSION_RATE: rate_text,
    }
    _require(df_, [MODE, *forms])
    rows = [
        [record.cells[MODE], *(_figure_text(name, record.cells[name], form) for name, form in forms.items())]
        for record in _records(df_)
    ]
    write({pathlib.Path(output_file): markdown([MODE, *forms], rows).encode()})


def to_plot(df: pd.DataFrame, output_file: str | os.PathLike[str]) -> None:
    """Draw the rows of a table with relative metrics, as PNG unless the name ends in .svg or .pdf.

    Raises ResultsError.
    """
    from nncftools.compression.picture import draw, rendered

    _require(df, COMPUTED)
    models = _models(df, ())
    known = list(zip(df[AVG_REL_ERROR].tolist(), df[COMPRESSION_RATE].tolist(), strict=True))
    points = [[known[row.number - _FIRST_ROW] for row in model.rows] for model in models]
    drawing = draw(comparisons(models, (), points))
    path = pathlib.Path(output_file)
    kind = path.suffix[1:].lower()
    write({path: rendered(drawing, kind if kind in FORMATS[:-1] else "png")})
    if drawing.unnamed:
        warnings.warn(unnamed_text(drawing.unnamed), UserWarning, stacklevel=2)


def _models(df: pd.DataFrame, metrics: Sequence[Metric]) -> list[Model]:
    header = [str(name).strip() for name in df.columns]
    return load([RawTable(pathlib.Path("table"), header, _records(df))], metrics)


def _records(df: pd.DataFrame) -> list[Record]:
    """Return the rows as in a file: numbered in their order."""
    names = [str(name).strip() for name in df.columns]
    rows = enumerate(cells_of(df), start=_FIRST_ROW)
    return [Record(position, dict(zip(names, cells, strict=True))) for position, cells in rows]


def _require(df: pd.DataFrame, names: Sequence[str]) -> None:
    missing = [name for name in names if name not in df.columns]
    if missing:
        advice = "; add_relative_metrics adds them" if set(COMPUTED).issuperset(missing) else ""
        raise ResultsError(f"no column {', '.join(map(repr, missing))}{advice}")


def _figure_text(name: str, cell: str, form: Callable[[float], str]) -> str:
    """Return a figure as the table shows it; an empty cell stays empty. Raises ResultsError."""
    value = number(cell) if cell else math.nan
    if value is None:
        raise ResultsError(f"column {name!r}: a number expected, found {cell!r}")
    return "" if math.isnan(value) else form(value)
