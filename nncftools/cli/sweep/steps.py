"""One configuration of a sweep: the task, which may be done here or on another machine, and its row from that.

Its steps are processes of their own, and each is recorded.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
from nncftools.limits import needs
from nncftools.units import MemoryUnit, shortened

if TYPE_CHECKING:
    from typing_extensions import Self

MODEL, TEXT, LAST_WORDS, PROMPTS, CALIBRATION, KIND = "model", "text", "lambada", "prompts", "calibration", "kind"
"""What the inputs are for; the keys of ``Task.inputs``."""


class Task(msgspec.Struct, frozen=True):
    """What to run for one configuration, and with which inputs."""

    row: SweepRow
    """The row, with what is known before the task runs."""
    is_baseline: bool
    needs_data: bool
    inputs: dict[str, str]
    """Paths by what they are for: the exported model, texts, the user's file."""
    folder: str
    """Where recordings and logs go."""
    python: str
    """The interpreter that has NNCF and OpenVINO."""
    max_memory: int | None = None
    keep_model: bool = False
    tasks: list[str] = []
    """Tasks of lm-evaluation-harness, each also with a metric: ``arc_easy:acc``."""
    include_path: str = ""
    """A folder with tasks of the user's."""
    code: str = ""
    """The user's file, for a model of another kind."""
    reference: list[list[int]] | None = None
    """The baseline's continuations of the prompts."""


ENVIRONMENT = {"CI": "true", "HF_HUB_OFFLINE": "1"}
"""Unless they are set: without the first, OpenVINO's telemetry forks the process that is measured."""
INTERVAL_S = 0.05
_WORKER = str(pathlib.Path(worker.__file__).parent)


@dataclass(frozen=True)
class Ran:
    """A step that ended."""

    session: Session | None
    result: dict[str, Any] | None
    """What it measured; None if it failed."""
    failed: str
    """Why it failed; empty if it did not."""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return 0.0 if self.session is None else self.session.duration_s

    @property
    def peak(self) -> tuple[int | None, int | None]:
        """The bracket of its RSS peak, in bytes."""
        peak = None if self.session is None else self.session.peaks.get("rss")
        return (None, None) if peak is None else (peak.low, peak.high)


def parent_group() -> needs.ParentGroup | None:
    """Return where control groups with a limit can be made; None where that is not allowed."""
    try:
        return needs.parent_group()
    except OSError:
        return None


def run_task(task: Task, runner: Runner) -> SweepRow:
    """Compress, save and evaluate one configuration; return its row.

    What fails makes a row with the verdict. Raises Interrupted, and NncfToolsError if no process can be started.
    """
    begun_s = time.monotonic()
    steps = _Steps(task, runner)
    try:
        model = steps.model()
        if model is not None:
            steps.evaluate(model)
    finally:
        with contextlib.suppress(OSError), Folder(steps.folder) as folder:
            if not task.keep_model:
                shutil.rmtree(folder.descriptor_path / steps.saved.name, ignore_errors=True)
    task.row.wall_s = time.monotonic() - begun_s
    return task.row


