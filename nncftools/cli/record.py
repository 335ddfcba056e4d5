"""``nncf-tools monitor``: record a command. ``nncf-tools profile``: also record the cost of each operation.

``python -m nncftools.memory_monitor`` records, too, with the command line of NNCF's memory monitor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nncftools.cli import destination, options, planning
from nncftools.cli.destination import Destination
from nncftools.cli.options import ProfileRequest, Request
from nncftools.cli.parameters import find_project, with_options
from nncftools.errors import NncfToolsError, UsageError
from nncftools.render.view import View
from nncftools.units import MemoryUnit, printable

if TYPE_CHECKING:
    from nncftools.analysis.session import Session
    from nncftools.cli.recording import Recorded, RecordingJob
    from nncftools.marks.calls import Call

_MOST_RUNS = 10_000


@with_options(Request, without={"no_auto", "mark_call", "mark_on", "depth"})
def monitor(request: Request) -> int:
    """Record memory, CPU and disk I/O of a command and all its descendants.

    \b
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
      nncf-tools monitor --repeat 5 --prepare 'rm -rf OUT' -- ./export.sh OUT
      mpirun -n 4 nncf-tools monitor --output run.json python train.py

    The exit status is the command's, even if the recording fails: 128 + N if
    signal N killed the command, 127 if it was not found, 126 if it could not be
    executed. Under torchrun, mpirun or srun, file names get the rank
    (run-rank0.json); `nncf-tools report run-rank*.json` merges the sessions.

    \b
    Defaults of a project, in pyproject.toml:
      [tool.nncf-tools]
      interval = "20ms"
      metrics = ["rss", "anon"]
      unit = "GiB"
    """
    return _record(request, profiles=False)


@with_options(ProfileRequest, without={"pid"})
def profile(request: ProfileRequest) -> int:
    """Record a command and the cost of each operation: report, session, picture, page.

    \b
    Examples:
      nncf-tools profile python quantize.py
      nncf-tools profile --open python quantize.py
      nncf-tools profile -- optimum-cli export openvino --model DIR OUT
      nncf-tools profile --mark-call __main__:prepare python run.py
      nncf-tools profile --mark-call my_package.train:fit=Training python run.py
      nncf-tools profile --repeat 5 --output old.json python export.py
      nncf-tools profile --repeat 5 --prepare 'rm -rf OUT' -- ./export.sh OUT
      nncf-tools profile --max-memory 24GiB --on-limit kill python export.py
      nncf-tools profile --mark-on 'Epoch \\d+' --depth 2 -o run.json ./train.sh

    Calls of nncf, openvino, optimum, transformers, torch, onnxruntime, QEfficient and
    quantization libraries are marked automatically. Mark others by `nncf-tools mark NAME` in a script, or by
    `with nncftools.operation(NAME):` in Python. The exit status is the command's.

    \b
    Defaults of a project, in pyproject.toml:
      [tool.nncf-tools]
      interval = "20ms"
      metrics = ["rss", "anon"]
      unit = "GiB"
      depth = 2
      mark-calls = ["my_package.train:fit=Training"]
    """
    return _record(request, profiles=True)


def _record(request: Request, *, profiles: bool) -> int:
    metrics, columns = planning.choose_columns(request, options.PROFILE_TYPES if profiles else options.DEFAULT_TYPES)
    calls = _list_calls(request) if profiles else None
    patterns = options.compile_patterns("--mark-on", request.mark_on)
    argv = planning.resolve_target(request)
    planning.name_late_options(argv)
    capture = _check_capture(request)
    plan = planning.make_plan(columns, request)
    stack_access = planning.stack_access(request, default=profiles)
    share = options.share("--stacks-budget", request.stacks_budget)
    folder = request.log_dir if request.output is None else request.output.parent
    planning.check_required(request.require, argv, folder, plan.redact)
    from nncftools.cli import closing, recording, screen
    from nncftools.sampler.client import Starter

    def make_destination(suffix: str) -> Destination:
        if request.output is not None:
            target = destination.at_file(destination.add_suffix(request.output, suffix), force=request.force)
        else:
            name = request.name or (Path(argv[0]).name if argv else f"pid-{request.pid}")
            target = destination.new_folder(request.log_dir, f"{name}{suffix}")
        target = destination.add_views(target, plot=request.plot, opens=request.opens)
        files = [target.session, target.journal, target.marks, target.snapshots]
        files += [path for path in (target.panels, target.page, capture) if path is not None]
        if destination.find_duplicate(files):
            raise UsageError(f"option --capture: {str(capture)!r} is a file of the recording; choose another name")
        return target

    for option, count in (("--repeat", request.repeat), ("--warmup", request.warmup)):
        if count > _MOST_RUNS:
            raise UsageError(f"option {option}: at most {_MOST_RUNS} expected, found {count}")
    suffixes = [f"-{number}" for number in range(1, request.repeat + 1)]
    if request.repeat == 1:
        suffixes = [""]
    targets: Iterable[Destination] = map(make_destination, suffixes)
    if request.output is not None:
        targets = list(targets)  # check all files before the first run; make a folder only when a run begins
    planning.watch_disks(plan, argv, folder)
    view = View(
        metrics,
        request.unit,
        from_zero=request.from_zero,
        depth=request.depth,
        brief=not request.details,
        asked=metrics if request.types else (),
    )
    quiet = request.quiet or request.repeat > 1
    with Starter() as starter:
        screen.starter = starter

        def record(target: Destination, *, quiet: bool = quiet) -> Recorded:
            job = recording.RecordingJob(
                starter,
                request,
                argv,
                plan,
                target=target,
                calls=calls,
                patterns=patterns,
                stack_access=stack_access,
                stacks_share=share,
                output=capture,
            )
            return _record_and_show(job, view, quiet=quiet)

        upcoming = iter(targets)
        if request.repeat == 1 and not (request.warmup or request.prepare or request.cleanup):
            return record(next(upcoming)).status
        import tempfile

        from nncftools.cli import series

        def record_next() -> series.Ended:
            target = next(upcoming)
            return target, record(target)

        def warm_up() -> series.Ended:
            with destination.writing("--warmup", Path("TMPDIR")), tempfile.TemporaryDirectory() as folder:
                target = destination.at_file(Path(folder, destination.SESSION), force=True, option="--warmup")
                return None, record(target, quiet=True)

        runs = series.repeat(starter, request, record_next, warm_up)
        return closing.show_repeats(request, runs, starter, view)


def _record_and_show(job: RecordingJob, view: View, *, quiet: bool) -> Recorded:
    from nncftools.cli import closing, recording

    with job.target.place:
        recorded = recording.record(job, view)
        with recording.guarded("the summary cannot be shown"):
            closing.show(recorded, job, view, quiet=quiet)
    return recorded


def _list_calls(request: Request) -> list[Call] | None:
    """Return the calls to mark in addition to those of the built-in catalogue. Raises UsageError.

    None means that no calls are marked, not even those of the catalogue.
    """
    if request.no_auto:
        if request.mark_call:
            raise UsageError("option --mark-call: either --no-auto or --mark-call, not both")
        return None
    from nncftools.marks import calls

    project = find_project()
    subject = f"{project.path}: mark-calls"
    try:
        configured = calls.parse(project.texts.get("mark-calls", ()))
        subject = "option --mark-call"
        return [*configured, *calls.parse(request.mark_call or [])]
    except ValueError as error:
        raise UsageError(f"{subject}: {error}") from error


def _check_capture(request: Request) -> Path | None:
    """Return the file for the command's output. Raises UsageError if options cannot be combined."""
    capture = request.capture
    of_commands = {
        "--capture": capture,
        "--repeat": request.repeat > 1,
        "--warmup": request.warmup,
        "--prepare": request.prepare,
        "--cleanup": request.cleanup,
    }
    given = [option for option, value in of_commands.items() if value]
    if given and request.pid is not None:
        raise UsageError(f"option {given[0]}: only with a command, not with --pid")
    if capture is not None:
        if request.repeat > 1 or request.warmup:
            raise UsageError(f"option {given[1]}: not with --capture")
        capture = destination.check_output("--capture", capture, force=request.force)
    if request.repeat > 1 and request.opens:
        raise UsageError("option --open: not with --repeat; `nncf-tools report --open` opens the last page")
    return capture


