"""``nncf-tools fit``: how little memory would do for a command."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from nncftools.cli import options, parameters, planning
from nncftools.errors import NncfToolsError, UsageError
from nncftools.units import MemoryUnit, bytes_from

if TYPE_CHECKING:
    from nncftools.cli.fit.folder import FitOptions


EXAMPLES = """\b
Examples:
  nncf-tools fit python quantize.py
  nncf-tools fit --before 'rm -rf OUT' -- optimum-cli export openvino --model DIR OUT
  nncf-tools fit --success 'test -s OUT/openvino_model.bin' --swap 2GiB ./export.sh
  nncf-tools fit --output fits/export --resume ./export.sh
  nncf-tools fit --free-only ./export.sh

\b
The command runs once without a limit and then, usually 2 to 7 times, in a
control group with a limit. It works if it exits with 0, and the kernel killed
none of its processes. Control groups need root, or a user's systemd."""

Words = Annotated[list[str] | None, options.command_words("it keeps folder and environment. Its output goes to files.")]
Output = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR",
        help="Write results and recordings here. Default: in memory_logs.",
        rich_help_panel=parameters.WRITE,
    ),
]
Tolerance = Annotated[
    str,
    typer.Option(
        "--tolerance", metavar="PERCENT", help="How exactly to find the limit.", rich_help_panel=parameters.RUN
    ),
]
Slower = Annotated[
    float,
    typer.Option(
        "--slower",
        metavar="FACTOR",
        help="Full speed is up to this many times the time without a limit.",
        rich_help_panel=parameters.RUN,
    ),
]
Runs = Annotated[
    int,
    typer.Option(
        "--runs",
        min=2,
        metavar="N",
        help="The most runs, with the one without a limit.",
        rich_help_panel=parameters.RUN,
    ),
]
GiveUp = Annotated[
    str,
    typer.Option(
        "--give-up",
        metavar="Nx",
        help="End a run that takes so many times the time without a limit.",
        rich_help_panel=parameters.RUN,
    ),
]
Swap = Annotated[
    str,
    typer.Option(
        "--swap", metavar="SIZE", help="Swap that a run may use beside its limit.", rich_help_panel=parameters.RUN
    ),
]
Success = Annotated[
    str | None,
    typer.Option(
        "--success",
        metavar="COMMAND",
        help="Run this shell command after each run; it fails if the run did.",
        rich_help_panel=parameters.RUN,
    ),
]
Before = Annotated[
    str | None,
    typer.Option(
        "--before",
        metavar="COMMAND",
        help="Run this shell command before each run, to clean up.",
        rich_help_panel=parameters.RUN,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the subcommand; options after the first word of the command belong to the command."""
    app.command(
        name="fit",
        epilog=EXAMPLES,
        context_settings={"allow_interspersed_args": False},
    )(fit)


def fit(  # noqa: PLR0913 — one parameter per option
    words: Words = None,
    *,
    output: Output = None,
    tolerance: Tolerance = "3%",
    slower: Slower = 1.1,
    runs: Runs = 10,
    give_up: GiveUp = "5x",
    swap: Swap = "0",
    success: Success = None,
    before: Before = None,
    free_only: Annotated[
        bool,
        typer.Option("--free-only", help="Only run without a limit: no control group.", rich_help_panel=parameters.RUN),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the search in --output.", rich_help_panel=parameters.RUN)
    ] = False,
    interval: options.Interval = 0.1,
    unit: options.Unit = MemoryUnit.MiB,
    shell: options.Shell = False,
    force: options.Force = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, as in fit.json.", rich_help_panel=parameters.SHOW)
    ] = False,
) -> int:
    """Find the smallest memory limit with which a command works, and the smallest at full speed."""
    metrics, others = planning.columns(None, options.DEFAULT_SOURCE, ("rss",))
    argv = planning.target(words or [], None, shell=shell)
    plan = planning.plan([*metrics, *others], interval=interval)
    if not slower >= 1:
        raise UsageError(f"option --slower: a factor of at least 1 expected, found {slower:g}")
    if resume and output is None:
        raise UsageError("option --resume: only with --output, the folder of the search to go on with")
    from nncftools.cli.fit import folder

    choices = folder.FitOptions(
        argv=argv,
        plan=plan,
        unit=unit,
        tolerance=options.share("--tolerance", tolerance),
        slower=slower,
        most_runs=runs,
        give_up=_factor(give_up),
        swap=_swap(swap),
        success=success,
        before=before,
        free_only=free_only,
        as_json=as_json,
    )
    return _fit(choices, output, resume=resume, force=force)


def _fit(choices: FitOptions, output: pathlib.Path | None, *, resume: bool, force: bool) -> int:
    from nncftools.cli.fit import folder as fit_folder
    from nncftools.cli.fit import groups, runs

    parent = None
    if not choices.free_only:
        try:
            parent = groups.parent_group()
        except OSError as error:
            groups.start_in_scope()
            reason = error.strerror or error
            allowed = (
                "run it as root or, with control groups of version 2, as a user of systemd, "
                "or use --free-only for the floor and the comfortable amount of a free run"
            )
            raise NncfToolsError(
                f"no control group with a memory limit can be made here: {reason}; {allowed}"
            ) from error
    folder = fit_folder.folder(choices, output, resume=resume, force=force)
    return runs.search(choices, folder, parent, resume=resume)


def _factor(text: str) -> float:
    try:
        factor = float(text.strip().removesuffix("x"))
    except ValueError:
        factor = 0.0
    if not 1 < factor < float("inf"):
        raise UsageError(f"option --give-up: a factor above 1 expected, such as 5x, found {text!r}")
    return factor


def _swap(text: str) -> int:
    from nncftools.cli.fit import groups

    if text.strip() == "0":
        return 0
    try:
        size = bytes_from(text)
    except ValueError as error:
        raise UsageError(f"option --swap: {error}") from error
    if not groups.has_swap():
        raise UsageError("option --swap: this machine has no swap; add some (swapon), or leave the option out")
    return size
