"""The result of a forecast: its file, and what is shown of it as text, Markdown and picture."""

from __future__ import annotations

import pathlib
import shlex
from collections.abc import Iterator
from functools import partial

from nncftools.analysis.forecast import LEAST_SLICES, Estimate, Forecast, Line, Result, Slice, lines
from nncftools.cli.fit import outputs as of_runs
from nncftools.cli.forecast.arguments import Command, ForecastOptions
from nncftools.cli.forecast.slices import Model
from nncftools.errors import UsageError
from nncftools.render import markdown as render_markdown
from nncftools.render.table import Cell, Column, Row, Table, figure_cell, size_cell
from nncftools.units import MemoryUnit, about_text, brief_size, seconds_text, shortened

KIND = of_runs.Kind("forecast", "forecast", "slice")
_NAME = 44
_MOST_LINES = 5
_NEAR = 1.5
"""A limit that is further above is not drawn: lines would be at the bottom."""


def new(request: ForecastOptions, command: Command, model: Model, notes: list[str]) -> Result:
    """Return a forecast without slices. Raises UsageError for a model that has too few layers."""
    if len(model.counts()) < LEAST_SLICES:
        turns = f" that repeat after {model.period}" if model.period > 1 else ""
        few = f"it has {model.layers} layers{turns}: too few for three slices; `nncf-tools profile` measures it whole"
        raise UsageError(f"no forecast of the model in {str(model.folder)!r}: {few}")
    return Result(
        command=of_runs.shareable(command.words),
        model=str(model.folder),
        layers=model.layers,
        parameters=model.parameters,
        weights=model.size(model.layers),
        from_config=request.from_config,
        added=list(command.added),
        notes=notes,
    )


def begun(wanted: Result, output: pathlib.Path) -> Result:
    """Return a forecast that was begun before, to go on with its slices. Raises UsageError."""
    found = of_runs.begun(wanted, output / KIND.state)
    if (found.layers, found.weights, found.from_config) != (wanted.layers, wanted.weights, wanted.from_config):
        raise UsageError(f"option --resume: {str(output / KIND.state)!r} is of another model")
    wanted.slices = found.slices
    return wanted


def of_slice(part: Slice, unit: MemoryUnit) -> str:
    """Return what a slice took, in one line."""
    sizes = f"peak {unit.label(part.peak)}, floor {unit.label(part.floor)}, {seconds_text(part.duration_s)}"
    return f"not used: {part.unused}" if part.unused else sizes


def table(result: Result, unit: MemoryUnit) -> Table:
    """Return a row for each slice, and one for the forecast."""
    names = f"Peak, {unit}", f"Floor, {unit}", f"Comfortable, {unit}", f"Written, {unit}", "Time"
    rows = []
    for part in result.slices:
        cells = [size_cell(size, unit) for size in (part.peak, part.floor, part.comfortable, part.written)]
        unused = " (not used)" if part.unused else ""
        rows.append([Cell(f"{part.layers}{unused}"), *cells, figure_cell(part.duration_s, "s")])
    if (known := result.forecast) is not None:
        whole = known.peak, known.floor, known.comfortable, known.written
        cells = [size_cell(None if one is None else one.value, unit, is_strong=True) for one in whole]
        rows.append([Cell(f"{result.layers}, forecast"), *cells, figure_cell(known.time.value, "s")])
    return Table(columns=[Column("Layers"), *map(Column, names)], rows=[Row(cells=cells) for cells in rows])


def sentences(result: Result, unit: MemoryUnit) -> Iterator[str]:
    """Yield what is known of the whole model, the answer to ``--for`` first."""
    known = result.forecast
    if known is None:
        count = len(result.used)
        yield f"Not known: {count} of {LEAST_SLICES} slices were run, and a line needs more than two points"
        return
    if result.fits is not None and result.limit is not None:
        yield f"{result.fits.capitalize()} into {brief_size(result.limit)}"
    yield f"Peak {_range(known.peak, unit)}{_holder(known)}"
    floor, comfortable = _range(known.floor, unit), _range(known.comfortable, unit)
    yield f"Floor {floor}: below, it does not work"
    yield f"Comfortable {comfortable}: no file is read twice; the commands below have this limit"
    written = "unknown" if known.written is None else _range(known.written, unit)
    disk = "" if known.disk is None else f"; needs {unit.brief(known.disk.high)} {unit} of free disk"
    low, high = about_text(known.time.low), about_text(known.time.high)
    yield f"Written {written}{disk}; takes {low} to {high} on this machine"


def _range(one: Estimate, unit: MemoryUnit) -> str:
    least = "at least " if one.is_at_least else ""
    return f"{least}{unit.brief(one.value)} {unit} ({unit.brief(one.low)} to {unit.brief(one.high)})"


