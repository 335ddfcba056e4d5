"""The runs of a forecast: the command with slices of the model, each recorded as by ``profile --no-stacks``."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence

import msgspec.structs

from nncftools.analysis import forecast as analysis
from nncftools.analysis.forecast import Slice
from nncftools.cli import destination, options, planning, recording, screen
from nncftools.cli.fit import groups
from nncftools.cli.forecast import outputs, random_weights, slices
from nncftools.cli.forecast.arguments import Command
from nncftools.cli.forecast.command import ForecastOptions
from nncftools.cli.forecast.outputs import Result
from nncftools.cli.forecast.slices import Model
from nncftools.errors import NncfToolsError
from nncftools.files import Way
from nncftools.limits import needs
from nncftools.render.view import View
from nncftools.sampler.client import Starter
from nncftools.session.session import Session
from nncftools.units import brief_size, printable, seconds_text

_MOST_SHARE, _MOST_MORE = 0.4, 0.6
"""The largest slice's share of the layers; that of a fourth one."""
_WRONG = 0.03
"""If the peak of the largest slice is forecast less exactly by the others, there is a fourth."""
_BYTES_PER_WEIGHT = 6
"""An export of experts holds 4.3 times its weights."""
_IMPORTS = 512 << 20
_REFAULTS, _STALL = 0.1, 0.02
_MOST_FAILED = 2
_LONGEST_ERROR = 400


def planned(counts: Sequence[int], layers: int) -> list[int]:
    """Return the numbers of layers of three slices, from small to large: a third, two thirds and all of 40 %."""
    most = max([count for count in counts if count <= layers * _MOST_SHARE][2:], default=counts[2])
    inner = [count for count in counts if count < most]
    small = min(inner[:-1], key=lambda count: abs(count - most / 3))
    middle = min((count for count in inner if count > small), key=lambda count: abs(count - most * 2 / 3))
    return [small, middle, most]


def next_count(counts: Sequence[int], layers: int, done: Sequence[Slice]) -> int | None:
    """Return the number of layers of the next slice; None when there are enough."""
    used = sorted((part for part in done if not part.unused), key=lambda part: part.layers)
    tried = {part.layers for part in done}
    wanted = [count for count in planned(counts, layers) if count not in tried]
    if wanted and len(used) < analysis.LEAST_SLICES:
        return wanted[0]
    more = [count for count in counts if count not in tried and count <= layers * _MOST_MORE]
    if len(used) < analysis.LEAST_SLICES:
        return more[0] if more else None
    above = [count for count in more if count > used[-1].layers]
    return above[0] if above and len(used) == analysis.LEAST_SLICES and analysis.missed(used) > _WRONG else None


def run(request: ForecastOptions, command: Command, model: Model, wanted: Result) -> int:
    """Run the command with slices; write and show the forecast. Return the exit status."""
    way = Way(outputs.folder(request))
    with destination.own_folder("--output", way, f"another forecast writes to {str(way.folder)!r}; wait for its end"):
        result = outputs.begun(wanted, way.folder) if request.resume else wanted
        _introduce(command, model, result)
        with groups.endable() as starter, _scratch(request) as scratch:
            runs = _Runs(request, command, model, result, way, scratch, starter)
            is_done = runs.go()
        result.finish(request)
        failure = outputs.write(result, request.unit, way)
        screen.to_stdout(outputs.as_json(result) if request.as_json else outputs.text(result, request.unit))
        if not request.as_json:
            screen.to_stdout(outputs.commands(result))
        if failure is not None:
            raise failure
        screen.to_stderr(f"\nWritten to {printable(str(way.folder))}\n")
        if not is_done:
            how = f"--resume --output {shlex.quote(str(way.folder))}"
            screen.line(f"nncf-tools: interrupted; the runs that ended are kept; go on with: {how}")
            return 128 + (starter.received or signal.SIGINT)
        return int(result.forecast is None or result.fits in {outputs.NO, outputs.UNSURE})


def _introduce(command: Command, model: Model, result: Result) -> None:
    replaced = [f"{command.model!r} by a slice of it"]
    if command.output is not None:
        replaced.append(f"{command.output!r} by a scratch folder")
    size = f"{model.parameters / 1e6:,.0f} M parameters, {brief_size(model.weights)}"
    screen.line(f"Model: {model.layers} layers, {size}; replaced in the command: {' and '.join(replaced)}")
    for note in result.notes:
        screen.message(note, "note: ")


