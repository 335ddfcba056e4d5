"""Converts the cells of a results file to numbers. The numbers are checked, and all problems are reported together."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from nncftools.compression import reading
from nncftools.compression.reading import INT4, INT8, LORA_RANK, MODE, PLOT_NAME, Metric, RawTable, Record, ResultsError
from nncftools.intake import LARGEST, Figure
from nncftools.units import nearest

BASELINE = "fp32"
FAILED = "failed"
"""The column that says why a configuration failed; empty after success. A failed row has no size and no quality
values."""
USUAL_MODES = ("int8", "int4", "gptq")
MAX_LISTED = 20
_SHOWN = 60
_ROUNDING = 1e-3
"""Ratios and similarities may exceed the limits by this rounding error. In half precision, a cosine of 1 may become
1.001.
"""


@dataclass(frozen=True)
class CheckedRow:
    """A row with checked numbers: a compressed model, or the baseline."""

    number: int
    """The number of the row in the file; the header is row 1."""
    model: str
    mode: str
    int4: float
    int8: float
    lora_rank: int | None
    plot_name: str
    size: float
    """The size of the model in the unit of the file."""
    values: Mapping[str, float]
    """The quality values: ``{column of a metric: value}``."""
    stderrs: Mapping[str, float]
    """The standard errors in the file: ``{column of a metric: standard error}``."""
    extra: Mapping[str, str]
    """The unchanged cells of all columns that have no other field in this class: ``{column: cell}``."""
    stored: Mapping[str, float]
    """The file's values in columns that are computed again: ``{column: value in the file}``. The check
    compares the file's value with the computed value."""


@dataclass(frozen=True)
class Failure:
    """A configuration that failed."""

    model: str
    mode: str
    plot_name: str
    verdict: str


@dataclass(frozen=True)
class Model:
    """The rows of a model in a file."""

    path: pathlib.Path
    setup: str
    """The header of the first column, which describes the set-up of the measurements. Empty if this column has no
    header, or does not contain names of models."""
    name: str
    rows: Sequence[CheckedRow]
    baseline: CheckedRow
    repeated: Sequence[CheckedRow]
    """Further rows with the mode of the baseline. The first row with this mode is the baseline."""
    missing: Sequence[str]
    """The usual modes (int8, int4, gptq) that no row has."""
    failures: Sequence[Failure] = ()
    """The failed configurations, in the order of the file."""


def load(sources: Sequence[pathlib.Path | RawTable], metrics: Sequence[Metric]) -> list[Model]:
    """Read and check CSV files. A source may also be a table that was read earlier.

    If there are problems, raises ResultsError; the message lists the problems by file, row, column and value. If a file
    does not exist, raises MissingInputError.
    """
    models: list[Model] = []
    problems: list[str] = []
    lines: list[str] = []
    kind = ResultsError
    for source in sources:
        try:
            table = source if isinstance(source, RawTable) else reading.read(source)
        except ResultsError as error:
            problems.append(str(error))
            lines.append(str(error))
            if isinstance(error, reading.MissingInputError):
                kind = reading.MissingInputError
            continue
        check = _Check(table, metrics)
        models += check.check_table()
        name = repr(str(table.path))
        problems += [f"{name}: {problem}" for problem in check.problems]
        if check.problems:
            count = len(check.problems)
            lines.append(f"{name}: 1 problem" if count == 1 else f"{name}: {count:,} problems")
            lines += [f"  {problem}" for problem in check.problems[:MAX_LISTED]]
            if count > MAX_LISTED:
                lines.append(f"  and {count - MAX_LISTED:,} more")
    if problems:
        message = "; ".join(problems[:MAX_LISTED])
        if len(problems) > MAX_LISTED:
            message += f"; and {len(problems) - MAX_LISTED:,} more"
        raise kind(message, lines=lines if len(problems) > 1 else ())
    return models


