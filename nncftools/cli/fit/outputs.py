"""The result of a search in words and as a table, and its folder: the state after each run, and what is beside it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shlex
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from nncftools import intake, markdown
from nncftools.cli import destination, screen
from nncftools.cli.fit.options import FitOptions
from nncftools.cli.fit.search import OUT_OF_MEMORY, WORKED, Fit, Free, Trial, limit_text, whole_mib
from nncftools.cli.options import SeriesRequest
from nncftools.errors import NncfToolsError, SessionFileError, UsageError, memory_shortage
from nncftools.files import write_file
from nncftools.redaction import Redaction
from nncftools.render.markdown import render_table
from nncftools.render.table import Cell, Column, Fitting, Row, Table, figure_cell, size_cell, warnings
from nncftools.sampler.client import Starter
from nncftools.units import MemoryUnit, printable, seconds_text


def runs(fit: Fit, unit: MemoryUnit) -> Table:
    """Return a row for each run, the largest limit first; the limits that were found are strong."""
    columns = [Column(f"Limit, {unit}"), Column("Ended", is_text=True)]
    columns += map(Column, ("Time", "× free time", "Refaults", "Stall"))
    assert fit.free is not None
    free = Trial(limit=0, worked=True, ended=WORKED, duration_s=fit.free.duration_s, slower=1.0)
    rows = [_row(Cell("none"), free)]
    for trial in sorted(fit.trials, key=lambda trial: -trial.limit):
        is_result = trial.worked and trial.limit in {fit.works_from, fit.fast_from}
        rows.append(_row(size_cell(trial.limit, unit, is_strong=is_result), trial))
    return Table(columns=columns, rows=rows)


def _row(limit: Cell, trial: Trial) -> Row:
    slower = f"{trial.slower:.2f}" if trial.slower < _NEAR_FULL_SPEED else f"{trial.slower:.1f}"
    figures = figure_cell(trial.refaults, "B"), figure_cell(trial.stall_s, "s")
    return Row(cells=[limit, Cell(trial.ended), figure_cell(trial.duration_s, "s"), Cell(slower), *figures])


class Kind(NamedTuple):
    """A command that runs another one several times, by its names of what it writes."""

    name: str
    """Of its files: ``fit.json``, ``fit.md``, ``fit.png``."""
    result: str
    run: str
    """Of the files of a run: ``run-1.json``, ``run-1.log``."""

    @property
    def state(self) -> str:
        """The file with what is known so far."""
        return f"{self.name}.json"


class Shown(NamedTuple):
    """A result as it is shown, the answer first."""

    command: Sequence[str]
    answer: str
    sentences: Sequence[str]
    notes: Sequence[str]
    """What makes the result less sure."""
    table: Table
    to_copy: Sequence[str]
    """Lines for a shell, which are not wrapped."""
    draw: Callable[[pathlib.Path], None] | None
    """Draws the picture; None without one."""

    @property
    def text(self) -> RenderableType:
        """The result for Rich to print, without the lines for a shell."""
        said = [Text(f"{printable(sentence)}.") for sentence in self.sentences]
        return Group(Text(self.answer, style="bold"), *said, *warnings(self.notes), Text(), Fitting(self.table))

    @property
    def markdown(self) -> str:
        """The result as Markdown."""
        said = [f"- {markdown.text(sentence)}." for sentence in self.sentences]
        said += [f"- ⚠ {markdown.text(note)}" for note in self.notes]
        head = [f"**{markdown.text(self.answer)}**"], [markdown.code(shlex.join(self.command))], said
        code = ["```sh", *self.to_copy, "```"] if self.to_copy else []
        blocks = (*head, *render_table(self.table), code)
        return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


KIND = Kind("fit", "search", "run")
_LEAST_OF_DOCKER = 6
"""MiB: Docker refuses a smaller limit."""
_NEAR_FULL_SPEED = 1.5
"""A smaller multiple of the free time has two decimals."""


def of_free(free: Free, unit: MemoryUnit) -> str:
    """Return what a run without a limit took."""
    floor = f"without a limit, {WORKED}, {seconds_text(free.duration_s)}, floor {_size(free.floor, unit)}"
    return f"{floor}, comfortable {_size(free.comfortable, unit)}, peak {_size(free.peak_rss, unit)}"


def of_trial(trial: Trial, unit: MemoryUnit) -> str:
    """Return a run in one line: ``5.3 GiB, worked, 41 s``."""
    return f"{_size(trial.limit, unit)}, {trial.ended}, {seconds_text(trial.duration_s)}"


def answer(fit: Fit, unit: MemoryUnit) -> str:
    """Return the first line of the result: the smallest limit that works, or why it is not known."""
    assert fit.free is not None
    if not fit.trials:
        return f"Needs at least {_size(fit.free.floor, unit)}, by one run without a limit (no limit was tried)"
    if fit.works_from is None:
        most = max(trial.limit for trial in fit.trials)
        return f"Unknown: the command failed with each limit that was tried, up to {_size(most, unit)}"
    at_most = "" if fit.is_smallest else "at most "
    docker = f"docker run --memory {max(whole_mib(fit.works_from), _LEAST_OF_DOCKER)}m"
    return f"Smallest memory limit that works: {at_most}{limit_text(fit.works_from, unit)} ({docker})"


def sentences(fit: Fit, unit: MemoryUnit) -> Iterator[str]:
    """Yield what follows the answer: the peak without a limit, and how a limit changes the time."""
    assert fit.free is not None
    if not fit.trials:
        yield f"With {_size(fit.free.comfortable, unit)} it reads no file twice"
    yield f"Without a limit, its peak is {_size(fit.free.peak_rss, unit)}"
    if fit.fast and fit.fast_from is not None:
        size = limit_text(fit.fast_from, unit)
        yield f"From {size} on it is as fast as without a limit: {len(fit.fast)} runs were"


def notes(fit: Fit) -> Iterator[str]:
    """Yield what makes the result less sure, and what to do about it."""
    if fit.trials and not fit.is_finished:
        yield "the search is not finished; go on with --resume and a larger --runs"
    ran_out = any(trial.gave_up or trial.ended.startswith(OUT_OF_MEMORY) for trial in fit.trials)
    if fit.trials and fit.works_from is None and not ran_out:
        yield "no run was out of memory: run-*.log say why they failed; --before can remove files of earlier runs"


def with_limit(words: Sequence[str], limit: float) -> list[str]:
    """Return how to run a command with a limit, in bytes; limits are whole MiB, rounded up."""
    size = whole_mib(limit)
    of_docker = max(size, _LEAST_OF_DOCKER)
    command = " ".join(map(_quote, words))
    return [
        f"docker run --memory {of_docker}m --memory-swap {of_docker}m IMAGE {command}",
        f"systemd-run --scope -p MemoryMax={size}M -p MemorySwapMax=0M {command}",
    ]


def _quote(word: str) -> str:
    """Return a word for a line of bash: line breaks stay line breaks, but are not printed as such."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{printable(escaped)}'"


