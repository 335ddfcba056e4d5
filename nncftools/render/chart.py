"""Make the chart of the HTML page, in plotly's format: operations, memory, CPU and I/O over time."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nncftools.analysis.session import Session
from nncftools.analysis.summary import Floats, keep_extremes, rates_of, run_s
from nncftools.metrics import cpu_counters, is_memory
from nncftools.render.listing import PATTERNS, NumberedOperation, keep_largest, label_storage, place_in_lanes
from nncftools.render.peak_lines import MemoryLine, choose_drawn_limit, memory_line
from nncftools.render.view import View, clip, label, plotly_text
from nncftools.units import seconds_text, shortened, time_unit

if TYPE_CHECKING:
    from nncftools.analysis.rss_levels import Kinds

Figure = dict[str, Any]
"""A dictionary in plotly's JSON format: a trace, a layout, or both."""

_SMALLEST = 0.01
"""Kinds of memory below this share of the largest total are drawn together as "other"."""
_NARROW_KIND = 0.008
"""Width of a bar that shows the kinds of memory, if only the moment of the reading is known. The width is a share of
the run's duration."""
_TOLERANCE = 0.05
"""A bar reaches as far as RSS and anonymous memory stay near the sizes of the reading. They may differ by at most this
share of RSS."""
_KIND_NAME = 32
_FILE_COLOURS = ("#E69F00", "#F0E442", "#D55E00", "#332288", "#56B4E9")


class _Part(NamedTuple):
    """A kind of memory with its colour in the chart."""

    name: str
    colour: str
    pattern: str = ""
    """The hatch, in plotly's notation."""


_ANONYMOUS = _Part("anonymous", "#0072B2")
_OTHER = _Part("other", "#BDBDBD")
_NOT_READ = _Part("processes that were not read", "#E3E3E3")
_KINDS = {
    "anonymous": _ANONYMOUS,
    "other_files": _Part("other files", "#9A9A9A"),
    "libraries": _Part("libraries", "#009E73"),
    "shared": _Part("shared memory", "#CC79A7"),
}
_OTHER_FILES = _KINDS["other_files"]


def kinds(session: Session, view: View, length_s: float, factor: float) -> list[Figure]:
    """Return the kinds of memory as stacked bars, from the bottom up.

    A bar shows a reading of the memory mappings. The bar covers the time around the reading in which memory hardly
    changed; if memory changed at once, the bar is narrow. If no bar shows the RSS peak, or if all bars are narrow,
    there are no bars. With ``--from-zero`` there are none either: the first sample would have to be subtracted from
    each kind.
    """
    peak = session.peak_place
    if view.from_zero or peak is None or session.snapshots is None or not session.snapshots.mappings:
        return []
    from nncftools.analysis.rss_levels import kinds_at  # not needed without mappings

    moments = sorted(map(kinds_at, session.snapshots.mappings), key=lambda moment: moment.at_s)
    files = _find_large_files(moments)
    least = _SMALLEST * max(moment.total for moment in moments)
    sizes = [_measure_parts(moment, files, least) for moment in moments]
    narrow_s = length_s * _NARROW_KIND
    spans = _find_spans(session, moments, narrow_s)
    least_at_peak = (session.rss_peak.low or 0) * (1 - _TOLERANCE)
    at_peak = [
        moment
        for moment, (begin_s, width_s) in zip(moments, spans, strict=True)
        if begin_s <= peak.to_s and peak.from_s <= begin_s + width_s and moment.total >= least_at_peak
    ]
    if not at_peak or max(width_s for _, width_s in spans) < 2 * narrow_s:
        return []
    of_files = chain(*files.values())
    order = dict.fromkeys((_ANONYMOUS, *of_files, *_KINDS.values(), _OTHER, _NOT_READ))
    return [
        {
            "type": "bar",
            "name": plotly_text(part.name),
            "x": [begin_s / factor for begin_s, _ in spans],
            "y": [round(view.unit.of(parts[part]), _DIGITS) for parts in sizes],
            "width": [width_s / factor for _, width_s in spans],
            "offset": 0,
            "marker": {"color": part.colour, "pattern": {"shape": part.pattern}},
        }
        for part in order
        if any(parts[part] for parts in sizes)
    ]


