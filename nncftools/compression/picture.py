"""The picture: average relative error against compression rate, and panels of other figures over the same error.

A panel has named points, the Pareto front and bounds.
"""

from __future__ import annotations

import io
import itertools
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from nncftools.compression import reading, results
from nncftools.compression.labels import FAR, Labels, Segment
from nncftools.compression.labels import Point as Pixels
from nncftools.compression.reading import MODEL_SIZE
from nncftools.compression.results import Bound, Bounds, Comparison, Group, Result, measured
from nncftools.drawing import FAINT, PALETTE, Ruler, figure, missing_glyphs_as_boxes, plain
from nncftools.units import printable, shortened

LABEL = 40
MAX_NAMED = 80
"""More names would be illegible."""
GROUPS = (Group.LORA, Group.GPTQ, Group.DATA_FREE, Group.MIXED, Group.DATA_AWARE, Group.INT8, Group.OTHER)
MARKERS = dict(zip(GROUPS, "D^vosXP", strict=True))
MARKER_SIZE = 8.0
_RING_SIZE = 15.0
_CORNERS = 8
DOMINATED = 0.45
"""The opacity of points that are not on the Pareto front."""
LINE = "#888888"
_LOG_FROM = 10
"""The ratio of largest to smallest figure from which the scale is logarithmic."""
_NEAR = 1.5
"""A bound beyond this multiple of the scale's end is not drawn."""


_NAME = 70
_COLOURS = dict(zip(GROUPS, (PALETTE[number] for number in (2, 3, 1, 0, 4, 5, 6)), strict=True))
"""The colour of a kind in a picture of one model; several models have one colour each."""
_WIDTH_IN = 10.0
_MAIN_IN = 6.2
_PANEL_IN = 4.6
_DASHES = (0, (5, 2.5))
"""The line of mixed precision; fronts are solid."""
_LEGEND_SIZE = 9.0
_LEGEND_ROOM_IN = 9.6
_HANDLE_IN = 0.6
"""The room in a legend for a column's marker, and between columns."""
_GREY = "#777777"


class ShownResult(NamedTuple):
    """A result that the picture shows: the model's place, its number over all results, its colour."""

    model: int
    number: int
    result: Result
    colour: str


class Point(NamedTuple):
    """A result in a panel, in the panel's unit."""

    shown: ShownResult
    low: float
    y: float
    """The end of a bracket that counts."""
    is_best: bool
    """Whether it is on the panel's Pareto front."""


@dataclass
class Panel:
    """The axes, and what is drawn in them."""

    axes: Axes
    figure: reading.Cost | None = None
    """None for the compression rate, of which more is better."""
    prefix: str = ""
    """What the SVG ids of the panel's points begin with."""
    factor: float = 1.0
    """The bytes or seconds in one of the scale."""
    points: list[Point] = field(default_factory=list)
    lines: list[Segment] = field(default_factory=list)
    """The lines, in data coordinates, that names should avoid."""
    ringed: list[Point] = field(default_factory=list)
    """The recommended points."""
    unnamed: int = 0
    """Points whose name found no room."""


@dataclass
class Drawing:
    """The picture, and what was left out of it."""

    figure: Figure
    unnamed: int = 0
    """Points whose name found no room."""
    left_out: int = 0
    """Results beyond the largest error to draw."""
    points: list[tuple[Result, str]] = field(default_factory=list)
    """What is drawn, with its colour."""
    joined: set[Group] = field(default_factory=set)
    """The kinds with a line through results of growing shares of int4."""