@contextlib.contextmanager
def _scratch(request: ForecastOptions):  # type: ignore[no-untyped-def] # noqa: ANN202 — a generator of one folder
    with destination.writing("--scratch", request.scratch or pathlib.Path(tempfile.gettempdir())):
        made = tempfile.TemporaryDirectory(
            prefix="nncf-tools-forecast-", dir=request.scratch, ignore_cleanup_errors=True
        )
    with made as folder:
        yield pathlib.Path(folder).absolute()


class _Runs:
    """The runs of a forecast."""

    def __init__(  # noqa: PLR0913, PLR0917 — what a run needs
        self,
        request: ForecastOptions,
        command: Command,
        model: Model,
        result: Result,
        way: Way,
        scratch: pathlib.Path,
        starter: Starter,
    ) -> None:
        self._request = request
        self._command = command
        self._model = model
        self._result = result
        self._way = way
        self._scratch = scratch
        self._starter = starter
        self._until_s = time.monotonic() + request.time
        self._input = recording.RepeatedInput()

    def go(self) -> bool:
        """Run until there are enough slices, or none fits; return False if we were interrupted before."""
        result, counts = self._result, self._model.counts()
        while (wanted := next_count(counts, self._model.layers, result.slices)) is not None:
            tried = {part.layers for part in result.slices}
            smaller = [count for count in reversed(counts) if count < wanted and count not in tried]
            whys = {count: self._why_not(count) for count in [wanted, *smaller]}
            layers = next((count for count, why in whys.items() if not why), None)
            if layers is None or (layers != wanted and len(result.used) >= analysis.LEAST_SLICES):
                result.notes.append(f"a slice of {wanted} layers was not run: {whys[wanted]}")
                return True
            left_s = max(0.0, self._until_s - time.monotonic())
            screen.line(f"Running {layers} of {self._model.layers} layers… (at most {seconds_text(left_s)} left)")
            done = None if self._is_interrupted() else self._try(layers)
            if done is None:
                return False
            result.slices = sorted([*result.slices, done], key=lambda part: part.layers)
            outputs.write_state(result, self._way)
            screen.line(f"{layers} layers: {outputs.of_slice(done, self._request.unit)}")
            if sum(bool(part.unused) for part in result.slices) >= _MOST_FAILED and not result.used:
                log = self._way.folder / f"slice-{done.layers}.log"
                raise NncfToolsError(f"the command does not work with slices: {done.unused}; its output is in {log}")
        return True

    def _is_interrupted(self) -> bool:
        return self._starter.received is not None

    def _why_not(self, layers: int) -> str:
        """Return why a slice may not be run, by what the runs before took; empty if it may."""
        used, size = self._result.used, self._model.size(layers)
        peak, took_s, written = float(_IMPORTS + size * 2), 0.0, float(size * 4)
        if used:
            last = used[-1]
            peak = last.peak + _BYTES_PER_WEIGHT * max(0, size - (last.weights or 0))
            took_s = last.duration_s * max(1.0, layers / last.layers)
            written = (last.written or 0) * max(1.0, layers / last.layers)
        if len(used) > 1:
            counts = [part.layers for part in used]
            peak = max(analysis.estimate(counts, [float(part.peak) for part in used], layers).high, peak / 2)
            took_s = analysis.estimate(counts, [part.duration_s for part in used], layers).value
        room = needs.available("/proc", os.getpid()).least
        if room is not None and peak > room:
            return f"it takes up to {brief_size(peak)} of memory, {brief_size(room)} is available"
        free = shutil.disk_usage(self._scratch).free
        if size + written > free:
            return f"it takes up to {brief_size(size + written)} of disk, {brief_size(free)} is free (--scratch)"
        left_s = self._until_s - time.monotonic()
        if took_s > left_s or left_s <= 0:
            return f"it takes about {seconds_text(took_s)}, and {seconds_text(max(0.0, left_s))} of --time is left"
        return ""

    def _try(self, layers: int) -> Slice | None:
        """Make a slice, run the command with it, and remove both; return None if we were interrupted."""
        model, request, name = self._model, self._request, f"slice-{layers}"
        folder, output = self._scratch / f"{name}-of-{model.layers}", self._scratch / f"output-{layers}"
        file = self._way.folder / f"{name}.json"
        try:
            with destination.writing("--scratch", folder):
                if model.tensors:
                    slices.write(model, layers, folder)
                else:
                    slices.write_config(model, layers, folder)
                    _python(request.words or [], "make", folder)
            if self._is_interrupted():
                return None
            destination.check_folder("--output", self._way)
            metrics, columns = planning.columns(options.Request(), options.PROFILE_TYPES)
            plan = planning.plan(columns, options.Request(interval=request.interval))
            argv = self._command.with_slice(folder, output)
            planning.watch_disks(plan, argv, self._way.folder)
            target = destination.at_file(file, force=True)
            self._input.rewind()
            with destination.opened("--output", self._way.folder / f"{name}.log") as log:
                marking = recording.Marking([])
                how = recording.Run(self._starter, plan, name, argv, target, marking, output=log)
                recorded = recording.record(how, View(metrics=metrics), quiet=True)
                failed = _error(recorded.status, log)
            kept = sum(path.lstat().st_size for path in output.rglob("*") if path.is_file())
        finally:
            for path in (folder, output):
                shutil.rmtree(path, ignore_errors=True)
        if self._is_interrupted():
            return None
        made = _measured(layers, recorded.session, file.name, failed, model.size(layers))
        return msgspec.structs.replace(made, disk=max(kept, made.disk or 0))


