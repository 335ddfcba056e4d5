"""Runs a command with slices of a model, to forecast the needs of the whole model.

A slice is the model with only some of its layers. Each run is recorded as by ``profile --no-stacks``.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nncftools.analysis import forecast as analysis
from nncftools.analysis.forecast import Result
from nncftools.analysis.forecast_lines import LEAST_SLICES, Slice, measure_points
from nncftools.analysis.session import Session
from nncftools.analysis.summary import dropped_files
from nncftools.cli import destination, options, screen, series
from nncftools.cli.forecast import slices
from nncftools.cli.forecast.arguments import Command, ForecastOptions
from nncftools.cli.forecast.outputs import describe_slice, make_shown
from nncftools.cli.series import Results, Runner
from nncftools.errors import NncfToolsError, UsageError
from nncftools.files import Folder
from nncftools.limits import needs
from nncftools.reading_marks.collecting import measure_size
from nncftools.units import about_text, brief_size, count_text

_MOST_SHARE = 0.4
"""The largest slice (run with only some of the layers) has at most this share of the model's layers."""
_PEAK_PER_BYTE = 6
_WRITTEN_PER_BYTE = 4
_IMPORTS = 512 << 20
"""Before the first run, the RSS peak of a slice (a model with only some of the layers) is estimated: ``_IMPORTS``
bytes, plus ``_PEAK_PER_BYTE`` bytes for each byte of weights. In an export of a mixture-of-experts model, 4.3 bytes
were measured for each byte of weights.
"""
_MOST_FAILED = 2
_MOST_RUNS = 5


def plan_slices(counts: Sequence[int], layers: int) -> list[int]:
    """Return the layer counts of three slices (models with only some of the layers), in ascending order.

    The largest count is at most 40 % of the layers. The others are about one third and two thirds of the largest count.
    If fewer than three of the possible counts are at most 40 %, return the three smallest counts.
    """
    few = [count for count in counts if count <= layers * _MOST_SHARE]
    *smaller, largest = few if len(few) >= LEAST_SLICES else counts[:LEAST_SLICES]
    small = min(smaller[:-1], key=lambda count: abs(count - largest / 3))
    above = [count for count in smaller if count > small]
    middle = min(above, key=lambda count: abs(count - largest * 2 / 3))
    return [small, middle, largest]


def next_count(counts: Sequence[int], result: Result) -> int | None:
    """Return the number of layers of the next run; None if there are enough runs, or if further runs do not help.

    If the peak is doubtful after three slices, a fourth slice has up to half of the layers: a line through distant
    points is more certain. If that is not possible, or if the peak is still doubtful, the slice with the doubtful point
    runs again.
    """
    used = result.used
    tried = [part.layers for part in result.slices]
    if not analysis.has_enough(used):
        planned = [*plan_slices(counts, result.layers), *counts]
        return next((count for count in planned if count not in tried), None)
    doubtful = analysis.find_doubtful(used, result.layers, result.layer_parameters)
    if doubtful is None or len(used) >= _MOST_RUNS:
        return None
    further = [count for count in counts if count <= result.layers / 2 and count not in tried]
    if further and len(used) == LEAST_SLICES:
        return further[-1]
    return doubtful if tried.count(doubtful) == 1 else None


def begin_result(request: ForecastOptions, command: Command, model: slices.Model, notes: list[str]) -> Result:
    """Return a forecast that has no runs yet. Raises UsageError if the model has too few layers."""
    if len(model.counts()) < LEAST_SLICES:
        turns = f" whose kinds repeat after {model.period} layers at the earliest" if model.period > 1 else ""
        raise UsageError(
            f"no forecast of the model in {str(model.folder)!r}: it has {count_text(model.layers, 'layer')}{turns}: "
            "too few, because a forecast needs runs with three smaller numbers of layers; "
            "`nncf-tools profile` measures the whole model"
        )
    return Result(
        command=series.shareable(command.words),
        model=str(model.folder),
        layers=model.layers,
        parameters=model.parameters,
        layer_parameters=model.layer_parameters,
        weights=model.size(model.layers),
        from_config=request.from_config,
        added=list(command.added),
        notes=[*model.notes, *notes],
    )