class _Steps:
    """The steps of one configuration."""

    def __init__(self, task: Task, runner: Runner) -> None:
        self._task = task
        self._row = task.row
        self._runner = runner
        self.folder = pathlib.Path(task.folder)
        self.saved = self.folder / "model"
        self._parent = None if task.max_memory is None else parent_group()

    def model(self) -> pathlib.Path | None:
        """Make the compressed model, and return its folder; None if that failed."""
        task, row = self._task, self._row
        if task.is_baseline and KIND not in task.inputs:
            return pathlib.Path(task.inputs[MODEL])
        ran = self._run("quantize" if KIND in task.inputs else "compress", task.inputs[MODEL])
        if not task.is_baseline:
            row.peak, row.peak_high = ran.peak
            row.owner = owner(ran.session)
        if ran.result is None:
            return None
        row.compression_s = ran.result["compression_s"]
        return self.saved

    def evaluate(self, model: pathlib.Path) -> None:
        """Evaluate a saved model into the row."""
        row = self._row
        ran = self._run("score" if KIND in self._task.inputs else "evaluate", str(model))
        row.inference_peak, _ = ran.peak
        if ran.result is None:
            return
        row.size = sum(file.stat().st_size for file in model.glob("*.bin") if "tokenizer" not in file.name)
        self._keep(ran.result["figures"])
        for name in {"widths", "first_token_s", "per_token_s", "inference_s", "continuations"} & ran.result.keys():
            setattr(row, name, ran.result[name])
        if self._task.tasks and row.is_complete:
            self._evaluate_tasks(model)

    def _evaluate_tasks(self, model: pathlib.Path) -> None:
        task, results = self._task, self.folder / "tasks"
        names = ",".join(dict.fromkeys(name.partition(":")[0] for name in task.tasks))
        argv = ["--model", "openvino", "--model_args", f"pretrained={model}"]
        argv += ["--tasks", names, "--device", "cpu", "--output_path", str(results)]
        argv += ["--include_path", task.include_path] if task.include_path else []
        if task.include_path:  # lm-evaluation-harness reads them now, hours after they were checked
            with options.naming_option("--include-path"):
                grid.check_tasks(pathlib.Path(task.include_path))
        if self._noted(run_module("lm_eval", argv, task.python, self.folder, "tasks", self._runner)).failed:
            return
        try:
            wanted = filling.tasks_of([name for name in task.tasks if ":" in name])
            (file,) = results.rglob("results_*.json")
            figures = filling.from_lm_eval(file, wanted, may_wait=False)
            filling.check_found(wanted, figures)
        except (NncfToolsError, ValueError) as error:
            self._row.failed = shortened(f"tasks: {error}", LONGEST_REASON)
            return
        quality = {name: value for name, value in figures.items() if not name.endswith(STDERR)}
        self._keep({name: (value, figures.get(name + STDERR)) for name, value in quality.items()})

    def _keep(self, figures: Mapping[str, Sequence[float | None]]) -> None:
        """Add figures of quality to the row; one that is not a finite number makes it a failed row."""
        for column, (value, stderr) in figures.items():
            if value is None or not math.isfinite(value):
                self._row.failed = f"evaluate: {column} is {value}: the model has collapsed, or its score is wrong"
                return
            self._row.figures[column] = value, stderr if stderr is not None and math.isfinite(stderr) else None

    def _noted(self, ran: Ran) -> Ran:
        """Note the time of a step in the row, and whether it failed."""
        self._row.measured_s += ran.seconds
        self._row.failed = ran.failed
        return ran

    def _run(self, step: str, model: str) -> Ran:
        """Run a step under the limit of the task, if it has one."""
        task, limit = self._task, self._task.max_memory
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
        record = partial(_recorded, self._runner, task.python, job, self.folder / step)
        if self._parent is None or limit is None:
            return self._noted(record(max_memory=limit))
        with needs.LimitedGroup(self._parent, 1) as group:
            group.limit(limit)
            ran = record(entry=group.entry)
            if group.oom_kills() and ran.result is None:
                over = f"{step}: out of memory, the limit was {MemoryUnit.MiB.label(limit)}"
                ran = Ran(ran.session, None, over)
        return self._noted(ran)


class _Step:
    """What the process of a step inherits: its job, a file without a name to which it appends its result, and a pipe.

    The pipe ends when we are gone, and the step with it.
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
        """Return what the step measured, after its end; None if it wrote no result."""
        with open(self._job, "rb", closefd=False) as file:
            file.seek(len(self._written))
            result = file.read()
        return json.loads(result) if result else None


def run_module(  # noqa: PLR0913, PLR0917 — what a step is recorded with
    module: str, words: Sequence[str], python: str, folder: pathlib.Path, name: str, runner: Runner
) -> Ran:
    """Record a module of a library with a command line of its own; it ends with the sweep. Raises NncfToolsError.

    It runs in an empty folder: lm-evaluation-harness and the data sets of Hugging Face take a folder that has the name
    of a task for the task, and run the code in it.
    """
    with tempfile.TemporaryDirectory(prefix="nncf-tools-") as empty:
        job = {"step": "module", "name": name, "module": module, "words": list(words), "folder": empty}
        return _recorded(runner, python, job, folder / name)


def _recorded(  # noqa: PLR0913 — what a step is recorded with
    runner: Runner,
    python: str,
    job: Mapping[str, Any],
    path: pathlib.Path,
    *,
    max_memory: int | None = None,
    entry: Sequence[str] = (),
) -> Ran:
    """Record a step, with operations and stacks; ``path`` has no ending. Raises NncfToolsError."""
    action = "warn" if max_memory is None else "kill"
    with _Step(python, job) as step:
        request = options.Request(
            words=step.argv, types=["rss"], interval=INTERVAL_S, max_memory=max_memory, on_limit=action
        )
        with destination.opened("--output", path.with_suffix(".log")) as log:
            recorded = runner.record(path, request, log, entry=entry, environment=ENVIRONMENT)
            result = None if recorded.status else step.result()
            failed = "" if result is not None else f"{path.name}: {why(recorded, log)}"
    return Ran(recorded.session, result, failed)


def owner(session: Session | None) -> str:
    """Return the operation that holds the RSS peak, or the place in the code; empty for unknown."""
    from nncftools.analysis import build_up, code_places
    from nncftools.render.sentences import where_text

    if session is None:
        return ""
    where = where_text(session).removeprefix("during ")
    if where:
        return where
    rise = build_up.of_peak(session)
    frame = None if rise is None or rise.top is None else code_places.best_frame(rise.top.stack)
    return "" if frame is None else code_places.brief_label(frame)