def _find_spans(session: Session, moments: Sequence[Kinds], narrow_s: float) -> list[tuple[float, float]]:
    """Return begin and width of each bar in seconds.

    Bars do not overlap. If there is room, a bar begins at least ``narrow_s`` before its reading.
    """
    spans = []
    end_s = 0.0
    following_s = [*(moment.at_s for moment in moments), math.inf]
    for moment, next_s in zip(moments, following_s[1:], strict=True):
        near_s = [moment.at_s, *_find_near_samples(session, moment, end_s, next_s)]
        begin_s = max(end_s, min(*near_s, moment.at_s - narrow_s))
        end_s = min(next_s, max(near_s))
        spans.append((begin_s, end_s - begin_s))
    return spans


def _find_near_samples(session: Session, moment: Kinds, begin_s: float, end_s: float) -> Sequence[float]:
    """Return the times of the first and the last sample around a reading before memory becomes other memory.

    Memory is other memory if RSS or anonymous memory differs from the reading, as ``_TOLERANCE`` describes. The samples
    from ``begin_s`` to ``end_s`` and a sample on each side are compared with the reading.
    """
    samples = session.samples
    first = max(0, bisect_left(samples.time_s, begin_s) - 1)
    compared = slice(first, bisect_left(samples.time_s, end_s) + 1)
    time_s = samples.time_s[compared]
    room = moment.total * _TOLERANCE
    anonymous = sum(group.anonymous for group in moment.groups)
    is_far = np.zeros(len(time_s), dtype=bool)
    for name, size, most in (
        ("rss", moment.total, room),
        ("anon", anonymous, room + moment.not_read),
    ):
        if name in samples:
            is_far |= np.abs(np.array(samples[name][compared]) - size) > most
    far = [-1, *np.flatnonzero(is_far), len(time_s)]
    index = bisect_left(far, bisect_left(time_s, moment.at_s))
    near_s = time_s[far[index - 1] + 1 : far[index]]
    return near_s[:1] + near_s[-1:]


def _find_large_files(moments: Iterable[Kinds]) -> dict[str, tuple[_Part, _Part]]:
    """Return the largest files by path, each with two parts: private copies of pages, and pages of the file itself."""
    sizes = Counter[str]()
    for moment in moments:
        groups = [group for group in moment.groups if group.kind == "file"]
        sizes |= Counter({group.file: group.rss for group in groups})
    parts = {}
    largest_first = sorted(sizes, key=lambda file: (-sizes[file], file))
    for file, colour in zip(largest_first, _FILE_COLOURS, strict=False):
        name = clip(file.rpartition("/")[2], _KIND_NAME)
        parts[file] = (_Part(f"copied from {name}", colour, "/"), _Part(name, colour))
    return parts


def _measure_parts(moment: Kinds, files: Mapping[str, tuple[_Part, _Part]], least: float) -> Counter[_Part]:
    sizes = Counter({_NOT_READ: moment.not_read})
    for group in moment.groups:
        if group.rss < least:
            sizes[_OTHER] += group.rss
        elif group.kind != "file":
            sizes[_KINDS.get(group.kind, _OTHER)] += group.rss
        elif group.file in files:
            copied, pages = files[group.file]
            sizes[copied] += group.anonymous
            sizes[pages] += group.rss - group.anonymous
        else:
            sizes[_OTHER_FILES] += group.rss
    return sizes


_MOST_RANKS = 16
_WINDOWS = 1200
LANES = 4
_BARS = 1000
_SHADES = 60
_CHARTS_NAME = 60
_CHARACTERS = 150
"""Width of the page, in characters."""
_FEWEST_CHARACTERS = 8
"""If fewer characters of a name fit into a bar, the bar has no name."""
_DIGITS = 3
_DIGITS_OF_TIME = 6
_NARROWEST = 0.0008
"""Least width of a bar as a share of the run, so that the mouse can point at each bar."""
_INK = "#202124"


class _Panel(NamedTuple):
    title: str
    height: int
    hover: str
    """Plotly's template for the value and the unit in a tooltip."""
    traces: list[Figure]


def chart(session: Session, view: View, rows: Sequence[NumberedOperation]) -> Figure:
    """Return the chart with two layouts: for a wide page and for a narrow page."""
    length_s = run_s(session)
    factor, time_name = time_unit(length_s)
    placed = place_in_lanes(rows, LANES)
    panels = _make_panels(session, view, length_s, factor)
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
    shared = {"xaxis": time_axis, "shapes": _make_shades(placed, factor)}
    lanes = max((lane + 1 for *_, lane in placed), default=0)
    traces = list(chain.from_iterable(panel.traces for panel in panels))
    return {
        "traces": traces + _make_bars(placed, length_s, factor),
        "layouts": [{**_make_layout(panels, lanes, width), **shared} for width in _WIDTHS],
        "lanes": lanes,
        "factor": factor,
        "nothing": "" if panels or placed else "no samples were recorded",
    }


