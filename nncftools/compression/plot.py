"""The picture: average relative error against compression rate, with named points and the Pareto front."""

from __future__ import annotations

import io
import itertools
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter

from nncftools.compression.labels import FAR, Labels
from nncftools.compression.results import Group, recommended
from nncftools.compression.series import joined, series_name
from nncftools.drawing import PALETTE, Ruler, figure, missing_glyphs_as_boxes
from nncftools.text import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.backend_bases import RendererBase
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

    from nncftools.compression.labels import Point, Segment
    from nncftools.compression.results import Bound, Comparison, Result

_LABEL = 40
_NAME = 70
MAX_NAMED = 80
"""More names would be illegible."""
_GROUPS = (Group.LORA, Group.GPTQ, Group.DATA_FREE, Group.MIXED, Group.DATA_AWARE, Group.INT8, Group.OTHER)
_MARKERS = dict(zip(_GROUPS, "D^vosXP", strict=True))
_COLOURS = dict(zip(_GROUPS, (PALETTE[place] for place in (2, 3, 1, 0, 4, 5, 6)), strict=True))
"""The colour of a kind in a picture of one model; several models have one colour each."""
_MARKER_SIZE = 8.0
DOMINATED = 0.45
"""The opacity of points that are not on the Pareto front."""
_LINE = "#888888"
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


def draw(comparisons: Sequence[Comparison], bound: Bound | None = None, max_error: float | None = None) -> Drawing:
    """Draw all results but the baselines; ``bound`` is a line, with a ring around the result that it recommends."""
    canvas, axes = figure()
    canvas.set_size_inches(10.0, 6.2)
    drawing = Drawing(canvas)
    _add_titles(axes, comparisons)
    lines = _series(drawing, axes, comparisons, max_error)
    if not drawing.points:
        axes.text(0.5, 0.5, "no compressed models to show", transform=axes.transAxes, ha="center", va="center")
        axes.set(xlim=(0, 0.1), ylim=(0, 8))
        return drawing
    _limits(axes)
    if bound is not None:
        lines += _recommend(drawing, axes, comparisons, bound)
    _add_legend(drawing, [of.name for of in comparisons], bound)
    with missing_glyphs_as_boxes():
        _add_names(drawing, axes, lines)
    return drawing


def rendered(drawing: Drawing, kind: str) -> bytes:
    """Return the picture as ``png``, ``svg`` or ``pdf``; the same picture gives the same bytes."""
    content = io.BytesIO()
    metadata = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    with missing_glyphs_as_boxes(), rc_context({"svg.hashsalt": "nncf-tools"}):
        drawing.figure.savefig(content, format=kind, metadata=metadata)
    return content.getvalue()


def _add_titles(axes: Axes, comparisons: Sequence[Comparison]) -> None:
    title = comparisons[0].title if len(comparisons) == 1 else " · ".join(of.name for of in comparisons)
    lines = textwrap.wrap(shortened(printable(title), 180), 95)
    axes.set_title("\n".join(lines), loc="left", fontsize=10, fontweight="bold", parse_math=False, gid="title")
    bars = any(result.error_stderr for of in comparisons for result in of.results)
    axes.set_xlabel(f"Average relative error{' (bars: ± one standard error)' if bars else ''}")
    axes.set_ylabel("Compression rate (times smaller than fp32)")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:.3g}%"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}x"))


