"""The runs of a sweep, and the list of runs for --dry-run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nncftools import intake
from nncftools.cli import destination, screen, series
from nncftools.cli.series import Runner
from nncftools.cli.sweep import results, steps
from nncftools.cli.sweep.grid import Configuration
from nncftools.cli.sweep.results import State, SweepFolder, SweepRow
from nncftools.cli.sweep.steps import CALIBRATION, KIND, MODEL, PROMPTS, Task
from nncftools.compression.reading import INT4, INT8, PLOT_NAME, SIZE
from nncftools.errors import NncfToolsError
from nncftools.files import write_file
from nncftools.limits import needs
from nncftools.units import MemoryUnit, brief_size, printable, seconds_text

if TYPE_CHECKING:
    from nncftools.cli.sweep import SweepOptions


def estimate_unit_s(grid: Sequence[Configuration], rows: Mapping[str, SweepRow]) -> float | None:
    """Return the average seconds per unit of ``effort`` in the complete rows; None if no row is complete.

    The effort of a configuration is the expected duration as a multiple of the baseline's duration.
    """
    complete = [configuration for configuration in grid if is_complete(rows, configuration)]
    effort = sum(configuration.effort for configuration in complete)
    return sum(rows[configuration.name].wall_s for configuration in complete) / effort if effort else None


def is_complete(rows: Mapping[str, SweepRow], configuration: Configuration) -> bool:
    """Return whether the configuration has a row without a failure."""
    row = rows.get(configuration.name)
    return row is not None and row.is_complete


def estimate_s(configuration: Configuration, rows: Mapping[str, SweepRow], unit_s: float) -> float:
    """Return the duration of the configuration in seconds: measured if an earlier run succeeded, or estimated.

    The estimate is ``unit_s`` × effort. The effort is the expected duration as a multiple of the baseline's duration;
    ``unit_s`` is the number of seconds per unit of effort.
    """
    if is_complete(rows, configuration):
        return rows[configuration.name].wall_s
    return unit_s * configuration.effort


_EXPORTED = ".exported"
"""Name of an empty file in the folder of an exported model. The file exists only if the export has succeeded."""
_MOST = 1e8
"""A model has collapsed if a quality value is at least this many times the baseline's value in the same column."""
_EXPORT = "optimum.commands.optimum_cli"
_TASK = "text-generation-with-past"


