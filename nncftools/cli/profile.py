"""``nncf-tools profile``: records a command and what each of its operations costs."""

from __future__ import annotations

import pathlib
import re
from typing import TYPE_CHECKING, Annotated

import typer

from nncftools.cli import help_page, limits, options, planning
from nncftools.errors import UsageError
from nncftools.render.view import View
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from collections.abc import Callable

    from nncftools.marks.calls import Call

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

NoAuto = Annotated[
    bool, typer.Option("--no-auto", help="Mark no calls automatically.", rich_help_panel=help_page.RECORD)
]
MarkCall = Annotated[
    list[str] | None,
    typer.Option(
        "--mark-call",
        metavar="MODULE:FUNCTION[=NAME]",
        help="Also mark calls of this function; __main__:FUNCTION is one of the script itself (Python 3.12 or later). "
        "Repeatable. Also mark-calls in [tool.nncf-tools] of pyproject.toml.",
        rich_help_panel=help_page.RECORD,
    ),
]
MarkOn = Annotated[
    list[str] | None,
    typer.Option(
        "--mark-on",
        metavar="REGEX",
        help="A matching line of output starts an operation, named by the match or its group (?P<name>…); repeatable.",
        rich_help_panel=help_page.RECORD,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the subcommand; options after the first word of the command belong to the command."""
    app.command(
        name="profile",
        epilog=EXAMPLES,
        context_settings={"allow_interspersed_args": False},
    )(profile)


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
    max_memory: limits.MaxMemory = None,
    on_limit: limits.OnLimit = limits.ACTIONS[0],
    require: limits.Require = None,
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
        limit=limits.limit(max_memory, on_limit),
        redact=options.redaction(redact, is_off=no_redact),
        pss_budget=pss_budget,
    )
    looking = planning.looking(stacks=stacks, default=True, source=source)
    looking_share = options.share("--stacks-budget", stacks_budget)
    folder = log_dir if output is None else output.parent
    limits.check_required(require, argv, folder, plan.redact)
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