def _make_panels(session: Session, view: View, length_s: float, factor: float) -> list[_Panel]:
    unit = view.unit
    cpus = session.host.cpus
    cpu_time = {"CPU": cpu_counters(session.samples), "system": ["cpu_system"]}
    labels = label_storage(session)
    storage = {name.lower(): [column] for column, name in labels.items()}
    panels = (
        _Panel(
            f"Memory{view.above}, {unit}",
            300,
            f"%{{y:,.{unit.decimals}f}} {unit}",
            _make_memory(session, view, factor),
        ),
        _Panel(f"Memory by kind, {unit}", 180, f"%{{y:,.1f}} {unit}", kinds(session, view, length_s, factor)),
        _Panel(
            f"CPU,<br>cores of {cpus}" if cpus else "CPU, cores",
            120,
            "%{y:,.2f} cores",
            _make_rates(session, factor, 1, cpu_time),
        ),
        _Panel(f"I/O, {unit}/s", 120, f"%{{y:,.3~r}} {unit}/s", _make_rates(session, factor, unit.factor, storage)),
    )
    return [panel for panel in panels if panel.traces]


def _make_memory(session: Session, view: View, factor: float) -> list[Figure]:
    """Return the traces of the memory panel: metrics, ranks, limit, and a dot at the peak.

    At first, the panel hides metrics that the user did not choose, and metrics that are always 0.
    """
    samples = session.samples
    others = [name for name in samples.metrics if is_memory(name) and name not in view.metrics]
    lines = {}
    for name in (*view.metrics, *others):
        line = memory_line(session, view, name)
        if line is not None:
            lines[name] = line
    traces: list[Figure] = []
    for name, line in lines.items():
        highest = samples.figures(name).highest
        is_zero = view.unit.text(highest) == view.unit.text(0)
        is_hidden = name not in view.metrics or (bool(traces) and is_zero)
        time = line.time_s / factor
        traces.append(_make_line(label(name), time, line.sizes, is_hidden=is_hidden))
    if not lines:
        return []
    for run in session.ranks[:_MOST_RANKS] if not view.from_zero else ():
        rss = np.array(run.rss, dtype=np.float64)
        time_s, sizes = keep_extremes(np.array(run.time_s), rss)
        traces.append(_make_line(f"RSS of {run.name}", time_s / factor, sizes / view.unit.factor, is_hidden=True))
    limit = choose_drawn_limit(session, view)
    if limit is not None:
        look = {"mode": "lines", "hoverinfo": "skip", "line": {"color": _INK, "dash": "6px,4px"}}
        ends = np.array([0, run_s(session) / factor])
        traces.append(_make_line(f"{limit.name} {limit.size_text}", ends, np.full(2, limit.size)) | look)
    traces.append(_make_dot(next(iter(lines.values())), factor))
    return traces


def _make_dot(line: MemoryLine, factor: float) -> Figure:
    """Return a dot at the peak.

    If the peak is a high-water mark, add a bar over the time in which the peak was reached.
    """
    at_s, size = line.peak
    start_s, end_s = line.mark or (at_s, at_s)
    return {
        "x": [round(at_s / factor, _DIGITS_OF_TIME)],
        "y": [round(size, _DIGITS)],
        "mode": "markers",
        "showlegend": False,
        "hoverinfo": "skip",
        "marker": {"color": _INK, "size": 8},
        "error_x": {
            "type": "data",
            "array": [(end_s - at_s) / factor],
            "arrayminus": [(at_s - start_s) / factor],
            "symmetric": False,
        },
    }


def _make_rates(session: Session, factor: float, unit: float, counters: Mapping[str, Sequence[str]]) -> list[Figure]:
    """Return the rates of counters as step lines. At first, the rates of system calls are hidden."""
    traces = []
    for name, columns in counters.items():
        moments_s, rates = rates_of(session, columns, _WINDOWS)
        if len(moments_s):
            heights = np.append(rates, rates[-1:]) / unit
            line = _make_line(name, moments_s / factor, heights, is_hidden=name.startswith("calls"))
            traces.append(line | {"mode": "lines", "line": {"shape": "hv"}})
    return traces


