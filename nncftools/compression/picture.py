"""The picture: average relative error against compression rate, and panels of other figures over the same error."""

from __future__ import annotations

import io
import itertools
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from nncftools.compression import panel as panels
from nncftools.compression.panel import DOMINATED, GROUPS, LABEL, LINE, MARKER_SIZE, MARKERS, Panel, Shown
from nncftools.compression.results import Bounds, Comparison, Group, Result, chosen, joined, series_name
from nncftools.drawing import PALETTE, Ruler, figure, missing_glyphs_as_boxes, plain
from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backend_bases import RendererBase
    from matplotlib.figure import Figure

    from nncftools.compression import reading
    from nncftools.compression.labels import Segment


_NAME = 70
_COLOURS = dict(zip(GROUPS, (PALETTE[place] for place in (2, 3, 1, 0, 4, 5, 6)), strict=True))
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
    also: Sequence[reading.Figure] = (),
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
        for panel in drawn:
            _say_empty(panel.axes)
        return drawing
    several = len(comparisons) > 1
    fronts = [PALETTE[place % len(PALETTE)] if several else LINE for place in range(len(comparisons))]
    for panel in drawn:
        panels.fill(panel, comparisons, shown, fronts)
    drawn[0].lines += _mixed_precision(drawing, axes, comparisons, shown)
    _limits(axes)
    for panel in drawn:
        panels.leave_room(panel)
    if bounds is not None:
        best = [choice.best for of in comparisons if (choice := chosen(of, bounds)).best is not None]
        for panel in drawn:
            panels.add_bounds(panel, comparisons, bounds, [one for one in best if one is not None])
    _add_legend(drawing, drawn, [of.name for of in comparisons], bounds)
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


def _shown(drawing: Drawing, comparisons: Sequence[Comparison], max_error: float | None) -> list[Shown]:
    """Return the results to draw; their number counts over all results, as in the table."""
    shown: list[Shown] = []
    numbers = itertools.count()
    for model, comparison in enumerate(comparisons):
        of_model = PALETTE[model % len(PALETTE)] if len(comparisons) > 1 else None
        for result, number in zip(comparison.results, numbers, strict=False):
            if result.group is Group.BASELINE:
                continue
            if max_error is not None and result.error > max_error:
                drawing.left_out += 1
                continue
            shown.append(Shown(model, number, result, of_model or _COLOURS[result.group]))
    drawing.points = [(one.result, one.colour) for one in shown]
    return shown


def _panels_below(canvas: Figure, axes: Axes, also: Sequence[reading.Figure]) -> list[Panel]:
    """Make the figure higher, and add a panel with the same scale of errors for each further figure."""
    heights = [_MAIN_IN, *[_PANEL_IN] * len(also)]
    canvas.set_size_inches(_WIDTH_IN, sum(heights))
    grid = canvas.add_gridspec(len(heights), 1, height_ratios=heights)
    axes.set_subplotspec(grid[0])
    below = []
    for place, one in enumerate(also, 1):
        beneath = canvas.add_subplot(grid[place], sharex=axes)
        plain(beneath)
        below.append(Panel(beneath, one, prefix=f"panel-{place}-"))
    return below


def _say_empty(axes: Axes) -> None:
    axes.text(0.5, 0.5, "no compressed models to show", transform=axes.transAxes, ha="center", va="center")
    axes.set(xlim=(0, 0.1), ylim=(0, 8))


def _add_titles(drawn: Sequence[Panel], comparisons: Sequence[Comparison]) -> None:
    axes = drawn[0].axes
    title = comparisons[0].title if len(comparisons) == 1 else " · ".join(of.name for of in comparisons)
    lines = textwrap.wrap(shortened(printable(title), 180), 95)
    axes.set_title("\n".join(lines), loc="left", fontsize=10, fontweight="bold", parse_math=False, gid="title")
    bars = any(result.error_stderr for of in comparisons for result in of.results)
    drawn[-1].axes.set_xlabel(f"Average relative error{' (bars: ± one standard error)' if bars else ''}")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:.3g}%"))


def _mixed_precision(
    drawing: Drawing, axes: Axes, comparisons: Sequence[Comparison], shown: Sequence[Shown]
) -> list[Segment]:
    """Draw lines through results with a growing share of int4; return them."""
    lines: list[Segment] = []
    for model in range(len(comparisons)):
        of_model = [one for one in shown if one.model == model]
        colours = {id(one.result): one.colour for one in of_model}
        for series in joined([one.result for one in of_model]):
            drawing.joined.add(series[0].group)
            points = [(result.error, result.rate) for result in series]
            look: dict[str, Any] = {"linestyle": _DASHES, "linewidth": 1.2, "alpha": 0.7, "zorder": 1}
            axes.plot(*zip(*points, strict=True), color=colours[id(series[0])], **look)
            lines += itertools.pairwise(points)
    return lines


def _limits(axes: Axes) -> None:
    """Leave room beside the points for their names; errors begin at 0 unless a point is at or below 0."""
    left, right = axes.dataLim.intervalx
    wide = max(right - min(left, 0), 0.01)
    start = 0 if left > wide * 0.03 else min(left, 0) - wide * 0.06
    axes.set_xlim(start, max(right, 0) + wide * 0.13)


def _add_names(drawing: Drawing, drawn: Sequence[Panel]) -> None:
    """Write the points' names; fixes the layout."""
    engine = drawing.figure.get_layout_engine()
    assert engine is not None
    engine.execute(drawing.figure)
    drawing.figure.set_layout_engine("none")
    renderer: RendererBase = RendererAgg(1, 1, drawing.figure.dpi)  # type: ignore[no-untyped-call] # measures text only
    for panel in drawn:
        panels.add_names(panel, renderer, drawing.figure.dpi)
    drawing.unnamed = sum(panel.unnamed for panel in drawn)


def _add_legend(drawing: Drawing, drawn: Sequence[Panel], models: Sequence[str], bounds: Bounds | None) -> None:
    """Add the legend below the picture: models by colour, kinds by marker, lines."""
    several = len(models) > 1
    results = [result for result, _ in drawing.points]
    entries = [
        Line2D([], [], color=PALETTE[place % len(PALETTE)], linewidth=4, label=shortened(printable(name), LABEL))
        for place, name in enumerate(models)
        if several
    ]
    for group in GROUPS:
        if of_group := [result for result in results if result.group is group]:
            entry = _mark(MARKERS[group], _GREY if several else _COLOURS[group], _kind(of_group))
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
    columns = max(1, min(4, int(_LEGEND_ROOM_IN / widest_in)))
    legend = drawing.figure.legend(
        handles=entries, loc="outside lower center", ncols=columns, frameon=False, fontsize=_LEGEND_SIZE
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _kind(results: Sequence[Result]) -> str:
    return shortened(printable(series_name(results)), _NAME)


def _mark(marker: str, colour: str, label: str, alpha: float = 1.0) -> Line2D:
    look: dict[str, Any] = {"linestyle": "", "markersize": MARKER_SIZE, "markeredgecolor": "white"}
    return Line2D([], [], marker=marker, color=colour, label=label, alpha=alpha, **look)
