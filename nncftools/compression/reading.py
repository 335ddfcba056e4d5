"""Defines the columns and metrics of a CSV file of results, and reads the file without interpreting the cells.

Each error is also a built-in error, so that programs can catch the built-in class.
"""

from __future__ import annotations

import errno
import io
import math
import os
import pathlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from nncftools import intake
from nncftools.backports import StrEnum
from nncftools.errors import NncfToolsError, SessionFileError, UsageError
from nncftools.intake import LIMITS
from nncftools.markdown import MARK
from nncftools.units import MemoryUnit, nearest

if TYPE_CHECKING:
    import pandas as pd

MODE = "mode"
INT4 = "%int4"
INT8 = "%int8"
LORA_RANK = "lora rank"
PLOT_NAME = "plot name"
SIZE = "model size, Gb"
ERROR = "average relative error"
RATE = "compression rate"
DESCRIBING = (MODE, INT4, INT8, LORA_RANK, PLOT_NAME, SIZE)
COMPUTED = (ERROR, RATE)
"""Columns that are always computed, even if a file already has them, as published files do."""
STDERR = " stderr"
"""The suffix of a column with standard errors: the column ``metric`` + ``STDERR`` belongs to the column ``metric``."""

PEAK_OWNER = "peak owner"
"""The column that names the operation or the line of code with the memory peak."""
BITS_PER_WEIGHT = "bits per weight"
BIT_WIDTHS = "bit widths"
"""The column that gives, as text, the number of weights of each bit width."""


class Direction(StrEnum):
    """Whether a higher or a lower value of a metric is better. The direction defines the relative error."""

    HIGHER = "higher"
    """Higher is better. The error is the drop, relative to the baseline."""
    LOWER = "lower"
    """Lower is better. The error is the increase, relative to the baseline."""
    SIMILARITY = "similarity"
    """Higher is better, and the value is already relative to the baseline. The error is 1 − similarity."""


@dataclass(frozen=True)
class Metric:
    """A measure of quality: its column, direction and valid range."""

    column: str
    direction: Direction
    least: float = 0.0
    most: float = math.inf

    @property
    def stderr_column(self) -> str:
        """The name of the column with standard errors. A file may lack this column."""
        return self.column + STDERR

    def relative_error(self, value: float, baseline: float) -> float:
        """Return how much worse ``value`` is than ``baseline``, as a fraction of the baseline; negative if better."""
        if self.direction is Direction.SIMILARITY:
            return 1 - value
        worse = baseline - value if self.direction is Direction.HIGHER else value - baseline
        return worse / baseline


WIKITEXT = Metric("wikitext, word perplexity", Direction.LOWER, least=1)
LAMBADA_ACCURACY = Metric("lambada-openai, acc", Direction.HIGHER, most=1)
LAMBADA_PERPLEXITY = Metric("lambada-openai, perplexity", Direction.LOWER, least=1)
SIMILARITY = Metric("WWB, similarity", Direction.SIMILARITY, least=-1, most=1)
"""The mean cosine of embeddings, from who-what-benchmark. For a collapsed model, the mean can be a little below 0."""
STANDARD = (WIKITEXT, LAMBADA_ACCURACY, LAMBADA_PERPLEXITY, SIMILARITY)


@dataclass(frozen=True)
class Cost:
    """A cost in memory or time, such as the peak memory of compression; less is better.

    The values are in a column of the results file. If the column or a cell is missing, the value is unknown.
    """

    name: str
    """The name in messages and in limits that the user sets, such as ``peak`` in ``peak<=8GiB``."""
    label: str
    column: str
    factor: float
    """The size of the column's unit, in bytes or seconds."""
    is_size: bool = True
    """If true, the values are in bytes; if false, in seconds."""
    decimals: int = 0
    """Digits after the decimal point in a table."""
    high_column: str = ""
    """The column with the upper bound of the value, in the same unit; empty if there is no such column. If a row has an
    upper bound, the other column (the field ``column``) has the lower bound, and comparisons use only the upper
    bound."""


