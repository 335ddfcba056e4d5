"""The data of the page's charts: memory, CPU, I/O and the band of operations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nncftools import metrics
from nncftools.analysis.comparison import unit_for
from nncftools.analysis.series import rates_of, run_s
from nncftools.metrics import cpu_counters, is_memory
from nncftools.render.colours import PATTERNS
from nncftools.render.limit import drawn_limit
from nncftools.render.memory_line import memory_line
from nncftools.render.operations import counters_of, lanes
from nncftools.render.page.kinds import kinds
from nncftools.render.peak_label import peak_label
from nncftools.render.view import View, label
from nncftools.units import MemoryUnit, seconds_text, shortened, time_unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from nncftools.metrics import Metric
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
_CHARACTERS, _FEWEST_CHARACTERS = 150, 8
"""The page's width, and the shortest part of a name that is written into a bar."""
_PLACES, _SHORTEST = 5, 1e-3
"""Of the last moment, behind its first figure: more cannot be seen."""
_NARROWEST = 0.0008
"""As a share of the run: the mouse cannot point at a narrower bar."""


class _Placed(NamedTuple):
    """An operation in the band."""

    place: int
    """Among all operations of the page."""
    one: Listed
    lane: int


def charts(session: Session, view: View, every: Sequence[Listed]) -> dict[str, Any]:
    """Return the lines of all panels, and the operations as bars; a bar has the place of its operation in ``every``."""
    length_s = run_s(session)
    factor, time_name = time_unit(length_s)
    speeds = _speeds(session)
    fastest = max((float(np.nanmax(speed)) for *_, speed in speeds if not np.isnan(speed).all()), default=0.0)
    io_unit = unit_for(max(fastest, MemoryUnit.KiB.factor))
    cpus = session.host.cpus
    placed = [
        _Placed(place, one, lane)
        for place, (one, lane) in enumerate(zip(every, lanes(every, _LANES), strict=True))
        if lane is not None
    ]
    lines = {
        "memory": list(_memory(session, view, factor)),
        "cpu": list(_cpu(session, factor)),
        "io": list(_io(speeds, factor, io_unit)),
    }
    return {
        **lines,
        "kinds": kinds(session, view, length_s, factor),
        "nothing": "" if any(lines.values()) or placed else "no samples were recorded",
        "axes": {
            "memory": f"Memory{view.above}, {view.unit}",
            "kinds": f"Memory by kind, {view.unit}",
            "cpu": f"CPU, cores of {cpus}" if cpus else "CPU, cores",
            "io": f"I/O, {io_unit}/s",
        },
        "factor": factor,
        "time_unit": time_name,
        "range": [0, length_s / factor],
        "from_zero": view.from_zero,
        "lanes": 1 + max((of.lane for of in placed), default=-1),
        "bars": _bars(placed, length_s, factor),
        "shades": _shades(placed, factor),
        "peak": _peak(session, view, factor),
    }


