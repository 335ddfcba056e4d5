"""``nncf-tools sweep``: compresses a real model in many ways, and makes the results that viz-compression shows."""

from __future__ import annotations

import pathlib
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from nncftools.cli import options, parameters
from nncftools.cli.viz_compression import Also, Panels, Recommend, viz_compression
from nncftools.errors import NncfToolsError, UsageError
from nncftools.units import bytes_from

if TYPE_CHECKING:
    from nncftools.cli.sweep.runs import Sweep


EXAMPLES = """\b
Examples:
  nncf-tools sweep --model DIR -o results.csv --text held_out.txt \\
      --calibration calibration.txt --prompts prompts.txt
  nncf-tools sweep --model DIR -o results.csv --text held_out.txt --grid full \\
      --calibration calibration.txt --recommend 'error<=5%' --resume
  nncf-tools sweep --model DIR -o results.csv --text held_out.txt --dry-run
  nncf-tools sweep --model model.onnx --kind my_data.py -o results.csv

\b
Each configuration runs in processes of its own that are recorded; results.sweep
holds the recordings. It needs NNCF and OpenVINO: pip install 'nncf-tools[nncf]',
and optimum-intel to export a folder of Hugging Face; docs/sweep.md says how."""

Model = Annotated[
    pathlib.Path,
    typer.Option(
        "--model",
        "-m",
        metavar="DIR",
        show_default=False,
        help="Folder of a language model (Hugging Face, or exported to OpenVINO); with --kind an .xml or .onnx file.",
        rich_help_panel=parameters.READ,
    ),
]
Output = Annotated[
    pathlib.Path,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        show_default=False,
        help="The CSV file of the results.",
        rich_help_panel=parameters.WRITE,
    ),
]
Grid = Annotated[
    str,
    typer.Option(
        "--grid",
        metavar="quick|full|FILE",
        help="What to try; FILE is a TOML file of configurations.",
        rich_help_panel=parameters.RUN,
    ),
]
Calibration = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--calibration",
        metavar="FILE",
        show_default=False,
        help="Text for data-aware compression; not of --text.",
        rich_help_panel=parameters.READ,
    ),
]
Text = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--text",
        metavar="FILE",
        show_default=False,
        help="Held-out text for perplexity (.txt, or .jsonl with `text`).",
        rich_help_panel=parameters.READ,
    ),
]
Lambada = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--lambada",
        metavar="FILE",
        show_default=False,
        help="Passages whose last word is guessed, one per line. Default: those of --text.",
        rich_help_panel=parameters.READ,
    ),
]
Prompts = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--prompts",
        metavar="FILE",
        show_default=False,
        help="Prompts to continue, one per line, for similarity.",
        rich_help_panel=parameters.READ,
    ),
]
Tasks = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks",
        metavar="TASK[:METRIC]",
        show_default=False,
        help="Also a task of lm-evaluation-harness, if it is installed and the data is in its cache; repeatable.",
        rich_help_panel=parameters.READ,
    ),
]
IncludePath = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--include-path",
        metavar="DIR",
        show_default=False,
        help="Folder with tasks of your own (YAML).",
        rich_help_panel=parameters.READ,
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="NAME",
        help="Only this configuration and the baseline; repeatable.",
        rich_help_panel=parameters.RUN,
    ),
]
Kind = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--kind",
        metavar="FILE",
        show_default=False,
        help="Another kind of model: a Python file with `calibration() -> iterable` and `score(compiled) -> float`.",
        rich_help_panel=parameters.READ,
    ),
]
MaxMemory = Annotated[
    int | None,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        parser=bytes_from,
        help="Limit of each configuration: a control group, or by RSS.",
        rich_help_panel=parameters.RUN,
    ),
]
Python = Annotated[
    str,
    typer.Option(
        "--python",
        metavar="FILE",
        help="The Python that has NNCF and OpenVINO. Default: this one.",
        rich_help_panel=parameters.RUN,
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        show_default=False,
        help="Run on a Dask cluster, such as tcp://HOST:8786, one configuration at a time on each worker.",
        rich_help_panel=parameters.RUN,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    short = "Compress a model in many ways, and measure each."
    app.command(name="sweep", short_help=short, epilog=EXAMPLES)(sweep)


def sweep(  # noqa: PLR0913 — one parameter per option
    *,
    model: Model,
    output: Output,
    grid: Grid = "quick",
    text: Text = None,
    calibration: Calibration = None,
    lambada: Lambada = None,
    prompts: Prompts = None,
    tasks: Tasks = None,
    include_path: IncludePath = None,
    only: Only = None,
    kind: Kind = None,
    max_memory: MaxMemory = None,
    recommend: Recommend = "",
    also: Panels = None,
    name: options.Name = "",
    python: Python = "",
    scheduler: Scheduler = None,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Keep the compressed models.", rich_help_panel=parameters.WRITE)
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show what would run, with expected times.", rich_help_panel=parameters.RUN),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the sweep of --output.", rich_help_panel=parameters.RUN)
    ] = False,
    force: options.Force = False,
) -> int:
    """Compress a model in many ways; measure size, quality, time, and memory.

    The results are a CSV file, and a table and a picture of it as made by
    viz-compression. Each configuration is on disk as soon as it has ended.
    """
    begun_s = time.monotonic()
    from nncftools.cli import screen
    from nncftools.cli.sweep import checks, runs

    asked = runs.SweepOptions(
        model=model,
        output=output,
        grid=grid,
        inputs={"text": text, "calibration": calibration, "lambada": lambada, "prompts": prompts, "kind": kind},
        only=tuple(only or ()),
        name=name.strip(),
        python=python or sys.executable,
        max_memory=max_memory,
        keep_models=keep_models,
        resume=resume,
        force=force,
        is_dry=dry_run,
        scheduler=scheduler,
        tasks=tuple(tasks or ()),
        include_path=include_path,
    )
    _check_shown(recommend, also, is_kind=kind is not None)
    choices, notes = checks.checked(asked)
    for note in notes:
        screen.message(f"note: {note}")
    if dry_run:
        screen.to_stdout(runs.dry_run(choices))
        return 0
    interrupted, measured_s = runs.sweep(choices)
    if interrupted is not None:
        return interrupted
    status = _finish(choices, recommend, also)
    if scheduler is None:
        screen.to_stderr(runs.took(begun_s, measured_s))
    return status


