"""The chart of the page as plotly takes it: operations, memory, CPU and I/O over time."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nncftools import metrics
from nncftools.analysis.session import Session
from nncftools.analysis.summary import Floats, keep_extremes, rates_of, run_s
from nncftools.metrics import cpu_counters, is_memory
from nncftools.render.listing import PATTERNS, NumberedOperation, counters_of, in_lanes
from nncftools.render.peak_lines import drawn_limit, memory_line, peak_label
from nncftools.render.view import BREAK, View, label, plotly_text
from nncftools.units import printable, seconds_text, shortened, time_unit

if TYPE_CHECKING:
    from nncftools.analysis.rss_levels import Kinds

Figure = dict[str, Any]
"""A trace, a layout, or both."""

_SMALLEST = 0.01
"""As a share of the most memory: what is always smaller is summed."""
_NARROW_KIND = 0.008
"""As a share of the run: the width of a bar after which nothing is known."""
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


def kinds(session: Session, view: View, length_s: float, factor: float) -> list[Figure]:
    """Return the kinds of memory as stacked bars, from the bottom up; none where mappings were not read.

    A bar begins when mappings were read. It ends at the next moment, if RSS stayed between those of both. Memory that
    counts from the first sample is not drawn: each part would have its own zero.
    """
    if view.from_zero or session.snapshots is None or not session.snapshots.mappings:
        return []
    from nncftools.analysis.rss_levels import kinds_at  # a run without mappings does without it

    moments = sorted(map(kinds_at, session.snapshots.mappings), key=lambda moment: moment.at_s)
    files = _large_files(moments)
    sizes = [_sizes(moment, files) for moment in moments]
    least = _SMALLEST * max(moment.total for moment in moments)
    large = {part for of in sizes for part, size in of.items() if size >= least} | {_NOT_READ}
    for of in sizes:
        rest = sum(of.pop(part) for part in of.keys() - large)
        of[_OTHER] += rest
    narrow_s = length_s * _NARROW_KIND
    widths_s = [narrow_s] * len(moments)
    for place, (before, after) in enumerate(pairwise(moments)):
        until_next_s = after.at_s - before.at_s
        widths_s[place] = until_next_s if _is_known(session, before, after) else min(until_next_s, widths_s[place])
    others = [part for part in _KINDS.values() if part != _ANONYMOUS]
    parts = [_ANONYMOUS, *(part for both in files.values() for part in both), *others, _OTHER, _NOT_READ]
    return [
        {
            "type": "bar",
            "name": plotly_text(part.name),
            "x": [min(moment.at_s, length_s - narrow_s) / factor for moment in moments],
            "y": [round(view.unit.of(of[part]), _DIGITS) for of in sizes],
            "width": [width_s / factor for width_s in widths_s],
            "offset": 0,
            "marker": {"color": part.colour, "pattern": {"shape": part.pattern}},
        }
        for part in parts
        if any(of[part] for of in sizes)
    ]


def _is_known(session: Session, before: Kinds, after: Kinds) -> bool:
    """Return whether memory between two moments was as at one of them, or in between."""
    if "rss" not in session.samples:
        return False
    first, last = (bisect_left(session.samples.time_s, moment.at_s) for moment in (before, after))
    low, high = sorted((before.total, after.total))
    between = session.samples["rss"][first:last]
    return all(low * (1 - _AS_BEFORE) <= rss <= high * (1 + _AS_BEFORE) for rss in between if rss == rss)  # noqa: PLR0124 — NaN


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


_MOST_RANKS = 16
_WINDOWS = 1200
LANES = 4
_BARS, _SHADES = 1000, 60
_CHARTS_NAME = 60
_CHARACTERS, _FEWEST_CHARACTERS = 150, 8
"""The page's width, and the shortest part of a name that is written into a bar."""
_DIGITS, _DIGITS_OF_TIME = 3, 6
_NARROWEST = 0.0008
"""As a share of the run: the mouse cannot point at a narrower bar."""
_INK = "#202124"


class _Panel(NamedTuple):
    """A panel of the chart."""

    title: str
    height: int
    hover: str
    """A value and its unit, as plotly writes them beside a point."""
    traces: list[Figure]
    texts: Sequence[str] = ()
    """The lines above it."""


