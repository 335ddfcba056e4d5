"""The samples and the session as files: NNCF's text log, CSV, Parquet, and the session file.

NNCF's memory monitor writes such text logs: a row for each sample, then the total time and the maximum. CSV has a
column for each metric, in bytes and seconds; a cell is empty if the value is unknown. Parquet is for pandas, Polars,
DuckDB and Spark, and needs pyarrow. A session file can be written for any input: a journal, the log of another tool, or
the files of several ranks.
"""

from __future__ import annotations

import io
import pathlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import isnan
from typing import Any

import msgspec

from nncftools.analysis.session import Session
from nncftools.analysis.summary import summarize_level
from nncftools.errors import NncfToolsError
from nncftools.files import write_file
from nncftools.markdown import csv_line
from nncftools.render.view import View, log_stem
from nncftools.session.model import FIELDS
from nncftools.session.samples import TIME, are_whole
from nncftools.session.session import encode
from nncftools.units import MemoryUnit

_NOTHING = "No measurements recorded.\nThe recording ended before the first value was read."


def memory_log_report(session: Session, view: View) -> dict[str, Callable[[pathlib.Path], None]]:
    """Return functions that write a log and a picture for each metric: ``{file name: function}``.

    The file names are those that NNCF's memory monitor uses.
    """
    from nncftools.render import plot

    files: dict[str, Callable[[pathlib.Path], None]] = {}
    for metric in view.metrics:
        name = log_stem(metric, from_zero=view.from_zero)
        files[f"{name}.txt"] = partial(write, session, view, metric)
        files[f"{name}.png"] = partial(plot.draw, session, replace(view, metrics=[metric]))
    return files


def write(session: Session, view: View, metric: str, path: pathlib.Path) -> None:
    """Write the log of a metric, without unknown samples. Raises OSError.

    The maximum in the log is the peak of the session, and may be larger than all samples.
    """
    figures = summarize_level(session, metric)
    peak = (figures.from_zero() if view.from_zero else figures).peak
    most = None if peak is None else view.unit.of(peak)
    time_s, values = known_rows(session, metric, view.unit, from_zero=view.from_zero)
    write_rows(time_s, values, view.unit, path, most=most)


def known_rows(session: Session, metric: str, unit: MemoryUnit, *, from_zero: bool) -> tuple[list[float], list[float]]:
    """Return the known samples of a metric: seconds since the session's first sample, and values in ``unit``."""
    times_s = []
    values = []
    for time_s, value in zip(session.samples.time_s, session.samples[metric], strict=True):
        if not isnan(value):
            times_s.append(time_s - session.samples.time_s[0])
            values.append(value)
    zero = values[0] if from_zero and values else 0.0
    return times_s, [unit.of(value - zero) for value in values]


def write_rows(
    time_s: Sequence[float], values: Sequence[float], unit: MemoryUnit, path: pathlib.Path, *, most: float | None = None
) -> None:
    """Write a log of seconds and values in ``unit``, with total time and maximum at the end.

    The maximum is written as ``most``; if None, as the largest of ``values``. Raises OSError, and ValueError if
    ``time_s`` and ``values`` have different lengths.
    """
    lines = [f"{at_s:.3f} {value:.3f}" for at_s, value in zip(time_s, values, strict=True)] or [_NOTHING]
    if len(values):
        largest = max(values) if most is None else most
        lines += [f"Total time: {time_s[-1] - time_s[0]:.3f}", f"Max memory: {largest:.3f} ({unit})"]
    write_file(path, "".join(f"{line}\n" for line in lines).encode())


_ROWS = 10_000
"""Number of rows that are converted to text at a time. More rows need more memory, because each cell is a Python
object.
"""


def csv_report(session: Session, _view: View) -> str:
    """Return all samples with all metrics as CSV."""
    columns = {name: session.samples[name] for name in (TIME, *session.samples.metrics)}
    text = io.StringIO()
    text.write(csv_line(columns))
    for start in range(0, len(session.samples), _ROWS):
        end = start + _ROWS
        cells = [_cells(name, column[start:end]) for name, column in columns.items()]
        text.writelines(f"{','.join(row)}\n" for row in zip(*cells, strict=True))
    return text.getvalue()


def _cells(name: str, values: array[float]) -> list[str]:
    """Return values as text: bytes and counts as integers, unknown values as empty texts."""
    numbers: Iterable[float | None] = values
    if are_whole(name, values):
        numbers = map(_round, values)
    return (
        msgspec.json.encode(list(numbers))
        .decode()[1:-1]
        .replace(
            "null",
            "",
        )
        .split(",")
    )  # NaN is null


def _round(value: float) -> int | None:
    return None if isnan(value) else round(value)


def parquet_report(session: Session, _view: View) -> bytes:
    """Return all samples with all metrics as Parquet; the metadata (``DataFrame.attrs``) has the rest of the session.

    The columns are the same as in ``to_pandas()``. Raises NncfToolsError if pyarrow is not installed.
    """
    try:
        import pyarrow  # noqa: F401, ICN001 — pandas uses it
    except ImportError as error:
        message = "parquet needs pyarrow; install it with: pip install 'nncf-tools[parquet]'"
        raise NncfToolsError(message) from error
    frame = session.to_pandas()
    facts: dict[Any, Any] = {}
    for field in FIELDS:
        if field.name != "samples":
            facts[field.name] = msgspec.to_builtins(getattr(session, field.name))
    for process in facts["processes"]:
        process["series"] = None
    frame.attrs = facts
    data: bytes = frame.to_parquet(None, engine="pyarrow", compression="zstd")
    return data


def session_report(session: Session, _view: View) -> bytes:
    """Return the bytes of a session file. Fields that this version does not know are kept."""
    return encode(session)
