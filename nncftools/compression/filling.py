"""Writes results of evaluation tools into a row of a CSV file.

The values come from lm-evaluation-harness, from who-what-benchmark, and from the size of a model's folder.
"""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from nncftools import intake
from nncftools.compression import reading
from nncftools.compression.checking import parse_number, quote
from nncftools.compression.reading import DESCRIBING, INT4, INT8, LORA_RANK, MODE, PLOT_NAME, STANDARD, STDERR, read
from nncftools.errors import NncfToolsError, UsageError
from nncftools.files import Folder, write_file
from nncftools.markdown import draw_csv
from nncftools.units import printable, shortened


class Key(NamedTuple):
    """Identifies a row. A value of None matches any cell."""

    mode: str
    model: str | None = None
    int4: float | None = None
    int8: float | None = None
    lora_rank: int | None = None
    plot_name: str | None = None

    def cells(self) -> dict[str, str]:
        """Return the values that are not None: ``{column: value}``."""
        given = {
            MODE: self.mode,
            INT4: self.int4,
            INT8: self.int8,
            LORA_RANK: self.lora_rank,
            PLOT_NAME: self.plot_name,
        }
        texts = {}
        for column, value in given.items():
            if value is not None:
                texts[column] = f"{value:.6g}" if isinstance(value, float) else str(value)
        return texts


class FilledRow(NamedTuple):
    """The row that ``fill`` has written."""

    number: int
    """The number of the row in the file; the header is row 1."""
    is_new: bool
    gaps: Sequence[str]
    """The needed columns that are still empty in this row."""


def fill(path: pathlib.Path, setup: str, key: Key, figures: Mapping[str, float], *, force: bool = False) -> FilledRow:
    """Write values into the row that matches ``key``. If there is no such row, add a row; make the file if needed.

    ``setup`` is the name of the first column of a new file. ``figures`` is ``{column: value}``. If a cell already has a
    different value, the value is only replaced with ``force``. If NncfToolsError or OSError is raised, the file is
    unchanged.
    """
    header, rows = _read_rows(path, setup)
    model = key.model
    if not model:
        models = {row[header[0]] for row in rows}
        if len(models) != 1:
            raise NncfToolsError(f"{str(path)!r}: the file has {len(models)} models", remedy="model")
        model = models.pop()
    given = {header[0]: model, **key.cells()}
    matching = [number for number, row in enumerate(rows, 2) if _matches(row, given)]
    if len(matching) > 1:
        raise NncfToolsError(f"{str(path)!r}: rows {', '.join(map(str, matching))} all match", remedy="row")
    if matching:
        number_of_row = matching[0]
        row = rows[number_of_row - 2]
        for column, text in given.items():
            row[column] = row[column] or text
    else:
        row = {**dict.fromkeys(header, ""), **_derive_shares(key), **given}
        rows.append(row)
        number_of_row = len(rows) + 1
    texts = {column: repr(value) for column, value in figures.items()}
    different = [
        f"row {number_of_row}, column {column!r}: the cell has {quote(row[column])}, the new value is {text}"
        for column, text in texts.items()
        if row.get(column) and not _equals(row[column], text)
    ]
    if different and not force:
        raise NncfToolsError(f"{str(path)!r}: {'; '.join(different)}", remedy="force")
    row.update(texts)
    header += [column for column in texts if column not in header]
    Folder(path.parent, make=True).close()
    write_file(path, draw_csv(header, rows).encode())
    needed = (MODE, INT4, INT8, reading.SIZE, *_QUALITY)
    gaps = [column for column in needed if not row[column]]
    return FilledRow(number_of_row, not matching, gaps)


_QUALITY = [metric.column for metric in STANDARD]