def _measured(layers: int, session: Session | None, name: str, failed: str, weights: int) -> Slice:
    needed = None if session is None else needs.needs(session, is_bound=False)
    peak = None if session is None else session.peaks.get("rss")
    if session is None or needed is None or peak is None or peak.low is None:
        took = "" if session is None else f" in {seconds_text(session.duration_s)}"
        why = failed or "it was too short to see what memory it needs"
        raise NncfToolsError(f"the run with {layers} layers ended{took}, and says nothing: {why}")
    totals = session.totals
    written = totals.get("write_chars", totals.get("write_bytes"))
    disks = [fs.first - fs.lowest for fs in session.file_systems if fs.first and fs.lowest is not None]
    refaults, stall_s = totals.get("refaults") or 0, totals.get("memory_stall") or 0
    pressed = refaults > peak.low * _REFAULTS and stall_s > session.duration_s * _STALL
    return Slice(
        layers=layers,
        session=name,
        duration_s=session.duration_s,
        peak=peak.low,
        floor=needed.floor,
        comfortable=needed.comfortable,
        written=None if written is None else round(written),
        disk=None if not disks else max(0, round(min(sum(disks), sum(disks) if written is None else written))),
        weights=weights,
        unused=failed or (f"memory was short: {brief_size(refaults)} were read again" if pressed else ""),
        points=analysis.points(session),
    )


def _error(status: int, log: int) -> str:
    """Return that a run failed, with the last line of its log; empty if it did not."""
    if not status:
        return ""
    size = os.fstat(log).st_size
    lines = os.pread(log, _LONGEST_ERROR, max(0, size - _LONGEST_ERROR)).decode(errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return printable(" ".join(f"exit status {status}: {last}".split()))


def looked_at(folder: pathlib.Path, words: Sequence[str]) -> Model:
    """Return a model without weights, by its config. Raises NncfToolsError."""
    config, layers = slices.read_config(folder)
    if "auto_map" in config:
        raise NncfToolsError(f"option --from-config: {slices.CONFIG} has auto_map: the folder's own code is not run")
    with tempfile.TemporaryDirectory(prefix="nncf-tools-forecast-") as made:
        target = pathlib.Path(made, "model")
        slices.write_config(Model(folder, config, layers, 0, 1, 0, 0, {}), layers, target)
        seen = json.loads(_python(words, "look", target))
    if len(seen["kinds"]) != layers:
        raise NncfToolsError(f"option --from-config: the layers of {config.get('model_type')!r} are not known")
    known = {**config, "layer_types": seen["layer_types"]} if seen["layer_types"] else config
    turns = slices.turns(known, layers, seen["kinds"])
    return Model(folder, known, layers, *turns, seen["parameters"], seen["weights"], {})


def _python(words: Sequence[str], what: str, folder: pathlib.Path) -> str:
    """Run our program for random weights in the command's own Python; return what it prints. Raises NncfToolsError."""
    from nncftools.cli.forecast.arguments import interpreter

    python = interpreter(words)
    if python is None:
        program = words[0] if words else ""
        raise NncfToolsError(f"option --from-config: which Python runs {program!r} is not known; name it first")
    source = pathlib.Path(random_weights.__file__).read_text(encoding="utf-8")
    argv = [python, "-c", source, what, str(folder)]
    done = subprocess.run(
        argv, cwd=folder.parent, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise NncfToolsError(f"option --from-config: {python} cannot make the model: {printable(last)}")
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
