"""The picture: average relative error against compression rate, with named points and the Pareto front."""

from __future__ import annotations

import io
import itertools
import textwrap
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.ticker import FuncFormatter

from nncftools.compression.labels import FAR, Box, Labels
from nncftools.compression.legend import COLOURS, DOMINATED, MARKER_SIZE, MARKERS, add_legend
from nncftools.compression.recommend import recommended
from nncftools.drawing import PALETTE, figure
from nncftools.text import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.backend_bases import RendererBase
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

    from nncftools.compression.labels import Point, Segment
    from nncftools.compression.recommend import Bound
    from nncftools.compression.results import Comparison, Result

POINT = "row-"
"""The prefix of a point's SVG id, before its number over all results."""
TITLE = "title"
"""The id of the title's SVG element."""
_SIZE = (10.0, 6.2)
_LABEL_SIZE = 8.5
_LABEL = 40
MAX_NAMED = 80
"""More names would be illegible."""
_TITLE = 180
_TITLE_LINE = 95


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


def draw(comparisons: Sequence[Comparison], bound: Bound | None = None, max_error: float | None = None) -> Drawing:
    """Draw all results but the baselines; ``bound`` is a line, with a ring around the result that it recommends."""
    canvas, axes = figure()
    canvas.set_size_inches(*_SIZE)
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
    add_legend(canvas, [result for result, _ in drawing.points], [of.name for of in comparisons], bound)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # drawn as boxes
        _add_names(drawing, axes, lines)
    return drawing


def rendered(drawing: Drawing, kind: str) -> bytes:
    """Return the picture as ``png``, ``svg`` or ``pdf``; the same picture gives the same bytes."""
    content = io.BytesIO()
    metadata = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    with warnings.catch_warnings(), rc_context({"svg.hashsalt": "nncf-tools"}):
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # drawn as boxes
        drawing.figure.savefig(content, format=kind, metadata=metadata)
    return content.getvalue()


def _add_titles(axes: Axes, comparisons: Sequence[Comparison]) -> None:
    title = comparisons[0].title if len(comparisons) == 1 else " · ".join(of.name for of in comparisons)
    lines = textwrap.wrap(shortened(printable(title), _TITLE), _TITLE_LINE)
    axes.set_title("\n".join(lines), loc="left", fontsize=10, fontweight="bold", parse_math=False, gid=TITLE)
    bars = any(result.error_stderr for of in comparisons for result in of.results)
    axes.set_xlabel(f"Average relative error{' (bars: ± one standard error)' if bars else ''}")
    axes.set_ylabel("Compression rate (times smaller than fp32)")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:.3g}%"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}x"))


def _series(drawing: Drawing, axes: Axes, comparisons: Sequence[Comparison], max_error: float | None) -> list[Segment]:
    """Draw points, error bars and fronts; return the lines, in data coordinates, that names should avoid."""
    lines: list[Segment] = []
    for number, place, result in _counted(comparisons):
        if result.is_baseline:
            continue
        if max_error is not None and result.error > max_error:
            drawing.left_out += 1
            continue
        colour = PALETTE[place % len(PALETTE)] if len(comparisons) > 1 else COLOURS[result.group]
        drawing.points.append((result, colour))
        lines += _point(axes, result, colour, f"{POINT}{number}")
    drawn = {id(result) for result, _ in drawing.points}
    for place, comparison in enumerate(comparisons):
        shown = [result for result in comparison.results if id(result) in drawn]
        colour = PALETTE[place % len(PALETTE)] if len(comparisons) > 1 else "#888888"
        lines += _front(axes, [result for result in shown if result.is_pareto], colour)
    return lines


def _counted(comparisons: Sequence[Comparison]) -> Iterator[tuple[int, int, Result]]:
    """Yield every result with its number over all and the number of its comparison."""
    both = ((place, result) for place, comparison in enumerate(comparisons) for result in comparison.results)
    for number, (place, result) in enumerate(both):
        yield number, place, result


def _point(axes: Axes, result: Result, colour: str, gid: str) -> list[Segment]:
    """Draw one result, lighter when it is dominated; return its error bar."""
    alpha = 1.0 if result.is_pareto else DOMINATED
    bars: list[Segment] = []
    if result.error_stderr:
        low, high = result.error - result.error_stderr, result.error + result.error_stderr
        axes.plot([low, high], [result.rate] * 2, color=colour, alpha=alpha, linewidth=1.3, marker="|", zorder=2)
        bars.append(((low, result.rate), (high, result.rate)))
    (line,) = axes.plot(result.error, result.rate, marker=MARKERS[result.group], color=colour, alpha=alpha)
    line.set(
        markersize=MARKER_SIZE,
        markeredgecolor="white",
        markeredgewidth=0.8,
        gid=gid,
        zorder=4 if result.is_pareto else 3,
    )
    return bars


def _front(axes: Axes, best: Sequence[Result], colour: str) -> list[Segment]:
    """Draw the steps between the best results: the best rate available at each error."""
    if len(best) < 2:  # noqa: PLR2004 — a line has two ends
        return []
    errors, rates = [result.error for result in best], [result.rate for result in best]
    axes.plot(errors, rates, drawstyle="steps-post", color=colour, linewidth=1.2, alpha=0.8, zorder=1)
    corners = [corner for result, after in itertools.pairwise(best) for corner in _step(result, after)]
    return list(itertools.pairwise(corners))


def _step(one: Result, after: Result) -> list[Point]:
    return [(one.error, one.rate), (after.error, one.rate), (after.error, after.rate)]


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
    named = _named(drawing)
    texts = [_annotation(axes, result, colour) for result, colour in drawing.points]
    pixels = axes.transData.transform
    points = [tuple(pixels((result.error, result.rate))) for result, _ in drawing.points]
    segments = [(tuple(pixels(start)), tuple(pixels(end))) for start, end in lines]
    frame = axes.get_window_extent(renderer)
    inside = Box(frame.x0, frame.y0, frame.x1, frame.y1)
    per_point = drawing.figure.dpi / 72
    labels = Labels(points, inside.grown(-2), MARKER_SIZE / 2 * per_point, segments)
    sizes = [_size(text, renderer) if number in named else None for number, text in enumerate(texts)]
    for text, point, place in zip(texts, points, labels.place_all(sizes), strict=True):
        if place is None:
            text.remove()
            drawing.unnamed += 1
            continue
        text.set_position(((place.box.left - point[0]) / per_point, (place.box.bottom - point[1]) / per_point))
        if place.distance < FAR and text.arrow_patch is not None:
            text.arrow_patch.set_visible(False)


def _named(drawing: Drawing) -> set[int]:
    """Return the numbers of the points to name: all, or the best if there are too many."""
    order = sorted(range(len(drawing.points)), key=lambda number: not drawing.points[number][0].is_pareto)
    return set(order[:MAX_NAMED])


def _annotation(axes: Axes, result: Result, colour: str) -> Annotation:
    return axes.annotate(
        shortened(printable(result.label), _LABEL),
        (result.error, result.rate),
        xytext=(0, 0),
        textcoords="offset points",
        ha="left",
        va="bottom",
        fontsize=_LABEL_SIZE,
        color="#222222" if result.is_pareto else "#777777",
        arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "alpha": 0.6, "shrinkA": 0, "shrinkB": 4},
        zorder=6,
        parse_math=False,
    )


def _size(text: Annotation, renderer: RendererBase) -> Point:
    from matplotlib.text import Text

    extent = Text.get_window_extent(text, renderer)
    return extent.width, extent.height
