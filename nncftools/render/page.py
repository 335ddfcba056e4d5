"""The report as one self-contained page with interactive charts, and the data of these charts.

It needs plotly, but no network: plotly's program is packed, and the browser unpacks it. The kinds of memory are areas
between the moments at which mappings were read, if memory did not rise or fall in between.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import math
import pathlib
import re
import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nncftools import metrics
from nncftools.analysis.series import Floats, Points, rates_of, run_s
from nncftools.analysis.summary import hints, unit_for
from nncftools.errors import NncfToolsError
from nncftools.metrics import Metric, cpu_counters, is_memory
from nncftools.render import answer, session_tables
from nncftools.render.listing import PATTERNS, NumberedOperation, counters_of, in_lanes, with_inner_levels
from nncftools.render.operations_table import longest, table_of, with_gaps
from nncftools.render.peak_lines import drawn_limit, memory_line, peak_label, peak_lines, verdict_lines
from nncftools.render.session_tables import memory, processes, ranks
from nncftools.render.table import Output, Table
from nncftools.render.view import View, command_text, label
from nncftools.session.session import Session
from nncftools.units import MemoryUnit, printable, seconds_text, shortened, time_unit

if TYPE_CHECKING:
    from nncftools.analysis.memory_kinds import Kinds

Line = dict[str, Any]

_SMALLEST = 0.01
"""As a share of the most memory: what is always smaller is summed."""
_NARROWEST_KIND, _ALONE = 0.002, 0.004
"""As a share of the run: moments are at least so far apart; half of the width of one that stands alone."""
_AS_BEFORE = 0.05
"""Between two moments, memory is known if RSS stays between those of both, or so near."""
_KIND_NAME = 32
_FILE_COLOURS = ("#E69F00", "#F0E442", "#D55E00", "#332288", "#56B4E9")


class _Part(NamedTuple):
    """What is drawn in one colour."""

    name: str
    colour: str
    pattern: str = ""
    """In plotly's notation."""


_ANONYMOUS, _OTHER = _Part("anonymous", "#0072B2"), _Part("other", "#BDBDBD")
_NOT_READ = _Part("processes that were not read", "#E3E3E3")
_KINDS = {
    "anonymous": _ANONYMOUS,
    "other_files": _Part("other files", "#9A9A9A"),
    "libraries": _Part("libraries", "#009E73"),
    "shared": _Part("shared memory", "#CC79A7"),
}
_OTHER_FILES = _KINDS["other_files"]


def kinds(session: Session, view: View, length_s: float, factor: float) -> list[dict[str, Any]]:
    """Return the parts from the bottom up, each as a line with gaps; none where mappings were not read.

    Memory that counts from the first sample is not drawn: each part would have a zero of its own.
    """
    if view.from_zero or session.snapshots is None or not session.snapshots.mappings:
        return []
    from nncftools.analysis import memory_kinds  # a run without mappings does without it

    read = sorted(map(memory_kinds.at, session.snapshots.mappings), key=lambda moment: moment.at_s)
    moments = _without_near(read, length_s * _NARROWEST_KIND)
    files = _large_files(moments)
    sizes = [_sizes(moment, files) for moment in moments]
    least = _SMALLEST * max(moment.total for moment in moments)
    large = {part for of in sizes for part, size in of.items() if size >= least} | {_NOT_READ}
    for of in sizes:
        rest = sum(of.pop(part) for part in of.keys() - large)
        of[_OTHER] += rest
    points = list(_points(session, moments, length_s))
    times = [round(at_s / factor, 9) for at_s, _ in points]
    digits = 3 if view.unit.factor > 1 else 0
    drawn = []
    others = [part for part in _KINDS.values() if part != _ANONYMOUS]
    for part in (_ANONYMOUS, *(part for both in files.values() for part in both), *others, _OTHER, _NOT_READ):
        if any(of[part] for of in sizes):
            held = [round(of[part] / view.unit.factor, digits) for of in sizes]
            y = [None if place is None else held[place] for _, place in points]
            drawn.append({**part._asdict(), "x": times, "y": y, "unit": view.unit})
    return drawn