def run(request: ForecastOptions, command: Command, model: slices.Model, result: Result) -> int:
    """Run the command with slices of the model; write and show the forecast. Return the exit status."""
    results = Results(request, "forecast", "forecast", "slice")
    with results.locked(), contextlib.ExitStack() as at_end:
        earlier = results.begun(result)
        models = {(known.layers, known.weights, known.from_config) for known in (earlier, result)}
        if len(models) > 1:
            raise UsageError(f"option --resume: {str(results.state)!r} is the forecast of another model")
        result.slices = earlier.slices
        output = "" if command.output is None else f", {command.output!r} by a scratch folder"
        size = f"{result.parameters / 1e6:,.0f} M parameters, {brief_size(result.weights)}"
        screen.line(f"Model: {count_text(result.layers, 'layer')}, {size}")
        screen.line(f"Replaced in the command: {command.model!r} by a slice of the model{output}")
        for note in result.notes:
            screen.message(note, "note: ")
        series.name_scripts(request)
        scratch = request.scratch or pathlib.Path(tempfile.gettempdir())
        with series.runner() as runner, destination.writing("--scratch", scratch):  # the command may remove it
            runs = Runs(
                request=request,
                command=command,
                model=model,
                result=result,
                results=results,
                scratch=scratch.absolute(),
                runner=runner,
                at_end=at_end,
            )
            runs.go()
        result.finish(request.limit)
        results.write(result)
        results.finish(result, make_shown(result, request.unit))
        if runner.is_interrupted():
            return results.interrupted(runner)
        return int(result.forecast is None or result.fits in {analysis.NO, analysis.UNSURE})


@dataclass(frozen=True)
class Runs:
    """Runs the command with slices (the model with only some of its layers) until a forecast is possible."""

    request: ForecastOptions
    command: Command
    model: slices.Model
    result: Result
    results: Results
    scratch: pathlib.Path
    """The folder in which each run gets a temporary folder for the slice and the output."""
    runner: Runner
    at_end: contextlib.ExitStack
    """Functions to call after the last run."""

    def go(self) -> None:
        """Run the command with slices until the forecast has enough runs.

        End earlier if no other slice fits into memory, disk space and time. Raises NncfToolsError, Interrupted.
        """
        result = self.result
        until_s = time.monotonic() + self.request.time
        while (wanted := next_count(self.model.counts(), result)) is not None:
            left_s = max(0.0, until_s - time.monotonic())
            layers, reason = self._choose(wanted, left_s)
            if layers is None:
                result.notes.append(f"a slice of {count_text(wanted, 'layer')} was not run: {reason}")
                return
            screen.line(f"Running {layers} of {self.model.layers} layers… ({about_text(left_s)} of --time left)")
            done = self._try(layers)
            if done.refaults and not self.why_not(layers, until_s - time.monotonic()):
                screen.line(f"{count_text(layers, 'layer')}: memory was short, so this slice runs again")
                done = self._try(layers)
            result.slices = sorted([*result.slices, done], key=lambda part: part.layers)
            self.results.write(result)
            screen.line(f"{count_text(layers, 'layer')}: {describe_slice(done, self.request.unit)}")
            self._check_failures(done)

    def _choose(self, wanted: int, left_s: float) -> tuple[int | None, str]:
        """Return ``(layer count of the next run, reason)``. The count is the largest possible count up to ``wanted``.

        The count is None if no run is possible. The reason says why a run with ``wanted`` layers is not possible; empty
        if it is possible.
        """
        tried = {part.layers for part in self.result.slices}
        smaller = [count for count in self.model.counts() if count < wanted]
        counts = [wanted, *(count for count in reversed(smaller) if count not in tried)]
        reasons = {count: self.why_not(count, left_s) for count in counts}
        return next((count for count in counts if not reasons[count]), None), reasons[wanted]

    def _check_failures(self, done: Slice) -> None:
        """Raise NncfToolsError if the command failed in two runs before there were enough runs for a forecast."""
        tried = len(self.result.slices)
        used = self.result.used
        failed = tried - len(used)
        if done.unused and failed >= _MOST_FAILED and not analysis.has_enough(used):
            log = self.results.folder / pathlib.PurePath(done.session).with_suffix(".log")
            raise NncfToolsError(
                f"the command failed in {failed} of {tried} runs with fewer layers: {done.unused}; output: {log}"
            )

    def why_not(self, layers: int, left_s: float) -> str:
        """Return the reason why a run with this many layers must not start; empty if it may start.

        The needs are estimated from earlier runs. ``left_s`` is the remaining time in seconds.
        """
        if left_s <= 0:
            return "no --time is left"
        used = self.result.used
        size = self.model.size(layers)
        took_s = 0.0
        peak = float(_IMPORTS + size * _PEAK_PER_BYTE)
        written = float(size * _WRITTEN_PER_BYTE)
        if used:
            last = used[-1]
            growth = max(1.0, layers / last.layers)
            peak = last.peak + _PEAK_PER_BYTE * max(0, size - self.model.size(last.layers))
            took_s = last.duration_s * growth
            written = (last.written or 0) * growth
        room = needs.available("/proc", os.getpid()).least
        if room is not None and peak > room:
            return f"up to {brief_size(peak)} of memory are needed, {brief_size(room)} is available"
        free = shutil.disk_usage(self.scratch).free
        disk = written + self.model.disk_size(layers)
        if disk > free:
            return f"up to {brief_size(disk)} of disk are needed, {brief_size(free)} is free (--scratch)"
        if took_s > left_s:
            return f"about {about_text(took_s)} are needed, {about_text(left_s)} of --time is left"
        return ""

    def _try(self, layers: int) -> Slice:
        """Make a slice of the model, run the command with the slice, and return the memory and time of the run.

        The files of the slice and the command's output are removed.
        """
        runner = self.runner
        is_again = any(part.layers == layers for part in self.result.slices)
        path = self.results.folder / f"slice-{layers}{series.AGAIN if is_again else ''}"
        with scratch_folder(self.scratch, self.at_end) as made:
            folder = made / f"{path.name}-of-{self.model.layers}-{made.name[-8:]}"
            output = made / f"output-{layers}"
            runner.check()
            with runner.starter.interruptible():
                slices.write(self.model, layers, folder)
            words = self.command.with_slice(folder, output)
            how = options.Request(words=words, interval=self.request.interval, stacks=False)
            name = f"the run with {count_text(layers, 'layer')}"
            prepared = series.prepare_run(runner.starter, self.request, name)
            with destination.open_log("--output", path.with_suffix(".log")) as log, prepared:
                recorded = runner.record(path, how, log)
                failed = series.explain_failure(recorded, log) if recorded.status else ""
            return measure_slice(
                layers, f"{path.name}.json", recorded.session, failed, output=measure_size(output) or 0
            )


