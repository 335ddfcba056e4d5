"""What the page's charts show, as plain numbers: memory, CPU, I/O and the band of operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nncftools import metrics
from nncftools.analysis.series import decimated_with_gaps, rates_of, run_s
from nncftools.analysis.timeline import timeline
from nncftools.metrics import cpu_counters, is_memory
from nncftools.render.operations import counters_of, lanes, listed
from nncftools.render.view import View, label
from nncftools.text import shortened
from nncftools.units import MemoryUnit, seconds_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from nncftools.render.operations import Listed
    from nncftools.session.session import Session

    Points = NDArray[np.float64]
    Line = dict[str, Any]

_POINTS = 24_000
"""Of all memory metrics together: they are most of the file."""
_MOST_POINTS = 4000
_MOST_RANKS = 16
_WINDOWS = 1200
_LANES = 4
_BARS, _SHADES = 1000, 60
_NAME = 60
_CHARACTERS, _FEWEST_CHARACTERS = 130, 3
"""That fit across the page; a name of which fewer would be left is not written."""
_NARROWEST = 0.0008
"""Of the run: narrower cannot be pointed at."""
_MINUTE, _HOUR = 60, 3600
_LONG = 3
"""Minutes, hours: from so many on, they are the unit of time."""
_PATTERNS = {"": "", "///": "/", "...": ".", "xxx": "x"}
"""Matplotlib's hatches as plotly writes them."""


def charts(session: Session, view: View) -> dict[str, Any]:
    """Return the lines of all panels, and the operations as bars."""
    length_s = run_s(session)
    factor, time_unit = _time_unit(length_s)
    counters = _counters(session)
    io_unit = _io_unit(session, counters)
    cpus = session.host.cpus
    above = " above the first sample" if view.from_zero else ""
    every = listed(timeline(session.operations, view.depth))
    placed = [(one, lane) for one, lane in zip(every, lanes(every, _LANES), strict=True) if lane is not None]
    lines = {
        "memory": list(_memory(session, view, factor)),
        "cpu": list(_cpu(session, factor)),
        "io": list(_io(session, counters, factor, io_unit)),
    }
    return {
        **lines,
        "nothing": "" if any(lines.values()) or placed else "no samples were recorded",
        "axes": {
            "memory": f"Memory{above}, {view.unit}",
            "cpu": f"CPU, % of {cpus} cores" if cpus else "CPU, % of one core",
            "io": f"I/O, {io_unit}/s",
        },
        "factor": factor,
        "time_unit": time_unit,
        "range": [0, length_s / factor],
        "from_zero": view.from_zero,
        "lanes": 1 + max((lane for _, lane in placed), default=-1),
        "bars": _bars(placed, length_s, factor),
        "shades": _shades(placed, factor),
        "peak": _peak(session, view, length_s, factor),
    }


def _time_unit(length_s: float) -> tuple[float, str]:
    units: tuple[tuple[float, str], ...] = ((_HOUR, "h"), (_MINUTE, "min"))
    return next(((factor, unit) for factor, unit in units if length_s >= _LONG * factor), (1, "s"))