def draw(
    comparisons: Sequence[Comparison],
    bounds: Bounds | None = None,
    max_error: float | None = None,
    also: Sequence[reading.Cost] = (),
) -> Drawing:
    """Draw all results but the baselines, with a panel for each figure of ``also`` below the compression rate.

    Bounds are lines, with a ring around the result that they recommend.
    """
    canvas, axes = figure()
    drawing = Drawing(canvas)
    shown = _shown(drawing, comparisons, max_error)
    drawn = [Panel(axes), *_panels_below(canvas, axes, also)]
    _add_titles(drawn, comparisons)
    if not shown:
        for empty in (panel.axes for panel in drawn):
            empty.text(0.5, 0.5, "no compressed models to show", transform=empty.transAxes, ha="center", va="center")
            empty.set(xlim=(0, 0.1), ylim=(0, 8))
        return drawing
    several = len(comparisons) > 1
    fronts = [PALETTE[number % len(PALETTE)] if several else LINE for number in range(len(comparisons))]
    for panel in drawn:
        fill(panel, comparisons, shown, fronts)
    drawn[0].lines += _mixed_precision(drawing, axes, comparisons, shown)
    # room beside the points for their names; errors begin at 0 unless a point is at or below 0
    left, right = axes.dataLim.intervalx
    wide = max(right - min(left, 0), 0.01)
    axes.set_xlim(0 if left > wide * 0.03 else min(left, 0) - wide * 0.06, max(right, 0) + wide * 0.13)
    for panel in drawn:
        leave_room(panel)
    if bounds is not None:
        choices = [results.chosen(comparison, bounds).best for comparison in comparisons]
        for panel in drawn:
            add_bounds(panel, comparisons, bounds, [best for best in choices if best is not None])
    _add_legend(drawing, drawn, [comparison.name for comparison in comparisons], bounds)
    with missing_glyphs_as_boxes():
        _add_names(drawing, drawn)
    return drawing


def rendered(drawing: Drawing, kind: str) -> bytes:
    """Return the picture as ``png``, ``svg`` or ``pdf``; the same picture gives the same bytes."""
    content = io.BytesIO()
    metadata = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    with missing_glyphs_as_boxes(), rc_context({"svg.hashsalt": "nncf-tools"}):
        drawing.figure.savefig(content, format=kind, metadata=metadata)
    return content.getvalue()


def _shown(drawing: Drawing, comparisons: Sequence[Comparison], max_error: float | None) -> list[ShownResult]:
    """Return the results to draw; their number counts over all results, as in the table."""
    shown: list[ShownResult] = []
    numbers = itertools.count()
    for model, comparison in enumerate(comparisons):
        of_model = PALETTE[model % len(PALETTE)] if len(comparisons) > 1 else None
        for result, number in zip(comparison.results, numbers, strict=False):
            if result.group is Group.BASELINE:
                continue
            if max_error is not None and result.error > max_error:
                drawing.left_out += 1
                continue
            shown.append(ShownResult(model, number, result, of_model or _COLOURS[result.group]))
    drawing.points = [(each.result, each.colour) for each in shown]
    return shown


def _panels_below(canvas: Figure, axes: Axes, also: Sequence[reading.Cost]) -> list[Panel]:
    heights = [_MAIN_IN, *[_PANEL_IN] * len(also)]
    canvas.set_size_inches(_WIDTH_IN, sum(heights))
    grid = canvas.add_gridspec(len(heights), 1, height_ratios=heights)
    axes.set_subplotspec(grid[0])
    below = []
    for number, of_panel in enumerate(also, 1):
        beneath = canvas.add_subplot(grid[number], sharex=axes)
        plain(beneath)
        below.append(Panel(beneath, of_panel, prefix=f"panel-{number}-"))
    return below


def _add_titles(drawn: Sequence[Panel], comparisons: Sequence[Comparison]) -> None:
    axes = drawn[0].axes
    title = comparisons[0].title if len(comparisons) == 1 else " · ".join(of.name for of in comparisons)
    lines = textwrap.wrap(shortened(printable(title), 180), 95)
    axes.set_title("\n".join(lines), loc="left", fontsize=10, fontweight="bold", parse_math=False, gid="title")
    bars = any(result.error_stderr for of in comparisons for result in of.results)
    drawn[-1].axes.set_xlabel(f"Average relative error{' (bars: ± one standard error)' if bars else ''}")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(value * 100, 9):,.10g}%"))


def _mixed_precision(
    drawing: Drawing, axes: Axes, comparisons: Sequence[Comparison], shown: Sequence[ShownResult]
) -> list[Segment]:
    """Draw lines through results with a growing share of int4; return them."""
    lines: list[Segment] = []
    for model in range(len(comparisons)):
        of_model = [each for each in shown if each.model == model]
        colours = {id(each.result): each.colour for each in of_model}
        for series in results.joined([each.result for each in of_model]):
            drawing.joined.add(series[0].group)
            points = [(result.error, result.rate) for result in series]
            look: dict[str, Any] = {"linestyle": _DASHES, "linewidth": 1.2, "alpha": 0.7, "zorder": 1}
            axes.plot(*zip(*points, strict=True), color=colours[id(series[0])], **look)
            lines += itertools.pairwise(points)
    return lines


