"""Draws the picture: a panel with compression rate against average relative error, and panels with memory or time.

All panels have the same error axis. A panel has named points, the Pareto front and bounds.
"""

from __future__ import annotations

import io
import itertools
import math
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from nncftools.compression import reading, results
from nncftools.compression.reading import MODEL_SIZE
from nncftools.compression.results import Bound, Bounds, Comparison, Group, Result, get_figure
from nncftools.drawing import FAINT, PALETTE, Ruler, figure, missing_glyphs_as_boxes, plain
from nncftools.units import printable, shortened

LABEL = 40
MAX_NAMED = 80
"""The most names in a panel. More names would be illegible."""
GROUPS = (
    Group.LORA,
    Group.GPTQ,
    Group.DATA_FREE,
    Group.MIXED,
    Group.DATA_AWARE,
    Group.INT8,
    Group.OTHER,
)
MARKERS = dict(zip(GROUPS, "D^vosXP", strict=True))
MARKER_SIZE = 8.0
_RING_SIZE = 15.0
DOMINATED = 0.45
"""The opacity of points that are not on the Pareto front."""
LINE = "#888888"
_LOG_FROM = 10
"""The vertical scale is logarithmic if the largest value is more than this many times the smallest value."""
_NEAR = 1.5
"""A bound is not drawn if the bound exceeds the end of the scale by more than this factor."""


_NAME = 70
_GROUP_COLOURS = (2, 3, 1, 0, 4, 5, 6)
_COLOURS = {group: PALETTE[number] for group, number in zip(GROUPS, _GROUP_COLOURS, strict=True)}
"""The colour of each kind of compression, if the picture has a single model. Otherwise, each model has a colour."""
_WIDTH_IN = 10.0
_MAIN_IN = 6.2
_PANEL_IN = 4.6
_DASHES = (0, (5, 2.5))
"""The dashes of lines through results of mixed precision. Pareto fronts are solid lines."""
_LEGEND_SIZE = 9.0
_LEGEND_ROOM_IN = 9.6
_HANDLE_IN = 0.6
"""The width of the marker and the gap in a legend's column, in inches."""
_GREY = "#777777"
_LINE = 95
"""The most characters in a line of the title, or of the text about results that are not drawn."""


class ShownResult(NamedTuple):
    """A result in the picture, with the index of the model, the index of the result in the table, and a colour."""

    model: int
    number: int
    result: Result
    colour: str


class Point(NamedTuple):
    """A result in a panel. ``low`` and ``y`` are in the unit of the panel's scale."""

    shown: ShownResult
    low: float
    y: float
    """The value on the vertical axis. If only a lower and an upper bound are known, the upper bound."""
    is_best: bool
    """Whether the point is on the panel's Pareto front."""

    @property
    def place(self) -> tuple[float, float]:
        """The coordinates of the point: error, and the value on the vertical axis."""
        return self.shown.result.error, self.y


@dataclass
class Panel:
    """A part of the picture with a separate vertical axis, and the points in this part."""

    axes: Axes
    figure: reading.Cost | None = None
    """The memory size or duration on the vertical axis, for which less is better. None for the compression rate, for
    which more is better."""
    prefix: str = ""
    """The SVG ids of the panel's points begin with this text."""
    factor: float = 1.0
    """The size of the scale's unit, in bytes or seconds."""
    points: list[Point] = field(default_factory=list)


@dataclass
class Drawing:
    """The picture, and the results that are not in the picture."""

    figure: Figure
    unnamed: int = 0
    """The number of points that have no name, because there was no room."""
    left_out: list[str] = field(default_factory=list)
    """Names and errors of the results that are not drawn, because the error is too large."""
    points: list[tuple[Result, str]] = field(default_factory=list)
    """The results in the picture, each with a colour."""
    joined: set[Group] = field(default_factory=set)
    """The kinds of compression for which a line joins the results with different shares of int4."""


