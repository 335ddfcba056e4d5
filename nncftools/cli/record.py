"""``nncf-tools monitor``: record a command, or a running process.

``nncf-tools profile``: records a command and what each of its operations costs.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from nncftools.cli import options, planning
from nncftools.cli.parameters import RECORD, RUN, option
from nncftools.errors import UsageError
from nncftools.render.view import View
from nncftools.units import MemoryUnit, seconds_from

if TYPE_CHECKING:
    from nncftools.cli.destination import Destination
    from nncftools.cli.recording import Recorded
    from nncftools.marks.calls import Call


MONITOR_EXAMPLES = """\b
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

Pid = Annotated[int | None, option("--pid PID", RECORD, "Attach to a running process instead.", min=1)]
Duration = Annotated[
    float | None,
    option(
        "--duration TIME",
        RECORD,
        "Stop recording after this time: 30, 30s, 2min; the command keeps running.",
        parser=seconds_from,
    ),
]

Repeat = Annotated[
    int, option("--repeat N", RUN, "Run the command N times and write N sessions (-1, -2, …) to compare.", min=1)
]


def register(app: typer.Typer) -> None:
    """Add the subcommands; options after the first word of the command belong to the command."""
    app.command(
        name="monitor",
        epilog=MONITOR_EXAMPLES,
        context_settings={"allow_interspersed_args": False},
    )(monitor)
    app.command(
        name="profile",
        epilog=EXAMPLES,
        context_settings={"allow_interspersed_args": False},
    )(profile)


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
    max_memory: planning.MaxMemory = None,
    on_limit: planning.OnLimit = planning.ACTIONS[0],
    require: planning.Require = None,
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
        limit=planning.limit(max_memory, on_limit),
        redact=options.redaction(redact, is_off=no_redact),
        pss_budget=pss_budget,
    )
    looking = planning.looking(stacks=stacks, default=False, source=source)
    looking_share = options.share("--stacks-budget", stacks_budget)
    folder = log_dir if output is None else output.parent
    planning.check_required(require, argv, folder, plan.redact)
    from nncftools.cli import closing, destination, recording
    from nncftools.cli.display import DisplayOptions
    from nncftools.sampler.starter import Starter

    suffixes = closing.suffixes(repeat)
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
        return closing.repeat(repeat, places, record, view, quiet=quiet)


EXAMPLES = """\b
Examples:
  nncf-tools profile python quantize.py
  nncf-tools profile --open python quantize.py
  nncf-tools profile -- optimum-cli export openvino --model DIR OUT
  nncf-tools profile --mark-call __main__:prepare python run.py
  nncf-tools profile --mark-call my_package.training:fit=Training python run.py
  nncf-tools profile --max-memory 24GiB --on-limit kill python export.py
  nncf-tools profile --mark-on 'Epoch \\d+' --depth 2 -o run.json ./train.sh

\b
Calls of nncf, openvino, optimum, transformers, torch, onnxruntime and QEfficient
are marked automatically. Mark others with `nncf-tools mark NAME` in a script or
`with nncftools.operation(NAME):` in Python. The exit status is the command's."""

_LONGEST_NAME = 80

NoAuto = Annotated[bool, option("--no-auto", RECORD, "Mark no calls automatically.")]
MarkCall = Annotated[
    list[str] | None,
    option(
        "--mark-call MODULE:FUNCTION[=NAME]",
        RECORD,
        "Also mark calls of this function; __main__:FUNCTION is one of the script itself (Python 3.12 or later). "
        "Repeatable. Also mark-calls in [tool.nncf-tools] of pyproject.toml.",
    ),
]
MarkOn = Annotated[
    list[str] | None,
    option(
        "--mark-on REGEX",
        RECORD,
        "A matching line of output starts an operation, named by the match or its group (?P<name>…); repeatable.",
    ),
]


def profile(  # noqa: PLR0913 — one parameter per option
    words: options.Words = None,
    *,
    no_auto: NoAuto = False,
    mark_call: MarkCall = None,
    mark_on: MarkOn = None,
    depth: options.Depth = 1,
    types: options.ProfileTypes = None,
    interval: options.Interval = 0.05,
    unit: options.Unit = MemoryUnit.MiB,
    output: options.Output = None,
    log_dir: options.LogDir = options.DEFAULT_LOG_DIR,
    plot: options.Plot = None,
    opens: options.Open = False,
    quiet: options.Quiet = False,
    live: options.Live = False,
    capture: options.Capture = None,
    name: options.Name = "",
    no_children: options.NoChildren = False,
    wait_all: options.WaitAll = False,
    per_process: options.PerProcess = False,
    max_memory: planning.MaxMemory = None,
    on_limit: planning.OnLimit = planning.ACTIONS[0],
    require: planning.Require = None,
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
    """Record a command and what its operations cost: report, session, picture, page."""
    metrics, others = planning.columns(types, source, options.PROFILE_TYPES)
    calls = _calls(mark_call or [], no_auto=no_auto)
    patterns = [_pattern(text) for text in mark_on or []]
    argv = planning.target(words or [], None, shell=shell)
    capture = options.checked_capture(capture, live=live, force=force)
    plan = planning.plan(
        [*metrics, *others],
        interval=interval,
        children=not no_children,
        wait_all=wait_all,
        per_process=per_process,
        max_samples=max_samples,
        source=source,
        limit=planning.limit(max_memory, on_limit),
        redact=options.redaction(redact, is_off=no_redact),
        pss_budget=pss_budget,
    )
    looking = planning.looking(stacks=stacks, default=True, source=source)
    looking_share = options.share("--stacks-budget", stacks_budget)
    folder = log_dir if output is None else output.parent
    planning.check_required(require, argv, folder, plan.redact)
    from nncftools.cli import destination, recording
    from nncftools.cli.display import DisplayOptions
    from nncftools.sampler.starter import Starter

    if output is not None:
        place = destination.at_file(output, force=force)
    else:
        place = destination.new_folder(log_dir, name or pathlib.Path(argv[0]).name, metrics[:1])
    place = destination.with_views(place, plot=plot, opens=opens)
    planning.watch_disks(plan, argv, folder)
    marking = recording.Marking(calls, _naming(patterns) if patterns else None)
    view = View(metrics=metrics, unit=unit, depth=depth)
    display = DisplayOptions(live, capture)
    with Starter() as starter:
        run = recording.Run(starter, plan, name, argv, place, marking, looking, looking_share, opens=opens)
        return recording.record(run, view, quiet=quiet, display=display).status


def _calls(asked: list[str], *, no_auto: bool) -> list[Call] | None:
    """Return the calls to mark in addition to the catalogue, or None to mark no calls at all. Raises UsageError."""
    if no_auto:
        if asked:
            raise UsageError("option --mark-call: either --no-auto or --mark-call, not both")
        return None
    from nncftools.marks import calls

    try:
        return [*calls.from_pyproject(pathlib.Path.cwd()), *calls.parse(asked)]
    except (OSError, ValueError) as error:
        raise UsageError(f"option --mark-call: {error}") from error


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"option --mark-on: {text!r} is not a regular expression: {error}") from error


def _naming(patterns: list[re.Pattern[str]]) -> Callable[[str], str | None]:
    def name_of(line: str) -> str | None:
        found = next((found for pattern in patterns if (found := pattern.search(line))), None)
        if found is None:
            return None
        name = found.groupdict().get("name") or found[0] or line
        return name.strip()[:_LONGEST_NAME] or None

    return name_of