MODEL_SIZE = Cost("size", "Model size", SIZE, MemoryUnit.GiB.factor, decimals=3)
"""The size of the model. Published tables write Gb, but the unit is GiB."""
_MIB = MemoryUnit.MiB.factor
PEAK = Cost(
    "peak",
    "Peak memory of compression",
    "peak memory, MiB",
    _MIB,
    high_column="peak memory high, MiB",
)
INFERENCE_PEAK = Cost("inference peak", "Peak memory of inference", "inference peak memory, MiB", _MIB)
TIME = Cost("time", "Compression time", "compression time, s", 1, is_size=False, decimals=2)
LATENCY = Cost("latency", "Latency per token", "per token, s", 1, is_size=False, decimals=5)
FIRST_TOKEN = Cost("first token", "Latency of the first token", "first token, s", 1, is_size=False, decimals=4)
FIGURES = (PEAK, INFERENCE_PEAK, TIME, LATENCY, FIRST_TOKEN)
"""The costs (memory or time) in optional columns: a file can lack these columns."""
DECIMALS = {figure.column: figure.decimals for figure in FIGURES}
DECIMALS |= {PEAK.high_column: 0, BITS_PER_WEIGHT: 2}
"""Digits after the decimal point in a table: ``{optional column: digits}``."""


_LOWER = ("perplexity", "ppl", "loss")
_HIGHER = ("acc", "accuracy", "acc_norm", "f1", "exact_match", "similarity")
_LAST_WORD = re.compile(r", ([^, ]+),[^, ]+$|([^, ]+)$")
"""Matches the last word of a column name, or METRIC in ``TASK, METRIC,FILTER``."""


def direction_of(column: str) -> Direction | None:
    """Return the direction of a metric by the last word of the column's name; None for an unknown word."""
    match = _LAST_WORD.search(column.lower())
    word = ""
    if match is not None:
        word = match[1] or match[2]
    if word.endswith(_LOWER):
        return Direction.LOWER
    return Direction.HIGHER if word in _HIGHER else None


def found_metrics(tables: Sequence[RawTable]) -> tuple[Metric, ...]:
    """Return the metrics that all tables have.

    A column is a metric if the last word of the name is known, such as ``acc`` or ``perplexity``, or if there is a
    column with standard errors for this column. If no column is a metric, raise ResultsError if there is a column
    ``mode``; otherwise, return the four metrics in ``STANDARD``.
    """
    names = list(tables[0].header) if tables else []
    for table in tables:
        names = [name for name in names if name in table.header]
    others: list[str] = []
    metrics: dict[str, Metric] = {}
    standard = {metric.column: metric for metric in STANDARD}
    for name in names:
        direction = direction_of(name)
        if name in standard or direction is not None or name + STDERR in names:
            metrics[name] = standard.get(name, Metric(name, direction or Direction.HIGHER))
        elif not name.endswith(STDERR):
            others.append(name)
    for name, metric in standard.items():
        if nearest(name, others):  # probably misspelt; the check of the file reports the missing column
            metrics.setdefault(name, metric)
    if not metrics and MODE in names:
        problem = "no column of quality: no name ends with a word such as 'perplexity', 'acc' or 'similarity'"
        raise ResultsError(f"{str(tables[0].path)!r}: {problem}", remedy="metric")
    first = [metric for metric in STANDARD if metric.column in metrics]
    return tuple(dict.fromkeys((*first, *metrics.values()))) or STANDARD


def parse_metrics(texts: Sequence[str]) -> tuple[Metric, ...]:
    """Parse texts to metrics. A text is ``NAME:higher``, ``NAME:lower`` or the word ``standard``.

    NAME is a column; ``higher`` or ``lower`` says which values are better. The word ``standard`` means the four metrics
    in ``STANDARD``. If NAME is a column of these four metrics, the given direction is ignored. Raises UsageError.
    """
    metrics: dict[str, Metric] = {}
    for text in texts:
        chosen = STANDARD if text.strip() == "standard" else (_parse_metric(text),)
        for metric in chosen:
            if metrics.setdefault(metric.column, metric) != metric:
                raise UsageError(f"{metric.column!r} is given with both directions")
    return tuple(metrics.values())


def _parse_metric(text: str) -> Metric:
    column, _, word = (part.strip() for part in text.rpartition(":"))
    direction = word.lower()
    if not column or direction not in {Direction.HIGHER, Direction.LOWER}:
        raise UsageError(f"'COLUMN:higher', 'COLUMN:lower' or 'standard' expected, found {text!r}")
    if column in (*DESCRIBING, *COMPUTED):
        raise UsageError(f"{column!r} describes the compression; name a column of quality")
    for metric in STANDARD:
        if metric.column == column:
            return metric
    return Metric(column, Direction(direction))


class ResultsError(NncfToolsError, RuntimeError):
    """The results cannot be read, compared or written; also a RuntimeError, as in NNCF's visualizer."""


class MissingInputError(ResultsError, FileNotFoundError):
    """An input file does not exist; also a FileNotFoundError."""