def _holder(known: Forecast) -> str:
    before = f", from {known.holds_from} layers on (before: {known.before})" if known.before else ""
    return f", held by {known.operation}{before}" if known.operation else ""


def notes(result: Result) -> Iterator[str]:
    """Yield what makes the forecast less sure."""
    yield from result.notes
    for part in result.slices:
        if part.unused:
            yield f"the slice of {part.layers} layers is not used: {part.unused}"
    known = result.forecast
    if known is not None and known.is_small:
        yield "almost all of the peak is there without the model, mostly imports: the model is too small to matter"
    if known is not None and known.peak.is_at_least:
        yield "at least: with few layers, another operation held the peak, so the highest line is known from few slices"


def shown(result: Result, unit: MemoryUnit) -> of_runs.Shown:
    """Return the result as it is shown, with how to run the command with a limit that is comfortable for it."""
    known, rows, said = result.forecast, table(result, unit), [f"{sentence}." for sentence in sentences(result, unit)]
    to_copy = [] if known is None else of_runs.with_limit(result.command, known.comfortable.high)
    command = render_markdown.code(shlex.join(result.command))
    items = [f"- {render_markdown.text(sentence)}" for sentence in said]
    markdown = of_runs.joined([[command], *render_markdown.painted(rows), items], to_copy, notes(result))
    return of_runs.Shown(
        of_runs.text(rows, said, notes(result)), to_copy, markdown, partial(draw, result, unit) if known else None
    )


def draw(result: Result, unit: MemoryUnit, path: pathlib.Path) -> None:
    """Draw the lines of operations, runs as dots, and the forecast with its interval. Raises OSError."""
    from nncftools import drawing

    known = result.forecast
    assert known is not None
    canvas, axes = drawing.figure_of_command(result.command)
    used = result.used[-LEAST_SLICES:]
    for number, one in enumerate(_that_matter(lines(used), [*(part.layers for part in used), result.layers])):
        colour, style = drawing.line_style(number)
        name = shortened(f"{one.operation}, {one.what}", _NAME)
        begin = one.layers[-2] if one.is_bent else 0
        ends = [unit.of(one.at(count)) for count in (begin, result.layers)]
        axes.plot([begin, result.layers], ends, style, color=colour, linewidth=1.2, label=name)
        axes.plot(one.layers, [unit.of(size) for size in one.sizes], ".", color=colour, markersize=5)
    axes.plot([part.layers for part in result.used], [unit.of(part.peak) for part in result.used], "o",
              color=drawing.INK, markersize=7, fillstyle="none", label="peak of a slice")  # fmt: skip
    low, value, high = (unit.of(size) for size in (known.peak.low, known.peak.value, known.peak.high))
    axes.errorbar([result.layers], [value], [[value - low], [high - value]], fmt="D", color=drawing.INK,
                  markersize=6, capsize=5, label="forecast")  # fmt: skip
    least = "at least " if known.peak.is_at_least else ""
    at, box = (result.layers, value), {"fc": "white", "ec": "none", "pad": 1}
    drawing.annotate(axes, f"{least}{unit.label(known.peak.value)}", at, (-10, 8), fontsize=9, ha="right", bbox=box)
    floor, said = unit.of(known.floor.value), f"floor, {unit.label(known.floor.value)}"
    axes.plot(result.layers, floor, "v", color=drawing.FAINT, markersize=7, label=said)
    top = max(high, *(unit.of(part.peak) for part in result.used)) * 1.15
    if result.limit is not None:
        is_near = unit.of(result.limit) < top * _NEAR
        where = "" if is_near else " (above the picture)"
        drawing.draw_limit(axes, unit.of(result.limit), f"limit, {unit.label(result.limit)}{where}")
        top = max(top, unit.of(result.limit) * 1.05) if is_near else top
    axes.set(xlim=(0, result.layers * 1.04), ylim=(0, top), xlabel="Layers", ylabel=f"RSS ({unit})")
    axes.set_xticks(sorted({*(part.layers for part in result.used), result.layers}))
    axes.yaxis.set_major_formatter("{x:,.10g}")
    drawing.legend_below(canvas, 3)
    drawing.save(canvas, path)


def _that_matter(every: list[Line], layers: list[int]) -> list[Line]:
    """Return the lines that are the highest with some number of layers, the one with all layers first."""
    peaks = [one for one in every if not one.is_off] or every
    highest = [max(peaks, key=lambda one: (one.at(count), one.what == "peak")) for count in layers[::-1] if peaks]
    return list({one.operation: one for one in highest}.values())[:_MOST_LINES]