def _series(drawing: Drawing, axes: Axes, comparisons: Sequence[Comparison], max_error: float | None) -> list[Segment]:
    """Draw points, error bars and fronts; return the lines, in data coordinates, that names should avoid.

    The SVG id of a point has its number over all results.
    """
    lines: list[Segment] = []
    numbers = itertools.count()
    for place, comparison in enumerate(comparisons):
        of_model = PALETTE[place % len(PALETTE)] if len(comparisons) > 1 else None
        front, drawn = [], []
        for result, number in zip(comparison.results, numbers, strict=False):
            if result.group is Group.BASELINE:
                continue
            if max_error is not None and result.error > max_error:
                drawing.left_out += 1
                continue
            colour = of_model or _COLOURS[result.group]
            drawing.points.append((result, colour))
            drawn.append(result)
            lines += _point(axes, result, colour, f"row-{number}")
            if result.is_pareto:
                front.append(result)
        lines += _front(axes, front, of_model or _LINE)
        for series in joined(drawn):
            drawing.joined.add(series[0].group)
            lines += _mixed(axes, series, of_model or _COLOURS[series[0].group])
    return lines


def _point(axes: Axes, result: Result, colour: str, gid: str) -> list[Segment]:
    """Draw one result, lighter when it is dominated; return its error bar."""
    alpha = 1.0 if result.is_pareto else DOMINATED
    bars: list[Segment] = []
    if result.error_stderr:
        low, high = result.error - result.error_stderr, result.error + result.error_stderr
        axes.plot([low, high], [result.rate] * 2, color=colour, alpha=alpha, linewidth=1.3, marker="|", zorder=2)
        bars.append(((low, result.rate), (high, result.rate)))
    if not result.is_pareto:  # no line shows through a light marker
        axes.plot(result.error, result.rate, _MARKERS[result.group], color="white", markersize=_MARKER_SIZE, zorder=2.5)
    (line,) = axes.plot(result.error, result.rate, marker=_MARKERS[result.group], color=colour, alpha=alpha)
    line.set(markersize=_MARKER_SIZE, markeredgecolor="white", markeredgewidth=0.8, gid=gid)
    line.set_zorder(4 if result.is_pareto else 3)
    return bars


def _front(axes: Axes, best: Sequence[Result], colour: str) -> list[Segment]:
    """Draw the steps between the best results: the best rate available at each error."""
    if len(best) < 2:  # noqa: PLR2004 — a line has two ends
        return []
    errors, rates = [result.error for result in best], [result.rate for result in best]
    axes.plot(errors, rates, drawstyle="steps-post", color=colour, linewidth=1.2, alpha=0.8, zorder=1)
    corners = [(best[0].error, best[0].rate)]
    for one, after in itertools.pairwise(best):
        corners += [(after.error, one.rate), (after.error, after.rate)]
    return list(itertools.pairwise(corners))


def _mixed(axes: Axes, series: Sequence[Result], colour: str) -> list[Segment]:
    """Draw a line through results with a growing share of int4."""
    points = [(result.error, result.rate) for result in series]
    axes.plot(*zip(*points, strict=True), color=colour, linestyle=_DASHES, linewidth=1.2, alpha=0.7, zorder=1)
    return list(itertools.pairwise(points))


def _limits(axes: Axes) -> None:
    """Leave room around the points for their names; errors begin at 0 unless a point is at or below 0."""
    left, right = axes.dataLim.intervalx
    bottom, top = axes.dataLim.intervaly
    wide = max(right - min(left, 0), 0.01)
    room = max((top - bottom) * 0.11, top * 0.05)
    start = 0 if left > wide * 0.03 else min(left, 0) - wide * 0.06
    axes.set_xlim(start, max(right, 0) + wide * 0.13)
    axes.set_ylim(bottom - room, top + room)


def _recommend(drawing: Drawing, axes: Axes, comparisons: Sequence[Comparison], bound: Bound) -> list[Segment]:
    """Draw the bound, if it is near, and a ring around the smallest model under it; return the bound's line."""
    for comparison in comparisons:
        best = recommended(comparison, bound)
        if best is not None and any(best is result for result, _ in drawing.points):
            axes.plot(best.error, best.rate, "o", markersize=15, fillstyle="none", color="#444444", zorder=5)
    left, right = axes.get_xlim()
    if not left <= bound.limit <= right * 1.5:
        return []
    axes.set_xlim(left, max(right, bound.limit * 1.05))
    axes.axvline(bound.limit, color="#666666", linestyle=":", linewidth=1.4, zorder=1)
    bottom, top = axes.get_ylim()
    return [((bound.limit, bottom), (bound.limit, top))]


