"""A sweep, from its checked options to its results, and what it would run; imported after the options are parsed."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from nncftools import intake
from nncftools.cli import destination, screen, series
from nncftools.cli.series import Runner
from nncftools.cli.sweep import results, steps
from nncftools.cli.sweep.grid import Configuration
from nncftools.cli.sweep.options import SweepOptions
from nncftools.cli.sweep.results import State, SweepFolder, SweepRow
from nncftools.cli.sweep.steps import CALIBRATION, KIND, MODEL, PROMPTS, Task
from nncftools.compression.reading import INT4, INT8, PLOT_NAME, SIZE
from nncftools.errors import NncfToolsError
from nncftools.files import write_file
from nncftools.limits import needs
from nncftools.units import MemoryUnit, brief_size, printable, seconds_text


class Expected(NamedTuple):
    """What is expected of a configuration; None is unknown."""

    seconds: float | None
    is_measured: bool
    """Whether ``seconds`` is of this configuration; else it is estimated from others."""
    peak: int | None
    """The largest memory of compression and of inference in a run before, in bytes."""


def expected(configuration: Configuration, grid: Sequence[Configuration], before: Mapping[str, SweepRow]) -> Expected:
    """Return what to expect of a configuration, from the rows of earlier runs by name.

    The time of one that never ran is its usual effort times the seconds per effort of those that ran.
    """
    row = before.get(configuration.name)
    if row is not None and row.is_complete:
        peaks = [size for size in (row.peak, row.inference_peak) if size is not None]
        return Expected(row.wall_s, is_measured=True, peak=max(peaks, default=None))
    known = [other for other in grid if other.name in before and before[other.name].is_complete]
    effort = sum(other.effort for other in known)
    unit_s = sum(before[other.name].wall_s for other in known) / effort if effort else None
    return Expected(None if unit_s is None else unit_s * configuration.effort, is_measured=False, peak=None)


def time_left_s(
    todo: Sequence[Configuration], grid: Sequence[Configuration], before: Mapping[str, SweepRow]
) -> float | None:
    """Return the seconds that configurations may still take; None for unknown."""
    times = [expected(configuration, grid, before).seconds for configuration in todo]
    known = [time_s for time_s in times if time_s is not None]
    return sum(known) if len(known) == len(times) else None


_DONE = ".exported"
_MOST = 1e8
"""A figure of this many times the baseline's is that of a collapsed model."""
_EXPORT = "optimum.commands.optimum_cli"
_TASK = "text-generation-with-past"


@dataclass
class Sweep:
    """What to do, by options that were checked, and what has ended."""

    options: SweepOptions
    grid: Sequence[Configuration]
    """All configurations: those that ended before stay in the results."""
    chosen: Sequence[Configuration]
    """The configurations that have a row at the end."""
    folder: SweepFolder
    state: State
    inputs: Mapping[str, pathlib.Path]
    """Paths by what they are for; ``model`` is the folder or file that the user named."""
    code: str
    """The user's file of ``--kind``, as it was when it was checked."""
    before: Mapping[str, SweepRow]
    """Rows of an earlier sweep that is replaced: only for the time that is left."""
    rows: dict[str, SweepRow] = field(default_factory=dict)
    """The rows of the configurations that have ended, by name."""
    measured_s: float = 0.0
    """For how many seconds the measured processes ran."""

    def run(self) -> int | None:
        """Run what is left; return the exit status if that was interrupted, else None."""
        with series.runner() as runner, destination.writing("--output", self.folder.path), self.folder.locked():
            only = self.options.only or ()
            rows = self.folder.rows(self.grid).items()
            self.rows = {name: row for name, row in rows if row.is_complete or name not in only}
            self._go(runner)
        if not runner.is_interrupted():
            return None
        count = " of ".join(self.count)
        screen.line(f"nncf-tools: interrupted; {count} configurations are kept; go on with --resume")
        return runner.exit_status

    def _go(self, runner: Runner) -> None:
        """Run what is missing. Raises NncfToolsError, OSError, Interrupted."""
        self.folder.begin(self.state)
        if self.options.max_memory is not None and self.options.scheduler is None:
            parent = steps.parent_group()
            how = "by a control group" if parent else "by the sampler, which ends what exceeds it in the sum of RSS"
            if parent is not None:
                needs.remove_leftovers(parent)
            screen.line(f"Limit of each step: {MemoryUnit.MiB.label(self.options.max_memory)}, {how}")
        inputs = self._inputs(runner)
        self._write()
        run = partial(self._run_here, runner)
        if self.options.scheduler is not None:
            from nncftools.cli.sweep.cluster import Cluster

            with runner.starter.interruptible():
                cluster = Cluster(self.options.scheduler, self.folder, runner)
            run = partial(cluster.run, ended=self._ended)
        for group in (self.chosen[:1], self.chosen[1:]):  # the baseline first: others need its row
            missing = [configuration for configuration in group if configuration.name not in self.rows]
            run([self._task(configuration, inputs) for configuration in missing])

    def _run_here(self, runner: Runner, tasks: Sequence[Task]) -> None:
        """Run tasks on this machine, one after another."""
        for task in tasks:
            screen.line(f"Running {task.row.name}…")
            runner.check()
            self.folder.clear(task.row.name)
            self._ended(steps.run_task(task, runner))

    def _inputs(self, runner: Runner) -> dict[str, str]:
        """Return the inputs of all tasks, with the model exported."""
        inputs = {name: str(path.absolute()) for name, path in self.inputs.items()}
        if KIND in inputs or pathlib.Path(inputs[MODEL], "openvino_model.xml").exists():
            return inputs
        target = self.folder.path / "model"
        if not (target / _DONE).exists():
            screen.line("Exporting the model…")
            runner.check()
            self.folder.check()
            shutil.rmtree(target, ignore_errors=True)
            recordings = self.folder.path.absolute() / "export"
            recordings.mkdir(exist_ok=True)
            options = ["--model", inputs[MODEL], "--task", _TASK, "--weight-format", "fp32"]
            words = ["export", "openvino", *options, str(target.absolute())]
            ran = steps.run_module(_EXPORT, words, self.options.interpreter, recordings, "export", runner)
            self.measured_s += ran.seconds
            if ran.failed:
                log = recordings / "export.log"
                raise NncfToolsError(f"the model could not be exported: {ran.failed}; its output is in {log}")
            write_file(target / _DONE, b"")
        return {**inputs, MODEL: str(target.absolute())}

    def _task(self, configuration: Configuration, inputs: Mapping[str, str]) -> Task:
        options, shares = self.options, configuration.shares
        reference = self.rows.get(self.grid[0].name)
        continuations = None if reference is None or not reference.is_complete else reference.continuations
        without = set() if configuration.is_baseline or continuations is not None else {PROMPTS}
        return Task(
            row=SweepRow(
                configuration.name, configuration.settings(), configuration.title, *shares, configuration.rank
            ),
            is_baseline=configuration.is_baseline,
            needs_data=configuration.needs_data or (shares[0] not in {0.0, 1.0} and CALIBRATION in inputs),
            inputs={name: path for name, path in inputs.items() if name not in without},
            folder=str(self.folder.of(configuration.name).absolute()),
            python=options.interpreter,
            max_memory=options.max_memory,
            keep_model=options.keep_models,
            tasks=options.tasks or [],
            include_path="" if options.include_path is None else str(options.include_path.absolute()),
            code=self.code,
            reference=continuations,
        )

    def _ended(self, row: SweepRow) -> None:
        """Write a row to the disk before anything else is done."""
        row.failed = row.failed or collapsed(row, self.rows.get(self.grid[0].name))
        self.rows[row.name] = row
        self.folder.keep(row)
        self._write()
        self.measured_s += row.measured_s
        todo = [configuration for configuration in self.chosen if configuration.name not in self.rows]
        left_s = time_left_s(todo, self.grid, {**self.before, **self.rows})
        left = "" if not todo or left_s is None else f"; about {seconds_text(left_s)} left"
        screen.line(f"[{'/'.join(self.count)}] {row.name}: {_outcome(row)}, {seconds_text(row.wall_s)}{left}")

    def _write(self) -> None:
        rows = [self.rows[configuration.name] for configuration in self.grid if configuration.name in self.rows]
        if rows:
            self.folder.write_table(self.state, rows)

    @property
    def count(self) -> tuple[str, str]:
        """How many of the configurations have ended, and how many there are."""
        ended = sum(configuration.name in self.rows for configuration in self.chosen)
        return str(ended), str(len(self.chosen))


