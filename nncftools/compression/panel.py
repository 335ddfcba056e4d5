"""One panel of the picture: a figure over the error, with named points, the Pareto front and bounds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from matplotlib.text import Annotation, Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from nncftools.compression.labels import FAR, Labels
from nncftools.compression.reading import MODEL_SIZE, Figure
from nncftools.compression.results import Bound, Bounds, Comparison, Group, Result, measured, pareto, scale_of
from nncftools.drawing import FAINT
from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backend_bases import RendererBase

    from nncftools.compression.labels import Point as Place
    from nncftools.compression.labels import Segment

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


class Shown(NamedTuple):
    """A result that the picture shows: the model's place, its number over all results, its colour."""

    model: int
    number: int
    result: Result
    colour: str


class Point(NamedTuple):
    """A result in a panel, in the panel's unit."""

    shown: Shown
    low: float
    y: float
    """The end of a bracket that counts."""
    is_best: bool
    """Whether it is on the panel's Pareto front."""


@dataclass
class Panel:
    """The axes, and what is drawn in them."""

    axes: Axes
    figure: Figure | None = None
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


def fill(panel: Panel, comparisons: Sequence[Comparison], shown: Sequence[Shown], fronts: Sequence[str]) -> None:
    """Draw what has the panel's figure: points, brackets, and each model's front in its colour."""
    best = {id(result) for comparison in comparisons for result in _best(comparison, panel.figure)}
    known = [(one, found) for one in shown if (found := _ends(one.result, panel.figure))]
    _scale(panel, [high for _, (_, high) in known])
    panel.points = [
        Point(one, low / panel.factor, high / panel.factor, id(one.result) in best) for one, (low, high) in known
    ]
    for point in panel.points:
        panel.lines += _draw(panel, point)
    for model, colour in enumerate(fronts):
        panel.lines += _front(panel, [p for p in panel.points if p.is_best and p.shown.model == model], colour)
    if panel.figure is not None:
        _say_unknown(panel.axes, len(shown), len(known), any(low < high for _, (low, high) in known))


def _best(comparison: Comparison, figure: Figure | None) -> list[Result]:
    """Return the results that no other dominates; the baseline may dominate, too."""
    if figure is None:
        return [result for result in comparison.results if result.is_pareto]
    known = [(result, found.high) for result in comparison.results if (found := measured(result.row, figure))]
    places = pareto([(result.error, -value) for result, value in known])
    return [known[place][0] for place in sorted(places)]


def _ends(result: Result, figure: Figure | None) -> tuple[float, float] | None:
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
    panel.factor, unit = scale_of(panel.figure, math.sqrt(least * most) if is_wide else most)
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
    for one in panel.ringed:
        segments += _ring(tuple(pixels((one.shown.result.error, one.y))), _RING_SIZE / 2 * per_point)
    labels = Labels(points, inside, MARKER_SIZE / 2 * per_point, segments)
    sizes = [_size(text, renderer) if number in named else None for number, text in enumerate(texts)]
    for text, point, place in zip(texts, points, labels.place_all(sizes), strict=True):
        if place is None:
            text.remove()
            panel.unnamed += 1
            continue
        text.set_position(((place.left - point[0]) / per_point, (place.bottom - point[1]) / per_point))
        if place.distance < FAR and text.arrow_patch is not None:
            text.arrow_patch.set_visible(False)


def _ring(middle: Place, radius: float) -> list[Segment]:
    """Return a polygon about a point, in pixels."""
    angles = [2 * math.pi * corner / _CORNERS for corner in range(_CORNERS + 1)]
    corners = [(middle[0] + radius * math.cos(angle), middle[1] + radius * math.sin(angle)) for angle in angles]
    return list(itertools.pairwise(corners))


def _annotation(axes: Axes, point: Point) -> Annotation:
    colour = point.shown.colour
    return axes.annotate(
        shortened(printable(point.shown.result.label), LABEL),
        (point.shown.result.error, point.y),
        xytext=(0, 0),
        textcoords="offset points",
        va="bottom",
        fontsize=8.5,
        color="#222222" if point.is_best else "#777777",
        arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "alpha": 0.6, "shrinkA": 0, "shrinkB": 4},
        zorder=6,
        parse_math=False,
    )


def _size(text: Annotation, renderer: RendererBase) -> Place:
    """Return width and height without the leader."""
    extent = Text.get_window_extent(text, renderer)
    return extent.width, extent.height
