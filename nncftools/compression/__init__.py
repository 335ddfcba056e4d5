"""The functions and column names of NNCF's visualizer of weight compression, for pandas tables."""

from __future__ import annotations

import math
import os
import pathlib
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    import pandas as pd

    from nncftools.compression.checking import Model

__all__ = ["AVG_REL_ERROR", "COMPRESSION_RATE", "EXPECTED_COLUMNS", "EXPECTED_IN_MODE_COLUMN", "FP32", "GPTQ", "INT4"]
__all__ += ["INT4_RATIO", "INT8", "INT8_RATIO", "LAMBADA_ACC", "LAMBADA_PPL", "LORA_RANK", "MODE", "MODEL_SIZE"]
__all__ += ["PLOT_NAME", "WIKI_PPL", "WWB_SIM", "add_relative_metrics", "check_format", "to_markdown", "to_plot"]
__all__ += ["visualize"]

MODE, INT4_RATIO, INT8_RATIO, LORA_RANK, PLOT_NAME, MODEL_SIZE = DESCRIBING
WIKI_PPL, LAMBADA_ACC, LAMBADA_PPL, WWB_SIM = (metric.column for metric in STANDARD)
EXPECTED_COLUMNS = [*DESCRIBING, WIKI_PPL, LAMBADA_ACC, LAMBADA_PPL, WWB_SIM]
GPTQ = "gptq"
INT4 = "int4"
FP32 = "fp32"
INT8 = "int8"
EXPECTED_IN_MODE_COLUMN = [GPTQ, INT4, FP32]
AVG_REL_ERROR, COMPRESSION_RATE = COMPUTED
_FIRST_ROW = 2
"""The number of the first row below the header. As in a spreadsheet, the header is row 1."""


def visualize(
    input_file: str | os.PathLike[str], output_dir: str | os.PathLike[str] | None = None, *, lenient: bool = False
) -> list[pathlib.Path]:
    """Write a table (``.md``) and a picture (``.png``) of a CSV file of weight-compression results; return both paths.

    Both files are named like the input, and replace existing files. If ``output_dir`` is None or empty, the files are
    written into the folder of the input. Remarks on the results are UserWarnings: for example, there are two baselines,
    or no row with int8, int4 or gptq. If ``lenient`` is true, missing rows give no warning.

    If the results are invalid, raises ResultsError (also a RuntimeError), whose message lists all problems. If the
    input is missing, raises MissingInputError (also a FileNotFoundError). In both cases, no file is written.
    """
    from nncftools.compression.outputs import Request, make

    folder = pathlib.Path(output_dir) if output_dir else None
    outcome = make(Request([pathlib.Path(input_file)], folder, lenient=lenient))
    for note in outcome.notes:
        warnings.warn(note, UserWarning, stacklevel=2)
    return list(outcome.files)


def check_format(df: pd.DataFrame) -> None:
    """Raise ResultsError (a RuntimeError) if the rows of a table cannot be compared. The message lists all problems.

    All columns in ``EXPECTED_COLUMNS`` must exist, with valid cells. Each of the words gptq, int4 and fp32 must be in
    at least one cell of the column ``mode``.
    """
    _load_models(df, STANDARD)
    modes = [mode.casefold() for mode in df[MODE]]
    missing = [word for word in EXPECTED_IN_MODE_COLUMN if not any(word in mode for mode in modes)]
    if missing:
        raise ResultsError(f"no row has these words in the column {MODE!r}: {', '.join(missing)}")


def add_relative_metrics(df: pd.DataFrame) -> pd.DataFrame:
    """Return the table with average relative error and compression rate of each row, sorted by the error.

    Error and rate are relative to the row with fp32 of the same model. Raises ResultsError.
    """
    from nncftools.compression.results import evaluate

    errors = [math.nan] * len(df)
    rates = [math.nan] * len(df)
    for model in _load_models(df, STANDARD):
        for result in evaluate(model, STANDARD):
            index = result.row.number - _FIRST_ROW
            errors[index] = result.error
            rates[index] = result.rate
    table = df.assign(**{AVG_REL_ERROR: errors, COMPRESSION_RATE: rates})
    in_order: pd.DataFrame = table.sort_values(AVG_REL_ERROR, kind="stable")
    return in_order


def to_markdown(df_: pd.DataFrame, output_file: str | os.PathLike[str]) -> None:
    """Write a table from ``add_relative_metrics`` as a Markdown table, in the same order. Raises ResultsError."""
    from nncftools.compression.outputs import markdown, percent, rate_text, write
    from nncftools.compression.results import error_text

    forms: dict[str, Callable[[float], str]] = {
        INT4_RATIO: percent,
        INT8_RATIO: percent,
        LORA_RANK: "{:g}".format,
        AVG_REL_ERROR: error_text,
        COMPRESSION_RATE: rate_text,
    }
    _require(df_, [MODE, *forms])
    rows = []
    for record in _make_records(df_):
        rows.append([record.cells[MODE]])
        for name, form in forms.items():
            rows[-1].append(_render_figure(name, record.cells[name], form))
    table = markdown([MODE, *forms], rows)
    write({pathlib.Path(output_file): table.encode()})


def to_plot(df: pd.DataFrame, output_file: str | os.PathLike[str]) -> None:
    """Draw the results in a table that ``add_relative_metrics`` returned: compression rate against error.

    If the name of the output file ends in .svg or .pdf, the picture has this format; otherwise, the picture is a PNG.
    Raises ResultsError.
    """
    from nncftools.compression.outputs import unnamed_text, write
    from nncftools.compression.picture import draw, render
    from nncftools.compression.results import comparisons

    _require(df, COMPUTED)
    models = _load_models(df, ())
    errors: list[float] = df[AVG_REL_ERROR].tolist()
    rates: list[float] = df[COMPRESSION_RATE].tolist()
    places = list(zip(errors, rates, strict=True))
    points = [[places[row.number - _FIRST_ROW] for row in model.rows] for model in models]
    drawing = draw(comparisons(models, (), points))
    path = pathlib.Path(output_file)
    kind = path.suffix[1:].lower()
    write({path: render(drawing, kind if kind in {"svg", "pdf"} else "png")})
    if drawing.unnamed:
        warnings.warn(unnamed_text(drawing.unnamed), UserWarning, stacklevel=2)


def _load_models(df: pd.DataFrame, metrics: Sequence[Metric]) -> list[Model]:
    from nncftools.compression.checking import load

    header = [str(name).strip() for name in df.columns]
    table = RawTable(pathlib.Path("table"), header, _make_records(df))
    return load([table], metrics)


def _make_records(df: pd.DataFrame) -> list[Record]:
    names = [str(name).strip() for name in df.columns]
    rows = [dict(zip(names, cells, strict=True)) for cells in cells_of(df)]
    return [Record(number, cells) for number, cells in enumerate(rows, start=_FIRST_ROW)]


def _require(df: pd.DataFrame, names: Sequence[str]) -> None:
    missing = [name for name in names if name not in df.columns]
    if missing:
        advice = "; add_relative_metrics adds them" if set(COMPUTED).issuperset(missing) else ""
        raise ResultsError(f"no column {', '.join(map(repr, missing))}{advice}")


def _render_figure(name: str, cell: str, form: Callable[[float], str]) -> str:
    """Return the number in a cell as text for the table. An empty cell stays empty. Raises ResultsError."""
    from nncftools.compression.checking import parse_number

    value = parse_number(cell) if cell else math.nan
    if value is None:
        raise ResultsError(f"column {name!r}: a number expected, found {cell!r}")
    return "" if math.isnan(value) else form(value)