def _add_names(drawing: Drawing, drawn: Sequence[Panel]) -> None:
    """Write the points' names; fixes the layout."""
    engine = drawing.figure.get_layout_engine()
    assert engine is not None
    engine.execute(drawing.figure)
    drawing.figure.set_layout_engine("none")
    renderer: RendererBase = RendererAgg(1, 1, drawing.figure.dpi)  # type: ignore[no-untyped-call] # measures text only
    for panel in drawn:
        add_names(panel, renderer, drawing.figure.dpi)
    drawing.unnamed = sum(panel.unnamed for panel in drawn)


def _add_legend(drawing: Drawing, drawn: Sequence[Panel], models: Sequence[str], bounds: Bounds | None) -> None:
    several = len(models) > 1
    entries = [
        Line2D([], [], color=PALETTE[number % len(PALETTE)], linewidth=4, label=shortened(printable(name), LABEL))
        for number, name in enumerate(models if several else ())
    ]
    for group in GROUPS:
        if of_group := [result for result, _ in drawing.points if result.group is group]:
            kind = shortened(printable(results.series_name(of_group)), _NAME)
            entry = _mark(MARKERS[group], _GREY if several else _COLOURS[group], kind)
            entry.set_linestyle(_DASHES if group in drawing.joined else "")
            entries.append(entry)
    points = [point for panel in drawn for point in panel.points]
    if any(sum(point.is_best for point in panel.points) > len(models) for panel in drawn):
        entries.append(Line2D([], [], color=LINE, linewidth=1.2, label="Pareto front"))
    if not all(point.is_best for point in points):
        where = " in its panel" if len(drawn) > 1 else ""
        entries.append(_mark("o", _GREY, f"lighter: dominated{where}", alpha=DOMINATED))
    if bounds is not None:
        ring: dict[str, Any] = {"linestyle": ":", "markersize": 10, "fillstyle": "none"}
        entries.append(Line2D([], [], marker="o", color="#444444", label=f"smallest with {bounds}", **ring))
    widest_in = _HANDLE_IN + max(Ruler().width(str(entry.get_label()), _LEGEND_SIZE) for entry in entries)
    look: dict[str, Any] = {"ncols": max(1, min(4, int(_LEGEND_ROOM_IN / widest_in))), "fontsize": _LEGEND_SIZE}
    legend = drawing.figure.legend(handles=entries, loc="outside lower center", frameon=False, **look)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _mark(marker: str, colour: str, label: str, alpha: float = 1.0) -> Line2D:
    look: dict[str, Any] = {"linestyle": "", "markersize": MARKER_SIZE, "markeredgecolor": "white"}
    return Line2D([], [], marker=marker, color=colour, label=label, alpha=alpha, **look)


def fill(panel: Panel, comparisons: Sequence[Comparison], shown: Sequence[ShownResult], fronts: Sequence[str]) -> None:
    """Draw what has the panel's figure: points, brackets, and each model's front in its colour."""
    best = {id(result) for comparison in comparisons for result in _best(comparison, panel.figure)}
    known = [(each, ends) for each in shown if (ends := _ends(each.result, panel.figure))]
    _scale(panel, [high for _, (_, high) in known])
    for each, (low, high) in known:
        panel.points.append(Point(each, low / panel.factor, high / panel.factor, id(each.result) in best))
    for point in panel.points:
        panel.lines += _draw(panel, point)
    for model, colour in enumerate(fronts):
        panel.lines += _front(panel, [p for p in panel.points if p.is_best and p.shown.model == model], colour)
    if panel.figure is not None:
        _say_unknown(panel.axes, len(shown), len(known), any(low < high for _, (low, high) in known))


def _best(comparison: Comparison, figure: reading.Cost | None) -> list[Result]:
    """Return the results that no other dominates; the baseline may dominate, too."""
    if figure is None:
        return [result for result in comparison.results if result.is_pareto]
    known = [(result, value.high) for result in comparison.results if (value := measured(result.row, figure))]
    best = results.pareto([(result.error, -value) for result, value in known])
    return [known[index][0] for index in sorted(best)]


