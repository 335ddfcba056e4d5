"""The result of a search in words and as a table, for a terminal and for the files beside ``fit.json``."""

from __future__ import annotations

import math
import pathlib
import shlex
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from nncftools.cli.fit.search import WORKED, Fit, Free, Trial
from nncftools.files import replacing
from nncftools.render import markdown as render_markdown
from nncftools.render.table import Cell, Column, Fitting, Row, Table, figure_cell, size_cell, warnings
from nncftools.units import MemoryUnit, printable, seconds_text


def runs(fit: Fit, unit: MemoryUnit) -> Table:
    """Return a row for each run, the largest limit first; the limits that were found are strong."""
    texts = [Column(f"Limit, {unit}"), Column("Ended", is_text=True)]
    columns = [*texts, *map(Column, ("Time", "× free time", "Refaults", "Stall"))]
    rows = []
    if fit.free is not None:
        time = figure_cell(fit.free.duration_s, "s")
        rows.append([Cell("none"), Cell(WORKED), time, Cell("1.0"), figure_cell(None, "B"), figure_cell(None, "s")])
    for trial in sorted(fit.trials, key=lambda trial: -trial.limit):
        is_result = trial.worked and trial.limit in {fit.works_from, fit.fast_from}
        limit = size_cell(trial.limit, unit, is_strong=is_result)
        ended = Cell(f"{trial.ended}{', warm cache' if trial.is_warm else ''}")
        time, slower = figure_cell(trial.duration_s, "s"), Cell(f"{trial.slower:.1f}")
        rows.append([limit, ended, time, slower, figure_cell(trial.refaults, "B"), figure_cell(trial.stall_s, "s")])
    return Table(columns=columns, rows=[Row(cells=cells) for cells in rows])


FILES = MARKDOWN, PICTURE = "fit.md", "fit.png"
_MIB = 1 << 20
_LEAST_OF_DOCKER = 6
"""MiB: Docker refuses a smaller limit."""


def of_free(free: Free, unit: MemoryUnit) -> str:
    """Return what a run without a limit took."""
    sizes = f"floor {_size(free.floor, unit)}, comfortable {_size(free.comfortable, unit)}"
    return f"without a limit, {WORKED}, {seconds_text(free.duration_s)}, {sizes}, peak {_size(free.peak_rss, unit)}"


def of_trial(trial: Trial, unit: MemoryUnit) -> str:
    """Return a run in one line: ``5.3 GiB, worked, 41 s, 2.1 × slower``."""
    parts = [_size(trial.limit, unit), trial.ended, seconds_text(trial.duration_s)]
    if trial.worked:
        parts.append(_pace(trial))
    if trial.is_warm:
        parts.append("warm cache")
    return ", ".join(parts)


def result_sentence(fit: Fit, unit: MemoryUnit) -> str:
    """Return the result in one sentence, and what was not found."""
    if fit.free is None:
        return "no run has ended"
    free = f"its free peak is {_size(fit.free.peak_rss, unit)}"
    if not fit.trials:
        needs = f"needs at least {_size(fit.free.floor, unit)}"
        return f"{needs}; {_size(fit.free.comfortable, unit)} to keep its files in memory; {free} (no limit was tried)"
    return "; ".join([*_found(fit, unit), free])


def _found(fit: Fit, unit: MemoryUnit) -> Iterator[str]:
    works = next((trial for trial in fit.trials if trial.limit == fit.works_from and trial.worked), None)
    most = _size(max(trial.limit for trial in fit.trials), unit)
    if works is None:
        yield f"worked with no limit that was tried, up to {most}"
    elif fit.fast_from == works.limit:
        yield f"works from {_size(works.limit, unit)}, at full speed"
    else:
        yield f"works from {_size(works.limit, unit)} ({_pace(works)})"
        if fit.fast_from is None:
            yield f"full speed was not reached with any limit that was tried, up to {most}"
        else:
            yield f"full speed from {_size(fit.fast_from, unit)}"


def notes(fit: Fit) -> Iterator[str]:
    """Yield what makes the result less sure."""
    if fit.trials and not fit.is_finished:
        may = "a larger limit may be enough" if fit.works_from is None else "the limits may be smaller"
        yield f"the search is not finished: with more runs, {may}"
    warm = [trial for trial in fit.trials if trial.is_warm]
    if warm:
        yield f"warm cache: {len(warm)} of {len(fit.trials)} runs found files in memory; without, they may need more"


def limit_commands(fit: Fit) -> list[str]:
    """Return how to run the command with the smallest limit that works; limits are whole MiB, rounded up."""
    if fit.works_from is None:
        return []
    size = math.ceil(fit.works_from / _MIB)
    with_swap = size + math.ceil(fit.swap / _MIB)
    command = " ".join(_to_copy(word) for word in fit.command)
    of_docker = max(size, _LEAST_OF_DOCKER)
    scope = f"-p MemoryMax={size}M -p MemorySwapMax={with_swap - size}M"
    return [
        f"docker run --memory {of_docker}m --memory-swap {of_docker + with_swap - size}m IMAGE {command}",
        f"systemd-run --scope {scope} {command}",
    ]


def _to_copy(word: str) -> str:
    """Return a word for a line of bash: line breaks stay line breaks, but are not printed as such."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{printable(escaped)}'"


def _pace(trial: Trial) -> str:
    return f"{trial.slower:.1f} × slower" if trial.slower >= 1.05 else "as fast as without a limit"  # noqa: PLR2004 — one decimal


def _size(size: float, unit: MemoryUnit) -> str:
    return f"{unit.brief(size)} {unit}"


def text(fit: Fit, unit: MemoryUnit) -> RenderableType:
    """Return the result for Rich to print."""
    sentence = result_sentence(fit, unit)
    result = Text(f"{sentence[:1].upper()}{sentence[1:]}.", style="bold")
    return Group(Fitting(runs(fit, unit)), Text(), result, *warnings(notes(fit)))


def commands(fit: Fit) -> str:
    """Return lines to copy, which are not wrapped; empty when no limit was found."""
    return "".join(f"  {line}\n" for line in limit_commands(fit))


def markdown(fit: Fit, unit: MemoryUnit) -> str:
    """Return the result as GitHub's Markdown."""
    sentence, to_copy = result_sentence(fit, unit), limit_commands(fit)
    result = f"**{render_markdown.text(sentence[:1].upper() + sentence[1:])}.**"
    blocks = [[result], *render_markdown.painted(runs(fit, unit))]
    if to_copy:
        blocks.append(["```sh", *to_copy, "```"])
    blocks.append([f"- ⚠ {render_markdown.text(note)}" for note in notes(fit)])
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def write(fit: Fit, unit: MemoryUnit, folder: pathlib.Path) -> None:
    """Write Markdown and picture. Raises OSError."""
    with replacing(folder / MARKDOWN) as beside:
        beside.write_text(markdown(fit, unit), encoding="utf-8")
    if fit.trials:
        from nncftools.cli.fit import picture

        picture.draw(fit, unit, folder / PICTURE)
