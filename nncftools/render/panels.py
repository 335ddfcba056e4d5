"""The picture of a profiled run: memory, CPU, and what each operation read, wrote and took, on one page."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from nncftools.files import replacing
from nncftools.render.operations import operations, rows
from nncftools.render.phase_bars import MOST_ROWS, WIDTH, draw_rows, height
from nncftools.render.style import DPI, FAINT, INK, Ruler, plain, time_axis
from nncftools.render.timelines import (
    IO_PLACES,
    LANE,
    draw_band,
    draw_cpu,
    draw_io,
    draw_memory,
    lanes,
    run_s,
    tint,
)
from nncftools.render.view import View, command_text, printable
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from nncftools.render.operations import Operation
    from nncftools.session.model import Session

_LEFT, _RIGHT = 1.0, 1.05
"""Beside the panels over time, in inches, as all lengths here."""
_LEFT_OF_LONG_FIGURES = 1.5
_TITLE_LINE = 0.19
_TITLE_LINES = 2
_TITLE_SIZE = 10
_MEMORY, _CPU, _IO = 2.8, 1.5, 1.6
_MARGIN = 0.15
_BETWEEN = 0.3
_TIME_LABELS = 0.6
_IO_HEAD = 0.55


def draw(session: Session, view: View, path: pathlib.Path, *, depth: int = 1) -> None:
    """Write the picture, with the operations that are inside of fewer than ``depth`` others.

    The format is the path's ending. Raises OSError.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # drawn as boxes
        drawing = page(session, view, depth)
        with replacing(path) as beside:
            drawing.savefig(beside, format=path.suffix[1:].lower())


def page(session: Session, view: View, depth: int = 1) -> Figure:
    """Return the picture."""
    every = operations([phase for phase in session.phases if phase.depth < depth])
    listed = rows(every, MOST_ROWS)
    ruler = Ruler()
    said = printable(view.title) or command_text(session)
    title = ruler.lines(said, WIDTH - 4 * _MARGIN, _TITLE_SIZE, _TITLE_LINES)
    band = LANE * (1 + max((lane for lane in lanes(every) if lane is not None), default=-1))
    memory_top = 2 * _MARGIN + len(title) * _TITLE_LINE + band
    cpu_top = memory_top + _MEMORY + _BETWEEN
    lower_top = cpu_top + _CPU + _TIME_LABELS
    lower = height(listed) if listed else _IO_HEAD + _IO + _TIME_LABELS
    drawing = Figure(figsize=(WIDTH, lower_top + lower + _MARGIN), dpi=DPI)
    at = {"size": _TITLE_SIZE, "color": INK, "ha": "left", "va": "top", "linespacing": 1.3, "parse_math": False}
    drawing.text(2 * _MARGIN / WIDTH, 1 - _MARGIN / drawing.get_figheight(), "\n".join(title), **at)
    left = _LEFT if view.unit.factor >= MemoryUnit.MB.factor else _LEFT_OF_LONG_FIGURES
    memory = _panel(drawing, (left, memory_top, WIDTH - left - _RIGHT, _MEMORY))
    cpu = _panel(drawing, (left, cpu_top, WIDTH - left - _RIGHT, _CPU), beside=memory)
    _draw_times(memory, cpu, session, view, every, ruler)
    if listed:
        draw_rows(_axes(drawing, (0, lower_top, WIDTH, lower)), listed, session.duration_s, ruler)
    else:
        _draw_io(drawing, session, lower_top)
    return drawing


def _draw_times(
    memory: Axes, cpu: Axes, session: Session, view: View, every: Sequence[Operation], ruler: Ruler
) -> None:
    length_s = run_s(session)
    draw_memory(memory, session, view, ruler)
    draw_cpu(cpu, session)
    tint(memory, every, length_s)
    draw_band(memory, every, length_s, ruler)
    draw_band(cpu, every, length_s)
    time_axis(cpu, length_s)
    memory.tick_params(labelbottom=False)


def _draw_io(drawing: Figure, session: Session, top: float) -> None:
    note = {"size": _TITLE_SIZE - 1, "color": FAINT, "va": "top"}
    drawing.text(_LEFT / WIDTH, 1 - top / drawing.get_figheight(), "no operations were marked; I/O of the run:", **note)
    wide = (WIDTH - 2 * _LEFT - _RIGHT) / len(IO_PLACES)
    for number, place in enumerate(IO_PLACES):
        axes = _panel(drawing, (_LEFT + number * (wide + _LEFT), top + _IO_HEAD, wide, _IO))
        draw_io(axes, session, place)
        time_axis(axes, run_s(session))


def _panel(drawing: Figure, box: tuple[float, float, float, float], beside: Axes | None = None) -> Axes:
    axes = _axes(drawing, box, beside)
    plain(axes)
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_size(9)
    return axes


def _axes(drawing: Figure, box: tuple[float, float, float, float], beside: Axes | None = None) -> Axes:
    """Add axes whose left, top, width and height are in inches from the page's top left corner."""
    left, top, wide, high = box
    page_high = drawing.get_figheight()
    return drawing.add_axes(
        (left / WIDTH, 1 - (top + high) / page_high, wide / WIDTH, high / page_high), sharex=beside
    )