_MEMORY_MONITOR = "memory_monitor"
_EXAMPLES = """examples:
  python -m nncftools.memory_monitor --log-dir ./logs python allocate.py
  python -m nncftools.memory_monitor "optimum-cli export openvino --model DIR OUT"
  python -m nncftools.memory_monitor "python a.py > out.txt"

`nncf-tools monitor` does the same without a shell, and more."""


def memory_monitor(words: Sequence[str]) -> int:
    """Record a command, write logs, and print the peaks; return the exit status of the command."""
    import argparse

    from nncftools.cli import screen

    parser = argparse.ArgumentParser(
        prog=_MEMORY_MONITOR,
        description="Record the RSS of a shell command and its descendants, and the memory of the system.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--log-dir",
        metavar="DIR",
        default=str(options.DEFAULT_LOG_DIR),
        help="the folder for logs, pictures and session (default: %(default)s)",
    )
    parser.add_argument("executable", nargs="+", help="the command, for the shell; quote it if it has options")
    parsed, unknown = parser.parse_known_args(words)
    if unknown:
        parser.error(f"{unknown[0]!r} is not understood; quote the command, as one word")
    screen.prepare()
    try:
        return _record_line(Path(parsed.log_dir), " ".join(parsed.executable))
    except NncfToolsError as error:
        screen.to_stderr(f"{_MEMORY_MONITOR}: error: {printable(str(error))}\n")
        return error.exit_code


_TYPES = ["rss,system"]
"""The metrics of NNCF's memory monitor."""


def _record_line(log_dir: Path, line: str) -> int:
    from nncftools.cli import recording, screen
    from nncftools.sampler.client import Starter

    argv = [planning.SHELL, "-c", line]
    request = options.Request(types=_TYPES)
    metrics, columns = planning.choose_columns(request)
    plan = planning.make_plan(columns, request)
    target = destination.in_folder(log_dir, metrics)
    view = View(metrics=metrics)
    with Starter() as starter:
        screen.starter = starter
        job = recording.RecordingJob(starter, request, argv, plan, target=target)
        recorded = _record_and_show(job, view, quiet=True)
    if recorded.session is not None:
        screen.if_read(_summarize(recorded.session, metrics, view.unit), screen.OUT)
    return recorded.status


def _summarize(session: Session, metrics: Sequence[str], unit: MemoryUnit) -> str:
    from math import isnan

    from tabulate import tabulate

    rows: list[list[str | bool]] = []
    for metric in metrics:
        peak = session.peaks[metric].low
        first = next((value for value in session.samples[metric] if not isnan(value)), None)
        above = None if peak is None or first is None else peak - first
        rows.append([metric, True, unit.label(above)])
        rows.append([metric, False, unit.label(peak)])
    return f"\nMemory summary:\n{tabulate(rows, headers=['Memory type', 'From zero', 'Peak value'])}\n"
