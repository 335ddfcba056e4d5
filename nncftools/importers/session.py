"""What all importers do with what they read: make a session of it."""

from __future__ import annotations

import datetime as dt
from array import array
from typing import TYPE_CHECKING, Any

from nncftools.errors import SessionFileError
from nncftools.metrics import is_memory
from nncftools.session.from_journal import last_counters
from nncftools.session.model import Host, SamplerFacts, Start
from nncftools.session.peaks import peaks
from nncftools.session.samples import TIME, Samples, merge_warning, usual_distance
from nncftools.session.session import Session

if TYPE_CHECKING:
    from nncftools.importers.merged import Table
    from nncftools.importers.source import Source


def session_of(  # noqa: PLR0913 — what is different from log to log
    source: Source,
    recorder: str,
    table: Table,
    *,
    unit: int = 1,
    zero: float = 0.0,
    began: float | None = None,
    **known: Any,  # noqa: ANN401 — any field of a session
) -> Session:
    """Return the session of a log.

    ``recorder`` is the importer's name, ``unit`` the bytes in one unit of the table's memory, ``zero`` the table's time
    at the start, ``began`` the same in Unix seconds; ``known`` are fields of ``Session`` that the log tells. Raises
    SessionFileError when there is no sample.
    """
    if not len(table):
        why = source.problems.first_unreadable or "there is no sample in it"
        raise SessionFileError(f"{source.path}: nothing could be read as a log of {recorder}: {why}")
    columns = {name: _converted(name, column, unit, zero) for name, column in table.columns().items()}
    samples = Samples(columns, str(source.path), may_fall_below_zero=known.get("from_zero", False))
    time_s = samples.time_s
    warnings = source.problems.warnings()
    merged_s = None
    if len(time_s) < table.taken:
        merged_s = usual_distance(time_s)
        warnings.append(merge_warning(table.taken, len(time_s)))
    facts = SamplerFacts(
        source=recorder,
        taken=table.taken,
        achieved_interval_s=(time_s[-1] - time_s[0]) / (table.taken - 1) if table.taken > 1 else None,
        longest_gap_s=table.longest_gap_s,
        merged_s=merged_s,
    )
    given = {
        "name": source.path.name,
        "start": Start(utc=utc(began)),
        "duration_s": time_s[-1],
        "host": Host(),
        "sampler": facts,
        "finished": None,
        "samples": samples,
        "totals": last_counters(samples),
        "peaks": peaks(samples, []),
        "warnings": warnings,
    }
    return Session(**{**given, **known})


def _converted(name: str, column: array[float], unit: int, zero: float) -> array[float]:
    if name == TIME:
        return array("d", [time - zero for time in column]) if zero else column
    if is_memory(name) and unit != 1:
        return array("d", [(value * unit + 0.5) // 1 for value in column])
    return column


def utc(seconds: float | None) -> str | None:
    """Return a Unix time as a session has it; None for what is none."""
    if seconds is None:
        return None
    try:
        return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat(timespec="microseconds")
    except (ValueError, OverflowError, OSError):
        return None