def _ends(result: Result, figure: reading.Cost | None) -> tuple[float, float] | None:
    return (result.rate, result.rate) if figure is None else measured(result.row, figure)


def _scale(panel: Panel, values: Sequence[float]) -> None:
    """Choose unit and kind of the scale, and label it."""
    axes = panel.axes
    if panel.figure is None:
        axes.set_ylabel("Compression rate (times smaller than fp32)")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}x"))
        return
    least, most = (min(values), max(values)) if values else (1.0, 1.0)
    is_wide = most > _LOG_FROM * least
    panel.factor, unit = results.scale_of(panel.figure, math.sqrt(least * most) if is_wide else most)
    if is_wide:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.set_ylabel(f"{panel.figure.label} ({unit})")


def _say_unknown(axes: Axes, shown: int, known: int, has_brackets: bool) -> None:  # noqa: FBT001 — private
    """Write above the panel how many rows have no figure, and what bars are."""
    if not known:
        axes.text(0.5, 0.5, "no row has this figure", transform=axes.transAxes, ha="center", va="center")
        return
    unknown = f"unknown, not shown: {shown - known}" if known < shown else ""
    bars = "bars: from the lower to the upper bound" if has_brackets else ""
    axes.set_title(" · ".join(filter(None, (bars, unknown))), loc="left", fontsize=9, color=FAINT)


def _draw(panel: Panel, point: Point) -> list[Segment]:
    """Draw one result, lighter when it is dominated; return its bars."""
    axes, result, colour = panel.axes, point.shown.result, point.shown.colour
    alpha = 1.0 if point.is_best else DOMINATED
    bars: list[Segment] = []
    if result.error_stderr:
        bars.append(((result.error - result.error_stderr, point.y), (result.error + result.error_stderr, point.y)))
    if point.low < point.y:
        bars.append(((result.error, point.low), (result.error, point.y)))
    for bar in bars:
        xs, ys = zip(*bar, strict=True)
        axes.plot(xs, ys, color=colour, alpha=alpha, linewidth=1.3, marker="|" if ys[0] == ys[1] else "_", zorder=2)
    marker = MARKERS[result.group]
    if not point.is_best:  # no line shows through a light marker
        axes.plot(result.error, point.y, marker, color="white", markersize=MARKER_SIZE, zorder=2.5)
    (line,) = axes.plot(result.error, point.y, marker=marker, color=colour, alpha=alpha)
    line.set(markersize=MARKER_SIZE, markeredgecolor="white", markeredgewidth=0.8)
    line.set_gid(f"{panel.prefix}row-{point.shown.number}")
    line.set_zorder(4 if point.is_best else 3)
    return bars


def _front(panel: Panel, best: Sequence[Point], colour: str) -> list[Segment]:
    """Draw the steps between the best results: the best figure available at each error."""
    if len(best) < 2:  # noqa: PLR2004 — a line has two ends
        return []
    ends = [(point.shown.result.error, point.y) for point in best]
    errors, figures = zip(*ends, strict=True)
    panel.axes.plot(errors, figures, drawstyle="steps-post", color=colour, linewidth=1.2, alpha=0.8, zorder=1)
    corners = [ends[0]]
    for (_, before), (error, after) in itertools.pairwise(ends):
        corners += [(error, before), (error, after)]
    return list(itertools.pairwise(corners))


def leave_room(panel: Panel) -> None:
    """Leave room above and below the points for their names."""
    if not panel.points:
        panel.axes.set_yticks([])
        return
    bottom, top = panel.axes.dataLim.intervaly
    if panel.axes.get_yscale() == "log":
        ratio = (top / bottom) ** 0.13
        panel.axes.set_ylim(bottom / ratio, top * ratio)
        return
    room = max((top - bottom) * 0.11, top * 0.05)
    panel.axes.set_ylim(bottom - room, top + room)


