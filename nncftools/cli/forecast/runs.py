"""The runs of a forecast: the command with slices of the model, each recorded as by ``profile --no-stacks``.

Their result is shown as text, Markdown and picture.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from nncftools.analysis import forecast as analysis
from nncftools.analysis.forecast import LEAST_SLICES, Estimate, Line, Result, Slice
from nncftools.analysis.session import Session
from nncftools.cli import destination, options, screen, series
from nncftools.cli.forecast import slices
from nncftools.cli.forecast.arguments import Command, ForecastOptions
from nncftools.cli.series import Results, Runner, Shown
from nncftools.errors import NncfToolsError, UsageError
from nncftools.files import Folder
from nncftools.limits import needs
from nncftools.reading_marks.collecting import size_of
from nncftools.render.table import Cell, Column, Row, Table, figure_cell, size_cell
from nncftools.units import MemoryUnit, about_text, brief_size, seconds_text, shortened, size_text

_MOST_SHARE = 0.4
"""The largest slice's share of the layers."""
_WRONG = 0.03
"""If the peak of the largest slice is forecast less exactly by the others, there is a fourth."""
_BYTES_PER_WEIGHT, _FILES_PER_WEIGHT, _IMPORTS = 6, 4, 512 << 20
"""What a slice may take before that is known: an export of experts holds 4.3 times its weights."""
_REFAULTS, _STALL = 0.1, 0.02
_MOST_FAILED = 2


def planned(counts: Sequence[int], layers: int) -> list[int]:
    """Return the numbers of layers of three slices, from small to large: a third, two thirds and all of 40 %."""
    most = max([count for count in counts if count <= layers * _MOST_SHARE][2:], default=counts[2])
    inner = [count for count in counts if count < most]
    small = _nearest(inner[:-1], most / 3)
    return [small, _nearest([count for count in inner if count > small], most * 2 / 3), most]


def _nearest(counts: Sequence[int], wanted: float) -> int:
    return min(counts, key=lambda count: abs(count - wanted))


def next_count(counts: Sequence[int], layers: int, done: Sequence[Slice]) -> int | None:
    """Return the number of layers of the next slice; None when there are enough.

    A fourth one is half way between the two largest, or as near to that as possible above the smallest: there it adds
    the most. The three largest carry the forecast, so it takes the place of the smallest, which imports distort the
    most, and it shows whether the line is straight where it is carried on. Below the smallest it would not count.
    """
    used, tried = [part for part in done if not part.unused], {part.layers for part in done}
    if len(used) < LEAST_SLICES:
        return next((count for count in [*planned(counts, layers), *counts] if count not in tried), None)
    if len(used) > LEAST_SLICES or analysis.missed(used) <= _WRONG:
        return None
    smallest, middle, largest = (part.layers for part in used)
    between = [count for count in counts if smallest < count < largest and count not in tried]
    return _nearest(between, (middle + largest) / 2) if between else None


def new(request: ForecastOptions, command: Command, model: slices.Model, notes: list[str]) -> Result:
    """Return a forecast without slices. Raises UsageError for a model that has too few layers."""
    if len(model.counts()) < LEAST_SLICES:
        turns = f" that repeat after {model.period}" if model.period > 1 else ""
        few = f"it has {model.layers} layers{turns}: too few for three slices; `nncf-tools profile` measures it whole"
        raise UsageError(f"no forecast of the model in {str(model.folder)!r}: {few}")
    return Result(
        command=series.shareable(command.words),
        model=str(model.folder),
        layers=model.layers,
        parameters=model.parameters,
        weights=model.size(model.layers),
        from_config=request.from_config,
        added=list(command.added),
        notes=notes,
    )


def run(request: ForecastOptions, command: Command, model: slices.Model, result: Result) -> int:
    """Run the command with slices; write and show the forecast. Return the exit status."""
    results = Results(request, "forecast", "forecast", "slice")
    with results.locked():
        before = results.begun(result)
        if (before.layers, before.weights, before.from_config) != (result.layers, result.weights, result.from_config):
            raise UsageError(f"option --resume: {str(results.state)!r} is of another model")
        result.slices = before.slices
        output = "" if command.output is None else f", {command.output!r} by a scratch folder"
        millions, size = result.parameters / 1e6, brief_size(result.weights)
        screen.line(f"Model: {result.layers} layers, {millions:,.0f} M parameters, {size}")
        screen.line(f"Replaced in the command: {command.model!r} by a slice of it{output}")
        for note in result.notes:
            screen.message(note, "note: ")
        scratch = request.scratch or pathlib.Path(tempfile.gettempdir())
        with series.runner() as runner, destination.writing("--scratch", scratch):  # the command may remove it
            Runs(request, command, model, result, results, scratch.absolute(), runner).go()
        result.finish(request.limit)
        results.write(result)
        results.finish(result, shown(result, request.unit))
        if runner.is_interrupted():
            return results.interrupted(runner)
        return int(result.forecast is None or result.fits in {analysis.NO, analysis.UNSURE})


