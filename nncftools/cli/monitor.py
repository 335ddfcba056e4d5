"""``nncf-tools monitor``: record a command, or a running process."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from nncftools.cli import command, options
from nncftools.errors import NncfToolsError, UsageError
from nncftools.metrics import ALWAYS, MEMORY_METRICS
from nncftools.render.view import View
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from nncftools.sampler.plan import Plan

EXAMPLES = """\b
Examples:
  nncf-tools monitor python quantize.py --subset 300
  nncf-tools monitor -t rss -- optimum-cli export openvino --model DIR OUT
  nncf-tools monitor --output run.json --plot --unit GiB ./compress.sh
  nncf-tools monitor --shell 'python a.py | tee log.txt'
  nncf-tools monitor --pid 4711 --duration 60

\b
The exit status is the command's: 128 + N when signal N killed it, 127 when it
was not found, 126 when it could not be executed."""

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="COMMAND [ARGUMENT]",
        show_default=False,
        help="The command, argument for argument; it keeps terminal, folder and environment.",
    ),
]
Interval = Annotated[float, typer.Option("--interval", "-i", metavar="SECONDS", help="From one sample to the next.")]
Output = Annotated[
    pathlib.Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write only the session, to this file (.json or .json.gz)."),
]
LogDir = Annotated[
    pathlib.Path,
    typer.Option("--log-dir", metavar="DIR", help="Where a new folder with session, logs and pictures is made."),
]
Plot = Annotated[
    bool | None,
    typer.Option("--plot/--no-plot", help="Draw pictures. Default: yes in --log-dir, no with --output."),
]
Pid = Annotated[int | None, typer.Option("--pid", min=1, metavar="PID", help="Attach to a running process instead.")]
Duration = Annotated[
    float | None,
    typer.Option("--duration", metavar="SECONDS", help="Stop recording after this time; the command goes on."),
]
MaxSamples = Annotated[
    int,
    typer.Option(
        "--max-samples",
        min=100,
        metavar="N",
        help="Beyond this number, merge neighbours; the smallest and largest values are kept.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the subcommand; options after the command's first word are the command's own."""
    app.command(
        name="monitor",
        short_help="Record a command and all its descendants.",
        epilog=EXAMPLES,
        context_settings={"allow_interspersed_args": False},
    )(monitor)


def monitor(  # noqa: PLR0913 — one parameter per option
    words: Words = None,
    *,
    types: options.Types = None,
    interval: Interval = 0.1,
    unit: options.Unit = MemoryUnit.MiB,
    output: Output = None,
    log_dir: LogDir = pathlib.Path("memory_logs"),
    from_zero: options.FromZero = False,
    plot: Plot = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary.")] = False,
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="A name for the run.")] = "",
    pid: Pid = None,
    duration: Duration = None,
    no_children: Annotated[bool, typer.Option("--no-children", help="Leave out descendants.")] = False,
    wait_all: Annotated[bool, typer.Option("--wait-all", help="Go on until the last descendant has ended.")] = False,
    per_process: Annotated[bool, typer.Option("--per-process", help="Keep each process's RSS over time.")] = False,
    max_samples: MaxSamples = 1_000_000,
    shell: Annotated[bool, typer.Option("--shell", help="Run one quoted string through the shell.")] = False,
    force: options.Force = False,
    source: options.Source = options.DEFAULT_SOURCE,
) -> int:
    """Record memory, CPU and disk I/O of a command and all its descendants."""
    options.check_source(source)
    metrics, others = _columns(types, source)
    options.checked_seconds("--interval", interval, options.SHORTEST_INTERVAL_S)
    if duration is not None:
        options.checked_seconds("--duration", duration, 0)
    argv = _target(words or [], pid, shell=shell)
    from nncftools.cli import destination, recording
    from nncftools.sampler import client

    zeros = (True,) if from_zero else (False, True)
    run_name = name or (pathlib.Path(argv[0]).name if argv else f"pid-{pid}")
    plan: Plan = {
        "argv": [os.fsencode(word).decode("latin-1") for word in argv],
        "pid": pid,
        "interval_s": interval,
        "duration_s": duration,
        "children": not no_children,
        "wait_all": wait_all,
        "per_process": per_process,
        "max_samples": max_samples,
        "channel": None,
        "columns": [*metrics, *others],
        "source": source,
        "signal_mask": client.blocked_signals(),
    }
    if output is not None:
        place = destination.at_file(output, metrics, zeros, plot=bool(plot), force=force)
    else:
        place = destination.new_folder(log_dir, run_name, metrics, zeros, plot=plot is not False)
    view = View(metrics=metrics, unit=unit, from_zero=from_zero)
    return recording.record(plan, recording.facts(name, argv), place, view, quiet=quiet)


def _columns(types: list[str] | None, source: str) -> tuple[list[str], list[str]]:
    """Return the memory metrics to record, and what is recorded besides. Raises UsageError."""
    from nncftools.sampler import client

    offers = client.offers(source)
    for name in types or []:
        if name in MEMORY_METRICS and (name not in offers or offers[name].missing):
            reason = offers[name].missing if name in offers else f"not from --source {source}"
            raise UsageError(f"option --type: {name!r} is not available here: {reason}")
    here = [name for name, offer in offers.items() if not offer.missing]
    return options.memory_types(types, [name for name in MEMORY_METRICS if name in here]), [
        name for name in ALWAYS if name in here
    ]


def _target(words: list[str], pid: int | None, *, shell: bool) -> list[str]:
    if pid is None:
        argv = command.arguments(words, shell=shell)
        if not argv:
            raise UsageError("argument COMMAND: missing; give a command to run, or --pid to attach to a process")
        command.check_executable(argv[0])
        return argv
    if words:
        raise UsageError("option --pid: either a command or --pid, not both")
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        raise NncfToolsError(f"option --pid: there is no process {pid}") from None
    except PermissionError:
        pass
    return []
