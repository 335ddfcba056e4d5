"""The sums of the columns of a job's ranks: what they held at the same time, on one clock."""

from __future__ import annotations

from array import array
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from nncftools import metrics
from nncftools.analysis.series import GAP, SELDOM
from nncftools.metrics import is_counter, is_memory
from nncftools.session.samples import TIME, Samples, kept_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nncftools.session.session import Session

    Column = NDArray[np.float64]
    Parts = Sequence[tuple[float, Session]]
    """Start times and recordings."""

_MOST_ROWS = 1_000_000


def summed(parts: Parts) -> Samples:
    """Return the sums at every moment at which a rank took a sample; very many moments are merged into buckets."""
    moments = np.unique(np.concatenate([np.asarray(session.samples.time_s) + at_s for at_s, session in parts]))
    every = dict.fromkeys(name for _, session in parts for name in session.samples.metrics)
    columns = [name for name in every if _has_sum(parts, name)]
    sums = {name: _sum(parts, name, moments) for name in columns if is_memory(name)}
    if len(moments) > _MOST_ROWS:
        kept = kept_rows([_column(values) for values in sums.values()], len(moments), _MOST_ROWS)
        moments, sums = moments[kept], {name: values[kept] for name, values in sums.items()}
    sums |= {name: _sum(parts, name, moments) for name in columns if name not in sums}
    return Samples({TIME: _column(moments), **{name: _column(values) for name, values in sums.items()}})


def _has_sum(parts: Parts, name: str) -> bool:
    """Return whether a metric was recorded where it is needed and its sum is meaningful."""
    metric = metrics.of(name)
    by_machine = [any(name in session.samples for _, session in machine) for machine in machines_of(parts)]
    if metric is not None and metric.scope == metrics.DEVICE and metric.merging != metrics.NEVER:
        return any(by_machine)  # a machine may lack the device
    if is_once_per_machine(name):
        return all(by_machine)
    is_summed = metric is None or metric.merging != metrics.NEVER or len(by_machine) == len(parts)
    return is_summed and all(name in session.samples for _, session in parts)


def is_once_per_machine(name: str) -> bool:
    """Return whether a metric is one figure per machine, the same for all of its ranks."""
    metric = metrics.of(name)
    return metric is not None and metric.merging == metrics.ONCE_PER_MACHINE


def _column(values: Column) -> array[float]:
    return array("d", values.tobytes())


def _sum(parts: Parts, name: str, moments: Column) -> Column:
    """Return the sum of a metric at moments of the job; NaN where it is unknown for one rank.

    A figure of a machine comes from the first of its ranks that knows it.
    """
    if not is_once_per_machine(name):
        return _added(parts, name, moments)
    machines = [
        [_added([part], name, moments) for part in machine if name in part[1].samples] for machine in machines_of(parts)
    ]
    total: Column = np.sum([reduce(_first_known, every) for every in machines if every], axis=0)
    return total


def _first_known(one: Column, other: Column) -> Column:
    return np.where(np.isnan(one), other, one)


def _added(parts: Parts, name: str, moments: Column) -> Column:
    every = [_changes(session, name, at_s) for at_s, session in parts]
    times, by, unknown = (np.concatenate(of) for of in zip(*every, strict=True))
    order = np.argsort(times, kind="stable")
    places = np.searchsorted(times[order], moments, side="right")
    total = np.append(0.0, np.cumsum(by[order]))[places]
    return np.where(np.append(0.0, np.cumsum(unknown[order]))[places] > 0, np.nan, total)


def machines_of(parts: Parts) -> list[Parts]:
    """Return recordings by machine: by boot ID, or by name if another tool's log has no boot ID."""
    have_boots = all(session.host.boot_id for _, session in parts)
    found: dict[str, list[tuple[float, Session]]] = {}
    for at_s, session in parts:
        found.setdefault(session.host.boot_id if have_boots else session.host.name, []).append((at_s, session))
    return list(found.values())


def _changes(session: Session, name: str, at_s: float) -> tuple[Column, Column, Column]:
    """Return when a metric of a rank changed, by how much, and where it becomes unknown (1) and known again (-1).

    A rank holds its last sample until the next one, and nothing while it does not run; a counter keeps its value. After
    a recording that broke off, everything is unknown.
    """
    time_s, values = np.asarray(session.samples.time_s) + at_s, np.asarray(session.samples[name])
    end_s = np.nextafter(max(at_s + session.duration_s, time_s.max(initial=0.0)), np.inf)
    known = ~np.isnan(values)
    is_over = session.finished is not False
    longest_s = _longest_s(session, known)
    time_s, values = time_s[known], values[known]
    before, after = np.append(at_s, time_s), np.append(time_s, end_s)
    is_gap = after - before > longest_s if len(time_s) else np.array([True])
    gap_begin = np.where(np.arange(len(before)) > 0, before + longest_s, at_s)[is_gap]
    runs = [time_s[0] if len(time_s) else at_s, end_s]
    outside = ([-np.inf, *runs], [1.0, -1.0, 1.0]) if is_once_per_machine(name) else ([end_s], [float(not is_over)])
    left = 0.0 if is_counter(name) or not len(values) else -values[-1]
    times = np.concatenate([time_s, [end_s], gap_begin, after[is_gap], outside[0]])
    by = np.concatenate([np.diff(values, prepend=0.0), [left]])
    gaps = np.concatenate([np.ones(is_gap.sum()), -np.ones(is_gap.sum()), outside[1]])
    return times, np.append(by, np.zeros(len(gaps))), np.append(np.zeros(len(by)), gaps)


def _longest_s(session: Session, known: NDArray[np.bool_]) -> float:
    """Return for how long a sample is valid."""
    if known.sum() < len(known) * SELDOM:  # a figure with an interval of its own, as PSS
        return np.inf
    return GAP * (session.sampler.spacing_s or np.inf)