@dataclass(frozen=True)
class Runs:
    """The runs of a forecast."""

    request: ForecastOptions
    command: Command
    model: slices.Model
    result: Result
    results: Results
    scratch: pathlib.Path
    """Where each slice and its output have a folder of their own."""
    runner: Runner

    def go(self) -> None:
        """Run until there are enough slices, or none fits. Raises NncfToolsError, Interrupted."""
        result, counts, until_s = self.result, self.model.counts(), time.monotonic() + self.request.time
        while (wanted := next_count(counts, self.model.layers, result.slices)) is not None:
            tried = {part.layers for part in result.slices}
            left_s = max(0.0, until_s - time.monotonic())
            untried = [count for count in reversed(counts) if count <= wanted and count not in tried]
            whys = {count: self.why_not(count, left_s) for count in untried}
            layers = next((count for count, why in whys.items() if not why), None)
            if layers is None or (layers != wanted and len(result.used) >= LEAST_SLICES):
                result.notes.append(f"a slice of {wanted} layers was not run: {whys[wanted]}")
                return
            screen.line(f"Running {layers} of {self.model.layers} layers… ({about_text(left_s)} of --time left)")
            done = self._try(layers)
            result.slices = sorted([*result.slices, done], key=lambda part: part.layers)
            self.results.write(result)
            screen.line(f"{layers} layers: {of_slice(done, self.request.unit)}")
            if len(result.slices) >= _MOST_FAILED and not result.used:
                log = self.results.folder / f"slice-{done.layers}.log"
                raise NncfToolsError(f"the command does not work with slices: {done.unused}; its output is in {log}")

    def why_not(self, layers: int, left_s: float) -> str:
        """Return why a slice may not be run, by what the runs before took; empty if it may."""
        used, size, took_s = self.result.used, self.model.size(layers), 0.0
        peak, written = float(_IMPORTS + size * _BYTES_PER_WEIGHT), float(size * _FILES_PER_WEIGHT)
        if used:
            last, more = used[-1], max(1.0, layers / used[-1].layers)
            peak = last.peak + _BYTES_PER_WEIGHT * max(0, size - self.model.size(last.layers))
            took_s, written = last.duration_s * more, (last.written or 0) * more
        if len(used) > 1:
            counts = [part.layers for part in used]
            peak = analysis.estimate(counts, [part.peak for part in used], layers).high
            took_s = analysis.estimate(counts, [part.duration_s for part in used], layers).value
        room, free = needs.available("/proc", os.getpid()).least, shutil.disk_usage(self.scratch).free
        disk = written + self.model.disk_size(layers)
        if room is not None and peak > room:
            return f"it takes up to {brief_size(peak)} of memory, {brief_size(room)} is available"
        if disk > free:
            return f"it takes up to {brief_size(disk)} of disk, {brief_size(free)} is free (--scratch)"
        is_late = took_s > left_s or left_s <= 0
        return f"it takes about {about_text(took_s)}, {about_text(left_s)} of --time is left" if is_late else ""

    def _try(self, layers: int) -> Slice:
        """Make a slice, run the command with it, and remove both."""
        runner, path = self.runner, self.results.folder / f"slice-{layers}"
        with scratch_folder(self.scratch) as made:
            folder = made / f"{path.name}-of-{self.model.layers}-{made.name[-8:]}"
            output = made / f"output-{layers}"
            runner.check()
            with runner.starter.interruptible():
                slices.write(self.model, layers, folder)
            words = self.command.with_slice(folder, output)
            how = options.Request(words=words, interval=self.request.interval, stacks=False)
            with destination.opened("--output", path.with_suffix(".log")) as log:
                recorded = runner.record(path, how, log)
                failed = series.why(recorded, log) if recorded.status else ""
            kept = size_of(output) or 0
            return measured(layers, recorded.session, failed, kept)