_MOST_COLUMNS = 10_000
"""The most columns of a file. pandas needs about a kilobyte for each column."""
UNNAMED = re.compile(r"(Unnamed: [\d.]+)?")
"""The names of an index column without a name, after pandas has written and read the file."""


class Record(NamedTuple):
    """A row of the file, numbered as in a spreadsheet: the header is row 1."""

    number: int
    cells: Mapping[str, str]


class RawTable(NamedTuple):
    """The header and the rows that are not empty.

    The header's names are stripped; an index column of pandas is left out.
    """

    path: pathlib.Path
    header: Sequence[str]
    records: Sequence[Record]


def read(path: pathlib.Path) -> RawTable:
    """Read a CSV file in UTF-8 with commas. If a row has too few cells, the missing cells are empty.

    Raises ResultsError for any other file, and if there are more rows or bytes than the limits. Raises
    MissingInputError if there is no file.
    """
    import pandas as pd

    text = _read_text(path)
    _check_columns(path, text)
    most = LIMITS.table_rows
    try:
        frame = pd.read_csv(
            io.StringIO(text),
            header=None,
            dtype=str,
            keep_default_na=False,
            skip_blank_lines=False,
            nrows=most + 2,
        )
    except ValueError as error:
        problem = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        raise ResultsError(f"{str(path)!r}: not CSV: {problem}") from error
    header, *rows = cells_of(frame)
    if len(rows) > most:
        problem = f"more than {most:,} rows; split the file, or take the best rows"
        raise ResultsError(f"{str(path)!r}: {problem}")
    counts = Counter(filter(None, header))
    repeated = sorted(name for name, count in counts.items() if count > 1)
    if repeated:
        raise ResultsError(f"{str(path)!r}: row 1: columns named twice: {', '.join(map(repr, repeated))}")
    filled = {number: cells for number, cells in enumerate(rows, 2) if any(cells)}
    start = 0
    for name, *column in zip(header, *filled.values(), strict=True):
        if not _is_index(name, column):
            break
        start += 1
    header = header[start:]
    records = []
    for number, cells in filled.items():
        texts = dict(zip(header, cells[start:], strict=True))
        records.append(Record(number, texts))
    return RawTable(path, header, records)


def cells_of(frame: pd.DataFrame) -> list[list[str]]:
    """Return the rows of a table as texts. A missing value, such as NaN, becomes an empty text."""
    texts = frame.astype(object).where(frame.notna(), "").astype(str)
    rows: list[list[str]] = texts.to_numpy().tolist()
    if rows and rows[0][-1:] == [MARK]:
        return [[cell.removeprefix("'") for cell in row[:-1]] for row in rows]
    return [[cell.strip() for cell in row] for row in rows]


def _read_text(path: pathlib.Path) -> str:
    if not path.exists():
        raise MissingInputError(f"cannot read {str(path)!r}: {os.strerror(errno.ENOENT)}")
    try:
        content = intake.read_file(path, most=LIMITS.table_bytes)
    except SessionFileError as error:
        raise ResultsError(str(error)) from error
    try:
        text = content.decode("utf-8").lstrip()
    except UnicodeDecodeError as error:
        row = content.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{content[error.start]:02x} in line {row}"
        raise ResultsError(f"{str(path)!r}: the file is not UTF-8 ({byte}); save it as UTF-8") from error
    if not text:
        raise ResultsError(f"{str(path)!r}: the file is empty; a header and rows expected")
    if "\0" in text:
        raise ResultsError(f"{str(path)!r}: not a text file (a zero byte found); a CSV file in UTF-8 expected")
    return text


def _is_index(name: str, cells: Sequence[str]) -> bool:
    """Return whether a column has no name, and has only whole numbers or empty cells."""
    are_numbers = all(not cell or cell.isdecimal() for cell in cells)
    return are_numbers and UNNAMED.fullmatch(name) is not None


def _check_columns(path: pathlib.Path, text: str) -> None:
    header = text.partition("\n")[0]
    if max(line.count(",") for line in text.split("\n")) >= _MOST_COLUMNS:
        raise ResultsError(f"{str(path)!r}: more than {_MOST_COLUMNS:,} columns")
    separators = {";": "semicolons", "\t": "tabs", "|": "bars"}
    for separator, name in separators.items():
        if MODE in {cell.strip(' "\r') for cell in header.split(separator)}:
            raise ResultsError(f"{str(path)!r}: the columns are separated by {name}; commas expected")