@dataclass
class Sweep:
    """A sweep with checked options, and the rows so far."""

    options: SweepOptions
    grid: Sequence[Configuration]
    """All configurations of the grid, not only those to run: the results also contain the rows of earlier runs."""
    chosen: Sequence[Configuration]
    """The configurations to run, the baseline first."""
    folder: SweepFolder
    state: State
    inputs: Mapping[str, Path]
    """Paths of the inputs: ``{"model": …, "text": …, "calibration": …}``."""
    code: str
    """The checked text of the file of ``--kind``."""
    earlier: Mapping[str, SweepRow]
    """Rows of the sweep that this sweep replaces; used only to estimate durations."""
    rows: dict[str, SweepRow] = field(default_factory=dict)
    """The rows of the configurations that have ended, by name."""
    measured_s: float = 0.0
    """Total duration of the measured processes."""

    def run(self) -> int | None:
        """Run all missing configurations; return the exit status if a signal interrupted the sweep, else None."""
        writing = destination.writing("--output", self.folder.path)
        with series.runner() as runner, writing, self.folder.locked():
            only = self.options.only or ()
            rows = self.folder.rows(self.grid).items()
            self.rows = {name: row for name, row in rows if row.is_complete or name not in only}
            self._run_missing(runner)
        if not runner.is_interrupted():
            return None
        screen.line(
            f"nncf-tools: interrupted; {self._progress(' of ')} configurations are kept; continue with --resume"
        )
        return runner.exit_status

    def _run_missing(self, runner: Runner) -> None:
        """Run all missing configurations. Raises NncfToolsError, OSError, Interrupted."""
        self.folder.begin(self.state)
        if self.options.max_memory is not None and self.options.scheduler is None:
            parent = steps.find_parent_group()
            how = "enforced by the sampler, which ends the step if the sum of RSS is larger"
            if parent is not None:
                needs.remove_leftovers(parent)
                how = "enforced by a control group"
            screen.line(f"Memory limit of each step: {MemoryUnit.MiB.label(self.options.max_memory)}, {how}")
        inputs = self._export_inputs(runner)
        self._write_table()
        run = partial(self._run_here, runner)
        if self.options.scheduler is not None:
            with runner.starter.interruptible():
                cluster = steps.Cluster(self.options.scheduler, self.folder, runner)
            run = partial(cluster.run, ended=self._keep)
        for group in (self.chosen[:1], self.chosen[1:]):  # other tasks need the row of the baseline
            missing = [configuration for configuration in group if configuration.name not in self.rows]
            run([self._make_task(configuration, inputs) for configuration in missing])

    def _run_here(self, runner: Runner, tasks: Sequence[Task]) -> None:
        for task in tasks:
            screen.line(f"Running {task.row.name}…")
            runner.check()
            self.folder.clear(task.row.name)
            self._keep(steps.run_task(task, runner))

    def _export_inputs(self, runner: Runner) -> dict[str, str]:
        """Return the paths of all inputs; first export the model to OpenVINO if necessary."""
        inputs = {name: f"{path.absolute()}" for name, path in self.inputs.items()}
        if KIND in inputs or Path(inputs[MODEL], "openvino_model.xml").exists():
            return inputs
        target = self.folder.path / "model"
        if not (target / _EXPORTED).exists():
            screen.line("Exporting the model…")
            runner.check()
            self.folder.check()
            shutil.rmtree(target, ignore_errors=True)
            recordings = self.folder.path.absolute() / "export"
            recordings.mkdir(exist_ok=True)
            options = ["--model", inputs[MODEL], "--task", _TASK, "--weight-format", "fp32"]
            ran = steps.run_module(
                _EXPORT,
                ["export", "openvino", *options, str(target.absolute())],
                python=self.options.interpreter,
                path=recordings / "export",
                runner=runner,
            )
            self.measured_s += ran.seconds
            if ran.failed:
                log = recordings / "export.log"
                raise NncfToolsError(f"the model could not be exported: {ran.failed}; the output is in {log}")
            write_file(target / _EXPORTED, b"")
        return {**inputs, MODEL: str(target.absolute())}

    def _make_task(self, configuration: Configuration, inputs: Mapping[str, str]) -> Task:
        options = self.options
        baseline = self.rows.get(self.grid[0].name)
        continuations = None if baseline is None or not baseline.is_complete else baseline.continuations
        inputs = dict(inputs)
        if not configuration.is_baseline and continuations is None:
            inputs.pop(PROMPTS, None)
        int4, int8 = configuration.shares
        return Task(
            row=SweepRow(
                name=configuration.name,
                settings=configuration.settings(),
                mode=configuration.title,
                int4=int4,
                int8=int8,
                rank=configuration.rank,
            ),
            is_baseline=configuration.is_baseline,
            needs_data=configuration.needs_data or (0.0 < int4 < 1.0 and CALIBRATION in inputs),
            inputs=inputs,
            folder=str(self.folder.of(configuration.name).absolute()),
            python=options.interpreter,
            max_memory=options.max_memory,
            keep_model=options.keep_models,
            tasks=options.tasks or [],
            include_path="" if options.include_path is None else str(options.include_path.absolute()),
            code=self.code,
            reference=continuations,
        )

    def _keep(self, row: SweepRow) -> None:
        """Write the row of a configuration that has ended, and the table; then print the progress."""
        baseline = self.rows.get(self.grid[0].name)
        row.failed = row.failed or find_collapse(row, baseline)
        self.rows[row.name] = row
        self.folder.keep(row)
        self._write_table()
        self.measured_s += row.measured_s
        missing = [configuration for configuration in self.chosen if configuration.name not in self.rows]
        rows = {**self.earlier, **self.rows}
        unit_s = estimate_unit_s(self.grid, rows)
        estimate = ""
        if missing and unit_s is not None:
            left_s = sum(estimate_s(configuration, rows, unit_s) for configuration in missing)
            estimate = f"; about {seconds_text(left_s)} left"
        screen.line(f"[{self._progress('/')}] {row.name}: {_describe(row)}, {seconds_text(row.wall_s)}{estimate}")

    def _write_table(self) -> None:
        names = [configuration.name for configuration in self.grid]
        rows = [self.rows[name] for name in names if name in self.rows]
        if rows:
            self.folder.write_table(self.state, rows)

    def _progress(self, separator: str) -> str:
        ended = [configuration for configuration in self.chosen if configuration.name in self.rows]
        return f"{len(ended)}{separator}{len(self.chosen)}"