def draw(
    comparisons: Sequence[Comparison],
    bounds: Bounds | None = None,
    far: Collection[int] = (),
    also: Sequence[reading.Cost] = (),
) -> Drawing:
    """Draw all results except baselines, and except results whose ``id`` is in ``far``.

    Each cost (memory or time) in ``also`` has a panel below the compression rate. Bounds are drawn as lines. For each
    model, a ring marks the smallest result within the bounds.
    """
    canvas, axes = figure()
    drawing = Drawing(canvas)
    shown = _choose_results(drawing, comparisons, far)
    panels = [Panel(axes), *_add_panels(canvas, axes, also)]
    _add_titles(panels, comparisons)
    if drawing.left_out:
        label = f"{panels[-1].axes.get_xlabel()} (not drawn: {', '.join(drawing.left_out)})"
        label = textwrap.fill(label, _LINE, max_lines=2, placeholder=" …)")
        panels[-1].axes.set_xlabel(label, parse_math=False)
    if not shown:
        for panel in panels:
            _write_in_middle(panel.axes, "no compressed models to show")
            panel.axes.set(xlim=(0, 0.1), ylim=(0, 8))
        return drawing
    fronts = [LINE]
    if len(comparisons) > 1:
        fronts = [PALETTE[model % len(PALETTE)] for model in range(len(comparisons))]
    for panel in panels:
        _fill(panel, comparisons, shown, fronts)
    for model in range(len(comparisons)):
        _join_shares(drawing, axes, [each for each in shown if each.model == model])
    # leave room for names beside the points; the error axis begins at 0 unless a point is near or below 0
    left, right = axes.dataLim.intervalx
    width = max(right - min(left, 0), 0.01)
    begin = 0 if left > width * 0.03 else min(left, 0) - width * 0.06
    axes.set_xlim(begin, max(right, 0) + width * 0.13)
    for panel in panels:
        _leave_room(panel)
    if bounds is not None:
        choices = [results.choose(comparison, bounds).best for comparison in comparisons]
        for panel in panels:
            _add_bounds(panel, comparisons, bounds, choices)
    _add_legend(drawing, panels, [comparison.name for comparison in comparisons], bounds)
    with missing_glyphs_as_boxes():
        _add_names(drawing, panels)
    return drawing


def render(drawing: Drawing, kind: str) -> bytes:
    """Return the picture as ``png``, ``svg`` or ``pdf``. Drawing the same picture again gives the same bytes."""
    content = io.BytesIO()
    metadata = {
        "png": {},
        "svg": {"Date": None},
        "pdf": {"CreationDate": None},
    }[kind]
    with missing_glyphs_as_boxes(), rc_context({"svg.hashsalt": "nncf-tools"}):
        drawing.figure.savefig(content, format=kind, metadata=metadata)
    return content.getvalue()


def _choose_results(drawing: Drawing, comparisons: Sequence[Comparison], far: Collection[int]) -> list[ShownResult]:
    shown: list[ShownResult] = []
    numbers = itertools.count()
    for model, comparison in enumerate(comparisons):
        for result in comparison.results:
            number = next(numbers)
            if result.group is Group.BASELINE:
                continue
            if id(result) in far:
                name = shortened(printable(result.label), LABEL)
                drawing.left_out.append(f"{name} at {results.error_text(result.error)}")
                continue
            colour = PALETTE[model % len(PALETTE)] if len(comparisons) > 1 else _COLOURS[result.group]
            shown.append(ShownResult(model, number, result, colour))
            drawing.points.append((result, colour))
    return shown


