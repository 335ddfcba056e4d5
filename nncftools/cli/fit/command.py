"""``nncf-tools fit``: how little memory would do for a command."""

from __future__ import annotations

from typing import Annotated

from nncftools.cli import options, planning
from nncftools.cli.parameters import RUN, SHOW, WRITE, File, Texts, option
from nncftools.errors import NncfToolsError, UsageError
from nncftools.units import MemoryUnit, bytes_from


def fit(  # noqa: PLR0913 — one parameter per option
    words: Annotated[Texts, options.command_words("it keeps folder and environment. Its output goes to files.")] = None,
    *,
    output: Annotated[
        File, option("--output -o DIR", WRITE, "Write results and recordings here. Default: in memory_logs.")
    ] = None,
    tolerance: Annotated[str, option("--tolerance PERCENT", RUN, "How exactly to find the limit.")] = "3%",
    slower: Annotated[
        float, option("--slower FACTOR", RUN, "Full speed is up to this many times the time without a limit.")
    ] = 1.1,
    runs: Annotated[int, option("--runs N", RUN, "The most runs, with the one without a limit.", min=2)] = 10,
    give_up: Annotated[
        str, option("--give-up Nx", RUN, "End a run that takes so many times the time without a limit.")
    ] = "5x",
    swap: Annotated[str, option("--swap SIZE", RUN, "Swap that a run may use beside its limit.")] = "0",
    success: Annotated[
        str | None, option("--success COMMAND", RUN, "Run this shell command after each run; it fails if the run did.")
    ] = None,
    before: Annotated[
        str | None, option("--before COMMAND", RUN, "Run this shell command before each run, to clean up.")
    ] = None,
    free_only: Annotated[bool, option("--free-only", RUN, "Only run without a limit: no control group.")] = False,
    resume: Annotated[bool, option("--resume", RUN, "Go on with the search in --output.")] = False,
    interval: options.Interval = 0.1,
    unit: options.Unit = MemoryUnit.MiB,
    shell: options.Shell = False,
    force: options.Force = False,
    as_json: Annotated[bool, option("--json", SHOW, "Print the result as JSON, as in fit.json.")] = False,
) -> int:
    """Find the smallest memory limit with which a command works, and the smallest at full speed.

    \b
    Examples:
      nncf-tools fit python quantize.py
      nncf-tools fit --before 'rm -rf OUT' -- optimum-cli export openvino --model DIR OUT
      nncf-tools fit --success 'test -s OUT/openvino_model.bin' --swap 2GiB ./export.sh
      nncf-tools fit --output fits/export --resume ./export.sh
      nncf-tools fit --free-only ./export.sh

    \b
    The command runs once without a limit and then, usually 2 to 7 times, in a
    control group with a limit. It works if it exits with 0, and the kernel killed
    none of its processes. Control groups need root, or a user's systemd.
    """
    request = options.Request(words=words, interval=interval, shell=shell)
    _, columns = planning.columns(request, ("rss",))
    argv = planning.target(request)
    plan = planning.plan(columns, request)
    if not slower >= 1:
        raise UsageError(f"option --slower: a factor of at least 1 expected, found {slower:g}")
    if resume and output is None:
        raise UsageError("option --resume: only with --output, the folder of the search to go on with")
    from nncftools.cli.fit import folder as fit_folder
    from nncftools.cli.fit import groups
    from nncftools.cli.fit import runs as fit_runs

    choices = fit_folder.FitOptions(
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
    parent = None
    if not free_only:
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
    return fit_runs.search(choices, folder, parent, resume=resume)


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