@contextlib.contextmanager
def scratch_folder(scratch: pathlib.Path) -> Iterator[pathlib.Path]:
    """Make a folder for a slice and its output, and remove it; a line says where it is if it stays.

    Raises OSError where another user could exchange the folder.
    """
    with Folder(scratch) as place:
        if place.is_shared:
            raise OSError("all users may rename what is in it, or in a folder above it: not sticky (chmod +t)")
        made = scratch / pathlib.Path(tempfile.mkdtemp("", "nncf-tools-forecast-", place.descriptor_path)).name
    try:
        held = Folder(made)
    except OSError:
        made.rmdir()
        raise
    with held:
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)
            left = held.descriptor_path.resolve()  # the command may have moved it
            if left.exists():
                screen.message(f"a slice stays in {str(left)!r}; remove it")


def measured(layers: int, session: Session | None, failed: str, kept: int) -> Slice:
    """Return what a slice took; ``kept`` is the size of its output. Raises NncfToolsError if nothing is known."""
    needed = None if session is None else needs.needs(session)
    peak = None if session is None else session.peaks.get("rss")
    if session is None or needed is None or peak is None or peak.low is None:
        why = failed or "it was too short to see what memory it needs"
        raise NncfToolsError(f"the run with {layers} layers says nothing: {why}")
    totals, took_s, used = session.totals, session.duration_s, needs.of_session(session)
    chars = totals.get("write_chars", totals.get("write_bytes"))
    written = None if chars is None else round(chars)
    disk = max(kept, 0 if used is None else min(sum(used.disks.values()), written or 0))
    refaults, stall_s = totals.get("refaults") or 0, totals.get("memory_stall") or 0
    is_pressed = refaults > peak.low * _REFAULTS and stall_s > took_s * _STALL
    unused = failed or (f"memory was short: {brief_size(refaults)} were read again" if is_pressed else "")
    sizes = peak.low, needed.floor, needed.comfortable, written, disk
    return Slice(layers, f"slice-{layers}.json", took_s, *sizes, unused, analysis.points(session))


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
        layers = f"{part.layers}{' (not used)' if part.unused else ''}"
        rows.append([Cell(layers), *cells, figure_cell(part.duration_s, "s")])
    if (known := result.forecast) is not None:
        whole = known.peak, known.floor, known.comfortable, known.written
        cells = [size_cell(None if one is None else one.value, unit, is_strong=True) for one in whole]
        rows.append([Cell(f"{result.layers}, forecast"), *cells, figure_cell(known.time.value, "s")])
    return Table(columns=[Column("Layers"), *map(Column, names)], rows=[Row(cells=cells) for cells in rows])


def answer(result: Result) -> str:
    """Return the first line: whether the whole model fits into the memory of ``--for``, and what it needs."""
    known, limit = result.forecast, result.limit
    if known is None:
        whether = "" if limit is None else f" whether it fits into {brief_size(limit)}"
        return f"Unknown{whether}: a forecast needs {LEAST_SLICES} slices, and {len(result.used)} can be used"
    enough, least = _about(known.comfortable.value), _about(known.floor.value)
    if limit is None or result.fits is None:
        at_least = "at least" if known.peak.is_at_least or known.floor.is_at_least else "about"
        return f"Needs {at_least} {enough}: peak {_about(known.peak.value)}, with all {result.layers} layers"
    high = known.peak.high if known.floor.is_at_least else known.floor.high
    needs = {
        analysis.YES: f"about {enough}",
        analysis.SLOWLY: f"at least {least}, and {enough} to read no file twice",
        analysis.UNSURE: f"from {_about(known.floor.low)} to {_about(high)}",
        analysis.NO: f"at least {least}",
    }
    return f"{result.fits.capitalize()} into {brief_size(limit)}: needs {needs[result.fits]}"


def _about(size: float) -> str:
    """Return bytes with as many digits as a forecast is worth."""
    return size_text(size) if size >= MemoryUnit.GiB.factor else f"{MemoryUnit.MiB.brief(size)} MiB"


def sentences(result: Result, unit: MemoryUnit) -> Iterator[str]:
    """Yield what is known of the whole model, after the answer."""
    known = result.forecast
    if known is None:
        return
    holder = f", in {known.operation}" if known.operation else ""
    before = f"; with fewer than {known.holds_from} layers, it is in {known.before}" if known.before else ""
    yield f"Its peak is {_range(known.peak, unit)}{holder}{before}"
    yield f"Its floor is {_range(known.floor, unit)}: with less, it does not work"
    limit = f"the commands below set {unit.brief(known.comfortable.high)} {unit}"
    yield f"Its comfortable amount is {_range(known.comfortable, unit)}: it reads no file twice; {limit}"
    facts = []
    if known.written is not None:
        facts.append(f"writes {_range(known.written, unit)}")
    if known.disk is not None:
        facts.append(f"needs {unit.brief(known.disk.high)} {unit} of free disk")
    facts.append(f"takes {about_text(known.time.low)} to {about_text(known.time.high)} on this machine")
    yield f"It {' and '.join(facts)}"