def _memory(session: Session, view: View, factor: float) -> Iterator[Line]:
    """Yield all memory metrics, those that were not asked for hidden."""
    others = [name for name in session.samples.metrics if is_memory(name) and name not in view.metrics]
    names = [name for name in (*view.metrics, *others) if session.samples.figures(name).known]
    points = min(_MOST_POINTS, _POINTS // max(1, len(names)))
    for name in names:
        time, value = decimated_with_gaps(
            session.samples.time_s, session.samples[name], session.sampler.spacing_s, points
        )
        zero = _first(session, name) if view.from_zero else 0.0
        sizes = (value - zero) / view.unit.factor
        digits = 3 if view.unit.factor > 1 else 0
        hidden = name not in view.metrics
        yield {**_line(label(name), time / factor, sizes, digits), "unit": view.unit, "hidden": hidden}
    for run in session.ranks[:_MOST_RANKS] if not view.from_zero else ():
        time, value = np.array(run.time_s), np.array(run.rss, dtype=np.float64)
        of_rank = _line(f"RSS of {run.name}", time / factor, value / view.unit.factor, 3 if view.unit.factor > 1 else 0)
        yield {**of_rank, "unit": view.unit, "hidden": True}


def _cpu(session: Session, factor: float) -> Iterator[Line]:
    part = 100 / (session.host.cpus or 1)
    for name, columns in (("CPU", cpu_counters(session.samples)), ("of it system", ("cpu_system",))):
        moments, cores = _rates(session, columns)
        if len(moments):
            yield {**_line(name, moments / factor, cores * part, 1), "unit": "%", "steps": True}


def _counters(session: Session) -> list[str]:
    """Return the counters of bytes."""
    return [name for name in counters_of(session.samples.metrics) if metrics.unit_of(name) == "B"]


def _io(session: Session, counters: Sequence[str], factor: float, unit: MemoryUnit) -> Iterator[Line]:
    """Yield how fast bytes were counted; those of system calls are hidden at first."""
    for column in counters:
        metric = metrics.of(column)
        moments, speed = _rates(session, (column,))
        if metric is not None and len(moments):
            line = _line(metric.short_label.lower(), moments / factor, speed / unit.factor, 2)
            hidden = metric.family == metrics.SYSTEM_CALLS
            yield {**line, "unit": f"{unit}/s", "steps": True, "hidden": hidden}


def _io_unit(session: Session, counters: Sequence[str]) -> MemoryUnit:
    """Return the binary unit that fits the fastest I/O."""
    every = [_rates(session, (column,))[1] for column in counters]
    fastest = max((float(np.nanmax(speed)) for speed in every if not np.isnan(speed).all()), default=0.0)
    units = (MemoryUnit.GiB, MemoryUnit.MiB, MemoryUnit.KiB)
    return next((unit for unit in units if fastest >= unit.factor), MemoryUnit.KiB)


def _rates(session: Session, columns: Sequence[str]) -> tuple[Points, Points]:
    """Return moments, and how fast counters rose together from each to the next; the last rate stands twice."""
    moments, speed = rates_of(session, columns, _WINDOWS)
    return moments, np.append(speed, speed[-1:])


def _first(session: Session, name: str) -> float:
    values = np.asarray(session.samples[name])
    return float(values[~np.isnan(values)][0])


def _line(name: str, x: Points, y: Points, digits: int) -> Line:
    """Return a line as JSON can hold it: null where nothing is known."""
    values = [None if value != value else round(value, digits) for value in y.tolist()]  # noqa: PLR0124 — NaN
    return {"name": name, "x": [round(moment, 6) for moment in x.tolist()], "y": values, "digits": digits}


def _peak(session: Session, view: View, length_s: float, factor: float) -> dict[str, Any] | None:
    """Return where to write what the first metric's largest sample was."""
    name = view.metrics[0] if view.metrics else ""
    if name not in session.samples or not session.samples.figures(name).known:
        return None
    zero = _first(session, name) if view.from_zero else 0.0
    sampled = session.samples.figures(name).highest
    at_s = session.samples.time_s[session.samples[name].index(sampled)]
    return {
        "x": at_s / factor,
        "y": (sampled - zero) / view.unit.factor,
        "text": f"{label(name)} peak {view.unit.label(sampled - zero)} at {seconds_text(at_s)}",
        "left": at_s < length_s / 2,
    }


def _bars(placed: Sequence[tuple[Listed, int]], length_s: float, factor: float) -> list[dict[str, Any]]:
    """Return the longest operations by their fill."""
    longest = sorted(placed, key=lambda place: place[0].operation.duration_s, reverse=True)[:_BARS]
    bars: dict[tuple[str, str], dict[str, Any]] = {}
    for one, lane in sorted(longest, key=lambda place: place[0].number):
        fill, operation = one.fill, one.operation
        bar = bars.setdefault(
            (fill.colour, fill.hatch),
            {"colour": fill.colour, "pattern": _PATTERNS[fill.hatch], "ink": fill.ink}
            | {key: [] for key in ("base", "width", "lane", "names", "hover")},
        )
        bar["base"].append(operation.start_s / factor)
        bar["width"].append(max(operation.duration_s, length_s * _NARROWEST) / factor)
        bar["lane"].append(lane)
        room = operation.duration_s / length_s * _CHARACTERS
        bar["names"].append(shortened(one.title, int(room)) if room >= _FEWEST_CHARACTERS else "")
        bar["hover"].append(f"{one.number} {shortened(one.title, _NAME)}: {seconds_text(operation.duration_s)}")
    return list(bars.values())


def _shades(placed: Sequence[tuple[Listed, int]], factor: float) -> list[tuple[float, float, str]]:
    """Return the longest operations of the first lane as start, end and colour."""
    first = [operation for operation, lane in placed if lane == 0]
    longest = sorted(first, key=lambda operation: operation.operation.duration_s, reverse=True)[:_SHADES]
    return [(one.operation.start_s / factor, one.operation.end_s / factor, one.fill.colour) for one in longest]