def _size(size: float, unit: MemoryUnit) -> str:
    return f"{unit.brief(size)} {unit}"


def shown(fit: Fit, unit: MemoryUnit) -> Shown:
    """Return the result as it is shown."""

    def draw(path: pathlib.Path) -> None:
        from nncftools.cli.fit import picture

        picture.draw(fit, unit, path)

    return Shown(
        command=fit.command,
        answer=answer(fit, unit),
        sentences=list(sentences(fit, unit)),
        notes=list(notes(fit)),
        table=runs(fit, unit),
        to_copy=[] if fit.works_from is None else with_limit(fit.command, fit.works_from),
        draw=draw if fit.trials else None,
    )


@contextlib.contextmanager
def folder_of_runs(request: SeriesRequest, kind: Kind = KIND) -> Iterator[pathlib.Path]:
    """Yield the folder of several runs, locked, and without earlier ones unless they go on. Raises NncfToolsError."""
    folder = results_folder(request, kind)
    busy = f"another {kind.result} writes to {str(folder)!r}; wait for its end"
    with destination.locked("--output", folder, busy):
        if not request.resume:
            remove_earlier(folder, kind)
        try:
            yield folder
        except NncfToolsError:
            if request.output is None:
                _remove_unused(folder)
            raise


def _remove_unused(folder: pathlib.Path) -> None:
    """Remove a folder that we made, if it has nothing but empty files: the first run was refused."""
    with contextlib.suppress(OSError):
        logs = list(folder.iterdir())
        if not any(log.stat().st_size for log in logs):
            for log in logs:
                log.unlink()
            folder.rmdir()
            folder.parent.rmdir()


def results_folder(request: SeriesRequest, kind: Kind = KIND) -> pathlib.Path:
    """Return the folder of the results, made in the log folder if none is given. Raises UsageError."""
    output = request.output
    if output is None:
        program = pathlib.Path((request.words or [""])[0]).name
        made = destination.new_folder(destination.DEFAULT_LOG_DIR, f"{kind.name}-{program}")
        assert made.folder is not None
        return made.folder
    if os.path.lexists(output / kind.state) and not (request.resume or request.force):
        raise UsageError(f"option --output: {str(output)!r} has a {kind.result} already; use --resume or --force")
    return output.absolute()


