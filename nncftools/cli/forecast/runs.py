"""The runs of a forecast: the command with slices of the model, each recorded as by ``profile --no-stacks``."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

from nncftools.analysis import forecast as analysis
from nncftools.analysis.forecast import NO, UNSURE, Result, Slice
from nncftools.cli import destination, options, recording, screen
from nncftools.cli.fit import groups
from nncftools.cli.fit import outputs as of_runs
from nncftools.cli.forecast import outputs, slices
from nncftools.cli.forecast.arguments import Command, ForecastOptions
from nncftools.cli.forecast.slices import Model
from nncftools.cli.sweep import steps
from nncftools.errors import NncfToolsError
from nncftools.files import Way, open_to_all
from nncftools.limits import needs
from nncftools.marks.collecting import size_of
from nncftools.render.view import View
from nncftools.sampler.client import Interrupted, Starter
from nncftools.session.session import Session
from nncftools.units import about_text, brief_size

_MOST_SHARE = 0.4
"""The largest slice's share of the layers."""
_WRONG = 0.03
"""If the peak of the largest slice is forecast less exactly by the others, there is a fourth."""
_BYTES_PER_WEIGHT, _FILES_PER_WEIGHT, _IMPORTS = 6, 4, 512 << 20
"""What a slice may take before that is known: an export of experts holds 4.3 times its weights."""
_REFAULTS, _STALL = 0.1, 0.02
_MOST_FAILED = 2
_SCRATCH = "nncf-tools-forecast-"


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
    if len(used) < analysis.LEAST_SLICES:
        return next((count for count in [*planned(counts, layers), *counts] if count not in tried), None)
    if len(used) > analysis.LEAST_SLICES or analysis.missed(used) <= _WRONG:
        return None
    smallest, middle, largest = (part.layers for part in used)
    between = [count for count in counts if smallest < count < largest and count not in tried]
    return _nearest(between, (middle + largest) / 2) if between else None


def run(request: ForecastOptions, command: Command, model: Model, wanted: Result) -> int:
    """Run the command with slices; write and show the forecast. Return the exit status."""
    with of_runs.folder_of_runs(request, outputs.KIND) as way:
        result = outputs.begun(wanted, way.folder) if request.resume else wanted
        _introduce(command, model, result)
        scratch = request.scratch or pathlib.Path(tempfile.gettempdir())
        with groups.endable() as starter, destination.writing("--scratch", scratch):  # the command may remove it
            destination.check_owner("--scratch", scratch, scratch.stat())
            if open_to_all(scratch.stat()):
                raise OSError("all users may rename what is in it: it is not sticky (chmod +t)")
            is_done = Runs(request, command, model, result, way, scratch.absolute(), starter).go()
        result.finish(request.limit)
        of_runs.write_state(result, way, outputs.KIND)
        of_runs.finish(request, result, outputs.shown(result, request.unit), way, outputs.KIND)
        if not is_done:
            return of_runs.interrupted(way, starter)
        return int(result.forecast is None or result.fits in {NO, UNSURE})


def _introduce(command: Command, model: Model, result: Result) -> None:
    output = "" if command.output is None else f", {command.output!r} by a scratch folder"
    size = f"{result.parameters / 1e6:,.0f} M parameters, {brief_size(result.weights)}"
    screen.line(f"Model: {model.layers} layers, {size}")
    screen.line(f"Replaced in the command: {command.model!r} by a slice of it{output}")
    for note in result.notes:
        screen.message(note, "note: ")