@contextlib.contextmanager
def scratch_folder(scratch: pathlib.Path, at_end: contextlib.ExitStack) -> Iterator[pathlib.Path]:
    """Make a folder for a slice of the model and the output, and remove it when the run has ended.

    ``at_end`` prints a line if files remain: a daemon of the command may make the folder again later. Raises OSError if
    another user could replace the folder.
    """
    with Folder(scratch) as place:
        if place.is_shared:
            raise OSError("all users may rename files in this folder or a folder above: set the sticky bit (chmod +t)")
        made = scratch / pathlib.Path(tempfile.mkdtemp("", "nncf-tools-forecast-", place.descriptor_path)).name
    try:
        opened = Folder(made)
    except OSError:
        made.rmdir()
        raise
    with opened:
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)
            moved = opened.descriptor_path.resolve()  # the command may have moved it
            at_end.callback(_name_remains, {made, moved})


def _name_remains(folders: Iterable[pathlib.Path]) -> None:
    for folder in folders:
        if folder.exists():
            screen.message(f"files of a slice stay in {str(folder)!r}; remove them")


def measure_slice(layers: int, file: str, session: Session | None, failed: str, output: int) -> Slice:
    """Return the memory, disk space and time of a run.

    ``layers`` is the number of layers, ``file`` the name of the session, ``failed`` the reason of a failure (or empty),
    and ``output`` the size of the output in bytes. Raises NncfToolsError if the memory of the run is unknown.
    """
    needed = None if session is None else needs.needs(session)
    peak = None if session is None else session.rss_peak.low
    if session is None or needed is None or peak is None:
        why = failed or "the run was too short to see any memory"
        raise NncfToolsError(f"cannot use the run with {count_text(layers, 'layer')}: {why}")
    totals = session.totals
    chars = totals.get("write_chars", totals.get("write_bytes"))
    written = None if chars is None else round(chars)
    used = needs.of_session(session)
    filled = 0 if used is None else sum(used.disks.values())
    return Slice(
        layers=layers,
        session=file,
        duration_s=session.duration_s,
        peak=peak,
        floor=needed.floor,
        comfortable=needed.comfortable,
        written=written,
        disk=max(output, min(filled, written or 0)),
        unused=failed,
        points=measure_points(session),
        refaults=dropped_files(session),
    )