def _points(session: Session, moments: Sequence[Kinds], length_s: float) -> Iterator[tuple[float, int | None]]:
    """Yield times with the indexes of moments; None where a gap begins and where it ends. Times differ, they rise."""
    times = [moment.at_s for moment in moments]
    apart_s = [math.inf, *(after_s - before_s for before_s, after_s in pairwise(times)), math.inf]
    is_known = [False, *(_is_known(session, *both) for both in pairwise(moments)), False]
    for place, at_s in enumerate(times):
        half_s = min(length_s * _ALONE, apart_s[place] / 3, apart_s[place + 1] / 3)
        if not is_known[place]:
            yield from ((at_s - half_s * 1.001, None), (at_s - half_s, place))
        yield at_s, place
        if not is_known[place + 1]:
            yield from ((at_s + half_s, place), (at_s + half_s * 1.001, None))


def _is_known(session: Session, before: Kinds, after: Kinds) -> bool:
    """Return whether memory between two moments was as at one of them, or in between."""
    if "rss" not in session.samples:
        return False
    first, last = (bisect_left(session.samples.time_s, moment.at_s) for moment in (before, after))
    low, high = sorted((before.total, after.total))
    between = session.samples["rss"][first:last]
    return all(low * (1 - _AS_BEFORE) <= rss <= high * (1 + _AS_BEFORE) for rss in between if rss == rss)  # noqa: PLR0124 — NaN


def _without_near(moments: Sequence[Kinds], least_s: float) -> list[Kinds]:
    """Return moments that are at least ``least_s`` apart; of two that are nearer, the one with more memory."""
    kept: list[Kinds] = []
    for moment in moments:
        if not kept or moment.at_s - kept[-1].at_s >= least_s:
            kept.append(moment)
        elif moment.total >= kept[-1].total:
            kept[-1] = moment
    return kept


def _large_files(moments: Iterable[Kinds]) -> dict[str, tuple[_Part, _Part]]:
    """Return the largest files, each with two parts: private copies of its pages, and its pages."""
    largest = Counter[str]()
    for moment in moments:
        largest |= Counter({group.file: group.rss for group in moment.groups if group.kind == "file"})
    parts = {}
    in_order = sorted(largest, key=lambda file: (-largest[file], file))
    for file, colour in zip(in_order, _FILE_COLOURS, strict=False):
        name = shortened(printable(file.rpartition("/")[2]), _KIND_NAME)
        parts[file] = _Part(f"copied from {name}", colour, "/"), _Part(name, colour)
    return parts


def _sizes(moment: Kinds, files: Mapping[str, tuple[_Part, _Part]]) -> Counter[_Part]:
    """Return the bytes of each part."""
    sizes = Counter({_NOT_READ: moment.not_read})
    for group in moment.groups:
        if group.kind == "file" and group.file in files:
            copied, pages = files[group.file]
            sizes.update({copied: group.anonymous, pages: group.rss - group.anonymous})
        else:
            sizes[_OTHER_FILES if group.kind == "file" else _KINDS.get(group.kind, _OTHER)] += group.rss
    return sizes


_POINTS = 24_000
"""Of all memory metrics together: they are most of the file."""
_MOST_POINTS = 4000
_MOST_RANKS = 16
_WINDOWS = 1200
_LANES = 4
_BARS, _SHADES = 1000, 60
_CHARTS_NAME = 60
_CHARACTERS, _FEWEST_CHARACTERS = 150, 8
"""The page's width, and the shortest part of a name that is written into a bar."""
_PLACES, _SHORTEST = 5, 1e-3
"""Of the last moment, behind its first figure: more cannot be seen."""
_NARROWEST = 0.0008
"""As a share of the run: the mouse cannot point at a narrower bar."""