def remove_earlier(output: pathlib.Path, kind: Kind = KIND) -> None:
    """Remove what earlier runs wrote: more of them than the new ones, and a state to go on with."""
    if not os.path.lexists(output / kind.state):
        return
    ours = re.compile(rf"{kind.name}\.(json|md|png)|{kind.run}-[0-9]+\.(json|log)")
    with destination.writing("--output", output):
        for path in output.iterdir():
            if ours.fullmatch(path.name):
                path.unlink()


def new_search(request: FitOptions) -> Fit:
    """Return a search without runs."""
    success = request.success and Redaction().text(request.success)
    return Fit(command=shareable(request.words or ()), success=success)


def shareable(words: Iterable[str]) -> list[str]:
    """Return a command for a file: without secrets, as valid Unicode."""
    return Redaction().words([os.fsencode(word).decode(errors="backslashreplace") for word in words])


def begun_search(wanted: Fit, output: pathlib.Path) -> Fit:
    """Return a search that was begun before, or ``wanted`` if there is none. Raises UsageError."""
    fit = begun(wanted, output / KIND.state)
    if fit.success != wanted.success:
        raise UsageError(f"option --success: the earlier runs were judged by {fit.success!r}")
    return fit


class _State(Protocol):
    format: str
    version: int
    command: list[str]


_Begun = TypeVar("_Begun", bound=_State)


def begun(wanted: _Begun, file: pathlib.Path) -> _Begun:
    """Return what several runs of the same command have found so far, ``wanted`` if nothing. Raises UsageError."""
    if not os.path.lexists(file):
        return wanted
    try:
        found = msgspec.json.decode(intake.whole(file, may_wait=False), type=type(wanted))
    except SessionFileError as error:
        raise UsageError(f"option --resume: {error}") from error
    except msgspec.MsgspecError as error:
        raise UsageError(f"option --resume: {str(file)!r} cannot be read: {error}") from error
    if (found.format, found.version) != (wanted.format, wanted.version):
        raise UsageError(f"option --resume: {str(file)!r} is not the result of a search, or one of a newer version")
    if found.command != wanted.command:
        raise UsageError(f"option --resume: {str(file)!r} is of another command: {shlex.join(found.command)}")
    return found


def write_state(document: object, folder: pathlib.Path, kind: Kind = KIND) -> None:
    """Write what is known so far. Raises NncfToolsError."""
    destination.open_folder("--output", folder).close()
    file = folder / kind.state
    with destination.writing("--output", file):
        write_file(file, as_json(document))


def finish(request: SeriesRequest, document: object, result: Shown, folder: pathlib.Path, kind: Kind = KIND) -> None:
    """Write the result beside the state, and print it, also if writing failed: it took long. Raises NncfToolsError."""
    try:
        write_beside(result, folder, kind)
    finally:
        screen.to_stdout(as_json(document) if request.as_json else result.text)
        if result.to_copy and not request.as_json:
            screen.to_stdout("\n  " + "\n  ".join(result.to_copy) + "\n")
    screen.to_stderr(f"\nWritten to {printable(str(folder))}\n")


def write_beside(result: Shown, folder: pathlib.Path, kind: Kind = KIND) -> None:
    """Write Markdown and picture. Raises NncfToolsError."""
    text, picture = f"{kind.name}.md", f"{kind.name}.png"
    try:
        write_file(folder / text, result.markdown.encode())
        if result.draw is not None:
            result.draw(folder / picture)
    except Exception as error:  # matplotlib fails in many ways if its installation is broken
        reason = memory_shortage(error) or " ".join(str(getattr(error, "strerror", None) or error).split())
        files = f"{kind.state} in {str(folder)!r} is complete, {text} or {picture} is not"
        raise NncfToolsError(f"option --output: {files}: {reason}") from error


def interrupted(folder: pathlib.Path, starter: Starter) -> int:
    """Say how to go on after a signal; return the exit status."""
    how = f"--resume --output {shlex.quote(str(folder))}"
    screen.line(f"nncf-tools: interrupted; the runs that ended are kept; go on with: {how}")
    return 128 + (starter.received or signal.SIGINT)


def as_json(document: object) -> bytes:
    """Return a search as the content of its file."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