def chart(session: Session, view: View, every: Sequence[NumberedOperation]) -> Figure:
    """Return the chart, with a layout for wide pages and one for narrow pages."""
    length_s = run_s(session)
    factor, time_name = time_unit(length_s)
    unit, cpus = view.unit, session.host.cpus
    placed = in_lanes(every, LANES)
    texts, memory = _memory(session, view, factor)
    of_kinds = kinds(session, view, length_s, factor)
    cpu = _rates(session, factor, 1, {"CPU": cpu_counters(session.samples), "of it system": ["cpu_system"]})
    io = _rates(session, factor, unit.factor, _io_counters(session))
    panels = [
        panel
        for panel in (
            _Panel(f"Memory{view.above}, {unit}", 300, f"%{{y:,.{unit.decimals}f}} {unit}", memory, texts),
            _Panel(f"Memory by kind, {unit}", 180, f"%{{y:,.1f}} {unit}", of_kinds),
            _Panel(f"CPU,<br>cores of {cpus}" if cpus else "CPU, cores", 120, "%{y:,.2f} cores", cpu),
            _Panel(f"I/O, {unit}/s", 120, f"%{{y:,.3~r}} {unit}/s", io),
        )
        if panel.traces
    ]
    for number, panel in enumerate(panels, 2):
        hover = f"{panel.hover}<extra>%{{fullData.name}}</extra>"
        for trace in panel.traces:
            trace |= {"yaxis": f"y{number}", "legend": f"legend{number}", "hovertemplate": hover}
    time_axis = {
        "title": {"text": f"Time ({time_name})"},
        "range": [0, length_s / factor],
        "unifiedhovertitle": {"text": f"%{{x:,.6~r}} {time_name}"},
        "anchor": f"y{len(panels) + 1}" if panels else "y",
    }
    shared = {"xaxis": time_axis, "shapes": _shades(placed, factor)}
    lanes = 1 + max((lane for *_, lane in placed), default=-1)
    return {
        "traces": [trace for panel in panels for trace in panel.traces] + _bars(placed, length_s, factor),
        "layouts": [{**_layout(panels, lanes, width), **shared} for width in _WIDTHS],
        "lanes": lanes,
        "factor": factor,
        "nothing": "" if panels or placed else "no samples were recorded",
    }


def _memory(session: Session, view: View, factor: float) -> tuple[list[str], list[Figure]]:
    """Return the lines about the peak; then all memory metrics, ranks, the limit and a dot at the peak.

    Metrics outside the view, and those that stay 0, are hidden at first.
    """
    others = [name for name in session.samples.metrics if is_memory(name) and name not in view.metrics]
    names = [name for name in (*view.metrics, *others) if session.samples.figures(name).known]
    drawn = [(name, line) for name in names if (line := memory_line(session, view, name)) is not None]
    if not drawn:
        return [], []
    traces = []
    for name, line in drawn:
        nothing = name != names[0] and view.unit.text(session.samples.figures(name).highest) == view.unit.text(0)
        is_hidden = nothing or name not in view.metrics
        traces.append(_line(label(name), line.time_s / factor, line.sizes, is_hidden=is_hidden))
    for run in session.ranks[:_MOST_RANKS] if not view.from_zero else ():
        time_s, sizes = keep_extremes(np.array(run.time_s), np.array(run.rss, dtype=np.float64))
        traces.append(_line(f"RSS of {run.name}", time_s / factor, sizes / view.unit.factor, is_hidden=True))
    if (limit := drawn_limit(session, view)) is not None:
        look = {"mode": "lines", "hoverinfo": "skip", "line": {"color": _INK, "dash": "6px,4px"}}
        ends = np.array([0, run_s(session) / factor])
        traces.append(_line(f"{limit.name} {limit.size_text}", ends, np.full(2, limit.size)) | look)
    name, line = drawn[0]
    at_s, size = line.peak
    before_s, after_s = line.mark or (at_s, at_s)
    span = {"array": [(after_s - at_s) / factor], "arrayminus": [(at_s - before_s) / factor], "symmetric": False}
    dot = {"mode": "markers", "showlegend": False, "hoverinfo": "skip", "marker": {"color": _INK, "size": 8}}
    traces.append(
        {**_line("", np.array([at_s / factor]), np.array([size])), **dot, "error_x": {"type": "data", **span}}
    )
    return [line.peak_text, peak_label(session, view.unit) if name == "rss" else ""], traces


def _io_counters(session: Session) -> dict[str, list[str]]:
    """Return the recorded counters of bytes by their names."""
    every = [(column, metrics.of(column)) for column in counters_of(session.samples.metrics)]
    return {metric.short_label.lower(): [column] for column, metric in every if metric and metric.unit == "B"}


def _rates(session: Session, factor: float, unit: float, counters: Mapping[str, Sequence[str]]) -> list[Figure]:
    """Return how fast counters rose, in steps; the last rate is repeated. Those of system calls are hidden at first."""
    traces = []
    for name, columns in counters.items():
        moments_s, rates = rates_of(session, columns, _WINDOWS)
        if len(moments_s):
            line = _line(
                name, moments_s / factor, np.append(rates, rates[-1:]) / unit, is_hidden=name.startswith("calls")
            )
            traces.append(line | {"mode": "lines", "line": {"shape": "hv"}})
    return traces


