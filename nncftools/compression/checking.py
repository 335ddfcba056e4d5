"""Converts cells to figures: every value is checked, and all problems are reported together."""

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
"""The column with the verdict on a configuration that failed; such a row has no figures of size and quality."""
USUAL_MODES = ("int8", "int4", "gptq")
MAX_LISTED = 20
_SHOWN = 60
_ROUNDING = 1e-3
"""Tolerance for computed ratios and similarities beyond their limits: what half precision makes of a cosine of 1."""


@dataclass(frozen=True)
class CheckedRow:
    """One compressed model with checked figures."""

    number: int
    """The row in the file; the header is row 1."""
    model: str
    mode: str
    int4: float
    int8: float
    lora_rank: int | None
    plot_name: str
    size: float
    """In the file's own unit, which cancels out in the compression rate."""
    values: Mapping[str, float]
    """By the metric's column."""
    stderrs: Mapping[str, float]
    """By the metric's column; only those in the file."""
    extra: Mapping[str, str]
    """All other columns, unchanged."""
    stored: Mapping[str, float]
    """The file's own values of the computed columns; only compared."""


@dataclass(frozen=True)
class Failure:
    """A configuration that failed."""

    model: str
    mode: str
    plot_name: str
    verdict: str


@dataclass(frozen=True)
class Model:
    """The rows of one model in one file."""

    path: pathlib.Path
    setup: str
    """The name of the first column; empty when it has none or holds no models."""
    name: str
    rows: Sequence[CheckedRow]
    baseline: CheckedRow
    repeated: Sequence[CheckedRow]
    """Further rows with the mode of the baseline, which is the first one."""
    missing: Sequence[str]
    """The usual modes that no row has."""
    failures: Sequence[Failure] = ()
    """What failed, in the order of the file."""


