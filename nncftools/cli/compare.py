"""``nncf-tools compare``: compares runs, or groups of repeated runs, with gates for scripts."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from glob import glob
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


_OF_NEW = ("bencher", "benchmark-action")
"""Formats of services that keep a history: they hold only the figures of NEW."""
FORMATS = (TEXT, "markdown", "json", PAGE, *_OF_NEW)
_MOST_CURVES = 14
_MOST_RUNS = 100
"""In a group; with more, the exact rank test takes seconds per figure."""


def compare(  # noqa: PLR0913 — one parameter per option
    sessions: Annotated[
        Files,
        argument(
            "BASE NEW",
            "Sessions, journals, folders that hold one, latest, latest~1. Each NEW is compared with BASE.",
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
        File, option("--output -o FILE", WRITE, "Write to this file, in the format of its ending.")
    ] = None,
    plot: Annotated[
        File, option("--plot -p FILE", WRITE, "Also draw memory over time of all runs: .png, .svg or .pdf.")
    ] = None,
    fail_if: Annotated[Texts, option("--fail-if GATE", SHOW, "Exit with status 3 if GATE is true; repeatable.")] = None,
    unit: options.Unit = MemoryUnit.MiB,
    depth: options.Depth = 1,
    details: Annotated[
        bool, option("--details", SHOW, "As text, show all figures and operations; Markdown folds them.")
    ] = False,
    force: options.Force = False,
) -> int:
    """Compare what runs cost: peaks, time, CPU, I/O, each operation.

    \b
    Examples:
      nncf-tools compare latest~1 latest
      nncf-tools compare before.json after.json
      nncf-tools compare fp32.json int8.json int4.json --plot overlay.png
      nncf-tools compare before.json after.json -o table.md
      nncf-tools compare before.json after.json -o page.html
      nncf-tools compare a.json b.json --fail-if 'peak_rss>+5%'
      nncf-tools compare a.json b.json --fail-if 'duration@Export>90s'
      nncf-tools compare --base 'old-*.json' --new 'new-*.json'
      nncf-tools compare --new 'run-*.json' --format bencher -o bencher.json

    A gate is METRIC[@OPERATION or @FUNCTION], > or <, a number and a unit (%, s,
    B, KiB, MiB, GiB). With a sign (+5%, +100MiB, -10%) it limits the change from
    BASE to NEW, without one the figure of NEW. Metrics: peak_ and the name of a
    memory metric (peak_rss), duration, cpu, model_size, read_bytes, write_bytes,
    read_chars, write_chars.

    The exit status is 3 if a gate fails.
    """
    from nncftools.analysis import comparison, gates

    format_ = options.choose_format(format_, output, FORMATS)
    with options.naming_option("--fail-if"):
        limits = [gates.parsed(text) for text in fail_if or []]
    groups = _groups(sessions or [], base, new, least=1 if format_ in _OF_NEW else 2)
    if limits and len(groups) == 1:
        raise UsageError("option --fail-if: a gate needs BASE and NEW")
    read = opening.files_read([path for group in groups for path in group], options.DEFAULT_LOG_DIR)
    pictures = options.check_outputs({"--output": output, "--plot": plot}, read, force=force)
    if format_ != PICTURE:
        output = pictures.pop("--output", None)
    if pictures and len(groups) > _MOST_CURVES:
        raise UsageError(f"option {min(pictures)}: {len(groups)} sessions; a picture can show at most {_MOST_CURVES}")
    loaded = [_loaded(group, depth, with_curves=bool(pictures), with_inner=bool(limits)) for group in groups]
    runs = [group.runs for group in loaded]
    compared = [comparison.compared(runs[0], group) for group in runs[1:]]
    with options.naming_option("--fail-if"):
        judged = [(each, [gates.judged(limit, each) for limit in limits]) for each in compared]
    for name, picture in pictures.items():
        _draw(loaded, unit, name, picture)
    if format_ != PICTURE:
        content = _rendered(judged, loaded, format_, unit, has_details=details)
        if output is None:
            screen.to_stdout(content)
        else:
            destination.write(output, content)
            screen.to_stderr(f"Written to {printable(str(output))}\n")
    for each, verdicts in judged:
        for verdict in verdicts:
            run = f"{each.new[0].title}: " if len(judged) > 1 else ""
            result = "passed" if verdict.passed else "failed"
            text = f"nncf-tools: gate {result}: {run}{verdict.gate.text}: {verdict.measured}"
            screen.line(text, "" if verdict.passed else screen.RED)
    failed = any(not verdict.passed for _, verdicts in judged for verdict in verdicts)
    return 3 if failed else 0


def _groups(
    sessions: Sequence[pathlib.Path], base: Sequence[str] | None, new: Sequence[str] | None, *, least: int
) -> list[list[pathlib.Path]]:
    """Return the files of BASE and of each NEW; if ``least`` is 1, NEW alone will do. Raises UsageError."""
    if base is None and new is None:
        if len(sessions) < least:
            expected = "two sessions expected, such as `nncf-tools compare latest~1 latest`, or --base and --new"
            raise UsageError(f"arguments BASE NEW: {expected}")
        groups = [[destination.find_recording(path, options.DEFAULT_LOG_DIR)] for path in sessions]
    else:
        if sessions:
            words = f"{str(sessions[0])!r} found together with --base or --new"
            raise UsageError(f"argument BASE: {words}; quote patterns, as in --base 'a*.json'")
        if new is None or (base is None and least > 1):
            raise UsageError("options --base and --new: both expected")
        groups = [*([] if base is None else [_matched("--base", base)]), _matched("--new", new)]
    twice = destination.find_duplicate(path for group in groups for path in group)
    if twice is not None:
        raise UsageError(f"{str(twice)!r} is given twice; name different runs")
    return groups


def _matched(option: str, patterns: Sequence[str]) -> list[pathlib.Path]:
    """Return the sessions that patterns match, sorted by name; an existing file matches only itself."""
    sessions = []
    for pattern in patterns:
        path = pathlib.Path(pattern)
        names = [pattern] if path.exists() else sorted(glob(pattern, recursive=True))  # noqa: PTH207 — absolute ones, too
        matched = [pathlib.Path(name) for name in names if not name.endswith(SIDECARS)]
        if not matched:
            raise UsageError(f"option {option}: nothing matches {pattern!r}")
        sessions += [destination.find_recording(path, options.DEFAULT_LOG_DIR) for path in matched]
    if len(sessions) > _MOST_RUNS:
        raise UsageError(f"option {option}: {len(sessions)} runs; at most {_MOST_RUNS} can be compared")
    return sessions


class _Group(NamedTuple):
    """What the comparison needs of the sessions of a group."""

    runs: list[Run]
    curves: list[Curve]


def _loaded(paths: Sequence[pathlib.Path], depth: int, *, with_curves: bool, with_inner: bool) -> _Group:
    """Load a group, one session at a time, to bound the memory. Raises UsageError for ranks of a job."""
    from nncftools.analysis.comparison import measured
    from nncftools.render.sentences import when_text

    group = _Group([], [])
    ranks: set[tuple[str, int]] = set()
    for path in paths:
        session = opening.open_session(path, options.DEFAULT_LOG_DIR)
        if session.rank is not None:
            ranks.add((session.rank.job, session.rank.number))
        group.runs.append(measured(session, str(path), depth, peak=when_text(session), with_inner=with_inner))
        if with_curves:
            from nncftools.render.overlay import curve

            group.curves.append(curve(session))
    if len(ranks) > 1:
        raise UsageError(
            f"{paths[0]} and others of its group are ranks, not repeated runs: merge the ranks of each job first, "
            f"with `nncf-tools report RANKS --format session -o job.json`"
        )
    return group


def _rendered(
    judged: Sequence[tuple[Comparison, Sequence[Verdict]]],
    groups: Sequence[_Group],
    format_: str,
    unit: MemoryUnit,
    *,
    has_details: bool,
) -> RenderableType:
    if format_ in _OF_NEW:
        from nncftools.render.benchmarks import write_history

        new = groups[1:] or groups
        return write_history(format_, {name: group.runs for name, group in zip(_names(new), new, strict=True)})
    if format_ == "json":
        from nncftools.render import summary_json

        return as_json(summary_json.document(judged))
    from nncftools.render import comparison_outputs

    if format_ == "markdown":
        return "\n".join(comparison_outputs.as_markdown(each, unit, verdicts) for each, verdicts in judged)
    from rich.console import Group
    from rich.text import Text

    has_details = has_details or format_ == PAGE
    texts = [comparison_outputs.as_text(each, unit, verdicts, has_details=has_details) for each, verdicts in judged]
    pieces = [piece for text in texts for piece in ("", text)][1:]
    whole = Group(*pieces if has_details else (*pieces, Text("\nAll figures and operations: --details", style="dim")))
    return comparison_outputs.as_page(whole) if format_ == PAGE else whole


def _names(groups: Sequence[_Group]) -> list[str]:
    """Return a name for each group: the command, or the files unless each group ran another command."""
    from nncftools.render.comparison import runs_text

    commands = [{run.command for run in group.runs} for group in groups]
    distinct = sum(map(len, commands)) == len(set[str]().union(*commands)) == len(groups)
    return [group.runs[0].command if distinct else runs_text(group.runs) for group in groups]


def _draw(groups: Sequence[_Group], unit: MemoryUnit, option: str, picture: pathlib.Path) -> None:
    from nncftools.render import overlay
    from nncftools.render.comparison import runs_text

    metric = overlay.common_metric([group.curves for group in groups])
    if metric is None:
        raise NncfToolsError(f"option {option}: the runs have no memory metric in common to draw")
    with destination.writing(option, picture):
        overlay.draw([(runs_text(group.runs), group.curves) for group in groups], metric, unit, picture)
    screen.to_stderr(f"Drawn to {printable(str(picture))}\n")
