"""What a sweep would run, and how much time and memory it may take by runs before.

A sweep, from its checked options to its results; ``sweep`` imports this after it has checked its options.
"""

from __future__ import annotations

import pathlib
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from nncftools import intake
from nncftools.cli import destination, screen
from nncftools.cli.fit import groups
from nncftools.cli.sweep import steps
from nncftools.cli.sweep.steps import CALIBRATION, KIND, MODEL, PROMPTS, Executor, Task
from nncftools.compression.reading import INT4, INT8, PLOT_NAME, SIZE
from nncftools.errors import NncfToolsError
from nncftools.files import replacing
from nncftools.sampler.client import Starter
from nncftools.units import MemoryUnit, brief_size, printable, seconds_text

if TYPE_CHECKING:
    from nncftools.cli.sweep.grid import Configuration
    from nncftools.cli.sweep.results import Folder, Row, State


class Expected(NamedTuple):
    """What is expected of a configuration; None is unknown."""

    seconds: float | None
    is_measured: bool
    """Whether ``seconds`` is of this configuration; else it is estimated from others."""
    peak: int | None
    """The largest memory of compression and of inference in a run before, in bytes."""


def expected(configuration: Configuration, grid: Sequence[Configuration], before: Mapping[str, Row]) -> Expected:
    """Return what to expect by the rows of runs before, by name.

    The time of a configuration that never ran is its usual effort in the unit of those that ran.
    """
    row = before.get(configuration.name)
    if row is not None and row.is_complete:
        peaks = [size for size in (row.peak, row.inference_peak) if size is not None]
        return Expected(row.wall_s, is_measured=True, peak=max(peaks, default=None))
    known = [
        (before[one.name].wall_s, one.effort) for one in grid if one.name in before and before[one.name].is_complete
    ]
    effort = sum(of for _, of in known)
    unit_s = sum(wall_s for wall_s, _ in known) / effort if effort else None
    return Expected(None if unit_s is None else unit_s * configuration.effort, is_measured=False, peak=None)


def time_left_s(
    todo: Sequence[Configuration], grid: Sequence[Configuration], before: Mapping[str, Row]
) -> float | None:
    """Return the seconds that configurations may still take; None for unknown."""
    times = [expected(one, grid, before).seconds for one in todo]
    known = [time_s for time_s in times if time_s is not None]
    return sum(known) if len(known) == len(times) else None


_DONE = ".exported"
_MOST = 1e8
"""So many times the baseline's figure is no error of a model that works."""
_EXPORT = "optimum.commands.optimum_cli"
_TASK = "text-generation-with-past"


@dataclass(frozen=True)
class Choices:
    """What the user asks for."""

    grid: Sequence[Configuration]
    """All of it: what ended before stays in the results."""
    chosen: Sequence[Configuration]
    """What is to be there at the end."""
    folder: Folder
    state: State
    inputs: Mapping[str, pathlib.Path]
    """By what they are for; ``model`` is the user's."""
    python: str
    max_memory: int | None
    keep_models: bool
    scheduler: str | None
    tasks: Sequence[str] = ()
    """Of lm-evaluation-harness, also with a metric: ``arc_easy:acc``."""
    include_path: str = ""
    """Where other tasks than its own are."""
    code: str = ""
    """The user's file of ``--kind``, as it was when it was checked."""
    again: Sequence[str] = ()
    """Names to run again if they failed before."""
    before: Mapping[str, Row] = field(default_factory=dict)
    """Rows of an earlier sweep that is replaced: only for the time that is left."""


def sweep(choices: Choices) -> tuple[int | None, float]:
    """Run what is left of a sweep; return None when all of it is there, the exit status if it was interrupted.

    Also return the time of the processes that were measured, in seconds.
    """
    with Starter() as starter:
        runs = _Runs(choices, starter)
        try:
            with choices.folder.held():
                whole = runs.go()
        except OSError as error:
            raise destination.cannot_write("--output", choices.folder.path, error) from error
        if not whole:
            kept = f"{runs.count} configurations are kept; go on with --resume"
            screen.message(f"interrupted; {kept}")
            return 128 + (starter.received or signal.SIGINT), runs.measured_s
    return None, runs.measured_s


def took(begun_s: float, measured_s: float) -> str:
    """Return how long a sweep took that began at a moment of ``time.monotonic``, and what of that was its own."""
    wall_s = time.monotonic() - begun_s
    own = max(0.0, wall_s - measured_s) / wall_s
    return f"Took {seconds_text(wall_s)}, {own:.1%} of it outside of the measured processes\n"