def incomparable(tables: Sequence[RawTable], metrics: Sequence[Metric]) -> dict[Metric, str]:
    """Return the metrics that cannot be compared, with the reason: ``{metric: reason}``.

    If the baseline has 0, there is no relative error. A non-standard metric cannot be compared if the baseline is
    negative, or if a row in a table of ``sweep`` has a negative value or no value.
    """
    reasons: dict[Metric, str] = {}
    for table in tables:
        name = repr(str(table.path))
        for record in table.records:
            if record.cells.get(FAILED):
                continue
            is_baseline = BASELINE in record.cells.get(MODE, "").casefold()
            for metric in metrics:
                value = parse_number(record.cells.get(metric.column, ""))
                if is_baseline and value == 0:
                    reasons[metric] = f"the baseline of {name} has 0"
                elif metric.least:
                    continue
                elif is_baseline and value is not None and value < 0:
                    reasons[metric] = f"the baseline of {name} has {value:g}"
                elif FAILED in table.header and (value is None or value < 0):
                    reasons[metric] = f"row {record.number} of {name} has no number of at least 0"
    return reasons


class _Check:
    """Checks a file, and collects ``problems``."""

    def __init__(self, table: RawTable, metrics: Sequence[Metric]) -> None:
        self._table = table
        self._metrics = metrics
        self._first = table.header[0] if table.header else ""
        self._known = {*reading.DESCRIBING, *reading.COMPUTED}
        for metric in metrics:
            self._known |= {metric.column, metric.stderr_column}
        self.problems: list[str] = []

    def check_table(self) -> list[Model]:
        """Return the models in the order of the file; add messages to ``problems``."""
        header = self._table.header
        columns = [metric.column for metric in self._metrics]
        for column in (*reading.DESCRIBING, *columns):
            if column not in header:
                near = nearest(column, header)
                hint = f" (found {near!r})" if near else ""
                self.problems.append(f"row 1: no column {column!r}{hint}")
        if self.problems:
            return []
        if not self._table.records:
            self.problems.append("the file has a header, but no rows")
        rows: dict[str, list[CheckedRow]] = {}
        failures: dict[str, list[Failure]] = {}
        for record, model in zip(self._table.records, self._name_models(), strict=True):
            cells = record.cells
            if cells.get(FAILED):
                failure = Failure(
                    model,
                    mode=cells[MODE],
                    plot_name=cells[PLOT_NAME],
                    verdict=cells[FAILED],
                )
                failures.setdefault(model, []).append(failure)
            else:
                rows.setdefault(model, []).append(self._check_row(record, model))
        for model, (failure, *_) in failures.items():
            if model not in rows:
                verdict = f"the first verdict is {quote(failure.verdict)}"
                self.problems.append(f"column {FAILED!r}: each row of model {quote(model)} has failed; {verdict}")
        rows.pop("", None)
        models = []
        for name, of_model in rows.items():
            models.append(self._make_model(name, of_model, failures.get(name, ())))
        return models

    def _name_models(self) -> list[str]:
        """Return the name of the model in each row: the cell in the first column, or the name above an empty cell.

        If there are no names, the file has a single model, named like the file.
        """
        cells = [""] * len(self._table.records)
        if self._first not in self._known:
            cells = [record.cells[self._first] for record in self._table.records]
        above = self._table.path.stem
        names = set(cells) - {""}
        if names:
            above = names.pop() if len(names) == 1 else ""
        return [above := cell or above for cell in cells]

    def _check_row(self, record: Record, model: str) -> CheckedRow:
        cells = record.cells
        if not model:
            self._add_problem(record, self._first, "the model's name expected")
        if not cells[MODE]:
            self._add_problem(record, MODE, "a mode expected")
        values: dict[str, float] = {}
        stderrs: dict[str, float] = {}
        for metric in self._metrics:
            column = metric.column
            values[column] = self._check_number(record, column, metric.least, metric.most)
            if cells.get(metric.stderr_column):
                stderrs[column] = self._check_number(record, metric.stderr_column, 0, math.inf)
        known = {"", self._first, FAILED, *self._known}
        stored = {name: parse_number(cells.get(name, "")) for name in reading.COMPUTED}
        row = CheckedRow(
            number=record.number,
            model=model,
            mode=cells[MODE],
            int4=self._check_number(record, INT4, 0, 1),
            int8=self._check_number(record, INT8, 0, 1),
            lora_rank=self._check_rank(record),
            plot_name=cells[PLOT_NAME],
            size=self._check_number(record, reading.SIZE, 0, math.inf, above=True),
            values=values,
            stderrs=stderrs,
            extra={name: cell for name, cell in cells.items() if name not in known},
            stored={name: value for name, value in stored.items() if value is not None},
        )
        both = row.int4 + row.int8
        if both > 1 + _ROUNDING and max(row.int4, row.int8) <= 1:
            self._add_problem(record, INT4, f"a sum of at most 1 with {INT8!r} ({cells[INT8]}) expected")
        return row

    def _check_number(self, record: Record, column: str, least: float, most: float, *, above: bool = False) -> float:
        """Return the number in a cell; NaN if the cell is wrong."""
        bounds = msgspec.Meta(gt=least, le=LARGEST)
        ends = f"above {least:g}"
        if not above:
            bounds = msgspec.Meta(ge=least - _ROUNDING, le=min(most + _ROUNDING, LARGEST))
            ends = f"of at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
        text = record.cells[column]
        value = parse_number(text)
        try:
            return float(msgspec.convert(value, Annotated[float, bounds]))
        except msgspec.ValidationError:
            is_percent = most == 1 and (text.endswith("%") or (value or 0) > 1)
            hint = " (a percentage?)" if is_percent else ""
            self._add_problem(record, column, f"a number {ends} expected{hint}")
            return math.nan

    def _check_rank(self, record: Record) -> int | None:
        if not record.cells[LORA_RANK]:
            return None
        value = parse_number(record.cells[LORA_RANK])
        if value is None or value < 1 or value % 1:
            self._add_problem(record, LORA_RANK, "a whole number of at least 1, or nothing, expected")
            return None
        return int(value)

    def _make_model(self, name: str, rows: Sequence[CheckedRow], failures: Sequence[Failure]) -> Model:
        with_word = [row for row in rows if BASELINE in row.mode.casefold()]
        exact = [row for row in with_word if row.mode.casefold() == BASELINE]
        baselines = exact or with_word
        model = f"column {MODE!r}: model {quote(name)}"
        if not baselines:
            self.problems.append(f"{model} has no row with {BASELINE!r}, the baseline")
        elif len(baselines) > 1 and not exact:
            modes = ", ".join(f"row {row.number} ({quote(row.mode)})" for row in baselines)
            self.problems.append(f"{model}: the mode of the baseline must be {BASELINE!r} alone, found {modes}")
        baseline, *repeated = baselines or rows[:1]
        self.problems += [
            f"row {baseline.number}, column {column!r}: the baseline cannot be 0, as errors are relative to it"
            for column, value in baseline.values.items()
            if baselines and value == 0
        ]
        modes = " ".join(row.mode.casefold() for row in rows)
        has_setup = self._first not in self._known and not reading.UNNAMED.fullmatch(self._first)
        return Model(
            path=self._table.path,
            setup=self._first if has_setup else "",
            name=name,
            rows=rows,
            baseline=baseline,
            repeated=repeated,
            missing=[word for word in USUAL_MODES if word not in modes],
            failures=failures,
        )

    def _add_problem(self, record: Record, column: str, expected: str) -> None:
        cell = quote(record.cells[column]) if record.cells[column] else "nothing"
        self.problems.append(f"row {record.number}, column {column!r}: {expected}, found {cell}")


def parse_number(text: str) -> float | None:
    """Parse a cell as a finite number up to 2^63; return None for other text."""
    if "_" in text or not text.isascii():
        return None
    try:
        return msgspec.convert(float(text), Figure)
    except (ValueError, msgspec.ValidationError):
        return None


def quote(text: str) -> str:
    """Quote a cell for a message. A long cell is shortened."""
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