def load(sources: Sequence[pathlib.Path | RawTable], metrics: Sequence[Metric]) -> list[Model]:
    """Read and check CSV files, or tables that were read.

    Raises ResultsError, whose message lists the problems by file, row, column and value; MissingInputError when a file
    does not exist.
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
            kind = reading.MissingInputError if isinstance(error, reading.MissingInputError) else kind
            continue
        check, name = _Check(table, metrics), repr(str(table.path))
        models += check.models()
        problems += [f"{name}: {problem}" for problem in check.problems]
        if check.problems:
            count = len(check.problems)
            lines.append(f"{name}: 1 problem" if count == 1 else f"{name}: {count:,} problems")
            lines += [f"  {problem}" for problem in check.problems[:MAX_LISTED]]
            lines += [f"  and {count - MAX_LISTED:,} more"] if count > MAX_LISTED else []
    if problems:
        more = f"; and {len(problems) - MAX_LISTED:,} more" if len(problems) > MAX_LISTED else ""
        raise kind("; ".join(problems[:MAX_LISTED]) + more, lines=lines if len(problems) > 1 else ())
    return models


def incomparable(tables: Sequence[RawTable], metrics: Sequence[Metric]) -> dict[Metric, str]:
    """Return the metrics that have no relative error in a table, with the reason.

    The baseline has 0. For metrics that are not standard: the baseline has less than 0, or a row of a table that
    ``sweep`` wrote has no figure of at least 0.
    """
    reasons: dict[Metric, str] = {}
    for table in tables:
        name = repr(str(table.path))
        for record in table.records:
            if record.cells.get(FAILED):
                continue
            is_baseline = BASELINE in record.cells.get(MODE, "").casefold()
            for metric in metrics:
                value = number(record.cells.get(metric.column, ""))
                if is_baseline and value == 0:
                    reasons[metric] = f"the baseline of {name} has 0"
                elif metric.least:
                    continue
                elif is_baseline and value is not None and value < 0:
                    reasons[metric] = f"the baseline of {name} has {value:g}"
                elif FAILED in table.header and (value is None or value < 0):
                    reasons[metric] = f"row {record.number} of {name} has no figure of at least 0"
    return reasons


class _Check:
    """The check of one file; collects ``problems``."""

    def __init__(self, table: RawTable, metrics: Sequence[Metric]) -> None:
        self._table = table
        self._metrics = metrics
        self._first = table.header[0] if table.header else ""
        self._known = {*reading.DESCRIBING, *reading.COMPUTED}
        self._known.update(column for metric in metrics for column in (metric.column, metric.stderr_column))
        self.problems: list[str] = []

    def models(self) -> list[Model]:
        """Return the models in the file's order; add what is wrong to ``problems``."""
        header = self._table.header
        for column in (*reading.DESCRIBING, *(metric.column for metric in self._metrics)):
            if column not in header:
                near = nearest(column, header)
                self.problems.append(f"row 1: no column {column!r}{f' (found {near!r})' if near else ''}")
        if self.problems:
            return []
        rows: list[CheckedRow] = []
        failures: list[Failure] = []
        for record, model in zip(self._table.records, self._names(), strict=True):
            cells = record.cells
            if cells.get(FAILED):
                failures.append(Failure(model, cells[MODE], cells[PLOT_NAME], cells[FAILED]))
            else:
                rows.append(self._row(record, model))
        if not self._table.records and not self.problems:
            self.problems.append("the file has a header, but no rows")
        by_model: dict[str, list[CheckedRow]] = {}
        for row in rows:
            by_model.setdefault(row.model, []).append(row)
        for failure in {each.model: each for each in reversed(failures) if each.model not in by_model}.values():
            why = f"the first one says {shown(failure.verdict)}"
            self.problems.append(f"column {FAILED!r}: each row of model {shown(failure.model)} has failed; {why}")
        by_model.pop("", None)
        return [
            self._model(name, of_model, [failure for failure in failures if failure.model == name])
            for name, of_model in by_model.items()
        ]

    def _names(self) -> list[str]:
        """Return the model of every row: the name in the first column, or else the one above it.

        A file without names holds one model, which is named like the file.
        """
        first = self._first
        cells = [record.cells[first] if first not in self._known else "" for record in self._table.records]
        named = set(cells) - {""}
        above = "" if len(named) > 1 else next(iter(named), self._table.path.stem)
        return [above := cell or above for cell in cells]

    def _row(self, record: Record, model: str) -> CheckedRow:
        cells = record.cells
        if not model:
            self._wrong(record, self._first, "the model's name expected")
        if not cells[MODE]:
            self._wrong(record, MODE, "a mode expected")
        values = {m.column: self._number(record, m.column, m.least, m.most) for m in self._metrics}
        with_error = [m for m in self._metrics if cells.get(m.stderr_column)]
        stderrs = {m.column: self._number(record, m.stderr_column, 0, math.inf) for m in with_error}
        kept = {"", self._first, FAILED, *self._known}
        row = CheckedRow(
            number=record.number,
            model=model,
            mode=cells[MODE],
            int4=self._number(record, INT4, 0, 1),
            int8=self._number(record, INT8, 0, 1),
            lora_rank=self._rank(record),
            plot_name=cells[PLOT_NAME],
            size=self._number(record, reading.SIZE, 0, math.inf, above=True),
            values=values,
            stderrs=stderrs,
            extra={name: cell for name, cell in cells.items() if name not in kept},
            stored={name: value for name in reading.COMPUTED if (value := number(cells.get(name, ""))) is not None},
        )
        if row.int4 + row.int8 > 1 + _ROUNDING and max(row.int4, row.int8) <= 1:
            self._wrong(record, INT4, f"together with {INT8!r} ({cells[INT8]}) at most 1 expected")
        return row

    def _number(self, record: Record, column: str, least: float, most: float, *, above: bool = False) -> float:
        """Return a cell's number, NaN when it is wrong."""
        bounds = msgspec.Meta(gt=least, le=LARGEST)
        ends = f"above {least:g}"
        if not above:
            bounds = msgspec.Meta(ge=least - _ROUNDING, le=min(most + _ROUNDING, LARGEST))
            ends = f"of at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
        text = record.cells[column]
        value = number(text)
        try:
            return float(msgspec.convert(value, Annotated[float, bounds]))
        except msgspec.ValidationError:
            is_percent = most == 1 and (text.endswith("%") or (value or 0) > 1)
            self._wrong(record, column, f"a number {ends} expected{' (a percentage?)' if is_percent else ''}")
            return math.nan

    def _rank(self, record: Record) -> int | None:
        if not record.cells[LORA_RANK]:
            return None
        value = number(record.cells[LORA_RANK])
        if value is None or value < 1 or value % 1:
            self._wrong(record, LORA_RANK, "a whole number of at least 1, or nothing, expected")
            return None
        return int(value)

    def _model(self, name: str, rows: Sequence[CheckedRow], failures: Sequence[Failure]) -> Model:
        with_word = [row for row in rows if BASELINE in row.mode.casefold()]
        exact = [row for row in with_word if row.mode.casefold() == BASELINE]
        baselines = exact or with_word
        of = f"column {MODE!r}: model {shown(name)}"
        if not baselines:
            self.problems.append(f"{of} has no row with {BASELINE!r}, the baseline")
        elif len(baselines) > 1 and not exact:
            which = ", ".join(f"row {row.number} ({shown(row.mode)})" for row in baselines)
            self.problems.append(f"{of}: the mode of the baseline must be {BASELINE!r} alone, found {which}")
        baseline, *repeated = baselines or rows[:1]
        self.problems += [
            f"row {baseline.number}, column {column!r}: the baseline cannot be 0, as errors are relative to it"
            for column, value in baseline.values.items()
            if baselines and value == 0
        ]
        return Model(
            path=self._table.path,
            setup="" if self._first in self._known or reading.UNNAMED.fullmatch(self._first) else self._first,
            name=name,
            rows=rows,
            baseline=baseline,
            repeated=repeated,
            missing=[word for word in USUAL_MODES if not any(word in row.mode.casefold() for row in rows)],
            failures=failures,
        )

    def _wrong(self, record: Record, column: str, expected: str) -> None:
        cell = shown(record.cells[column]) if record.cells[column] else "nothing"
        self.problems.append(f"row {record.number}, column {column!r}: {expected}, found {cell}")


def number(text: str) -> float | None:
    """Parse a cell as a finite number up to 2^63; None for anything else."""
    if "_" in text or not text.isascii():
        return None
    try:
        return msgspec.convert(float(text), Figure)
    except (ValueError, msgspec.ValidationError):
        return None


def shown(text: str) -> str:
    """Quote a cell for a message; long ones are cut."""
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
