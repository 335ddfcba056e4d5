"""The text, the table and the picture of a forecast."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from nncftools.analysis import forecast as analysis
from nncftools.analysis.forecast import Estimate, Forecast, Result
from nncftools.analysis.forecast_lines import LEAST_SLICES, Line, Slice
from nncftools.cli import series
from nncftools.cli.series import Shown
from nncftools.render.table import Cell, Column, Row, Table, figure_cell, size_cell
from nncftools.units import MemoryUnit, about_text, brief_size, count_text, seconds_text, shortened, size_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_LINES = 5
_LONGEST_NAME = 44


def describe_slice(part: Slice, unit: MemoryUnit) -> str:
    """Return memory and time of a slice (a run with only some of the layers) as a line of text."""
    if part.unused:
        return f"not used: {part.unused}"
    return f"peak {unit.label(part.peak)}, floor {unit.label(part.floor)}, {seconds_text(part.duration_s)}"


def table(result: Result, unit: MemoryUnit) -> Table:
    """Return a table with a row for each slice (a run with only some of the layers), and a row for the forecast."""
    names = ["Layers", f"Peak, {unit}", f"Floor, {unit}", f"Comfortable, {unit}", f"Written, {unit}", "Time"]
    rows = []
    for part in result.slices:
        layers = f"{part.layers} (not used)" if part.unused else str(part.layers)
        comfortable = None if part.refaults else part.comfortable
        sizes = (part.peak, part.floor, comfortable, part.written)
        cells = [size_cell(size, unit) for size in sizes]
        rows.append([Cell(layers), *cells, figure_cell(part.duration_s, "s")])
    known = result.forecast
    if known is not None:
        written = None if known.written is None else known.written.value
        values = [known.peak.value, known.floor.value, known.comfortable.value, written]
        cells = [size_cell(value, unit, is_strong=True) for value in values]
        rows.append([Cell(f"{result.layers}, forecast"), *cells, figure_cell(known.time.value, "s")])
    columns = [Column(name) for name in names]
    return Table(columns=columns, rows=[Row(cells=cells) for cells in rows])


def answer(result: Result, unit: MemoryUnit = MemoryUnit.MiB) -> str:
    """Return the first line: whether the whole model fits into the memory of ``--for``, and the needs."""
    known = result.forecast
    limit = result.limit
    if known is None:
        whether = "" if limit is None else f" whether it fits into {brief_size(limit)}"
        return f"Unknown{whether}: {_explain_unknown(result, unit)}"
    floor = _about(known.floor.low)
    comfortable = known.comfortable
    nearly = "at most" if any(part.refaults for part in result.used) else "about"
    enough = _bound(comfortable, _about) if comfortable.is_at_least else f"{nearly} {_about_needs(known)}"
    if limit is None or result.fits is None:
        return f"Needs {enough}: peak {_bound(known.peak, _about)}, with all {result.layers} layers"
    highest = _about(analysis.most_of_floor(known))
    texts = {
        analysis.YES: enough,
        analysis.SLOWLY: f"at least {floor}, and {nearly} {_about(comfortable.value)} to read no file twice",
        analysis.UNSURE: f"{floor} or more" if comfortable.is_at_least else f"from {floor} to {highest}",
        analysis.NO: f"at least {floor}",
    }
    return f"{result.fits.capitalize()} into {brief_size(limit)}: needs {texts[result.fits]}"


def _explain_unknown(result: Result, unit: MemoryUnit) -> str:
    """Return the reason why there is no forecast, with the memory that each slice held."""
    doubtful = result.doubt
    if doubtful is None:
        return f"a forecast needs {LEAST_SLICES} slices, and {len(result.used)} can be used"
    held = f"{doubtful.operation or 'the command'} held"
    points = [*doubtful.skipped, *zip(doubtful.layers, doubtful.sizes, strict=True)]
    sizes = ", ".join(unit.brief(size) for _, size in points)
    layers = ", ".join(str(count) for count, _ in points)
    if doubtful.apart:
        return f"{held} {unit.label(doubtful.apart)} more in one of two runs with the same number of layers"
    reason = (
        ": these sizes do not grow evenly with the number of layers"
        if doubtful.operation
        else ", outside all marked operations"
    )
    return f"{held} {sizes} {unit} ({doubtful.what}) with {layers} layers{reason}"


def _about(size: float) -> str:
    """Return a size as text with few digits, because a forecast is not exact."""
    return size_text(size) if size >= MemoryUnit.GiB.factor else f"{MemoryUnit.MiB.brief(size)} MiB"


def _bound(figure: Estimate, write: Callable[[float], str]) -> str:
    """Return a figure as text. If only a lower bound is known, return "at least" and the lower bound."""
    return f"at least {write(figure.low)}" if figure.is_at_least else write(figure.value)


def _about_needs(known: Forecast) -> str:
    """Return the memory with which no file is read twice, and the floor: ``3.7 GiB (3.6 to 3.8), at least 1.6``.

    The floor is the least memory with which the command works.
    """
    comfortable = known.comfortable
    amount = _about(comfortable.value)
    bounds = (comfortable.low, comfortable.high, known.floor.low)
    unit = amount[-4:]
    low, high, floor = (_about(size).removesuffix(unit) for size in bounds)
    return f"{amount} ({low} to {high}), at least {floor}"


def sentences(result: Result, unit: MemoryUnit) -> Iterator[str]:
    """Yield the sentences after the first line (``answer``): memory, disk space and time with all layers."""
    known = result.forecast
    if known is None:
        return
    earlier = f"; with fewer than {known.holds_from} layers, it is in {known.before}" if known.before else ""
    yield f"Its peak is {_range(known.peak, unit)}, in {known.operation}{earlier}"
    yield f"Its floor is {_range(known.floor, unit)}: with less, it does not work"
    limit = f"; the commands below set {unit.brief(known.comfortable.high)} {unit}"
    commands = "" if known.comfortable.is_at_least else limit
    yield f"Its comfortable amount is {_range(known.comfortable, unit)}: it reads no file twice{commands}"
    facts = []
    if known.written is not None and known.written.value >= unit.factor:
        facts.append(f"writes {_range(known.written, unit)}")
    if known.disk is not None and known.disk.value >= unit.factor:
        facts.append(f"needs {unit.brief(known.disk.high)} {unit} of free disk")
    facts.append(f"takes {about_text(known.time.low)} to {about_text(known.time.high)} on this machine")
    yield f"It {' and '.join(facts)}"


def _range(figure: Estimate, unit: MemoryUnit) -> str:
    bound = _bound(figure, lambda size: f"{unit.brief(size)} {unit}")
    if figure.is_at_least:
        return f"{bound}, probably {unit.brief(figure.value)} or more"
    return f"{bound} ({unit.brief(figure.low)} to {unit.brief(figure.high)})"


def notes(result: Result) -> Iterator[str]:
    """Yield notes: the reasons why the forecast is less sure."""
    yield from result.notes
    for part in result.slices:
        name = f"the slice with {count_text(part.layers, 'layer')}"
        if part.unused:
            yield f"{name} is not used: {part.unused}"
        elif part.refaults:
            yield (
                f"memory was short in {name}: {brief_size(part.refaults)} were dropped and read again; "
                "the peak may be higher"
            )
    known = result.forecast
    if known is None:
        return
    if result.find_hidden(known):
        yield (
            f"all weights ({brief_size(result.weights)}) may need more memory than the slices show: "
            "the upper bounds include this memory"
        )
    elif known.peak.is_at_least:
        yield "the peak is a lower bound: only a few slices show the operation that will have the peak with all layers"
    elif known.is_small:
        yield "the peak hardly grows with the number of layers: imports and other work take most of the memory"


def make_shown(result: Result, unit: MemoryUnit) -> Shown:
    """Return the text, the table, the picture, and commands that set a memory limit.

    With this limit, the command reads no file twice.
    """
    known = result.forecast
    to_copy = []
    if known is not None and not known.comfortable.is_at_least:
        to_copy = series.with_limit(result.command, known.comfortable.high)
    return Shown(
        command=result.command,
        answer=answer(result, unit),
        sentences=list(sentences(result, unit)),
        notes=list(notes(result)),
        table=table(result, unit),
        to_copy=to_copy,
        draw=None if known is None else partial(draw, result, known, unit),
    )


def draw(result: Result, known: Forecast, unit: MemoryUnit, path: pathlib.Path) -> None:
    """Draw memory over the number of layers. Raises OSError.

    The picture has a line for each important operation, a circle for the peak of each slice, and the forecast with its
    error.
    """
    from nncftools import drawing

    canvas, axes = drawing.figure_of_command(result.command)
    used = result.used
    layers = [part.layers for part in used]
    counts = sorted(set(layers))
    lines = analysis.compare_lines(used, result.layers, result.layer_parameters).lines
    for number, line in enumerate(_choose_lines(lines, [*counts, result.layers])):
        _draw_line(axes, line, number, layers=result.layers, unit=unit)
    peaks = [unit.of(part.peak) for part in used]
    axes.plot(
        layers,
        peaks,
        "o",
        label="peak of a slice",
        color=drawing.INK,
        markersize=7,
        fillstyle="none",
    )
    value = unit.of(known.peak.value)
    high = unit.of(known.peak.high)
    axes.errorbar(
        result.layers,
        value,
        [[value - unit.of(known.peak.low)], [high - value]],
        label="forecast",
        fmt="D",
        color=drawing.INK,
        markersize=6,
        capsize=5,
    )
    drawing.annotate(
        axes,
        _bound(known.peak, unit.label),
        (result.layers, value),
        offset=(-10, 8),
        fontsize=9,
        ha="right",
        bbox={"fc": "white", "ec": "none", "pad": 1},
    )
    axes.plot(
        result.layers,
        unit.of(known.floor.value),
        "v",
        label=f"floor, {_bound(known.floor, unit.label)}",
        color=drawing.FAINT,
        markersize=7,
    )
    top = max(high, *peaks) * 1.15
    if result.limit is not None:
        limit = unit.of(result.limit)
        position = " (above the picture)"
        if limit < top * 1.5:  # with a limit further above, lines would be at the bottom
            position = ""
            top = max(top, limit * 1.05)
        drawing.draw_limit(axes, limit, f"limit, {unit.label(result.limit)}{position}")
    axes.set(
        xlim=(0, result.layers * 1.04),
        ylim=(0, top),
        xlabel="Layers",
        ylabel=f"RSS ({unit})",
        xticks=[*counts, result.layers],
    )
    axes.yaxis.set_major_formatter("{x:,.10g}")
    drawing.legend_below(canvas, 3)
    drawing.save(canvas, path)


def _draw_line(axes: Axes, line: Line, number: int, layers: int, unit: MemoryUnit) -> None:
    """Draw an operation's memory: the measured points, and a line through them up to ``layers``."""
    from nncftools import drawing

    colour, style = drawing.line_style(number)
    name = shortened(f"{line.operation}, {line.what}", _LONGEST_NAME)
    begin = line.layers[-2] if line.is_bent else 0
    ends = [unit.of(line.at(count)) for count in (begin, layers)]
    axes.plot(
        [begin, layers],
        ends,
        style,
        label=name,
        color=colour,
        linewidth=1.2,
    )
    sizes = [unit.of(size) for size in line.sizes]
    axes.plot(line.layers, sizes, ".", color=colour, markersize=5)


def _choose_lines(lines: Sequence[Line], layers: Sequence[int]) -> list[Line]:
    """Return the lines to draw: for each number of layers in ``layers``, the line with the most memory.

    A line is the memory of an operation over the number of layers. The largest number of layers comes first. Each
    operation has at most one line, and there are at most ``_MOST_LINES`` lines.
    """
    chosen: dict[str, Line] = {}
    for count in reversed(layers):
        highest = max(lines, key=lambda line: line.at(count))
        chosen.setdefault(highest.operation, highest)
    return list(chosen.values())[:_MOST_LINES]
