"""The columns of a CSV file of results, which of them measure quality, and a reader that does not interpret cells.

Programs may also catch its errors as builtin errors.
"""

from __future__ import annotations

import errno
import io
import itertools
import math
import os
import pathlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
"""Published files hold them, too; they are computed here, never read."""
STDERR = " stderr"
"""The suffix of the column with a metric's standard error."""

PEAK_OWNER = "peak owner"
"""The process that held most at the peak, as text."""
BITS_PER_WEIGHT = "bits per weight"
BIT_WIDTHS = "bit widths"
"""How many weights have which width, as text."""


class Direction(StrEnum):
    """Which values of a metric are better; defines its relative error."""

    HIGHER = "higher"
    """Error: the drop relative to the baseline."""
    LOWER = "lower"
    """Error: the increase relative to the baseline."""
    SIMILARITY = "similarity"
    """Already relative to the baseline; error: 1 − similarity."""


@dataclass(frozen=True)
class Metric:
    """A measure of quality: its column, direction and valid range."""

    column: str
    direction: Direction
    least: float = 0.0
    most: float = math.inf

    @property
    def stderr_column(self) -> str:
        """The column of the standard error; optional in a file."""
        return self.column + STDERR

    def relative_error(self, value: float, baseline: float) -> float:
        """Return how much worse ``value`` is than ``baseline``, as a fraction of it; negative when better."""
        if self.direction is Direction.SIMILARITY:
            return 1 - value
        worse = baseline - value if self.direction is Direction.HIGHER else value - baseline
        return worse / baseline


WIKITEXT = Metric("wikitext, word perplexity", Direction.LOWER, least=1)
LAMBADA_ACCURACY = Metric("lambada-openai, acc", Direction.HIGHER, most=1)
LAMBADA_PERPLEXITY = Metric("lambada-openai, perplexity", Direction.LOWER, least=1)
SIMILARITY = Metric("WWB, similarity", Direction.SIMILARITY, least=-1, most=1)
"""who-what-benchmark's mean cosine of embeddings: a collapsed model can be a little below 0."""
STANDARD = (WIKITEXT, LAMBADA_ACCURACY, LAMBADA_PERPLEXITY, SIMILARITY)


@dataclass(frozen=True)
class Cost:
    """What compressing a model takes, or using it; less is better. A file may lack its column, and a row its figure."""

    name: str
    """What users call it."""
    label: str
    column: str
    factor: float
    """The bytes or seconds in one of the column."""
    is_size: bool = True
    """Whether it is in bytes; otherwise in seconds."""
    decimals: int = 0
    """Digits behind the point in a table."""
    high_column: str = ""
    """The column with the upper end of a bracket, in the same unit; that end counts."""


MODEL_SIZE = Cost("size", "Model size", SIZE, MemoryUnit.GiB.factor, decimals=3)
"""Published tables write Gb and count GiB."""
_MIB, _HIGH = MemoryUnit.MiB.factor, "peak memory high, MiB"
PEAK = Cost("peak", "Peak memory of compression", "peak memory, MiB", _MIB, high_column=_HIGH)
INFERENCE_PEAK = Cost("inference peak", "Peak memory of inference", "inference peak memory, MiB", _MIB)
TIME = Cost("time", "Compression time", "compression time, s", 1, is_size=False, decimals=2)
LATENCY = Cost("latency", "Latency per token", "per token, s", 1, is_size=False, decimals=5)
FIRST_TOKEN = Cost("first token", "Latency of the first token", "first token, s", 1, is_size=False, decimals=4)
FIGURES = (PEAK, INFERENCE_PEAK, TIME, LATENCY, FIRST_TOKEN)
"""Those in columns of their own, which a file may lack."""
DECIMALS = {**{figure.column: figure.decimals for figure in FIGURES}, PEAK.high_column: 0, BITS_PER_WEIGHT: 2}
"""Digits behind the point of known further columns in a table."""


_LOWER = ("perplexity", "ppl", "loss")
_HIGHER = ("acc", "accuracy", "acc_norm", "f1", "exact_match", "similarity")
_LAST_WORD = re.compile(r", ([^, ]+),[^, ]+$|([^, ]+)$")
"""The last word, or the metric of ``TASK, METRIC,FILTER``."""


def direction_of(column: str) -> Direction | None:
    """Return which values are better, by the last word of a column's name; None if it measures no quality."""
    match = _LAST_WORD.search(column.lower())
    word = "" if match is None else match[1] or match[2]
    if word.endswith(_LOWER):
        return Direction.LOWER
    return Direction.HIGHER if word in _HIGHER else None


