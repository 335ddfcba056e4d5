"""A task of a sweep: compress and evaluate a configuration, on this machine or on a worker of a Dask cluster.

A task has several steps; each step is a recorded process. A worker runs each task in a new process, and returns the
files of the task.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from nncftools.analysis.session import Session
from nncftools.backports import running
from nncftools.cli import destination, options, screen
from nncftools.cli.series import LONGEST_REASON, Runner, explain_failure, runner
from nncftools.cli.sweep import grid, worker
from nncftools.cli.sweep.results import ROW, SweepFolder, SweepRow, list_files, make_stamp
from nncftools.compression import filling
from nncftools.compression.reading import STDERR
from nncftools.errors import NncfToolsError, UsageError
from nncftools.files import Folder, above_standard
from nncftools.limits import needs
from nncftools.sampler.client import Interrupted, block_signals
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
    """A configuration to run, with all inputs."""

    row: SweepRow
    """The row to fill with the results of the configuration."""
    is_baseline: bool
    needs_data: bool
    inputs: dict[str, str]
    """Paths of the inputs: ``{"model": …, "text": …, "calibration": …}``."""
    folder: str
    """Folder for recordings and logs."""
    python: str
    """The Python interpreter whose environment has NNCF and OpenVINO."""
    max_memory: int | None = None
    keep_model: bool = False
    tasks: list[str] = []
    """Benchmarks of lm-evaluation-harness (there called tasks), possibly with a metric: ``arc_easy:acc``."""
    include_path: str = ""
    """Folder with the user's own benchmarks for lm-evaluation-harness; empty if there is no such folder."""
    code: str = ""
    """Text of the user's Python file (``--kind``), if the model is not a language model."""
    reference: list[list[int]] | None = None
    """The tokens that the baseline generates after each prompt; None if they are unknown."""


ENVIRONMENT = {"CI": "true", "HF_HUB_OFFLINE": "1"}
"""Environment variables for each step, unless they are set. Without ``CI``, OpenVINO's telemetry forks the measured
process."""
INTERVAL_S = 0.05
_WORKER = str(Path(worker.__file__).parent)


@dataclass(frozen=True)
class Ran:
    """The result of a step."""

    session: Session | None
    result: dict[str, Any] | None
    """The result that the step wrote, such as ``{"compression_s": 12.5}``; None after a failure."""
    failed: str
    """Why the step failed; empty after success."""

    @property
    def seconds(self) -> float:
        """Duration of the step in seconds."""
        return 0.0 if self.session is None else self.session.duration_s


def find_parent_group() -> needs.ParentGroup | None:
    """Return the parent for our control groups with a memory limit; None if such groups are not allowed here."""
    try:
        return needs.parent_group()
    except OSError:
        return None


def run_task(task: Task, runner: Runner) -> SweepRow:
    """Compress, save and evaluate a configuration; return the row.

    If a step fails, the row says why. Raises Interrupted, and NncfToolsError if no process can be started.
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
    def __init__(self, task: Task, runner: Runner) -> None:
        self._task = task
        self._row = task.row
        self._runner = runner
        self.folder = Path(task.folder)
        self.saved = self.folder / "model"
        self._parent = None if task.max_memory is None else find_parent_group()

    def make_model(self) -> Path | None:
        """Compress the model, and return the folder of the compressed model; None after a failure."""
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
        """Evaluate a saved model, and add the results to the row."""
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
            tasks = filling.parse_tasks([name for name in task.tasks if ":" in name])
            (file,) = results.rglob("results_*.json")
            figures = filling.read_lm_eval(file, tasks, may_wait=False)
            filling.check_found(tasks, figures)
        except (NncfToolsError, ValueError) as error:
            self._row.failed = shortened(f"tasks: {error}", LONGEST_REASON)
            return
        for name, value in figures.items():
            if not name.endswith(STDERR):
                self._add_figures({name: (value, figures.get(name + STDERR))})

    def _add_figures(self, figures: Mapping[str, Sequence[float | None]]) -> None:
        """Add quality values to the row. ``figures`` is ``{column: (value, standard error)}``.

        If a value is not finite, the configuration has failed.
        """
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
        """Run a step, with the memory limit of the task if there is one."""
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
            with needs.LimitedGroup(self._parent, 1) as group:
                group.limit(limit)
                ran = record(entry=group.entry)
                if group.oom_kills() and ran.result is None:
                    text = f"{step}: out of memory, the limit was {MemoryUnit.MiB.label(limit)}"
                    ran = Ran(ran.session, None, text)
        self._note_end(ran)
        return ran


class _Step:
    """The two descriptors that the process of a step inherits: a file without a name, and a pipe.

    The file contains the job (the settings of the step, in JSON); the step appends the result. When our process ends,
    the pipe closes, and then the step ends, too.
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
        """Return the result of the step, such as ``{"compression_s": 12.5}``; None if the step wrote no result."""
        with open(self._job, "rb", closefd=False) as file:
            file.seek(len(self._written))
            result = file.read()
        return json.loads(result) if result else None


