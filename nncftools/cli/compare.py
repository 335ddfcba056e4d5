"""``nncf-tools compare``: compare runs, or groups of repeated runs, with gates for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from glob import glob
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from nncftools.cli import destination, opening, options, screen
from nncftools.cli.parameters import READ, SHOW, WRITE, File, Files, Texts, argument, option
from nncftools.errors import NncfToolsError, UsageError
from nncftools.journal.reading import SIDECARS
from nncftools.render.view import PAGE, PICTURE, TEXT, as_json
from nncftools.units import MemoryUnit, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nncftools.analysis.comparison import Comparison, Run
    from nncftools.analysis.gates import Verdict
    from nncftools.render.overlay import Curve


_HISTORY = ("bencher", "benchmark-action")
"""Output formats for services that keep a history of measured values. The output has only the values of the compared
sessions (NEW), not of the baseline (BASE).
"""
FORMATS = (TEXT, "markdown", "json", PAGE, *_HISTORY)
_MOST_CURVES = 14
_MOST_RUNS = 100
"""Largest number of runs in a group. With more runs, the exact rank test takes seconds for each compared value."""


def compare(  # noqa: PLR0913 — one parameter per option
    sessions: Annotated[
        Files,
        argument(
            "BASE NEW",
            "Sessions, journals, folders, latest, latest~1. Each NEW is compared with BASE; several NEW make a table.",
            autocompletion=options.complete_session,
        ),
    ] = None,
    *,
    base: Annotated[
        Texts, option("--base PATTERN", READ, "A group of repeated runs, such as 'old-*.json'; repeatable.")
    ] = None,
    new: Annotated[Texts, option("--new PATTERN", READ, "The group to compare with --base; repeatable.")] = None,
    format_: Annotated[
        str | None,
        option(
            f"--format -f {'|'.join(FORMATS)}",
            SHOW,
            f"Output format. {options.FORMAT}",
            autocompletion=options.complete_from(FORMATS),
        ),
    ] = None,
    output: Annotated[
        File, option("--output -o FILE", WRITE, "Write to this file; the ending decides the format.")
    ] = None,
    plot: Annotated[
        File, option("--plot -p FILE", WRITE, "Also draw the memory of all runs over time: .png, .svg or .pdf.")
    ] = None,
    fail_if: Annotated[Texts, option("--fail-if GATE", SHOW, "Exit with status 3 if GATE is true; repeatable.")] = None,
    unit: options.Unit = MemoryUnit.MiB,
    depth: options.Depth = 1,
    details: Annotated[
        bool,
        option(
            "--details", SHOW, "Text output: show all values and operations. Markdown output always has them, folded."
        ),
    ] = False,
    force: options.Force = False,
) -> int:
    """Compare the costs of runs: peaks, time, CPU, I/O, each operation.

    \b
    Examples:
      nncf-tools compare latest~1 latest
      nncf-tools compare before.json after.json
      nncf-tools compare fp32.json int8.json int4.json --plot overlay.png
      nncf-tools compare before.json after.json -o table.md
      nncf-tools compare before.json after.json -o page.html
      nncf-tools compare a.json b.json --fail-if 'peak_rss>+5%'
      nncf-tools compare a.json b.json --fail-if 'duration@Export>90s'
      nncf-tools compare a.json b.json --fail-if 'held_at_end>+100MiB'
      nncf-tools compare --base 'old-*.json' --new 'new-*.json'
      nncf-tools compare --new 'run-*.json' --format bencher -o bencher.json

    A gate is METRIC[@OPERATION or @FUNCTION], > or <, a number and a unit (%, s,
    B, KiB, MiB, GiB). A number with a sign (+5%, +100MiB, -10%) limits the change
    from BASE to NEW. A number without a sign limits the figure of NEW. Metrics: peak_ and the name
    of a memory metric (peak_rss), duration, cpu, model_size, held_at_end,
    read_bytes, write_bytes, read_chars, write_chars.

    The exit status is 3 if a gate fails. Defaults of --unit and --depth can be set
    in pyproject.toml; see `nncf-tools profile --help`.
    """
    from nncftools.analysis import comparison, gates

    format_ = options.choose_format(format_, output, FORMATS)
    with options.naming_option("--fail-if"):
        limits = [gates.parse_gate(text) for text in fail_if or []]
    groups = _find_groups(sessions or [], base, new, least=1 if format_ in _HISTORY else 2)
    if limits and len(groups) == 1:
        raise UsageError("option --fail-if: a gate needs BASE and NEW")
    inputs = opening.files_read([*chain.from_iterable(groups)], options.DEFAULT_LOG_DIR)
    pictures = options.check_outputs({"--output": output, "--plot": plot}, inputs, force=force)
    if format_ != PICTURE:
        output = pictures.pop("--output", None)
    if pictures and len(groups) > _MOST_CURVES:
        raise UsageError(f"option {min(pictures)}: {len(groups)} sessions; a picture can show at most {_MOST_CURVES}")
    load = partial(_load, depth=depth, with_curves=bool(pictures), with_inner=bool(limits))
    loaded = [load(group) for group in groups]
    base_runs = loaded[0].runs
    judged: list[tuple[Comparison, list[Verdict]]] = []
    for group in loaded[1:]:
        compared = comparison.compare_runs(base_runs, group.runs)
        with options.naming_option("--fail-if"):
            judged.append((compared, [gates.judge_gate(limit, compared) for limit in limits]))
    for name, picture in pictures.items():
        _draw(loaded, unit, name, picture)
    if format_ != PICTURE:
        content = _render(judged, loaded, format_, unit, has_details=details)
        if output is None:
            screen.to_stdout(content)
        else:
            destination.write(output, content)
            screen.to_stderr(f"Written to {printable(str(output))}\n")
    status = 0
    for compared, verdicts in judged:
        run = f"{compared.new[0].title}: " if len(judged) > 1 else ""
        for verdict in verdicts:
            result = "passed" if verdict.passed else "failed"
            text = f"nncf-tools: gate {result}: {run}{verdict.gate.text}: {verdict.measured}"
            screen.line(text, "" if verdict.passed else screen.RED)
            if not verdict.passed:
                status = 3
    return status


def _find_groups(
    sessions: Sequence[Path], base: Sequence[str] | None, new: Sequence[str] | None, *, least: int
) -> list[list[Path]]:
    """Return the files of each group: the group BASE first, and then each group NEW. Raises UsageError.

    If ``least`` (the least number of groups) is 1, BASE may be missing.
    """
    groups = [[destination.find_recording(path, options.DEFAULT_LOG_DIR)] for path in sessions]
    if base is None and new is None:
        if len(sessions) < least:
            expected = "two sessions expected, such as `nncf-tools compare latest~1 latest`, or --base and --new"
            raise UsageError(f"arguments BASE NEW: {expected}")
    elif sessions:
        words = f"{str(sessions[0])!r} found together with --base or --new"
        raise UsageError(f"argument BASE: {words}; quote patterns, as in --base 'a*.json'")
    elif new is None or (base is None and least > 1):
        raise UsageError("options --base and --new: both expected")
    else:
        if base is not None:
            groups.append(_match("--base", base))
        groups.append(_match("--new", new))
    duplicate = destination.find_duplicate(chain.from_iterable(groups))
    if duplicate is not None:
        raise UsageError(f"{str(duplicate)!r} is given twice; name different runs")
    return groups


def _match(option: str, patterns: Sequence[str]) -> list[Path]:
    """Return the sessions that match the patterns, sorted by name; a pattern may also be an existing file."""
    sessions: list[Path] = []
    for pattern in patterns:
        names = [pattern]
        if not Path(pattern).exists():
            names = sorted(glob(pattern, recursive=True))  # noqa: PTH207 — absolute patterns, too
        paths = [Path(name) for name in names if not name.endswith(SIDECARS)]
        if not paths:
            raise UsageError(f"option {option}: nothing matches {pattern!r}")
        sessions += [destination.find_recording(path, options.DEFAULT_LOG_DIR) for path in paths]
    if len(sessions) > _MOST_RUNS:
        raise UsageError(f"option {option}: {len(sessions)} runs; at most {_MOST_RUNS} can be compared")
    return sessions


class _Group(NamedTuple):
    runs: list[Run]
    curves: list[Curve]


def _load(paths: Sequence[Path], depth: int, *, with_curves: bool, with_inner: bool) -> _Group:
    """Load the sessions of a group, one after another, to limit memory.

    Raises UsageError if the sessions are several ranks of jobs.
    """
    from nncftools.analysis.comparison import measure_run
    from nncftools.render.sentences import when_text

    group = _Group([], [])
    ranks: set[tuple[str, int]] = set()
    for path in paths:
        session = opening.open_session(path, options.DEFAULT_LOG_DIR)
        if session.rank is not None:
            ranks.add((session.rank.job, session.rank.number))
        run = measure_run(session, str(path), depth, peak=when_text(session), with_inner=with_inner)
        group.runs.append(run)
        if with_curves:
            from nncftools.render.overlay import curve

            group.curves.append(curve(session))
    if len(ranks) > 1:
        raise UsageError(
            f"{paths[0]} and others of its group are ranks, not repeated runs: merge the ranks of each job first, "
            f"with `nncf-tools report RANKS --format session -o job.json`"
        )
    return group


def _render(
    judged: Sequence[tuple[Comparison, Sequence[Verdict]]],
    groups: Sequence[_Group],
    format_: str,
    unit: MemoryUnit,
    *,
    has_details: bool,
) -> RenderableType:
    if format_ in _HISTORY:
        from nncftools.render.summary_json import write_history

        new = [group.runs for group in groups[1:] or groups]
        return write_history(format_, dict(zip(_name_groups(new), new, strict=True)))
    if format_ == "json":
        from nncftools.render import summary_json

        return as_json(summary_json.document(judged))
    from nncftools.render import comparison_outputs

    is_many = len(judged) > 1
    if format_ == "markdown":
        parts = [comparison_outputs.many_as_markdown(judged, unit)] if is_many else []
        parts += [comparison_outputs.as_markdown(each, unit, verdicts) for each, verdicts in judged]
        return "\n".join(parts)
    from rich.console import Group
    from rich.text import Text

    has_details = has_details or format_ == PAGE
    pieces: list[RenderableType] = []
    if is_many:
        pieces += ["", *comparison_outputs.many_as_text(judged, unit)]
    if has_details or not is_many:
        for each, verdicts in judged:
            pieces += ["", comparison_outputs.as_text(each, unit, verdicts, has_details=has_details)]
    if not has_details:
        pieces.append(Text("\nAll values and operations: --details", style="dim"))
    content = Group(*pieces[1:])
    return comparison_outputs.as_page(content) if format_ == PAGE else content


def _name_groups(groups: Sequence[Sequence[Run]]) -> list[str]:
    """Return a name for each group: the command if each group has a different command, or else the file names."""
    from nncftools.render.comparison import runs_text

    commands = [{run.command for run in runs} for runs in groups]
    all_commands = set[str]().union(*commands)
    if len(all_commands) == len(groups) and all(len(names) == 1 for names in commands):
        return [runs[0].command for runs in groups]
    return [runs_text(runs) for runs in groups]


def _draw(groups: Sequence[_Group], unit: MemoryUnit, option: str, picture: Path) -> None:
    from nncftools.render import overlay
    from nncftools.render.comparison import name_runs, runs_text

    metric = overlay.common_metric([group.curves for group in groups])
    if metric is None:
        raise NncfToolsError(f"option {option}: the runs have no memory metric in common to draw")
    names: Sequence[str] = [runs_text(group.runs) for group in groups]
    if len(groups) > 2:  # noqa: PLR2004 — single runs
        names = name_runs([group.runs[0] for group in groups])
    curves = [*zip(names, (group.curves for group in groups), strict=True)]
    with destination.writing(option, picture):
        overlay.draw(curves, metric, unit, picture)
    screen.to_stderr(f"Drawn to {printable(str(picture))}\n")
