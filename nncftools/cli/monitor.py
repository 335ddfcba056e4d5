"""``nncf-tools monitor``: record a command, or a running process."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from nncftools.cli import help_page, limits, options, planning
from nncftools.errors import UsageError
from nncftools.render.view import View
from nncftools.units import MemoryUnit, seconds_from

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nncftools.cli.destination import Destination
    from nncftools.cli.recording import Recorded

EXAMPLES = """\b
Examples:
  nncf-tools monitor python quantize.py --subset 300
  nncf-tools monitor -t rss -- optimum-cli export openvino --model DIR OUT
  nncf-tools monitor --open python quantize.py
  nncf-tools monitor --output run.json --plot --unit GiB ./compress.sh
  nncf-tools monitor --shell 'python a.py | tee log.txt'
  nncf-tools monitor --pid 4711 --duration 60
  nncf-tools monitor --max-memory 24GiB --on-limit kill python export.py
  nncf-tools monitor --require 12GiB python export.py
  nncf-tools monitor --repeat 5 --output old.json python export.py
  mpirun -n 4 nncf-tools monitor --output run.json python train.py

\b
The exit status is the command's, even if the recording fails: 128 + N if
signal N killed it, 127 if it was not found, 126 if it could not be executed.
Under torchrun, mpirun or srun, file names get the rank (run-rank0.json);
`nncf-tools report run-rank*.json` merges them."""

Pid = Annotated[
    int | None,
    typer.Option(
        "--pid", min=1, metavar="PID", help="Attach to a running process instead.", rich_help_panel=help_page.RECORD
    ),
]
Duration = Annotated[
    float | None,
    typer.Option(
        "--duration",
        metavar="TIME",
        parser=seconds_from,
        help="Stop recording after this time: 30, 30s, 2min; the command keeps running.",
        rich_help_panel=help_page.RECORD,
    ),
]

Repeat = Annotated[
    int,
    typer.Option(
        "--repeat",
        min=1,
        metavar="N",
        help="Run the command N times and write N sessions (-1, -2, …) to compare.",
        rich_help_panel=help_page.RUN,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the subcommand; options after the first word of the command belong to the command."""
    app.command(
        name="monitor",
        epilog=EXAMPLES,
        context_settings={"allow_interspersed_args": False},
    )(monitor)


def monitor(  # noqa: PLR0913 — one parameter per option
    words: options.Words = None,
    *,
    types: options.Types = None,
    interval: options.Interval = 0.1,
    unit: options.Unit = MemoryUnit.MiB,
    output: options.Output = None,
    log_dir: options.LogDir = options.DEFAULT_LOG_DIR,
    from_zero: options.FromZero = False,
    plot: options.Plot = None,
    opens: options.Open = False,
    quiet: options.Quiet = False,
    live: options.Live = False,
    capture: options.Capture = None,
    name: options.Name = "",
    pid: Pid = None,
    duration: Duration = None,
    max_memory: limits.MaxMemory = None,
    on_limit: limits.OnLimit = limits.ACTIONS[0],
    require: limits.Require = None,
    repeat: Repeat = 1,
    no_children: options.NoChildren = False,
    wait_all: options.WaitAll = False,
    per_process: options.PerProcess = False,
    pss_budget: options.PssBudget = options.DEFAULT_PSS_BUDGET,
    stacks: options.Stacks = None,
    stacks_budget: options.StacksBudget = options.DEFAULT_STACKS_BUDGET,
    max_samples: options.MaxSamples = options.DEFAULT_MAX_SAMPLES,
    shell: options.Shell = False,
    force: options.Force = False,
    redact: options.Redact = None,
    no_redact: options.NoRedact = False,
    source: options.Source = options.DEFAULT_SOURCE,
) -> int:
    """Record memory, CPU and disk I/O of a command and all its descendants."""
    metrics, others = planning.columns(types, source, options.DEFAULT_TYPES)
    argv = planning.target(words or [], pid, shell=shell)
    capture = options.checked_capture(capture, live=live and pid is None, force=force)
    if repeat > 1 and (pid is not None or capture is not None):
        raise UsageError(f"option --repeat: not with {'--capture' if pid is None else '--pid'}")
    if repeat > 1 and opens:
        raise UsageError("option --open: not with --repeat; `nncf-tools report --open` opens the last page")
    plan = planning.plan(
        [*metrics, *others],
        pid=pid,
        interval=interval,
        duration=duration,
        children=not no_children,
        wait_all=wait_all,
        per_process=per_process,
        max_samples=max_samples,
        source=source,
        limit=limits.limit(max_memory, on_limit),
        redact=options.redaction(redact, is_off=no_redact),
        pss_budget=pss_budget,
    )
    looking = planning.looking(stacks=stacks, default=False, source=source)
    looking_share = options.share("--stacks-budget", stacks_budget)
    folder = log_dir if output is None else output.parent
    limits.check_required(require, argv, folder, plan.redact)
    from nncftools.cli import destination, recording, repeating
    from nncftools.cli.display import DisplayOptions
    from nncftools.sampler.starter import Starter

    suffixes = repeating.suffixes(repeat)
    places: Iterable[Destination]
    if output is not None:
        files = [destination.numbered(output, suffix) for suffix in suffixes]
        of_files = [destination.at_file(file, force=force) for file in files]
        places = [destination.with_views(place, plot=plot, opens=opens) for place in of_files]
    else:
        run_name = name or (pathlib.Path(argv[0]).name if argv else f"pid-{pid}")
        folders = (destination.new_folder(log_dir, f"{run_name}{suffix}", metrics) for suffix in suffixes)
        places = (destination.with_views(place, plot=plot, opens=opens) for place in folders)
    planning.watch_disks(plan, argv, folder)
    view = View(metrics=metrics, unit=unit, from_zero=from_zero)
    display = DisplayOptions(live, capture)

    unmarked = recording.Marking()
    with Starter() as starter:

        def record(place: Destination) -> Recorded:
            run = recording.Run(starter, plan, name, argv, place, unmarked, looking, looking_share, opens=opens)
            return recording.record(run, view, quiet=quiet or repeat > 1, display=display)

        if repeat == 1:
            return record(next(iter(places))).status
        return repeating.repeat(repeat, places, record, view, quiet=quiet)