def _memory(session: Session, view: View, factor: float) -> Iterator[Line]:
    """Yield all memory metrics, ranks and the limit; what the view does not ask for is hidden at first, as is 0."""
    others = [name for name in session.samples.metrics if is_memory(name) and name not in view.metrics]
    names = [name for name in (*view.metrics, *others) if session.samples.figures(name).known]
    digits, shown = view.unit.decimals + 1, f",.{view.unit.decimals}f"
    for name in names:
        found = memory_line(session, view, name, min(_MOST_POINTS, _POINTS // len(names)))
        if found is not None:
            line = _line(label(name), found.time_s / factor, found.sizes, digits, shown)
            nothing = name != names[0] and view.unit.text(session.samples.figures(name).highest) == view.unit.text(0)
            yield {**line, "unit": view.unit, "hidden": nothing or name not in view.metrics}
    for run in session.ranks[:_MOST_RANKS] if not view.from_zero else ():
        sizes = np.array(run.rss, dtype=np.float64) / view.unit.factor
        line = _line(f"RSS of {run.name}", np.array(run.time_s) / factor, sizes, digits, shown)
        yield {**line, "unit": view.unit, "hidden": True}
    limit = drawn_limit(session, view)
    if limit is not None:
        line = _line(
            f"{limit.name} {limit.size_text}",
            np.array([0, run_s(session)]) / factor,
            np.full(2, limit.size),
            digits,
            shown,
        )
        yield {**line, "unit": view.unit, "limit": True}


def _cpu(session: Session, factor: float) -> Iterator[Line]:
    for name, columns in (("CPU", cpu_counters(session.samples)), ("of it system", ("cpu_system",))):
        moments, cores = _rates(session, columns)
        if len(moments):
            yield {**_line(name, moments / factor, cores, 3, ",.2f"), "unit": "cores", "steps": True}


def _speeds(session: Session) -> list[tuple[Metric, Points, Points]]:
    """Return the recorded counters of bytes, each with moments and how fast it rose from each to the next."""
    found = ((metrics.of(column), *_rates(session, (column,))) for column in counters_of(session.samples.metrics))
    return [(of, moments, speed) for of, moments, speed in found if of is not None and of.unit == "B" and len(moments)]


def _io(speeds: Sequence[tuple[Metric, Points, Points]], factor: float, unit: MemoryUnit) -> Iterator[Line]:
    """Yield how fast bytes were counted; the counters of system calls are hidden at first."""
    for metric, moments, speed in speeds:
        line = _line(metric.short_label.lower(), moments / factor, speed / unit.factor, 3, ",.3~r")
        yield {**line, "unit": f"{unit}/s", "steps": True, "hidden": metric.family == metrics.SYSTEM_CALLS}


def _rates(session: Session, columns: Sequence[str]) -> tuple[Points, Points]:
    """Return moments, and how fast counters rose together from each to the next; the last rate is repeated."""
    moments, speed = rates_of(session, columns, _WINDOWS)
    return moments, np.append(speed, speed[-1:])


def _line(name: str, x: Points, y: Points, digits: int, shown: str) -> Line:
    """Return a line for JSON: null where nothing is known; ``shown`` is the format of a value in d3's notation."""
    values = [None if value != value else round(value, digits) for value in y.tolist()]  # noqa: PLR0124 — NaN
    places = _PLACES - math.floor(math.log10(max(float(x[-1]), _SHORTEST))) if len(x) else 0
    return {"name": name, "x": [round(moment, places) for moment in x.tolist()], "y": values, "format": shown}


def _peak(session: Session, view: View, factor: float) -> dict[str, Any] | None:
    """Return the annotation of the first metric's peak."""
    line = memory_line(session, view, view.metrics[0]) if view.metrics else None
    if line is None:
        return None
    at_s, size = line.peak
    mark = None if line.mark is None else [moment / factor for moment in line.mark]
    below = peak_label(session, view.unit) if view.metrics[0] == "rss" else ""
    return {"x": at_s / factor, "y": size, "text": line.peak_text, "below": below, "mark": mark}


def _bars(placed: Sequence[_Placed], length_s: float, factor: float) -> list[dict[str, Any]]:
    """Return the longest operations, grouped by fill."""
    longest = sorted(placed, key=lambda of: of.one.operation.duration_s, reverse=True)[:_BARS]
    bars: dict[tuple[str, str], dict[str, Any]] = {}
    for place, one, lane in sorted(longest):
        fill, operation = one.fill, one.operation
        bar = bars.setdefault(
            (fill.colour, fill.hatch),
            {"colour": fill.colour, "pattern": PATTERNS[fill.hatch], "ink": fill.ink}
            | {key: [] for key in ("base", "width", "lane", "place", "names", "hover")},
        )
        bar["base"].append(operation.start_s / factor)
        bar["width"].append(max(operation.duration_s, length_s * _NARROWEST) / factor)
        bar["lane"].append(lane)
        bar["place"].append(place)
        bar["names"].append(_name(one, int(operation.duration_s / length_s * _CHARACTERS)))
        number, title = one.label or one.number, shortened(one.title, _NAME)
        bar["hover"].append(f"{number} {title}: {seconds_text(operation.duration_s)}")
    return list(bars.values())


def _name(one: Listed, room: int) -> str:
    """Return what fits of a name into so many characters; nothing where it would say nothing."""
    name = one.title if len(one.title) <= room else one.short_title
    return shortened(name, room) if min(len(name), _FEWEST_CHARACTERS) <= room else ""


def _shades(placed: Sequence[_Placed], factor: float) -> list[tuple[float, float, str]]:
    """Return the longest operations of the first lane as start, end and colour."""
    first = [of.one for of in placed if of.lane == 0]
    longest = sorted(first, key=lambda operation: operation.operation.duration_s, reverse=True)[:_SHADES]
    return [(one.operation.start_s / factor, one.operation.end_s / factor, one.fill.colour) for one in longest]