def add_bounds(panel: Panel, comparisons: Sequence[Comparison], bounds: Bounds, best: Sequence[Result]) -> None:
    """Draw the bounds that are near, and a ring around each recommended result."""
    axes = panel.axes
    panel.ringed = [point for point in panel.points if any(point.shown.result is result for result in best)]
    ring: dict[str, Any] = {"marker": "o", "markersize": _RING_SIZE, "fillstyle": "none", "color": "#444444"}
    for point in panel.ringed:
        axes.plot(point.shown.result.error, point.y, zorder=5, **ring)
    look: dict[str, Any] = {"color": "#666666", "linestyle": ":", "linewidth": 1.4, "zorder": 1}
    left, right = axes.get_xlim()
    for bound in bounds:
        level = _level(panel, comparisons, bound)
        if bound.figure is None and left <= bound.limit <= right * _NEAR:
            axes.set_xlim(left, max(right, bound.limit * 1.05))
            axes.axvline(bound.limit, **look)
            bottom, top = axes.get_ylim()
            panel.lines.append(((bound.limit, bottom), (bound.limit, top)))
        elif level is not None and panel.points and _reaches(axes, level):
            axes.axhline(level, **look)
            panel.lines.append(((left, level), (right, level)))


def _level(panel: Panel, comparisons: Sequence[Comparison], bound: Bound) -> float | None:
    """Return where the panel shows a bound as a height; None when it does not."""
    if bound.figure is not None and bound.figure is panel.figure:
        return bound.limit / panel.factor
    if bound.figure is MODEL_SIZE and panel.figure is None and len(comparisons) == 1:
        baseline = comparisons[0].model.baseline
        return baseline.size * MODEL_SIZE.factor / bound.limit
    return None


def _reaches(axes: Axes, level: float) -> bool:
    """Return whether a height is in the panel, after making a little more room above or below if that suffices."""
    bottom, top = axes.get_ylim()
    if not bottom / _NEAR <= level <= top * _NEAR:
        return False
    axes.set_ylim(min(bottom, level * 0.98), max(top, level * 1.02))
    return True


def add_names(panel: Panel, renderer: RendererBase, dpi: float) -> None:
    """Write every point's name where it covers nothing; the layout must be final."""
    best_first = sorted(range(len(panel.points)), key=lambda number: not panel.points[number].is_best)
    named = best_first[:MAX_NAMED]
    texts = [_annotation(panel.axes, point) for point in panel.points]
    pixels = panel.axes.transData.transform
    points = [tuple(pixels((point.shown.result.error, point.y))) for point in panel.points]
    segments = [(tuple(pixels(start)), tuple(pixels(end))) for start, end in panel.lines]
    inside = panel.axes.get_window_extent(renderer).padded(-2).extents
    per_point = dpi / 72
    for ringed in panel.ringed:
        segments += _ring(tuple(pixels((ringed.shown.result.error, ringed.y))), _RING_SIZE / 2 * per_point)
    labels = Labels(points, inside, MARKER_SIZE / 2 * per_point, segments)
    sizes: list[Pixels | None] = [None] * len(texts)
    for number in named:
        extent = Text.get_window_extent(texts[number], renderer)  # without the leader
        sizes[number] = extent.width, extent.height
    for text, point, position in zip(texts, points, labels.place_all(sizes), strict=True):
        if position is None:
            text.remove()
            panel.unnamed += 1
            continue
        text.set_position(((position.left - point[0]) / per_point, (position.bottom - point[1]) / per_point))
        if position.distance < FAR and text.arrow_patch is not None:
            text.arrow_patch.set_visible(False)


def _ring(middle: Pixels, radius: float) -> list[Segment]:
    angles = [2 * math.pi * corner / _CORNERS for corner in range(_CORNERS + 1)]
    corners = [(middle[0] + radius * math.cos(angle), middle[1] + radius * math.sin(angle)) for angle in angles]
    return list(itertools.pairwise(corners))


def _annotation(axes: Axes, point: Point) -> Annotation:
    result = point.shown.result
    line = {"color": point.shown.colour, "linewidth": 0.7, "alpha": 0.6, "shrinkA": 0, "shrinkB": 4}
    look: dict[str, Any] = {"color": "#222222" if point.is_best else _GREY, "fontsize": 8.5, "zorder": 6}
    look |= {"xytext": (0, 0), "textcoords": "offset points", "va": "bottom", "parse_math": False}
    name = shortened(printable(result.label), LABEL)
    return axes.annotate(name, (result.error, point.y), arrowprops={"arrowstyle": "-", **line}, **look)