@dataclass(frozen=True)
class Runs:
    """The runs of a forecast."""

    request: ForecastOptions
    command: Command
    model: Model
    result: Result
    way: Way
    scratch: pathlib.Path
    """Where each slice and its output have a folder of their own."""
    starter: Starter

    def go(self) -> bool:
        """Run until there are enough slices, or none fits; return False if we were interrupted before."""
        result, counts, until_s = self.result, self.model.counts(), time.monotonic() + self.request.time
        same_input = recording.RepeatedInput()
        while (wanted := next_count(counts, self.model.layers, result.slices)) is not None:
            tried = {part.layers for part in result.slices}
            left_s = max(0.0, until_s - time.monotonic())
            untried = [count for count in reversed(counts) if count <= wanted and count not in tried]
            whys = {count: self.why_not(count, left_s) for count in untried}
            layers = next((count for count, why in whys.items() if not why), None)
            if layers is None or (layers != wanted and len(result.used) >= analysis.LEAST_SLICES):
                result.notes.append(f"a slice of {wanted} layers was not run: {whys[wanted]}")
                return True
            screen.line(f"Running {layers} of {self.model.layers} layers… ({about_text(left_s)} of --time left)")
            same_input.rewind()
            done = None if groups.is_interrupted(self.starter) else self._try(layers)
            if done is None:
                return False
            result.slices = sorted([*result.slices, done], key=lambda part: part.layers)
            of_runs.write_state(result, self.way, outputs.KIND)
            screen.line(f"{layers} layers: {outputs.of_slice(done, self.request.unit)}")
            if len(result.slices) >= _MOST_FAILED and not result.used:
                log = self.way.folder / f"slice-{done.layers}.log"
                raise NncfToolsError(f"the command does not work with slices: {done.unused}; its output is in {log}")
        return True

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
        if room is not None and peak > room:
            return f"it takes up to {brief_size(peak)} of memory, {brief_size(room)} is available"
        if size + written > free:
            return f"it takes up to {brief_size(size + written)} of disk, {brief_size(free)} is free (--scratch)"
        is_late = took_s > left_s or left_s <= 0
        return f"it takes about {about_text(took_s)}, {about_text(left_s)} of --time is left" if is_late else ""

    def _try(self, layers: int) -> Slice | None:
        """Make a slice, run the command with it, and remove both; return None if we were interrupted."""
        starter, name = self.starter, f"slice-{layers}"
        with tempfile.TemporaryDirectory("", _SCRATCH, self.scratch, ignore_cleanup_errors=True) as made:
            folder = pathlib.Path(made, f"{name}-of-{self.model.layers}-{made[-8:]}")
            output = pathlib.Path(made, f"output-{layers}")
            with contextlib.suppress(Interrupted), starter.interruptible():
                slices.write(self.model, layers, folder)
            if groups.is_interrupted(starter):
                return None
            words = self.command.with_slice(folder, output)
            how = options.Request(words=words, interval=self.request.interval, stacks=False)
            with recording.one_of_several(starter, self.way, name, how) as (run, log):
                recorded = recording.record(run, View([]), quiet=True)
                failed = steps.why(recorded, log) if recorded.status else ""
            kept = size_of(output) or 0
            return None if groups.is_interrupted(starter) else measured(layers, recorded.session, failed, kept)


def measured(layers: int, session: Session | None, failed: str, kept: int) -> Slice:
    """Return what a slice took; ``kept`` is the size of its output. Raises NncfToolsError if nothing is known."""
    needed = None if session is None else needs.needs(session)
    peak = None if session is None else session.peaks.get("rss")
    if session is None or needed is None or peak is None or peak.low is None:
        why = failed or "it was too short to see what memory it needs"
        raise NncfToolsError(f"the run with {layers} layers says nothing: {why}")
    totals, used = session.totals, needs.of_session(session)
    written = totals.get("write_chars", totals.get("write_bytes"))
    fuller = 0 if used is None else min(sum(used.disks.values()), round(written or 0))
    refaults, stall_s = totals.get("refaults") or 0, totals.get("memory_stall") or 0
    is_pressed = refaults > peak.low * _REFAULTS and stall_s > session.duration_s * _STALL
    return Slice(
        layers=layers,
        session=f"slice-{layers}.json",
        duration_s=session.duration_s,
        peak=peak.low,
        floor=needed.floor,
        comfortable=needed.comfortable,
        written=None if written is None else round(written),
        disk=max(kept, fuller),
        unused=failed or (f"memory was short: {brief_size(refaults)} were read again" if is_pressed else ""),
        points=analysis.points(session),
    )