def _add_names(drawing: Drawing, axes: Axes, lines: Sequence[Segment]) -> None:
    """Write every point's name where it covers nothing; fixes the layout."""
    engine = drawing.figure.get_layout_engine()
    assert engine is not None
    engine.execute(drawing.figure)
    drawing.figure.set_layout_engine("none")
    renderer: RendererBase = FigureCanvasAgg(drawing.figure).get_renderer()  # type: ignore[no-untyped-call] # matplotlib's
    best_first = sorted(range(len(drawing.points)), key=lambda number: not drawing.points[number][0].is_pareto)
    named = best_first[:MAX_NAMED]
    texts = [_annotation(axes, result, colour) for result, colour in drawing.points]
    pixels = axes.transData.transform
    points = [tuple(pixels((result.error, result.rate))) for result, _ in drawing.points]
    segments = [(tuple(pixels(start)), tuple(pixels(end))) for start, end in lines]
    inside = axes.get_window_extent(renderer).padded(-2).extents
    per_point = drawing.figure.dpi / 72
    labels = Labels(points, inside, _MARKER_SIZE / 2 * per_point, segments)
    sizes = [_size(text, renderer) if number in named else None for number, text in enumerate(texts)]
    for text, point, place in zip(texts, points, labels.place_all(sizes), strict=True):
        if place is None:
            text.remove()
            drawing.unnamed += 1
            continue
        text.set_position(((place.left - point[0]) / per_point, (place.bottom - point[1]) / per_point))
        if place.distance < FAR and text.arrow_patch is not None:
            text.arrow_patch.set_visible(False)


def _annotation(axes: Axes, result: Result, colour: str) -> Annotation:
    return axes.annotate(
        shortened(printable(result.label), _LABEL),
        (result.error, result.rate),
        xytext=(0, 0),
        textcoords="offset points",
        va="bottom",
        fontsize=8.5,
        color="#222222" if result.is_pareto else "#777777",
        arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "alpha": 0.6, "shrinkA": 0, "shrinkB": 4},
        zorder=6,
        parse_math=False,
    )


def _size(text: Annotation, renderer: RendererBase) -> Point:
    """Return width and height without the leader."""
    extent = Text.get_window_extent(text, renderer)
    return extent.width, extent.height


def _add_legend(drawing: Drawing, models: Sequence[str], bound: Bound | None) -> None:
    """Add the legend below the picture: models by colour, kinds by marker, lines."""
    several = len(models) > 1
    results = [result for result, _ in drawing.points]
    entries = [
        Line2D([], [], color=PALETTE[place % len(PALETTE)], linewidth=4, label=shortened(printable(name), _LABEL))
        for place, name in enumerate(models)
        if several
    ]
    for group in _GROUPS:
        if of_group := [result for result in results if result.group is group]:
            entry = _mark(_MARKERS[group], _GREY if several else _COLOURS[group], _kind(of_group))
            entry.set_linestyle(_DASHES if group in drawing.joined else "")
            entries.append(entry)
    if sum(result.is_pareto for result in results) > len(models):
        entries.append(Line2D([], [], color=_LINE, linewidth=1.2, label="Pareto front"))
    if not all(result.is_pareto for result in results):
        entries.append(_mark("o", _GREY, "lighter: dominated", alpha=DOMINATED))
    if bound is not None:
        ring: dict[str, Any] = {"linestyle": ":", "markersize": 10, "fillstyle": "none"}
        entries.append(Line2D([], [], marker="o", color="#444444", label=f"smallest with {bound}", **ring))
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
    look: dict[str, Any] = {"linestyle": "", "markersize": _MARKER_SIZE, "markeredgecolor": "white"}
    return Line2D([], [], marker=marker, color=colour, label=label, alpha=alpha, **look)