def _add_panels(canvas: Figure, axes: Axes, also: Sequence[reading.Cost]) -> list[Panel]:
    """Add a panel for each cost (memory or time) in ``also``, below the first panel; return the new panels."""
    heights = [_MAIN_IN, *[_PANEL_IN] * len(also)]
    canvas.set_size_inches(_WIDTH_IN, sum(heights))
    grid = canvas.add_gridspec(len(heights), 1, height_ratios=heights)
    axes.set_subplotspec(grid[0])
    panels = []
    for number, cost in enumerate(also, 1):
        below = canvas.add_subplot(grid[number], sharex=axes)
        plain(below)
        panels.append(Panel(below, cost, prefix=f"panel-{number}-"))
    return panels


def _add_titles(panels: Sequence[Panel], comparisons: Sequence[Comparison]) -> None:
    axes = panels[0].axes
    title = " · ".join(comparison.name for comparison in comparisons)
    if len(comparisons) == 1:
        title = comparisons[0].title
    axes.set_title(
        textwrap.fill(shortened(printable(title), 180), _LINE),
        loc="left",
        fontsize=10,
        fontweight="bold",
        parse_math=False,
        gid="title",
    )
    label = "Average relative error"
    every = itertools.chain.from_iterable(comparison.results for comparison in comparisons)
    if any(result.error_stderr for result in every):
        label += " (bars: ± one standard error)"
    panels[-1].axes.set_xlabel(label)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(value * 100, 9):,.10g}%"))