def charts(session: Session, view: View, every: Sequence[NumberedOperation]) -> dict[str, Any]:
    """Return the lines of all panels, and the operations as bars; a bar has the index of its operation in ``every``."""
    length_s = run_s(session)
    factor, time_name = time_unit(length_s)
    speeds = _speeds(session)
    fastest = max((float(np.nanmax(speed)) for *_, speed in speeds if not np.isnan(speed).all()), default=0.0)
    io_unit = unit_for(max(fastest, MemoryUnit.KiB.factor))
    cpus = session.host.cpus
    placed = in_lanes(every, _LANES)
    lines = {
        "memory": list(_memory(session, view, factor)),
        "cpu": list(_cpu(session, factor)),
        "io": list(_io(speeds, factor, io_unit)),
    }
    outermost = (row for _, row, lane in placed if lane == 0)
    shaded = sorted(outermost, key=lambda row: row.operation.duration_s, reverse=True)[:_SHADES]
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
        "lanes": 1 + max((lane for *_, lane in placed), default=-1),
        "bars": _bars(placed, length_s, factor),
        "shades": [(row.operation.start_s / factor, row.operation.end_s / factor, row.fill.colour) for row in shaded],
        "peak": _peak(session, view, factor),
    }


def _memory(session: Session, view: View, factor: float) -> Iterator[Line]:
    """Yield all memory metrics, ranks and the limit. Metrics outside of the view, and those that stay 0, are hidden."""
    others = [name for name in session.samples.metrics if is_memory(name) and name not in view.metrics]
    names = [name for name in (*view.metrics, *others) if session.samples.figures(name).known]
    digits, shown = view.unit.decimals + 1, f",.{view.unit.decimals}f"
    for name in names:
        drawn = memory_line(session, view, name, min(_MOST_POINTS, _POINTS // len(names)))
        if drawn is not None:
            line = _line(label(name), drawn.time_s / factor, drawn.sizes, digits, shown)
            nothing = name != names[0] and view.unit.text(session.samples.figures(name).highest) == view.unit.text(0)
            yield {**line, "unit": view.unit, "hidden": nothing or name not in view.metrics}
    for run in session.ranks[:_MOST_RANKS] if not view.from_zero else ():
        sizes = np.array(run.rss, dtype=np.float64) / view.unit.factor
        line = _line(f"RSS of {run.name}", np.array(run.time_s) / factor, sizes, digits, shown)
        yield {**line, "unit": view.unit, "hidden": True}
    if (limit := drawn_limit(session, view)) is not None:
        moments = np.array([0, run_s(session)]) / factor
        line = _line(f"{limit.name} {limit.size_text}", moments, np.full(2, limit.size), digits, shown)
        yield {**line, "unit": view.unit, "limit": True}


def _cpu(session: Session, factor: float) -> Iterator[Line]:
    for name, columns in (("CPU", cpu_counters(session.samples)), ("of it system", ("cpu_system",))):
        moments, cores = _rates(session, columns)
        if len(moments):
            yield {**_line(name, moments / factor, cores, 3, ",.2f"), "unit": "cores", "steps": True}


def _speeds(session: Session) -> list[tuple[Metric, Floats, Floats]]:
    """Return the recorded counters of bytes, each with moments and how fast it rose from each to the next."""
    every = ((metrics.of(column), *_rates(session, (column,))) for column in counters_of(session.samples.metrics))
    return [(of, moments, speed) for of, moments, speed in every if of is not None and of.unit == "B" and len(moments)]


def _io(speeds: Sequence[tuple[Metric, Floats, Floats]], factor: float, unit: MemoryUnit) -> Iterator[Line]:
    """Yield how fast bytes were counted; the counters of system calls are hidden at first."""
    for metric, moments, speed in speeds:
        line = _line(metric.short_label.lower(), moments / factor, speed / unit.factor, 3, ",.3~r")
        yield {**line, "unit": f"{unit}/s", "steps": True, "hidden": metric.family == metrics.SYSTEM_CALLS}


def _rates(session: Session, columns: Sequence[str]) -> Points:
    """Return moments, and how fast counters rose together from each to the next; the last rate is repeated."""
    moments, speed = rates_of(session, columns, _WINDOWS)
    return moments, np.append(speed, speed[-1:])


def _line(name: str, x: Floats, y: Floats, digits: int, shown: str) -> Line:
    """Return a line for JSON: null where nothing is known; ``shown`` is the format of a value in d3's notation."""
    values = [None if value != value else round(value, digits) for value in y.tolist()]  # noqa: PLR0124 — NaN
    places = _PLACES - math.floor(math.log10(max(float(x[-1]), _SHORTEST))) if len(x) else 0
    return {"name": name, "x": [round(moment, places) for moment in x.tolist()], "y": values, "format": shown}


def _peak(session: Session, view: View, factor: float) -> dict[str, Any] | None:
    line = memory_line(session, view, view.metrics[0]) if view.metrics else None
    if line is None:
        return None
    mark = None if line.mark is None else [moment / factor for moment in line.mark]
    below = peak_label(session, view.unit) if view.metrics[0] == "rss" else ""
    return {"x": line.peak[0] / factor, "y": line.peak[1], "text": line.peak_text, "below": below, "mark": mark}


def _bars(placed: Sequence[tuple[int, NumberedOperation, int]], length_s: float, factor: float) -> list[dict[str, Any]]:
    longest = sorted(placed, key=lambda item: item[1].operation.duration_s, reverse=True)[:_BARS]
    bars: dict[tuple[str, str], dict[str, Any]] = {}
    for index, row, lane in sorted(longest):
        fill, operation = row.fill, row.operation
        look = {"colour": fill.colour, "pattern": PATTERNS[fill.hatch], "ink": fill.ink}
        bar = bars.setdefault((fill.colour, fill.hatch), look)
        title = f"{row.number} {shortened(row.title, _CHARTS_NAME)}"
        for key, value in (
            ("base", operation.start_s / factor),
            ("width", max(operation.duration_s, length_s * _NARROWEST) / factor),
            ("lane", lane),
            ("place", index),
            ("names", row.fitted(int(operation.duration_s / length_s * _CHARACTERS), _FEWEST_CHARACTERS)),
            ("hover", f"{title}: {seconds_text(operation.known_duration_s)}"),
        ):
            bar.setdefault(key, []).append(value)
    return list(bars.values())


_FILE = "package_data/plotly.min.js"
_LEVEL = 6
"""Takes 0.12 s; a higher one makes the page smaller by 0.2 %."""


def source_of(program: bytes) -> str:
    """Return the source expression that allows exactly this program in a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(program).digest()).decode()}'"


def _plotly() -> bytes:
    """Return plotly's program: its file, if it is where plotly has it, because the import takes as long as packing.

    Raises NncfToolsError when plotly is not installed.
    """
    package = importlib.util.find_spec("plotly")
    file = None if package is None or package.origin is None else pathlib.Path(package.origin).parent / _FILE
    if file is not None and file.is_file():
        return file.read_bytes()
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        message = "html needs plotly; install it with: pip install 'nncf-tools[html]'"
        raise NncfToolsError(message) from error
    return str(get_plotlyjs()).encode()


_TITLE, _NAME = 400, 90
_WARNING = 1000
_MOST_OPERATIONS = 1000
_HERE = pathlib.Path(__file__)
_PROGRAMS = ("tables", "chart", "linked", "flame", "start")
"""In the order in which they need one another; together they are one program."""


def report(session: Session, view: View) -> bytes:
    """Return the page, in UTF-8. Raises NncfToolsError when plotly is not installed."""
    plotly = _plotly()
    parts_of = (_HERE.with_name("program") / f"{name}.js" for name in _PROGRAMS)
    program = "".join(part.read_text(encoding="utf-8") for part in parts_of)
    data = json.dumps(_data(session, view), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    parts = {
        "HASHES": f"{source_of(plotly)} {source_of(program.encode())}",
        "DATA": data.replace("<", "\\u003c"),  # it must not end the script element around it
        "PLOTLY": base64.b64encode(zlib.compress(plotly, _LEVEL)).decode(),
        "PROGRAM": program,
    }
    template = _HERE.with_suffix(".html").read_text(encoding="utf-8")
    return re.sub("@([A-Z]+)@", lambda match: parts[match[1]], template).encode()


def _failure(session: Session) -> list[tuple[str, str]]:
    return [("Failed", ending)] if (ending := session_tables.failure(session)) else []


def _flame(session: Session, view: View) -> dict[str, Any] | None:
    if session.snapshots is None:
        return None
    from nncftools.render.stacks import flame  # a run without stacks does without it

    return flame(session, view)


def _data(session: Session, view: View) -> dict[str, Any]:
    rows = answer.rows_of_peak(session, view)
    held = [(f"{row.size} {row.label}", row.text) for row in rows]
    lines = peak_lines(session, view.unit) if session_tables.peak(session, view) else []
    every = with_inner_levels(session, view.depth)
    return {
        "title": shortened(printable(view.title) or command_text(session), _TITLE),
        "run": shortened(session_tables.run(session), _TITLE),
        "verdict": [f"{heading}: {of}" for heading, of in verdict_lines(session, view.unit) or _failure(session)],
        "peak": answer.headline(session, view),
        "lines": [*held, ("", answer.sufficient(session, view.unit)), *lines],
        "warnings": [shortened(printable(hint), _WARNING) for hint in hints(session, view.unit)],
        "levels": view.depth,
        "tables": {
            "memory": _table(memory(session, view)),
            "ranks": _table(ranks(session, view.unit)),
            "operations": _operations(every, session, view),
            "facts": _table(session_tables.facts(session, view.unit)),
            "processes": _table(processes(session, view.unit)),
        },
        "chart": charts(session, view, every),
        "flame": _flame(session, view),
    }


def _operations(every: Sequence[NumberedOperation], session: Session, view: View) -> dict[str, Any]:
    """Return the table of operations; a row has its index in ``every``, and its whole name if that is shortened.

    The operations that a list of the view's levels shows are there, with all inside them.
    """
    outer = [row for row in every if row.operation.depth < view.depth]
    listed, more = longest(outer, session, _MOST_OPERATIONS)
    numbers = {row.number for row in listed}
    shown = [row for row in every if ".".join(row.number.split(".")[: view.depth]) in numbers]
    rows = with_gaps(shown, session)
    table = _table(table_of(rows, more, session, view))
    index_of = {id(operation): index for index, operation in enumerate(every)}
    for operation, row in zip(rows, table["rows"], strict=True):
        row["place"] = index_of.get(id(operation))
        row["cells"][1] = shortened(operation.short_title, _NAME)
        row["whole"] = "" if row["cells"][1] == operation.title else operation.title
    return table


def _table(table: Table) -> dict[str, Any]:
    """Return a table in the format of ``program/tables.js``."""
    of = table.of(Output.PAGE)
    units = {column.group or column.heading: f", {column.unit}" for column in of.columns if column.unit}
    return {
        "headings": of.headings("\n"),
        "labels": [
            f"{column.group} {column.heading}".strip() + units.get(column.group or column.heading, "")
            for column in of.columns
        ],
        "texts": [column.is_text for column in of.columns],
        "rows": [
            {
                "cells": [cell.text for cell in row.cells],
                "strong": row.is_strong,
                "depth": row.depth,
                "details": row.details,
                "colour": row.colour,
                "span": row.span_s,
            }
            for row in of.rows
        ],
        "more": ". ".join(filter(None, (of.more, of.note))),
    }