def describe_plan(plan: Sweep) -> str:
    """Return the list for --dry-run: configurations with expected durations, and with the peaks of earlier runs."""
    rows = {**plan.earlier, **plan.folder.rows(plan.grid)}
    unit_s = estimate_unit_s(plan.grid, rows)
    done = [] if plan.earlier else [configuration for configuration in plan.chosen if is_complete(rows, configuration)]
    missing = [configuration for configuration in plan.chosen if configuration not in done]
    total = "time unknown, because nothing has run yet"
    if unit_s is not None:
        total_s = sum(estimate_s(configuration, rows, unit_s) for configuration in missing)
        total = f"about {seconds_text(total_s)}"
    lines = [f"{len(missing)} of {len(plan.chosen)} configurations of {plan.state.model} would run: {total}"]
    for configuration in plan.chosen:
        line = f"  {configuration.name}: {configuration.title}: "
        if configuration in done:
            line += "done; "
        line += "time unknown" if unit_s is None else seconds_text(estimate_s(configuration, rows, unit_s))
        if is_complete(rows, configuration):
            row = rows[configuration.name]
            line += f", peak {MemoryUnit.MiB.label(max(row.peak or 0, row.inference_peak or 0))}"
        elif unit_s is not None:
            line += " (estimated)"
        lines.append(line)
    return "".join(f"{printable(line)}\n" for line in lines)


def _describe(row: SweepRow) -> str:
    if not row.is_complete:
        return f"failed: {row.failed}"
    texts = ["size unknown" if row.size is None else f"{brief_size(row.size)} of weights"]
    for column, (value, _) in row.figures.items():
        texts.append(f"{column} {value:.4g}")
        break
    if row.peak is not None:
        texts.append(f"peak {MemoryUnit.MiB.label(row.peak)}")
    return ", ".join(texts)


def find_collapse(row: SweepRow, baseline: SweepRow | None) -> str:
    """Return a message if a quality value is far larger than the baseline's value; otherwise, return an empty text."""
    if baseline is not None:
        for column, (value, _) in row.figures.items():
            base, _ = baseline.figures.get(column, (0.0, None))
            if abs(value) >= _MOST * abs(base) > 0:
                return f"the model has collapsed: {column} {value:.3g}, the baseline has {base:.3g}"
    return ""


def add_definitions(table: Path, rows: Sequence[SweepRow]) -> None:
    """Append the definitions of the columns to the Markdown table. Raises NncfToolsError."""
    columns = [*results.quality_columns(rows), *results.measured_columns(rows)]
    definitions = results.define_columns([INT4, INT8, PLOT_NAME, SIZE, *columns])
    with destination.writing("--output", table):
        write_file(table, intake.read_file(table, may_wait=False) + definitions.encode())
    screen.to_stderr(f"{printable(str(table))} defines the columns\n")