def _finish(choices: Sweep, recommend: str, also: list[Also] | None) -> int:
    """Make table and picture; return the exit status."""
    from nncftools.cli import screen
    from nncftools.cli.sweep import runs

    rows = list(choices.folder.rows(choices.grid).values())
    for row in rows:
        if not row.is_complete:
            screen.message(f"failed: {row.name}: {row.failed}")
    if not rows[0].is_complete:
        raise NncfToolsError(f"the baseline failed: {rows[0].failed}; without it there is no table and no picture")
    metrics, notes = runs.metrics_of(rows)
    for note in notes:
        screen.message(f"note: {note}")
    if not metrics:
        raise NncfToolsError(
            f"no figure can be compared, so there is no table and no picture; {choices.folder.output} has the figures"
        )
    viz_compression(
        inputs=[choices.folder.output], metrics=metrics, recommend=recommend, also=also, extra=True, lenient=True
    )
    runs.define(choices.folder.output.with_suffix(".md"), rows)
    return int(any(not row.is_complete for row in rows))


def _check_shown(recommend: str, also: list[Also] | None, *, is_kind: bool) -> None:
    """Raise UsageError for figures that the results will not have."""
    from nncftools.compression.reading import FIRST_TOKEN, LATENCY
    from nncftools.compression.results import bounds_of

    with options.named("--recommend"):
        bounded = [figure.name for figure in bounds_of(recommend).figures] if recommend else []
    shown = [one.replace("-", " ") for one in also or ()]
    for option, names in (("--recommend", bounded), ("--also", shown)):
        for figure in (LATENCY, FIRST_TOKEN):
            if is_kind and figure.name in names:
                raise UsageError(f"option {option}: {figure.name!r} is of language models; --kind measures another one")