def _line(name: str, x: Floats, y: Floats, *, is_hidden: bool = False) -> Figure:
    """Return a line; null where nothing is known."""
    return {
        "name": plotly_text(name),
        "x": [round(moment, _DIGITS_OF_TIME) for moment in x.tolist()],
        "y": [None if value != value else round(value, _DIGITS) for value in y.tolist()],  # noqa: PLR0124 — NaN
        "visible": "legendonly" if is_hidden else True,
    }


def _shades(placed: Sequence[tuple[int, NumberedOperation, int]], factor: float) -> list[Figure]:
    """Return the shades of the longest outermost operations, behind the line of memory."""
    outermost = (row for _, row, lane in placed if lane == 0)
    longest_first = sorted(outermost, key=lambda row: row.operation.duration_s, reverse=True)
    return [
        {
            "x0": row.operation.start_s / factor,
            "x1": row.operation.end_s / factor,
            "yref": "y2 domain",
            "fillcolor": row.fill.colour,
            "opacity": 0.13,
        }
        for row in longest_first[:_SHADES]
    ]


def _bars(placed: Sequence[tuple[int, NumberedOperation, int]], length_s: float, factor: float) -> list[Figure]:
    """Return the longest operations as bars above the panels, all in one trace."""
    if not placed:
        return []
    longest_first = sorted(placed, key=lambda item: item[1].operation.duration_s, reverse=True)
    shown = sorted(longest_first[:_BARS])
    rows = [row for _, row, _ in shown]
    names, hovers, widths = [], [], []
    for row in rows:
        share = row.operation.duration_s / length_s
        names.append(plotly_text(row.fitted(int(share * _CHARACTERS), _FEWEST_CHARACTERS), _CHARACTERS))
        title = f"{row.number} {shortened(row.title, _CHARTS_NAME)}"
        hovers.append(plotly_text(f"{title}: {seconds_text(row.operation.known_duration_s)}"))
        widths.append(max(share, _NARROWEST) * length_s / factor)
    bars = {
        "type": "bar",
        "orientation": "h",
        "showlegend": False,
        "base": [row.operation.start_s / factor for row in rows],
        "x": widths,
        "y": [lane for *_, lane in shown],
        "text": names,
        "insidetextfont": {"color": [row.fill.ink for row in rows]},
        "marker": {
            "color": [row.fill.colour for row in rows],
            "pattern": {"shape": [PATTERNS[row.fill.hatch] for row in rows]},
        },
        "hovertext": hovers,
        "hovertemplate": "%{hovertext}<extra></extra>",
    }
    return [bars]


_WIDTHS = 560, 250
"""Of a panel in a wide and in a narrow page, in pixels, like all lengths here."""
_LANE, _LEGEND_LINE, _TEXT_LINE, _GAP, _MARGINS = 21, 19, 17, 14, 80
_LEGEND = {"orientation": "h", "x": 0, "yanchor": "bottom", "bgcolor": "rgba(0,0,0,0)", "font": {"size": 11.5}}
_LETTER, _SYMBOL = 6.6, 60
"""The width of a letter, and of a name's symbol in a legend with the room around it."""


def _layout(panels: Sequence[_Panel], lanes: int, width: int) -> Figure:
    """Return where operations, panels, legends and texts are, from top to bottom; legends and texts hide no data."""
    places = []
    band = end = max(lanes * _LANE, 1)
    for panel in panels:
        lines = [plotly_text(line, int(width / _LETTER)) for line in panel.texts if line]
        text = BREAK.join([f"<b>{line}</b>" for line in lines[:1]] + lines[1:])
        text_height = _TEXT_LINE * (text.count(BREAK) + 1) if text else 0
        start = end + _GAP + _legend_height(panel, width) + text_height
        end = start + panel.height
        places.append((panel, text, text_height, start, end))
    layout: Figure = {
        "height": end + _MARGINS,
        "yaxis": {"domain": [1 - band / end, 1], "range": [lanes - 0.5, -0.5], "visible": False},
        "annotations": [],
    }
    for number, (panel, text, text_height, start, bottom) in enumerate(places, 2):
        top = round(1 - start / end, 4)
        axis = {"domain": [round(1 - bottom / end, 4), top], "title": {"text": panel.title}}
        layout[f"yaxis{number}"] = axis
        layout[f"legend{number}"] = {**_LEGEND, "y": round(top + text_height / end, 4)}
        if text:
            layout["annotations"].append({"text": text, "y": top})
    return layout


def _legend_height(panel: _Panel, width: int) -> int:
    """Return the height of a legend, whose names are in columns where they do not fit into one line."""
    widths = [_SYMBOL + _LETTER * len(trace["name"]) for trace in panel.traces if trace["name"]]
    columns = max(1, int(width / max(widths)))
    return _LEGEND_LINE * (1 if sum(widths) <= width else math.ceil(len(widths) / columns))