def _range(one: Estimate, unit: MemoryUnit) -> str:
    least = "at least " if one.is_at_least else ""
    return f"{least}{unit.brief(one.value)} {unit} ({unit.brief(one.low)} to {unit.brief(one.high)})"


def notes(result: Result) -> Iterator[str]:
    """Yield what makes the forecast less sure."""
    yield from result.notes
    unused = (part for part in result.slices if part.unused)
    yield from (f"the slice of {part.layers} layers is not used: {part.unused}" for part in unused)
    known = result.forecast
    if known is not None and known.is_small:
        yield "almost all of the peak is there without the model, mostly imports: the model is too small to matter"
    if known is not None and known.peak.is_at_least:
        yield "at least: with few layers, another operation held the peak, so the highest line is known from few slices"


def shown(result: Result, unit: MemoryUnit) -> Shown:
    """Return the result as it is shown, with how to run the command with a limit that is comfortable for it."""
    known = result.forecast
    return Shown(
        command=result.command,
        answer=answer(result),
        sentences=list(sentences(result, unit)),
        notes=list(notes(result)),
        table=table(result, unit),
        to_copy=[] if known is None else series.with_limit(result.command, known.comfortable.high),
        draw=None if known is None else partial(draw, result, unit),
    )


def draw(result: Result, unit: MemoryUnit, path: pathlib.Path) -> None:
    """Draw the lines of operations, runs as dots, and the forecast with its interval. Raises OSError."""
    from nncftools import drawing

    known = result.forecast
    assert known is not None
    canvas, axes = drawing.figure_of_command(result.command)
    used = result.used[-LEAST_SLICES:]
    for number, one in enumerate(_that_matter(analysis.lines(used), [*(part.layers for part in used), result.layers])):
        colour, style = drawing.line_style(number)
        name = shortened(f"{one.operation}, {one.what}", 44)
        begin = one.layers[-2] if one.is_bent else 0
        ends = [unit.of(one.at(count)) for count in (begin, result.layers)]
        axes.plot([begin, result.layers], ends, style, color=colour, linewidth=1.2, label=name)
        axes.plot(one.layers, [unit.of(size) for size in one.sizes], ".", color=colour, markersize=5)
    counts, peaks = [part.layers for part in result.used], [unit.of(part.peak) for part in result.used]
    axes.plot(counts, peaks, "o", color=drawing.INK, markersize=7, fillstyle="none", label="peak of a slice")
    low, value, high = (unit.of(size) for size in (known.peak.low, known.peak.value, known.peak.high))
    axes.errorbar([result.layers], [value], [[value - low], [high - value]], fmt="D", color=drawing.INK,
                  markersize=6, capsize=5, label="forecast")  # fmt: skip
    least = "at least " if known.peak.is_at_least else ""
    at, box = (result.layers, value), {"fc": "white", "ec": "none", "pad": 1}
    drawing.annotate(axes, f"{least}{unit.label(known.peak.value)}", at, (-10, 8), fontsize=9, ha="right", bbox=box)
    floor, said = unit.of(known.floor.value), f"floor, {unit.label(known.floor.value)}"
    axes.plot(result.layers, floor, "v", color=drawing.FAINT, markersize=7, label=said)
    top = max(high, *peaks) * 1.15
    if result.limit is not None:
        is_near = unit.of(result.limit) < top * 1.5  # with one further above, lines would be at the bottom
        where = "" if is_near else " (above the picture)"
        drawing.draw_limit(axes, unit.of(result.limit), f"limit, {unit.label(result.limit)}{where}")
        top = max(top, unit.of(result.limit) * 1.05) if is_near else top
    axes.set(xlim=(0, result.layers * 1.04), ylim=(0, top), xlabel="Layers", ylabel=f"RSS ({unit})")
    axes.set_xticks([*counts, result.layers])
    axes.yaxis.set_major_formatter("{x:,.10g}")
    drawing.legend_below(canvas, 3)
    drawing.save(canvas, path)


def _that_matter(every: list[Line], layers: list[int]) -> list[Line]:
    """Return the lines that are the highest with some number of layers, the one with all layers first."""
    peaks = [one for one in every if not one.is_off] or every
    highest = [max(peaks, key=lambda one: (one.at(count), one.what == "peak")) for count in layers[::-1] if peaks]
    return list({one.operation: one for one in highest}.values())[:5]