def run_module(module: str, words: Sequence[str], *, python: str, path: Path, runner: Runner) -> Ran:
    """Run and record a module of a library with a command line, as a step of the sweep. Raises NncfToolsError.

    The module runs in an empty folder. Otherwise, lm-evaluation-harness and the data sets of Hugging Face would run
    code from a folder that has the name of a task. ``path`` is the path of the step's files without an ending.
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
    """Run and record a step, with operations and stacks. Raises NncfToolsError.

    ``path`` is the path of the step's files without an ending.
    """
    with _Step(python, job) as step:
        request = options.Request(
            words=step.argv,
            types=["rss"],
            interval=INTERVAL_S,
            max_memory=max_memory,
            on_limit="warn" if max_memory is None else "kill",
        )
        with destination.open_log("--output", path.with_suffix(".log")) as log:
            recorded = runner.record(path, request, log, entry=entry, environment=ENVIRONMENT)
            result = None if recorded.status else step.result()
            failed = "" if result is not None else f"{path.name}: {explain_failure(recorded, log)}"
    return Ran(recorded.session, result, failed)


def find_owner(session: Session) -> str:
    """Return the operation at the RSS peak, or else the code of the last rise before the peak; empty if unknown."""
    from nncftools.analysis import build_up, code_places
    from nncftools.render.sentences import where_text

    where = where_text(session).removeprefix("during ")
    if where:
        return where
    rise = build_up.of_peak(session)
    frame = None if rise is None or rise.top is None else code_places.best_frame(rise.top.stack)
    return "" if frame is None else code_places.brief_label(frame)


_TASK_FILE = "task.json"
_CHECKS_S = 0.5
_LONGEST_ERROR = 300


def lacks_inputs(inputs: Mapping[str, str], stamps: Mapping[str, str], digest: str) -> bool:
    """Return whether the inputs must be sent to this machine: they are neither in a shared folder nor in the cache."""
    return not _cache_folder(digest).exists() and not _are_shared(inputs, stamps)


def receive(archive: bytes, digest: str) -> None:
    """Unpack received inputs into the cache, unless the cache has them already."""
    target = _cache_folder(digest)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        inputs = Path(name, "inputs")
        unpack(archive, inputs)
        if not target.exists():
            inputs.rename(target)


def work(encoded: bytes, stamps: Mapping[str, str], digest: str) -> bytes:
    """Run a task on a worker, and return the folder of the task as an archive. Raises NncfToolsError."""
    task = msgspec.json.decode(encoded, type=Task)
    inputs = task.inputs
    if not _are_shared(inputs, stamps):
        cache = _cache_folder(digest)
        names = {name: Path(path).name for name, path in inputs.items()}
        inputs = {name: str(cache / name / file) for name, file in names.items()}
    python = task.python if Path(task.python).exists() else sys.executable
    with tempfile.TemporaryDirectory(prefix="nncf-tools-sweep-") as name:
        folder = Path(name)
        task = msgspec.structs.replace(
            task,
            folder=name,
            inputs=inputs,
            python=python,
            keep_model=False,
        )
        (folder / _TASK_FILE).write_bytes(msgspec.json.encode(task))
        words = [*running(__name__), name]
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if not (folder / ROW).exists():
            error = done.stderr[-_LONGEST_ERROR:].strip()
            raise NncfToolsError(f"{task.row.name}: exit status {done.returncode}: {error}")
        return pack({"": folder})


def pack(parts: Mapping[str, Path]) -> bytes:
    """Return an archive of files and folders; the keys of ``parts`` are the names in the archive."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as archive:
        for name, path in parts.items():
            archive.add(path, arcname=name)
    return content.getvalue()