def _make_line(name: str, x: Floats, y: Floats, *, is_hidden: bool = False) -> Figure:
    """Return a line trace; an unknown value is null."""
    heights = np.round(y, _DIGITS).astype(object)
    heights[np.isnan(y)] = None
    return {
        "name": plotly_text(name),
        "x": [round(moment, _DIGITS_OF_TIME) for moment in x.tolist()],
        "y": heights.tolist(),
        "visible": "legendonly" if is_hidden else True,
    }


def _make_shades(placed: Sequence[tuple[int, NumberedOperation, int]], factor: float) -> list[Figure]:
    outermost = [row for _, row, lane in placed if lane == 0]
    longest = keep_largest(outermost, _SHADES, lambda row: row.operation.duration_s)
    return [
        {
            "x0": row.operation.start_s / factor,
            "x1": row.operation.end_s / factor,
            "yref": "y2 domain",
            "fillcolor": row.fill.colour,
            "opacity": 0.13,
        }
        for row in longest
    ]


def _make_bars(placed: Sequence[tuple[int, NumberedOperation, int]], length_s: float, factor: float) -> list[Figure]:
    """Return a list with a single plotly trace: bars for the longest operations, above the panels.

    ``placed`` has tuples (index, operation, lane). A unit of the time axis has ``factor`` seconds. Without operations,
    the list is empty.
    """
    if not placed:
        return []
    shown = keep_largest(placed, _BARS, lambda item: item[1].operation.duration_s)
    names = []
    hovers = []
    widths = []
    for _, row, _ in shown:
        share = row.operation.duration_s / length_s
        name = row.fitted(int(share * _CHARACTERS), _FEWEST_CHARACTERS)
        names.append(plotly_text(name, _CHARACTERS))
        title = f"{row.number} {shortened(row.title, _CHARTS_NAME)}"
        hovers.append(plotly_text(f"{title}: {seconds_text(row.operation.known_duration_s)}"))
        widths.append(max(share, _NARROWEST) * length_s / factor)
    fills = [row.fill for _, row, _ in shown]
    bars = {
        "type": "bar",
        "orientation": "h",
        "showlegend": False,
        "base": [row.operation.start_s / factor for _, row, _ in shown],
        "x": widths,
        "y": [lane for *_, lane in shown],
        "text": names,
        "insidetextfont": {"color": [fill.ink for fill in fills]},
        "marker": {
            "color": [fill.colour for fill in fills],
            "pattern": {"shape": [PATTERNS[fill.hatch] for fill in fills]},
        },
        "hovertext": hovers,
        "hovertemplate": "%{hovertext}<extra></extra>",
    }
    return [bars]


_WIDTHS = (560, 250)
"""Width of a panel in a wide and in a narrow page, in pixels."""
_LANE = 21
_LEGEND_LINE = 19
_GAP = 14
_MARGINS = 80
_LEGEND = {
    "orientation": "h",
    "x": 0,
    "yanchor": "bottom",
    "bgcolor": "rgba(0,0,0,0)",
    "font": {"size": 11.5},
}
_LETTER = 6.6
_SYMBOL = 60
"""Width of a legend's symbol and the space around the symbol, in pixels."""


def _make_layout(panels: Sequence[_Panel], lanes: int, width: int) -> Figure:
    """Return the layout: operations, panels and legends from top to bottom."""
    places = []
    band = max(lanes * _LANE, 1)
    end = band
    for panel in panels:
        start = end + _GAP + _measure_legend(panel, width)
        end = start + panel.height
        places.append((panel, start, end))
    layout: Figure = {
        "height": end + _MARGINS,
        "yaxis": {"domain": [1 - band / end, 1], "range": [lanes - 0.5, -0.5], "visible": False},
    }
    for number, (panel, start, bottom) in enumerate(places, 2):
        top = round(1 - start / end, 4)
        domain = [round(1 - bottom / end, 4), top]
        layout[f"yaxis{number}"] = {"domain": domain, "title": {"text": panel.title}}
        layout[f"legend{number}"] = {**_LEGEND, "y": top}
    return layout


def _measure_legend(panel: _Panel, width: int) -> int:
    """Return the height of a legend in pixels. Names that do not fit into one line are arranged in columns."""
    names = [trace["name"] for trace in panel.traces if "name" in trace]
    widths = [_SYMBOL + _LETTER * len(name) for name in names]
    columns = max(1, int(width / max(widths)))
    lines = 1 if sum(widths) <= width else math.ceil(len(widths) / columns)
    return _LEGEND_LINE * lines
