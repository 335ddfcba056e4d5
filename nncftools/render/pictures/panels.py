"""The picture of a profiled run: memory, CPU, and what each operation read, wrote and took, on one page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from nncftools.analysis.series import run_s
from nncftools.analysis.timeline import timeline
from nncftools.drawing import DPI, FAINT, INK, Ruler, missing_glyphs_as_boxes, plain, save, time_axis
from nncftools.render.operations import counters_of, listed, rows
from nncftools.render.pictures.band import Band
from nncftools.render.pictures.operation_bars import MOST_ROWS, WIDTH, Shown, draw_rows, height
from nncftools.render.pictures.timelines import IO_COUNTERS, draw_cpu, draw_io, draw_memory, shown_metric
from nncftools.render.view import View, command_text
from nncftools.units import MemoryUnit, printable, shortened

if TYPE_CHECKING:
    import pathlib

    from matplotlib.axes import Axes

    from nncftools.session.session import Session

_LEFT, _RIGHT = 1.0, 1.05
"""Margins beside the panels over time; all lengths here are in inches."""
_LEFT_OF_LONG_FIGURES = 1.5
_TITLE, _TITLE_SIZE, _TITLE_LINE = 400, 10, 0.19
_MEMORY, _CPU, _IO = 2.8, 1.5, 1.6
_MARGIN, _BETWEEN, _TIME_LABELS, _IO_HEAD = 0.15, 0.3, 0.6, 0.55


def draw(session: Session, view: View, path: pathlib.Path, kind: str = "") -> None:
    """Write the picture in the format ``kind``, by default the suffix of the path. Raises OSError."""
    with missing_glyphs_as_boxes():
        drawing = page(session, view)
    save(drawing, path, kind)


def page(session: Session, view: View) -> Figure:
    """Return the picture."""
    every = listed(timeline(session.operations, view.depth), session)
    counters = counters_of(session.samples.metrics)
    shown = rows(every, counters, MOST_ROWS, session)
    band, ruler = Band(every, run_s(session)), Ruler()
    text = shortened(printable(view.title) or command_text(session), _TITLE)
    title = ruler.lines(text, WIDTH - 4 * _MARGIN, _TITLE_SIZE, 2)
    memory_top = 2 * _MARGIN + len(title) * _TITLE_LINE + band.height
    cpu_top = memory_top + _MEMORY + _BETWEEN
    lower_top = cpu_top + _CPU + _TIME_LABELS
    lower = height(shown) if shown else _IO_HEAD + _IO + _TIME_LABELS
    drawing = Figure(figsize=(WIDTH, lower_top + lower + _MARGIN), dpi=DPI)
    _write(drawing, (2 * _MARGIN, _MARGIN), "\n".join(title), INK)
    left = _LEFT if view.unit.factor >= MemoryUnit.MB.factor else _LEFT_OF_LONG_FIGURES
    memory = _panel(drawing, (left, memory_top, WIDTH - left - _RIGHT, _MEMORY))
    draw_memory(memory, session, view, ruler)
    band.tint(memory)
    band.draw(memory, ruler)
    cpu = _panel(drawing, (left, cpu_top, WIDTH - left - _RIGHT, _CPU))
    draw_cpu(cpu, session)
    band.draw(cpu)
    for axes in (memory, cpu):
        time_axis(axes, run_s(session))
    memory.set_xlabel("")
    memory.tick_params(labelbottom=False)
    if shown:
        unit = view.unit if view.unit.factor >= MemoryUnit.MB.factor else MemoryUnit.MiB
        beside = Shown(shown_metric(session, view), unit, counters, session.duration_s)
        draw_rows(_axes(drawing, (0, lower_top, WIDTH, lower)), shown, beside, ruler)
    else:
        _draw_io(drawing, session, lower_top)
    return drawing


def _draw_io(drawing: Figure, session: Session, top: float) -> None:
    _write(drawing, (_LEFT, top), "no operations were marked; I/O of the run:", FAINT)
    wide = (WIDTH - 2 * _LEFT - _RIGHT) / len(IO_COUNTERS)
    for number, family in enumerate(IO_COUNTERS):
        axes = _panel(drawing, (_LEFT + number * (wide + _LEFT), top + _IO_HEAD, wide, _IO))
        draw_io(axes, session, family)
        time_axis(axes, run_s(session))


def _write(drawing: Figure, at: tuple[float, float], text: str, colour: str) -> None:
    left, top = at
    look: dict[str, Any] = {"size": _TITLE_SIZE, "color": colour, "va": "top", "linespacing": 1.3, "parse_math": False}
    drawing.text(left / WIDTH, 1 - top / drawing.get_figheight(), text, **look)


def _panel(drawing: Figure, box: tuple[float, float, float, float]) -> Axes:
    axes = _axes(drawing, box)
    plain(axes)
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_fontsize(9)
    return axes


def _axes(drawing: Figure, box: tuple[float, float, float, float]) -> Axes:
    """Add axes; ``box`` is left, top, width and height, from the page's top left corner."""
    left, top, wide, high = box
    page_high = drawing.get_figheight()
    return drawing.add_axes((left / WIDTH, 1 - (top + high) / page_high, wide / WIDTH, high / page_high))