def _read_rows(path: pathlib.Path, setup: str) -> tuple[list[str], list[dict[str, str]]]:
    standard = [*DESCRIBING, *_QUALITY]
    if not path.exists():
        return [setup, *standard], []
    table = read(path)
    if MODE not in table.header or table.header[0] in standard:
        raise NncfToolsError(f"{str(path)!r}: not a weight-compression result file: row 1 lacks {MODE!r} or the model")
    header = list(dict.fromkeys((*table.header, *standard)))
    empty = dict.fromkeys(header, "")
    return header, [{**empty, **record.cells} for record in table.records]


def _matches(row: Mapping[str, str], given: Mapping[str, str]) -> bool:
    """Return whether the cells of ``row`` are equal to the cells in ``given``, without regard to upper or lower case.

    An empty share of int4 or int8 weights in the row matches any share.
    """
    for column, text in given.items():
        is_any = not row[column] and column in (INT4, INT8)
        if not is_any and not _equals(row[column], text):
            return False
    return True


def _equals(cell: str, text: str) -> bool:
    value = parse_number(cell)
    if value is None:
        return cell.casefold() == text.casefold()
    return value == parse_number(text)


def _derive_shares(key: Key) -> dict[str, str]:
    """Return the shares of int4 and int8 weights in a new row: ``{column: share}``.

    The int4 share is from ``key``. If ``key`` has no int4 share, the share is 0 for the modes fp32 and int8; for other
    modes, the result is empty.
    """
    mode = key.mode.casefold()
    int4 = key.int4
    if int4 is None and (mode == "fp32" or mode.startswith("int8")):
        int4 = 0.0
    if int4 is None:
        return {}
    return {INT4: f"{int4:.6g}", INT8: "0" if mode == "fp32" else f"{1 - int4:.6g}"}


GIB = 2**30
"""Bytes in a GiB. Published tables write Gb for GiB: in these tables, Phi-3-mini (3.82e9 weights of 4 bytes) has
14.235 Gb."""
_SHOWN = 60
_STANDARD = {
    ("wikitext", "word_perplexity"): reading.WIKITEXT.column,
    ("lambada_openai", "acc"): reading.LAMBADA_ACCURACY.column,
    ("lambada_openai", "perplexity"): reading.LAMBADA_PERPLEXITY.column,
}


def parse_tasks(texts: Sequence[str]) -> dict[tuple[str, str], str]:
    """Return the columns of metrics: ``{(task, metric): column}``.

    These are the three standard metrics of lm-evaluation-harness and the metrics in ``texts``. Each text is
    ``TASK:METRIC``. A metric can have a filter: ``exact_match,strict-match``. If ``texts`` has a standard metric with
    several filters, the metric with the first of these filters gets the standard column. Raises UsageError.
    """
    wanted = dict(_STANDARD)
    for text in texts:
        task, _, metric = text.strip().rpartition(":")
        if not task or not metric:
            raise UsageError(f"'TASK:METRIC' expected, found {text!r}")
        metric = metric.removesuffix(",none")
        name, _, _ = metric.partition(",")
        column = f"{task}, {metric}"
        if (task, name) in _STANDARD:
            column = wanted.pop((task, name), column)
        wanted.setdefault((task, metric), column)
    return wanted


class _Evaluation(msgspec.Struct):
    """The results file of lm-evaluation-harness: ``{task: {metric: value}}``."""

    results: dict[str, dict[str, object]]


