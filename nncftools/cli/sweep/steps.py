"""A task of a sweep: compress and evaluate one configuration, on this machine or on another machine.

Each step of a task is a recorded process.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from nncftools.analysis.session import Session
from nncftools.cli import destination, options
from nncftools.cli.series import LONGEST_REASON, Runner, why
from nncftools.cli.sweep import grid, worker
from nncftools.cli.sweep.results import SweepRow
from nncftools.compression import filling
from nncftools.compression.reading import STDERR
from nncftools.errors import NncfToolsError
from nncftools.files import Folder, above_standard
from nncftools.limits import groups
from nncftools.units import MemoryUnit, shortened

if TYPE_CHECKING:
    from typing_extensions import Self

MODEL = "model"
TEXT = "text"
LAST_WORDS = "lambada"
PROMPTS = "prompts"
CALIBRATION = "calibration"
KIND = "kind"


class Task(msgspec.Struct, frozen=True):
    """A configuration to run, with the inputs."""

    row: SweepRow
    """The row without results."""
    is_baseline: bool
    needs_data: bool
    inputs: dict[str, str]
    """Paths by role: ``model``, ``text``, ``calibration`` …"""
    folder: str
    """Folder for recordings and logs."""
    python: str
    """The interpreter with NNCF and OpenVINO."""
    max_memory: int | None = None
    keep_model: bool = False
    tasks: list[str] = []
    """Tasks of lm-evaluation-harness, some with a metric: ``arc_easy:acc``."""
    include_path: str = ""
    """Folder with tasks that the user wrote."""
    code: str = ""
    """Text of the user's file, for other models than language models."""
    reference: list[list[int]] | None = None
    """The baseline's continuations of the prompts."""


ENVIRONMENT = {"CI": "true", "HF_HUB_OFFLINE": "1"}
"""Defaults for each step; without ``CI``, the telemetry of OpenVINO forks the measured process."""
INTERVAL_S = 0.05
_WORKER = str(Path(worker.__file__).parent)


@dataclass(frozen=True)
class Ran:
    """A step that has ended."""

    session: Session | None
    result: dict[str, Any] | None
    """The measured figures; None after a failure."""
    failed: str
    """The cause of a failure; empty after success."""

    @property
    def seconds(self) -> float:
        """Duration of the step."""
        return 0.0 if self.session is None else self.session.duration_s


def find_parent_group() -> groups.ParentGroup | None:
    """Return the parent for control groups with a limit; None if such groups are not allowed here."""
    try:
        return groups.parent_group()
    except OSError:
        return None


def run_task(task: Task, runner: Runner) -> SweepRow:
    """Compress, save and evaluate a configuration; return the row.

    A failure is noted in the row. Raises Interrupted, and NncfToolsError if no process can be started.
    """
    begun_s = time.monotonic()
    steps = _Steps(task, runner)
    try:
        model = steps.make_model()
        if model is not None:
            steps.evaluate(model)
    finally:
        with contextlib.suppress(OSError), Folder(steps.folder) as folder:
            if not task.keep_model:
                shutil.rmtree(folder.descriptor_path / steps.saved.name, ignore_errors=True)
    task.row.wall_s = time.monotonic() - begun_s
    return task.row


