"""The samples and the session as files: the NNCF memory monitor's text log, CSV, Parquet, and the session itself.

The text log has one row per sample, then total time and maximum. CSV has a column per metric, bytes and seconds, and an
empty cell for unknown. Parquet is for pandas, Polars, DuckDB and Spark; it needs pyarrow. The session may have been
read from a journal, another tool's log or several files.
"""

from __future__ import annotations

import io
import pathlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import isnan
from typing import Any

import msgspec

from nncftools.analysis.session import Session
from nncftools.analysis.summary import level
from nncftools.errors import NncfToolsError
from nncftools.files import write_file
from nncftools.markdown import csv_line
from nncftools.render.view import View, log_stem
from nncftools.session.model import FIELDS
from nncftools.session.samples import TIME, are_whole
from nncftools.session.session import encoded
from nncftools.units import MemoryUnit

_NOTHING = "No measurements recorded.\nThe recording ended before the first sample that is known."


def memory_log_report(session: Session, view: View) -> dict[str, Callable[[pathlib.Path], None]]:
    """Return functions that write the log and the picture of each metric, by the monitor's file names."""
    from nncftools.render import plot

    files: dict[str, Callable[[pathlib.Path], None]] = {}
    for metric in view.metrics:
        name = log_stem(metric, from_zero=view.from_zero)
        files[f"{name}.txt"] = partial(write, session, view, metric)
        files[f"{name}.png"] = partial(plot.draw, session, replace(view, metrics=[metric]))
    return files


def write(session: Session, view: View, metric: str, path: pathlib.Path) -> None:
    """Write the log of one metric without its unknown samples, with the session's peak as maximum. Raises OSError."""
    of = level(session, metric)
    peak = (of.from_zero() if view.from_zero else of).peak
    rows = known_rows(session, metric, view.unit, from_zero=view.from_zero)
    write_rows(*rows, view.unit, path, most=None if peak is None else view.unit.of(peak))


def known_rows(session: Session, metric: str, unit: MemoryUnit, *, from_zero: bool) -> tuple[list[float], list[float]]:
    """Return the known samples of a metric as seconds since the session's first sample, and values in ``unit``."""
    pairs = zip(session.samples.time_s, session.samples[metric], strict=True)
    known = [(time_s, value) for time_s, value in pairs if not isnan(value)]
    zero = known[0][1] if from_zero and known else 0.0
    first_s = session.samples.time_s[0] if known else 0.0
    return [time_s - first_s for time_s, _ in known], [unit.of(value - zero) for _, value in known]


def write_rows(
    time_s: Sequence[float], values: Sequence[float], unit: MemoryUnit, path: pathlib.Path, *, most: float | None = None
) -> None:
    """Write a log of seconds and values in ``unit``; ``most`` is the maximum if it is not the largest value.

    Raises OSError, and ValueError for unequal lengths.
    """
    lines = [f"{at_s:.3f} {value:.3f}" for at_s, value in zip(time_s, values, strict=True)] or [_NOTHING]
    if len(values):
        largest = max(values) if most is None else most
        lines += [f"Total time: {time_s[-1] - time_s[0]:.3f}", f"Max memory: {largest:.3f} ({unit})"]
    write_file(path, "".join(f"{line}\n" for line in lines).encode())


_ROWS = 10_000
"""Converted to text at a time: until then, every cell is an object, which takes memory."""


def csv_report(session: Session, _view: View) -> str:
    """Return all samples with all metrics."""
    names = [TIME, *session.samples.metrics]
    columns = [session.samples[name] for name in names]
    text = io.StringIO()
    text.write(csv_line(names))
    for begin in range(0, len(session.samples), _ROWS):
        cells = (_cells(name, column[begin : begin + _ROWS]) for name, column in zip(names, columns, strict=True))
        text.writelines(f"{row}\n" for row in map(",".join, zip(*cells, strict=True)))
    return text.getvalue()


def _cells(name: str, values: array[float]) -> list[str]:
    """Return values as text: bytes and counts as integers, unknown values as empty cells."""
    is_whole = are_whole(name, values)
    numbers = [None if isnan(value) else round(value) for value in values] if is_whole else list(values)
    return msgspec.json.encode(numbers).decode()[1:-1].replace("null", "").split(",")  # NaN is null; repr() is slower


def parquet_report(session: Session, _view: View) -> bytes:
    """Return all samples with all metrics; the metadata (``DataFrame.attrs``) has the rest of the session.

    Its columns are those of ``to_pandas()``. Raises NncfToolsError when pyarrow is not installed.
    """
    try:
        import pyarrow  # noqa: F401, ICN001 — pandas uses it
    except ImportError as error:
        message = "parquet needs pyarrow; install it with: pip install 'nncf-tools[parquet]'"
        raise NncfToolsError(message) from error
    frame = session.to_pandas()
    names = [field.name for field in FIELDS if field.name != "samples"]
    facts: dict[Any, Any] = {name: msgspec.to_builtins(getattr(session, name)) for name in names}
    for process in facts["processes"]:
        process["series"] = None
    frame.attrs = facts
    data: bytes = frame.to_parquet(None, engine="pyarrow", compression="zstd")
    return data


def session_report(session: Session, _view: View) -> bytes:
    """Return the contents of a session file; fields of the loaded file that this version does not know are kept."""
    return encoded(session)