def read_lm_eval(
    path: pathlib.Path, wanted: Mapping[tuple[str, str], str], *, may_wait: bool = True
) -> dict[str, float]:
    """Return values and standard errors in a results file of lm-evaluation-harness: ``{column: value}``.

    ``wanted`` is ``{(task, metric): column}``. A key of the file is ``name,filter``. The key of a wanted metric without
    a filter is ``name,none``, ``name``, or the only key with this name. Raises NncfToolsError if the file cannot be
    read, if several keys match a metric, or if the file has a metric only with other filters.
    """
    try:
        document = json.loads(intake.read_file(path, may_wait=may_wait))  # msgspec refuses NaN
        results = msgspec.convert(document, _Evaluation).results
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise NncfToolsError(f"{str(path)!r}: not a result of lm-evaluation-harness: {error}") from error
    figures: dict[str, float] = {}
    for (task, metric), column in wanted.items():
        if task not in results:
            continue
        key = _find_key(path, results[task], task, metric)
        value = _read_figure(path, results[task], task, key)
        if value is not None:
            figures[column] = value
            name, comma, filter_name = key.partition(",")
            stderr = _read_figure(path, results[task], task, f"{name}_stderr{comma}{filter_name}")
            if stderr is not None:
                figures[column + STDERR] = stderr
    if not figures:
        tasks = ", ".join(map(quote, results)) or "none"
        raise NncfToolsError(f"{str(path)!r}: no wanted metric found; tasks in the file: {tasks}", remedy="task")
    return figures


def check_found(wanted: Mapping[tuple[str, str], str], figures: Mapping[str, float]) -> None:
    """Raise UsageError if a wanted metric has no value. Standard metrics do not need a value."""
    for key, column in wanted.items():
        if column not in figures and key not in _STANDARD:
            raise UsageError(f"the results have no value of {':'.join(key)!r}")


def _find_key(path: pathlib.Path, figures: Mapping[str, object], task: str, metric: str) -> str:
    """Return the key of ``metric`` in ``figures``, a task's results. A key is a name and a filter: ``acc,none``.

    If no key has the name, return ``metric`` itself. Raises NncfToolsError if only other filters than the filter in
    ``metric`` exist, or if ``metric`` has no filter and several keys match. The message contains ``path`` and ``task``.
    """
    for key in (f"{metric},none", metric):
        if key in figures:
            return key
    name, comma, _ = metric.partition(",")
    keys = [key for key in figures if key.partition(",")[0] == name]
    if not keys:
        return metric
    if len(keys) == 1 and not comma:
        return keys[0]
    why = "has other filters" if comma else "has several filters"
    filters = printable("; ".join(f"{task}:{key}" for key in keys))
    raise NncfToolsError(f"{str(path)!r}: {metric!r} {why}: {filters}", remedy="task")


def _read_figure(path: pathlib.Path, figures: Mapping[str, object], task: str, key: str) -> float | None:
    value = figures.get(key)
    if value is None or value == "N/A":
        return None
    try:
        return msgspec.convert(value, intake.Figure)
    # msgspec before 0.22 raises SystemError for a float of 400 digits
    except (msgspec.ValidationError, SystemError) as error:
        why = f"a finite number expected, found {shortened(printable(repr(value)), _SHOWN)}"
        raise NncfToolsError(f"{str(path)!r}: results.{task}.{key}: {why}") from error


def read_similarity(path: pathlib.Path) -> float:
    """Return the mean of the column ``similarity`` in a metrics file of who-what-benchmark. Raises NncfToolsError."""
    table = read(path)
    if "similarity" not in table.header:
        raise NncfToolsError(f"{str(path)!r}: no column 'similarity'; who-what-benchmark's metrics.csv expected")
    values = []
    for record in table.records:
        value = parse_number(record.cells["similarity"])
        if value is None:
            why = f"a finite number expected, found {quote(record.cells['similarity'])}"
            raise NncfToolsError(f"{str(path)!r}: row {record.number}, column 'similarity': {why}")
        values.append(value)
    if not values:
        raise NncfToolsError(f"{str(path)!r}: no rows")
    return math.fsum(values) / len(values)


def measure_size(path: pathlib.Path) -> float:
    """Return the size in GiB of a file, or of all files in a folder. Follow links. Raises NncfToolsError."""
    try:
        files = [path, *path.rglob("*")]
        size = sum(file.stat().st_size for file in files if file.is_file())
    except OSError as error:
        raise NncfToolsError(f"cannot read {str(path)!r}: {error.strerror or error}") from error
    if not size:
        raise NncfToolsError(f"{str(path)!r}: no files with content; a model's folder expected")
    return size / GIB