class _Steps:
    """The steps of a task."""

    def __init__(self, task: Task, runner: Runner) -> None:
        self._task = task
        self._row = task.row
        self._runner = runner
        self.folder = Path(task.folder)
        self.saved = self.folder / "model"
        self._parent = None if task.max_memory is None else find_parent_group()

    def make_model(self) -> Path | None:
        """Compress the model, and return the new folder; None after a failure."""
        task = self._task
        if task.is_baseline and KIND not in task.inputs:
            return Path(task.inputs[MODEL])
        ran = self._run("quantize" if KIND in task.inputs else "compress", task.inputs[MODEL])
        if not task.is_baseline and ran.session is not None:
            peak = ran.session.peaks["rss"]
            self._row.peak = peak.low
            self._row.peak_high = peak.high
            self._row.owner = find_owner(ran.session)
        if ran.result is None:
            return None
        self._row.compression_s = ran.result["compression_s"]
        return self.saved

    def evaluate(self, model: Path) -> None:
        """Evaluate a saved model, and note the results in the row."""
        row = self._row
        ran = self._run("score" if KIND in self._task.inputs else "evaluate", str(model))
        if ran.session is not None:
            row.inference_peak = ran.session.peaks["rss"].low
        if ran.result is None:
            return
        weights = [file for file in model.glob("*.bin") if "tokenizer" not in file.name]
        row.size = sum(file.stat().st_size for file in weights)
        self._add_figures(ran.result.pop("figures"))
        for name, value in ran.result.items():
            setattr(row, name, value)
        if self._task.tasks and row.is_complete:
            self._evaluate_tasks(model)

    def _evaluate_tasks(self, model: Path) -> None:
        task = self._task
        results = self.folder / "tasks"
        names = dict.fromkeys(name.partition(":")[0] for name in task.tasks)
        words = ["--model", "openvino", "--model_args", f"pretrained={model}"]
        words += ["--tasks", ",".join(names), "--device", "cpu", "--output_path", str(results)]
        if task.include_path:
            words += ["--include_path", task.include_path]
            with options.naming_option("--include-path"):  # hours may have passed since the first check
                grid.check_tasks(Path(task.include_path))
        ran = run_module("lm_eval", words, python=task.python, path=results, runner=self._runner)
        self._note_end(ran)
        if ran.failed:
            return
        try:
            tasks = filling.tasks_of([name for name in task.tasks if ":" in name])
            (file,) = results.rglob("results_*.json")
            figures = filling.from_lm_eval(file, tasks, may_wait=False)
            filling.check_found(tasks, figures)
        except (NncfToolsError, ValueError) as error:
            self._row.failed = shortened(f"tasks: {error}", LONGEST_REASON)
            return
        for name, value in figures.items():
            if not name.endswith(STDERR):
                self._add_figures({name: (value, figures.get(name + STDERR))})

    def _add_figures(self, figures: Mapping[str, Sequence[float | None]]) -> None:
        """Add figures of quality to the row; a value that is not finite counts as a failure."""
        for column, (value, stderr) in figures.items():
            if value is None or not math.isfinite(value):
                self._row.failed = f"evaluate: {column} is {value}: the model has collapsed, or the score is wrong"
                return
            if stderr is not None and not math.isfinite(stderr):
                stderr = None  # noqa: PLW2901 — the same value, cleaned
            self._row.figures[column] = value, stderr

    def _note_end(self, ran: Ran) -> None:
        self._row.measured_s += ran.seconds
        self._row.failed = ran.failed

    def _run(self, step: str, model: str) -> Ran:
        """Run a step, under the memory limit of the task if there is a limit."""
        task = self._task
        limit = task.max_memory
        job: dict[str, Any] = {
            "step": step,
            "name": task.row.name,
            "model": model,
            "output": str(self.saved),
            "settings": task.row.settings,
            "needs_data": task.needs_data,
            "reference": task.reference,
            "code": task.code,
            **{name: task.inputs.get(name) for name in (TEXT, LAST_WORDS, PROMPTS, CALIBRATION, KIND)},
        }
        path = self.folder / step
        record = partial(_record, self._runner, task.python, job=job, path=path)
        if self._parent is None or limit is None:
            ran = record(max_memory=limit)
        else:
            with groups.LimitedGroup(self._parent, 1) as group:
                group.limit(limit)
                ran = record(entry=group.entry)
                if group.oom_kills() and ran.result is None:
                    text = f"{step}: out of memory, the limit was {MemoryUnit.MiB.label(limit)}"
                    ran = Ran(ran.session, None, text)
        self._note_end(ran)
        return ran


class _Step:
    """The descriptors that the process of a step inherits: a file without a name, and a pipe.

    The file holds the job; the step appends the result. The pipe ends with our process, and so does the step.
    """

    def __init__(self, python: str, job: Mapping[str, Any]) -> None:
        self._written = json.dumps(job).encode()
        with tempfile.TemporaryFile() as file:
            file.write(self._written)
            file.seek(0)
            self._job = above_standard(os.dup(file.fileno()))
        self._pipe = [above_standard(end) for end in os.pipe()]
        inherited = self._job, self._pipe[0]
        for descriptor in inherited:
            os.set_inheritable(descriptor, True)
        self.argv = [python, _WORKER, *map(str, inherited)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (self._job, *self._pipe):
            os.close(descriptor)

    def result(self) -> dict[str, Any] | None:
        """Return the figures of a step that has ended; None if the step wrote no result."""
        with open(self._job, "rb", closefd=False) as file:
            file.seek(len(self._written))
            result = file.read()
        return json.loads(result) if result else None


def run_module(module: str, words: Sequence[str], *, python: str, path: Path, runner: Runner) -> Ran:
    """Record a module of a library with a command line, as a step of the sweep. Raises NncfToolsError.

    The module runs in an empty folder: lm-evaluation-harness and the data sets of Hugging Face take a folder with the
    name of a task for the task, and run the code in that folder. ``path`` is the path of the files without an ending.
    """
    with tempfile.TemporaryDirectory(prefix="nncf-tools-") as empty:
        job = {
            "step": "module",
            "name": path.name,
            "module": module,
            "words": list(words),
            "folder": empty,
        }
        return _record(runner, python, job=job, path=path)


def _record(  # noqa: PLR0913 — the settings of a step
    runner: Runner,
    python: str,
    *,
    job: Mapping[str, Any],
    path: Path,
    max_memory: int | None = None,
    entry: Sequence[str] = (),
) -> Ran:
    """Record a step with operations and stacks; ``path`` has no ending. Raises NncfToolsError."""
    with _Step(python, job) as step:
        request = options.Request(
            words=step.argv,
            types=["rss"],
            interval=INTERVAL_S,
            max_memory=max_memory,
            on_limit="warn" if max_memory is None else "kill",
        )
        with destination.opened("--output", path.with_suffix(".log")) as log:
            recorded = runner.record(path, request, log, entry=entry, environment=ENVIRONMENT)
            result = None if recorded.status else step.result()
            failed = "" if result is not None else f"{path.name}: {why(recorded, log)}"
    return Ran(recorded.session, result, failed)


def find_owner(session: Session) -> str:
    """Return the operation or the place in the code at the RSS peak; empty if unknown."""
    from nncftools.analysis import build_up, code_places
    from nncftools.render.sentences import where_text

    where = where_text(session).removeprefix("during ")
    if where:
        return where
    rise = build_up.of_peak(session)
    frame = None if rise is None or rise.top is None else code_places.best_frame(rise.top.stack)
    return "" if frame is None else code_places.brief_label(frame)