def unpack(archive: bytes, folder: Path) -> None:
    """Unpack an archive into a folder; refuse paths outside the folder."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        opened.extractall(folder, filter="data")


def _cache_folder(digest: str) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "nncf-tools", "sweep", digest)


def _are_shared(inputs: Mapping[str, str], stamps: Mapping[str, str]) -> bool:
    if not all(map(Path.exists, map(Path, inputs.values()))):
        return False
    return stamps == {name: make_stamp(path) for name, path in inputs.items()}


def _run_in_folder(folder: Path) -> None:
    """Run the task in a folder, in the main thread of a separate process: other threads cannot handle signals."""
    task = msgspec.json.decode((folder / _TASK_FILE).read_bytes(), type=Task)
    with runner() as task_runner:
        ends = threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True)
        ends.start()
        row = run_task(task, task_runner)
        (folder / ROW).write_bytes(msgspec.json.encode(row))


def _end_with(parent: int) -> None:
    """End this process when the worker has ended, because nobody would collect the results."""
    while os.getppid() == parent:
        time.sleep(_CHECKS_S)
    os.kill(os.getpid(), signal.SIGTERM)


_CONNECT_TIMEOUT_S = 20
_POLL_S = 0.2
_ANSWER_TIMEOUT_S = 60
_SEND_TIMEOUT_S = 3600
_CANCEL_TIMEOUT_S = 5
_MOST_TRIES = 3
_DIGEST = 16


class Cluster:
    """Runs tasks on the workers of a Dask cluster. Workers may join or leave during the sweep."""

    def __init__(self, address: str, folder: SweepFolder, runner: Runner) -> None:
        """Connect to the scheduler. Raises UsageError if there is no connection."""
        try:
            import distributed
        except ImportError as error:
            raise UsageError("option --scheduler: Dask is not installed: pip install 'nncf-tools[dask]'") from error
        self._folder = folder
        self._runner = runner
        self._tries = Counter[str]()
        self._make_stamp = functools.cache(make_stamp)
        """The digest of each input, cached: inputs do not change during a sweep."""
        try:
            self._client: Any = distributed.Client(address, timeout=_CONNECT_TIMEOUT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise UsageError(f"option --scheduler: {address!r} cannot be reached: {error}") from error

    def run(self, tasks: Sequence[Task], ended: Callable[[SweepRow], None]) -> None:
        """Run all tasks, and call ``ended`` with each new row. Raises NncfToolsError, Interrupted.

        If a worker is lost, the task runs again on another worker.
        """
        active: dict[str, tuple[Task, Any]] = {}
        """The running tasks: ``{address of the worker: (task, future of the result)}``."""
        try:
            with self._runner.starter.interruptible():  # Dask waits for up to an hour
                self._run(list(tasks), active, ended)
            self._runner.check()
        except Interrupted:
            futures = [future for _, future in active.values()]
            cancels = threading.Thread(
                target=self._client.cancel,
                args=[futures],
                kwargs={"force": True},
                daemon=True,
            )
            with block_signals():
                cancels.start()
            cancels.join(_CANCEL_TIMEOUT_S)  # the scheduler may hang
            raise

    def _run(self, waiting: list[Task], active: dict[str, tuple[Task, Any]], ended: Callable[[SweepRow], None]) -> None:
        while (waiting or active) and not self._runner.is_interrupted():
            workers = set(self._client.scheduler_info(n_workers=-1)["workers"])
            for address, (task, future) in list(active.items()):
                if address in workers and not future.done():
                    continue
                del active[address]
                if future.status == "finished":
                    ended(self._take_result(task, future))
                else:
                    self._check_tries(task, self._explain(future, is_there=address in workers))
                    future.cancel()
                    waiting.insert(0, task)
            for address in sorted(workers - set(active))[: len(waiting)]:
                task = waiting.pop(0)
                screen.line(f"Running {task.row.name} on {address}…")
                active[address] = task, self._submit(task, address)
            time.sleep(_POLL_S)

    def _check_tries(self, task: Task, why: str) -> None:
        name = task.row.name
        self._tries[name] += 1
        if self._tries[name] >= _MOST_TRIES:
            raise NncfToolsError(f"{name} failed {_MOST_TRIES} times on the cluster: {why}")
        screen.line(f"{name}: {why}; it runs again")

    def _submit(self, task: Task, address: str) -> Any:  # noqa: ANN401 — Dask's
        """Send the inputs to a worker if necessary, start the task, and return the future of the result."""
        stamps = {name: self._make_stamp(path) for name, path in task.inputs.items()}
        text = repr(sorted(stamps.items()))
        digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
        where = {"workers": [address], "allow_other_workers": False, "pure": False}
        lacks = self._client.submit(lacks_inputs, task.inputs, stamps, digest, **where)
        if lacks.result(timeout=_ANSWER_TIMEOUT_S):
            parts: dict[str, Path] = {}
            for name, path in task.inputs.items():
                parts |= {f"{name}/{file.name}": file for file in list_files(Path(path))}
            archive = self._client.scatter(pack(parts), workers=[address], hash=False)
            received = self._client.submit(receive, archive, digest, **where)
            received.result(timeout=_SEND_TIMEOUT_S)
        return self._client.submit(work, msgspec.json.encode(task), stamps, digest, **where)

    def _take_result(self, task: Task, future: Any) -> SweepRow:  # noqa: ANN401 — Dask's
        """Move the files of a finished task into the folder of the sweep, and return the row."""
        target = self._folder.clear(task.row.name)
        with tempfile.TemporaryDirectory(dir=target.parent) as name:
            folder = Path(name, "task")
            unpack(future.result(), folder)
            row = msgspec.json.decode((folder / ROW).read_bytes(), type=SweepRow)
            target.rmdir()
            folder.rename(target)
        return row

    @staticmethod
    def _explain(future: Any, *, is_there: bool) -> str:  # noqa: ANN401 — Dask's
        if not is_there:
            return "its worker is lost"
        error = future.exception() if future.status == "error" else future.status
        return f"its worker failed: {error}"


if __name__ == "__main__":
    _run_in_folder(Path(sys.argv[1]))