def dry_run(choices: Choices) -> str:
    """Return what would run, with the time and the memory that runs before make probable."""
    known = {**choices.before, **choices.folder.rows(choices.grid)}
    lines = [f"{len(choices.chosen)} configurations of {choices.state.model}"]
    done = set() if choices.before else {name for name, one in known.items() if one.is_complete}
    for one in choices.chosen:
        found = expected(one, choices.grid, known)
        took = "time unknown" if found.seconds is None else seconds_text(found.seconds)
        took += "" if found.is_measured or found.seconds is None else " (estimated)"
        held = "" if found.peak is None else f", peak {MemoryUnit.MiB.label(found.peak)}"
        lines.append(f"  {one.name}: {one.title}: {'is there; ' if one.name in done else ''}{took}{held}")
    todo = [one for one in choices.chosen if one.name not in done]
    left_s = time_left_s(todo, choices.grid, known)
    total = "time unknown: nothing ran before" if left_s is None else f"about {seconds_text(left_s)}"
    return "".join(f"{printable(line)}\n" for line in [*lines, f"To run: {len(todo)}, {total}"])


class _Runs:
    """The runs of a sweep."""

    def __init__(self, choices: Choices, starter: Starter) -> None:
        self._choices = choices
        self._starter = starter
        self._folder = choices.folder
        self.rows = {
            name: one
            for name, one in self._folder.rows(choices.grid).items()
            if one.is_complete or name not in choices.again
        }
        self.measured_s = 0.0

    def go(self) -> bool:
        """Run what is missing; return False if we were interrupted."""
        self._folder.begin(self._choices.state)
        if self._choices.max_memory is not None and self._choices.scheduler is None:
            parent = steps.parent_group()
            how = "by a control group" if parent else "by the sampler, which ends what exceeds it in the sum of RSS"
            if parent is not None:
                groups.remove_leftovers(parent)
            self._say(f"Limit of each step: {MemoryUnit.MiB.label(self._choices.max_memory)}, {how}")
        inputs = self._inputs()
        if inputs is None:
            return False
        self._write()
        executor = self._executor()
        baseline, *others = self._choices.chosen
        for group in ([baseline], others):
            missing = [one for one in group if one.name not in self.rows]
            tasks = [self._task(one, inputs) for one in missing]
            if tasks and not executor.run(tasks, self._ended):
                return False
        return True

    def _inputs(self) -> dict[str, str] | None:
        """Return the inputs of all tasks, with the model exported; None if we were interrupted."""
        inputs = {name: str(path.absolute()) for name, path in self._choices.inputs.items()}
        if KIND in inputs or pathlib.Path(inputs[MODEL], "openvino_model.xml").exists():
            return inputs
        target = self._folder.exported
        if not (target / _DONE).exists():
            self._say("Exporting the model…")
            shutil.rmtree(target, ignore_errors=True)
            recordings = self._folder.path / "export"
            recordings.mkdir(exist_ok=True)
            options = ["--model", inputs[MODEL], "--task", _TASK, "--weight-format", "fp32"]
            words = ["export", "openvino", *options, str(target.absolute())]
            python = self._choices.python
            ran = steps.of_module(_EXPORT, words, python, recordings, "export", self._starter)
            self.measured_s += ran.seconds
            if self._starter.received is not None:
                return None
            if ran.failed:
                log = recordings / "export.log"
                raise NncfToolsError(f"the model could not be exported: {ran.failed}; its output is in {log}")
            (target / _DONE).touch()
        return {**inputs, MODEL: str(target.absolute())}

    def _task(self, one: Configuration, inputs: Mapping[str, str]) -> Task:
        reference = self.rows.get(self._choices.grid[0].name)
        continuations = None if reference is None or not reference.is_complete else reference.continuations
        int4, int8 = one.shares
        without = set() if one.is_baseline or continuations is not None else {PROMPTS}
        return Task(
            name=one.name,
            settings=one.settings(),
            mode=one.title,
            int4=int4,
            int8=int8,
            rank=one.rank,
            is_baseline=one.is_baseline,
            needs_data=one.needs_data or (one.shares[0] not in {0.0, 1.0} and CALIBRATION in inputs),
            inputs={name: path for name, path in inputs.items() if name not in without},
            folder=str(self._folder.of(one.name).absolute()),
            python=self._choices.python,
            max_memory=self._choices.max_memory,
            keep_model=self._choices.keep_models,
            tasks=list(self._choices.tasks),
            include_path=self._choices.include_path,
            code=self._choices.code,
            reference=continuations,
        )

    def _executor(self) -> Executor:
        address = self._choices.scheduler
        if address is None:
            return _Here(self._starter, self._folder, self._say)
        from nncftools.cli.sweep.cluster import Cluster

        return Cluster(address, self._folder, self._starter, self._say)

    def _ended(self, ended: Row) -> None:
        """Keep a row: on disk before anything else is done."""
        ended.failed = ended.failed or collapsed(ended, self.rows.get(self._choices.grid[0].name))
        self.rows[ended.name] = ended
        self._folder.keep(ended)
        self._write()
        self.measured_s += ended.measured_s
        place = self.count.replace(" of ", "/")
        self._say(f"[{place}] {ended.name}: {_words(ended)}, {seconds_text(ended.wall_s)}{self._left()}")

    def _write(self) -> None:
        rows = [self.rows[one.name] for one in self._choices.grid if one.name in self.rows]
        if rows:
            self._folder.write_table(self._choices.state, rows)

    @property
    def count(self) -> str:
        """How many of the configurations have ended."""
        ended = sum(one.name in self.rows for one in self._choices.chosen)
        return f"{ended} of {len(self._choices.chosen)}"

    def _left(self) -> str:
        todo = [one for one in self._choices.chosen if one.name not in self.rows]
        left_s = time_left_s(todo, self._choices.grid, {**self._choices.before, **self.rows})
        return "" if not todo or left_s is None else f"; about {seconds_text(left_s)} left"

    @staticmethod
    def _say(text: str) -> None:
        screen.to_stderr(f"{printable(text)}\n")