def dry_run(plan: Sweep) -> str:
    """Return what would run, with the times and peaks that earlier runs make probable."""
    known = {**plan.before, **plan.folder.rows(plan.grid)}
    lines = []
    done = set() if plan.before else {name for name, row in known.items() if row.is_complete}
    for configuration in plan.chosen:
        name, usual = configuration.name, expected(configuration, plan.grid, known)
        took = "time unknown" if usual.seconds is None else seconds_text(usual.seconds)
        took += "" if usual.is_measured or usual.seconds is None else " (estimated)"
        peak = "" if usual.peak is None else f", peak {MemoryUnit.MiB.label(usual.peak)}"
        lines.append(f"  {name}: {configuration.title}: {'done; ' if name in done else ''}{took}{peak}")
    todo = [configuration for configuration in plan.chosen if configuration.name not in done]
    left_s = time_left_s(todo, plan.grid, known)
    total = "time unknown, because nothing has run yet" if left_s is None else f"about {seconds_text(left_s)}"
    first = f"{len(todo)} of {len(plan.chosen)} configurations of {plan.state.model} would run: {total}"
    return "".join(f"{printable(line)}\n" for line in [first, *lines])


def _outcome(row: SweepRow) -> str:
    if not row.is_complete:
        return f"failed: {row.failed}"
    size = "size unknown" if row.size is None else f"{brief_size(row.size)} of weights"
    quality = [f"{column} {value:.4g}" for column, (value, _) in list(row.figures.items())[:1]]
    peak = [] if row.peak is None else [f"peak {MemoryUnit.MiB.label(row.peak)}"]
    return ", ".join([size, *quality, *peak])


def collapsed(row: SweepRow, baseline: SweepRow | None) -> str:
    """Return which figure is beyond all comparison with the baseline's; empty if none is."""
    for column, (value, _) in row.figures.items():
        base = None if baseline is None else baseline.figures.get(column)
        if base is not None and abs(value) >= _MOST * abs(base[0]) > 0:
            return f"the model has collapsed: {column} {value:.3g}, the baseline's is {base[0]:.3g}"
    return ""


def define(table: pathlib.Path, rows: Sequence[SweepRow]) -> None:
    """Append the definitions of the columns to the table. Raises NncfToolsError."""
    quality = dict.fromkeys(column for row in rows for column in row.figures)
    text = results.markdown([INT4, INT8, PLOT_NAME, SIZE, *quality, *results.measured_columns(rows)])
    with destination.writing("--output", table):
        write_file(table, intake.whole(table, may_wait=False) + text.encode())
    screen.to_stderr(f"{printable(str(table))} says what each column means\n")