def found_metrics(tables: Sequence[RawTable]) -> tuple[Metric, ...]:
    """Return the metrics of the columns that all tables have, by their names, or because they have a standard error.

    Without any, return the standard four, if the tables cannot be results. Raises ResultsError for results without any.
    """
    every = [set(table.header) for table in tables]
    names = [name for name in tables[0].header if all(name in header for header in every)] if tables else []
    standard = {metric.column: metric for metric in STANDARD}
    found: dict[str, Metric] = {}
    for name in names:
        direction = direction_of(name)
        if name in standard or direction is not None or name + STDERR in names:
            found[name] = standard.get(name, Metric(name, direction or Direction.HIGHER))
    others = [name for name in names if name not in found and not name.endswith(STDERR)]
    misspelt = [metric for name, metric in standard.items() if name not in found and nearest(name, others)]
    if not found and not misspelt and MODE in names:
        which = "no column of quality (…, perplexity, …, acc or …, similarity)"
        raise ResultsError(f"{str(tables[0].path)!r}: {which}", remedy="metric")
    ours = [metric for metric in STANDARD if metric.column in found or metric in misspelt]
    return (*ours, *(metric for metric in found.values() if metric not in ours)) or STANDARD


def chosen_metrics(texts: Sequence[str]) -> tuple[Metric, ...]:
    """Parse ``NAME:higher``, ``NAME:lower`` or ``standard`` to metrics.

    A standard column keeps its own direction. Raises UsageError.
    """
    metrics: dict[str, Metric] = {}
    for text in texts:
        for metric in STANDARD if text.strip() == "standard" else (_metric(text),):
            if metrics.setdefault(metric.column, metric) != metric:
                raise UsageError(f"{metric.column!r} is asked for in both directions")
    return tuple(metrics.values())


def _metric(text: str) -> Metric:
    column, colon, word = (part.strip() for part in text.rpartition(":"))
    if not colon or not column or word.lower() not in {Direction.HIGHER, Direction.LOWER}:
        raise UsageError(f"'COLUMN:higher', 'COLUMN:lower' or 'standard' expected, found {text!r}")
    if column in (*DESCRIBING, *COMPUTED):
        raise UsageError(f"{column!r} describes the compression; name a column of quality")
    return next((metric for metric in STANDARD if metric.column == column), Metric(column, Direction(word.lower())))


class ResultsError(NncfToolsError, RuntimeError):
    """The results cannot be read, compared or written; also a RuntimeError, as in NNCF's visualizer."""


class MissingInputError(ResultsError, FileNotFoundError):
    """An input file does not exist; also a FileNotFoundError."""


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


def read(path: pathlib.Path) -> RawTable:
    """Read a CSV file in UTF-8, with commas; a cell that a row lacks is empty.

    Raises ResultsError for any other file, and for one with more rows or bytes than the limits; MissingInputError for
    none.
    """
    import pandas as pd

    text = _text(path)
    _check_separator(path, text)
    most = LIMITS.table_rows
    try:
        frame = pd.read_csv(
            io.StringIO(text), header=None, dtype=str, keep_default_na=False, skip_blank_lines=False, nrows=most + 2
        )
    except ValueError as error:
        why = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        raise ResultsError(f"{str(path)!r}: not CSV: {why}") from error
    header, *rows = cells_of(frame)
    if len(rows) > most:
        why = f"more than {most:,} rows; split the file, or take the best rows"
        raise ResultsError(f"{str(path)!r}: {why}")
    twice = sorted(name for name, count in Counter(header).items() if name and count > 1)
    if twice:
        raise ResultsError(f"{str(path)!r}: row 1: columns named twice: {', '.join(map(repr, twice))}")
    filled = [(number, cells) for number, cells in enumerate(rows, 2) if any(cells)]
    columns = zip(header, zip(*(cells for _, cells in filled), strict=True), strict=False)
    start = len(list(itertools.takewhile(_is_index, columns)))
    records = [Record(number, dict(zip(header[start:], cells[start:], strict=True))) for number, cells in filled]
    return RawTable(path, header[start:], records)


def cells_of(frame: pd.DataFrame) -> list[list[str]]:
    """Return the rows of a table as texts; an unknown cell is empty."""
    known = frame.astype(object).where(frame.notna(), "")
    rows = [[str(cell) for cell in row] for row in known.to_numpy().tolist()]
    if rows and rows[0][-1:] == [MARK]:
        return [[cell.removeprefix("'") for cell in row[:-1]] for row in rows]
    return [[cell.strip() for cell in row] for row in rows]


def _text(path: pathlib.Path) -> str:
    if not path.exists():
        raise MissingInputError(f"cannot read {str(path)!r}: {os.strerror(errno.ENOENT)}")
    try:
        content = intake.whole(path, most=LIMITS.table_bytes)
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
        raise ResultsError(f"{str(path)!r}: not a text file (it holds a zero byte); a CSV file in UTF-8 expected")
    return text


def _is_index(column: tuple[str, Iterable[str]]) -> bool:
    """Return whether a column, its name and its cells, has no name and holds only whole numbers or nothing."""
    name, cells = column
    return UNNAMED.fullmatch(name) is not None and all(not cell or cell.isdecimal() for cell in cells)


def _check_separator(path: pathlib.Path, text: str) -> None:
    header = text.partition("\n")[0]
    for separator, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if MODE in {cell.strip(' "\r') for cell in header.split(separator)}:
            raise ResultsError(f"{str(path)!r}: the columns are separated by {name}; commas expected")