def _write_in_middle(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center")


def _join_shares(drawing: Drawing, axes: Axes, shown: Sequence[ShownResult]) -> None:
    """Join results of a model by lines, from the smallest to the largest share of int4. See ``find_lines``."""
    colours = {id(each.result): each.colour for each in shown}
    for series in results.find_lines([each.result for each in shown]):
        drawing.joined.add(series[0].group)
        axes.plot(
            [result.error for result in series],
            [result.rate for result in series],
            color=colours[id(series[0])],
            linestyle=_DASHES,
            linewidth=1.2,
            alpha=0.7,
            zorder=1,
        )


def _add_legend(drawing: Drawing, panels: Sequence[Panel], models: Sequence[str], bounds: Bounds | None) -> None:
    several = len(models) > 1
    entries = []
    drawn = {point.shown.model for point in panels[0].points}
    for number in sorted(drawn) if several else ():
        colour = PALETTE[number % len(PALETTE)]
        label = shortened(printable(models[number]), LABEL)
        entries.append(Line2D([], [], color=colour, linewidth=4, label=label))
    for group in GROUPS:
        members = [result for result, _ in drawing.points if result.group is group]
        if members:
            kind = shortened(printable(results.series_name(members)), _NAME)
            entry = _legend_mark(MARKERS[group], _GREY if several else _COLOURS[group], kind)
            entry.set_linestyle(_DASHES if group in drawing.joined else "")
            entries.append(entry)
    best = [[point.is_best for point in panel.points] for panel in panels]
    if any(sum(of_panel) > len(models) for of_panel in best):
        entries.append(Line2D([], [], color=LINE, linewidth=1.2, label="Pareto front"))
    if not all(map(all, best)):
        panel_words = " in its panel" if len(panels) > 1 else ""
        entries.append(_legend_mark("o", _GREY, f"lighter: dominated{panel_words}", alpha=DOMINATED))
    if bounds is not None:
        ring = Line2D(
            [],
            [],
            marker="o",
            markersize=10,
            fillstyle="none",
            color="#444444",
            linestyle=":",
            label=f"smallest with {bounds}",
        )
        entries.append(ring)
    ruler = Ruler()
    labels = [str(entry.get_label()) for entry in entries]
    widest_in = _HANDLE_IN + max(ruler.width(label, _LEGEND_SIZE) for label in labels)
    legend = drawing.figure.legend(
        handles=entries,
        loc="outside lower center",
        frameon=False,
        ncols=max(1, min(4, int(_LEGEND_ROOM_IN / widest_in))),
        fontsize=_LEGEND_SIZE,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _legend_mark(marker: str, colour: str, label: str, alpha: float = 1.0) -> Line2D:
    return Line2D(
        [],
        [],
        marker=marker,
        markersize=MARKER_SIZE,
        markeredgecolor="white",
        color=colour,
        linestyle="",
        label=label,
        alpha=alpha,
    )


def _fill(panel: Panel, comparisons: Sequence[Comparison], shown: Sequence[ShownResult], fronts: Sequence[str]) -> None:
    """Draw the results that have a value for the panel's vertical axis, and the Pareto front of each model.

    ``fronts`` has the colour of each model's Pareto front.
    """
    best = set[int]()
    for comparison in comparisons:
        best.update(map(id, _find_best(comparison, panel.figure)))
    known: list[tuple[ShownResult, tuple[float, float]]] = []
    for each in shown:
        rate = each.result.rate
        ends: tuple[float, float] | None = rate, rate
        if panel.figure is not None:
            ends = get_figure(each.result.row, panel.figure)
        if ends is not None:
            known.append((each, ends))
    _set_scale(panel, [high for _, (_, high) in known])
    for each, (low, high) in known:
        is_best = id(each.result) in best
        point = Point(each, low / panel.factor, high / panel.factor, is_best)
        panel.points.append(point)
        _draw_point(panel, point)
    for model, colour in enumerate(fronts):
        front = [point.place for point in panel.points if point.is_best and point.shown.model == model]
        if len(front) > 1:
            panel.axes.plot(
                *zip(*front, strict=True),
                color=colour,
                drawstyle="steps-post",
                linewidth=1.2,
                alpha=0.8,
                zorder=1,
            )
    if panel.figure is None:
        return
    if not known:
        _write_in_middle(panel.axes, "no row has this value")
        return
    notes = []
    if any(low < high for _, (low, high) in known):
        notes.append("bars: from the lower to the upper bound")
    if len(known) < len(shown):
        notes.append(f"unknown, not shown: {len(shown) - len(known)}")
    panel.axes.set_title(" · ".join(notes), loc="left", fontsize=9, color=FAINT)


def _find_best(comparison: Comparison, cost: reading.Cost | None) -> list[Result]:
    """Return the results on the Pareto front. The baseline takes part, and can keep other results off the front."""
    if cost is None:
        return [result for result in comparison.results if result.is_pareto]
    known = []
    places = []
    for result in comparison.results:
        value = get_figure(result.row, cost)
        if value is not None:
            known.append(result)
            places.append((result.error, -value.high))
    return [known[index] for index in sorted(results.pareto(places))]


def _set_scale(panel: Panel, values: Sequence[float]) -> None:
    """Choose the unit, and a linear or logarithmic scale; label the axis."""
    axes = panel.axes
    least = min(values, default=1.0)
    most = max(values, default=1.0)
    typical = most
    if most > _LOG_FROM * least:
        typical = math.sqrt(least * most)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    if panel.figure is None:
        axes.set_ylabel("Compression rate (times smaller than fp32)")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}x"))
        return
    panel.factor, unit = results.scale_of(panel.figure, typical)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.set_ylabel(f"{panel.figure.label} ({unit})")


def _draw_point(panel: Panel, point: Point) -> None:
    """Draw a result with error bars. Results that are not on the Pareto front are lighter."""
    axes = panel.axes
    result = point.shown.result
    error, y = point.place
    alpha = 1.0 if point.is_best else DOMINATED
    colour: dict[str, Any] = {"color": point.shown.colour, "alpha": alpha}
    bar: dict[str, Any] = {"linewidth": 0.7, "zorder": 2}
    if result.error_stderr:
        ends = (error - result.error_stderr, error + result.error_stderr)
        axes.plot(ends, (y, y), marker="|", **bar, **colour)
    if point.low < y:
        ends = (point.low, y)
        axes.plot((error, error), ends, marker="_", **bar, **colour)
    marker = MARKERS[result.group]
    if not point.is_best:  # a white marker below hides the lines behind a light marker
        axes.plot(error, y, marker, color="white", markersize=MARKER_SIZE, zorder=2.5)
    axes.plot(
        error,
        y,
        marker=marker,
        markersize=MARKER_SIZE,
        markeredgecolor="white",
        markeredgewidth=0.8,
        gid=f"{panel.prefix}row-{point.shown.number}",
        zorder=4 if point.is_best else 3,
        **colour,
    )


def _leave_room(panel: Panel) -> None:
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


def _add_bounds(
    panel: Panel, comparisons: Sequence[Comparison], bounds: Bounds, choices: Sequence[Result | None]
) -> None:
    """Draw the bounds that are near the points, and a ring around each recommended result in ``choices``."""
    axes = panel.axes
    for point in panel.points:
        if any(point.shown.result is result for result in choices):
            axes.plot(
                *point.place,
                marker="o",
                markersize=_RING_SIZE,
                fillstyle="none",
                color="#444444",
                zorder=5,
            )
    look: dict[str, Any] = {
        "color": "#666666",
        "linestyle": ":",
        "linewidth": 1.4,
        "zorder": 1,
    }
    left, right = axes.get_xlim()
    for bound in bounds:
        level = _find_level(panel, comparisons, bound)
        if bound.figure is None and left <= bound.limit <= right * _NEAR:
            axes.set_xlim(left, max(right, bound.limit * 1.05))
            axes.axvline(bound.limit, **look)
        elif level is not None and panel.points and _reaches(axes, level):
            axes.axhline(level, **look)


def _find_level(panel: Panel, comparisons: Sequence[Comparison], bound: Bound) -> float | None:
    """Return the height of a bound in the panel; None if the panel does not show this bound."""
    if bound.figure is not None and bound.figure is panel.figure:
        return bound.limit / panel.factor
    if bound.figure is MODEL_SIZE and panel.figure is None and len(comparisons) == 1:
        baseline = comparisons[0].model.baseline
        return baseline.size * MODEL_SIZE.factor / bound.limit
    return None


def _reaches(axes: Axes, level: float) -> bool:
    """Return whether a height is in the panel. If the height is a little outside, extend the panel."""
    bottom, top = axes.get_ylim()
    if not bottom / _NEAR <= level <= top * _NEAR:
        return False
    axes.set_ylim(min(bottom, level * 0.98), max(top, level * 1.02))
    return True


_DISTANCES = [4 + 4 * step + 1.6 * step**2 for step in range(11)]
"""The distances to try between a marker and the name of the point, in pixels."""
_TURNS = np.array(sorted(range(-7, 9), key=abs))
_ANGLES = np.radians(45 - 22.5 * _TURNS)
_DIRECTIONS = np.column_stack([np.cos(_ANGLES), np.sin(_ANGLES)])
"""The directions to try from a marker to the name of the point. The first direction is up and right; directions near
the first come next."""
_ON_LINE = 100.0
"""The cost of a name that covers a drawn line, such as a Pareto front. The cheapest place for a name is best. Each
pixel between marker and name costs 1."""
_CROSSING = 45.0
"""The cost of a leader (the line from a marker to a name) that crosses a name or a marker."""
_FAR = 14.0
"""If a name is at least this many pixels away from the marker, a thin line (the leader) connects name and marker."""


@dataclass
class _Names:
    """Finds room for names.

    A name covers no other name and no marker, and covers a line only if there is no other room.
    """

    frame: Bbox
    gap: float
    """The radius of a marker in pixels. Names keep at least this distance from the point."""
    covered: list[Bbox] = field(default_factory=list)
    """The boxes of markers and names, which no other name may cover."""
    lines: list[Path] = field(default_factory=list)
    """Lines that names avoid if possible: Pareto fronts, bounds, and the thin lines from markers to distant names."""

    def place(self, point: NDArray[np.float64], size: NDArray[np.float64]) -> tuple[Bbox, float] | None:
        """Return the best box for a name, and the distance to the marker; None if there is no room."""
        best: tuple[Bbox, float] | None = None
        least = math.inf
        for distance in _DISTANCES:
            for direction in _DIRECTIONS:
                middle = point + direction * (self.gap + distance + size / 2)
                box = Bbox([middle - size / 2, middle + size / 2])
                if distance < least and self._is_free(box):
                    cost = distance + self._rate_disturbance(point, box, distance)
                    if cost < least:
                        least = cost
                        best = box, distance
        if best is not None:
            self.covered.append(best[0])
            if best[1] >= _FAR:
                self.lines.append(_make_leader(point, best[0]))
        return best

    def _is_free(self, box: Bbox) -> bool:
        is_inside = self.frame.contains(*box.min) and self.frame.contains(*box.max)
        return is_inside and not box.padded(1).count_overlaps(self.covered)

    def _rate_disturbance(self, point: NDArray[np.float64], box: Bbox, distance: float) -> float:
        room = box.padded(3)
        cost = _ON_LINE * sum(line.intersects_bbox(room, filled=False) for line in self.lines)
        if distance >= _FAR:
            leader = _make_leader(point, box)
            others = [other for other in self.covered if not other.contains(*point)]
            cost += _CROSSING * sum(leader.intersects_bbox(other, filled=False) for other in others)
        return cost


def _make_leader(point: NDArray[np.float64], box: Bbox) -> Path:
    return Path([point, point.clip(box.min, box.max)])


def _add_names(drawing: Drawing, panels: Sequence[Panel]) -> None:
    """Compute the final layout, switch off further changes of the layout, and write the names of the points."""
    engine = drawing.figure.get_layout_engine()
    assert engine is not None
    engine.execute(drawing.figure)
    drawing.figure.set_layout_engine("none")
    renderer: RendererBase = RendererAgg(1, 1, drawing.figure.dpi)  # type: ignore[no-untyped-call] # measures text only
    for panel in panels:
        drawing.unnamed += len(panel.points) - _name_points(panel, renderer, drawing.figure.dpi / 72)


def _name_points(panel: Panel, renderer: RendererBase, scale: float) -> int:
    """Write the names for which there is room, first the names of the best points. Return the number of names.

    ``scale`` is the number of pixels in a typographic point.
    """
    axes = panel.axes
    names = _Names(axes.get_window_extent(renderer).padded(-2), MARKER_SIZE / 2 * scale)
    for line in axes.lines:
        path = line.get_path().transformed(line.get_transform())
        if np.size(line.get_xdata()) > 1:
            names.lines.append(path)
        else:
            names.covered.append(path.get_extents().padded(line.get_markersize() / 2 * scale))
    named = 0
    for point in sorted(panel.points, key=lambda point: not point.is_best)[:MAX_NAMED]:
        text = _annotate(axes, point)
        middle = np.array(axes.transData.transform(point.place))
        extent = Text.get_window_extent(text, renderer)  # the size of the text without the leader
        place = names.place(middle, np.array(extent.size))
        if place is None:
            text.remove()
            continue
        box, distance = place
        text.set_position(tuple((box.min - middle) / scale))
        if distance < _FAR and text.arrow_patch is not None:
            text.arrow_patch.set_visible(False)
        named += 1
    return named


def _annotate(axes: Axes, point: Point) -> Annotation:
    return axes.annotate(
        shortened(printable(point.shown.result.label), LABEL),
        point.place,
        xytext=(0, 0),
        textcoords="offset points",
        arrowprops={
            "arrowstyle": "-",
            "color": point.shown.colour,
            "linewidth": 0.7,
            "alpha": 0.6,
            "shrinkA": 0,
            "shrinkB": 4,
        },
        color="#222222" if point.is_best else _GREY,
        fontsize=8.5,
        va="bottom",
        parse_math=False,
        zorder=6,
    )