class _Here:
    """Runs tasks on this machine, one after another: each has it for itself."""

    def __init__(self, starter: Starter, folder: Folder, say: Callable[[str], None]) -> None:
        self._starter = starter
        self._folder = folder
        self._say = say

    def run(self, tasks: Sequence[Task], ended: Callable[[Row], None]) -> bool:
        """Run tasks; see ``Executor``."""
        for task in tasks:
            if self._starter.received is not None:
                return False
            self._say(f"Running {task.name}…")
            self._folder.clear(task.name)
            found = steps.run_task(task, self._starter)
            if found is None:
                return False
            ended(found)
        return True


def _words(ended: Row) -> str:
    """Return the outcome of a configuration in a few words."""
    if not ended.is_complete:
        return f"failed: {ended.failed}"
    size = "size unknown" if ended.size is None else f"{brief_size(ended.size)} of weights"
    quality = [f"{column} {value:.4g}" for column, (value, _) in list(ended.figures.items())[:1]]
    peak = [] if ended.peak is None else [f"peak {MemoryUnit.MiB.label(ended.peak)}"]
    return ", ".join([size, *quality, *peak])


def collapsed(ended: Row, baseline: Row | None) -> str:
    """Return which figure is beyond all comparison with the baseline's; empty if none is."""
    for column, (value, _) in ended.figures.items():
        base = None if baseline is None else baseline.figures.get(column)
        if base is not None and abs(value) >= _MOST * abs(base[0]) > 0:
            return f"the model has collapsed: {column} {value:.3g}, the baseline's is {base[0]:.3g}"
    return ""


def metrics_of(rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Return the columns of quality with their directions, as the command for results takes them, and notes.

    Errors are relative to the baseline, the first row: a column in which it has 0 or less cannot be compared, nor one
    in which another row has less than 0, or nothing.
    """
    found: list[str] = []
    notes: list[str] = []
    complete = [one for one in rows if one.is_complete]
    for column, (base, _) in rows[0].figures.items():
        wrong = [one.name for one in complete if column not in one.figures or one.figures[column][0] < 0]
        if base <= 0 or wrong:
            why = f"{wrong[0]!r} has no figure of at least 0" if wrong else f"the baseline has {base:g}"
            notes.append(f"{column} is not a part of the error, which is relative to the baseline: {why}")
        else:
            found.append(f"{column}:{'lower' if column.endswith('perplexity') else 'higher'}")
    return found, notes


def define(table: pathlib.Path, rows: Sequence[Row]) -> None:
    """Append the definitions of the columns to the table. Raises NncfToolsError."""
    from nncftools.cli.sweep import results

    quality = list(dict.fromkeys(column for one in rows for column in one.figures))
    text = results.markdown([INT4, INT8, PLOT_NAME, SIZE, *quality, *results.measured_columns(rows)])
    try:
        with replacing(table) as beside:
            beside.write_bytes(intake.whole(table, may_wait=False) + text.encode())
    except OSError as error:
        raise destination.cannot_write("--output", table, error) from error
    screen.to_stderr(f"{printable(str(table))} says what each column means\n")
