"""The report for a terminal, readable at 80 columns and without colour."""

from __future__ import annotations

import contextlib
import datetime as dt
import signal
from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nncftools.analysis.hints import hints
from nncftools.analysis.summary import Level, cpu_s, is_between_samples, largest_process, level, short_lived, taken
from nncftools.render.cells import FIRST_COLUMN, signed, table
from nncftools.render.operations_text import models, operations
from nncftools.render.processes_text import processes
from nncftools.render.view import View, command_text, label, printable, shortened
from nncftools.units import MemoryUnit, seconds_text, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from nncftools.session.model import Exit, Session

_TITLE = 200
_NAME = 24
_OPERATION = 40
_WIDE = 1.02
_UNBOUNDED = 10_000
_HEADINGS = ("Peak", "at", "Final", "Delta", "Average", "Min")


def report(session: Session, view: View) -> RenderableType:
    """Return the report as something that a Rich console prints."""
    return Group(
        Text("PERFORMANCE REPORT", style="bold"),
        Text(printable(view.title) or shortened(command_text(session), _TITLE)),
        Text(_run(session), style="dim"),
        Text(),
        *_peak(session, view),
        _Memory(session, view),
        Text(),
        *operations(session, view),
        _facts(session, view.unit),
        *processes(session, view.unit),
        *_warnings(session, view.unit),
    )


def _run(session: Session) -> str:
    when = printable(session.start.utc.replace("T", " ")[:19]) + " UTC"
    machine = printable(session.host.name) or "unknown host"
    return f"{when} on {machine}, {seconds_text(session.duration_s)}, {_ending(session)}"


def _ending(session: Session) -> str:
    if session.exit is None:
        return f"attached to pid {session.attached_to}" if session.attached_to is not None else "exit status unknown"
    return exit_text(session.exit)


def _peak(session: Session, view: View) -> Iterator[RenderableType]:
    """Say how much, when, and during which operation, when that is to be shown."""
    peak = session.peaks.get("rss")
    unit = view.unit
    if view.from_zero or "rss" not in view.metrics or peak is None or peak.sampled is None or peak.at_s is None:
        return
    if is_between_samples(peak):
        yield Text(
            f"Peak memory  RSS {unit.label(peak.low)} between two samples (kernel's high-water mark)", style="bold"
        )
        yield Text()
        return
    text = Text(f"Peak memory  RSS {unit.label(peak.low)}", style="bold")
    text.append(f" at {_clock(session, peak.at_s)}{seconds_text(peak.at_s)})", style="not bold")
    during = [phase for phase in session.phases if phase.has_peak]
    if during:
        inner = max(during, key=lambda phase: phase.depth)
        text.append(f"  during {shortened(printable(inner.name), _OPERATION)}")
    yield text
    yield Text()


def _clock(session: Session, at_s: float) -> str:
    """Return a moment as the time of day (UTC, as all of the report), and an opening bracket."""
    with contextlib.suppress(ValueError, OverflowError):
        moment = dt.datetime.fromisoformat(session.start.utc) + dt.timedelta(seconds=at_s)
        return f"{moment:%H:%M:%S} ("
    return "("


def exit_text(exit_: Exit) -> str:
    """Return how a process ended: ``"exit status 0"``, ``"killed by SIGKILL"``."""
    if exit_.signal is None:
        return f"exit status {'unknown' if exit_.code is None else exit_.code}"
    try:
        return f"killed by {signal.Signals(exit_.signal).name}"
    except ValueError:
        return f"killed by signal {exit_.signal}"


class _Memory:
    """The table of memory: a row for each metric where that fits, else a block for each."""

    def __init__(self, session: Session, view: View) -> None:
        self._view = view
        self._levels = [(label(name), level(session.samples, name, session.peaks)) for name in view.metrics]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = self._rows()
        unbounded = options.update(max_width=_UNBOUNDED)
        yield rows if console.measure(rows, options=unbounded).maximum <= options.max_width else self._blocks()

    def _rows(self) -> Table:
        view = self._view
        rows = _table(view)
        for heading in _HEADINGS:
            rows.add_column(heading, justify="right", min_width=7, no_wrap=True)
        for name, absolute in self._levels:
            if not view.from_zero:
                rows.add_row(name, *_cells(absolute, view.unit))
            rows.add_row(
                f"{name} from zero" if view.from_zero else "  from zero",
                *_cells(absolute.from_zero(), view.unit),
                style="" if view.from_zero else "dim",
            )
        return rows

    def _blocks(self) -> Table:
        view = self._view
        blocks = _table(view)
        if not view.from_zero:
            blocks.add_column("absolute", justify="right", no_wrap=True)
        blocks.add_column("from zero", justify="right", no_wrap=True)
        for name, absolute in self._levels:
            shown = [absolute.from_zero()] if view.from_zero else [absolute, absolute.from_zero()]
            blocks.add_row(name)
            for heading, *cells in zip(_HEADINGS, *(_cells(of, view.unit) for of in shown), strict=True):
                blocks.add_row(f"  {heading}", *cells)
        return blocks


def _table(view: View) -> Table:
    rows = table()
    rows.add_column(f"Memory, {view.unit}", min_width=FIRST_COLUMN, no_wrap=True)
    return rows


def _cells(of: Level, unit: MemoryUnit) -> Iterator[Text]:
    yield Text(unit.text(of.peak), style="bold")
    yield Text(seconds_text(of.at_s))
    yield Text(unit.text(of.final))
    yield Text(signed(of.delta, unit))
    yield Text(unit.text(of.average))
    yield Text(unit.text(of.lowest))


def _facts(session: Session, unit: MemoryUnit) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(min_width=FIRST_COLUMN, no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in (
        *_bracket(session, unit),
        ("CPU", _cpu(session)),
        ("Storage", _bytes(session, "read_bytes", "write_bytes")),
        ("System calls", _bytes(session, "read_chars", "write_chars")),
        ("Processes", _processes(session, unit)),
        *models(session),
        ("Sampler", _sampler(session)),
    ):
        table.add_row(name, Text(text))
    return table


def _bracket(session: Session, unit: MemoryUnit) -> Iterator[tuple[str, str]]:
    """Say how far up the real peak can have been, where the samples leave that open."""
    peak = session.peaks.get("rss")
    if peak is not None and peak.low and peak.high and peak.high > peak.low * _WIDE:
        yield "RSS peak", f"between {unit.label(peak.low)} and {unit.label(peak.high)} (high-water marks together)"


def _cpu(session: Session) -> str:
    total = cpu_s(session)
    if total is None:
        return "unknown"
    share = f", {total / session.duration_s:.0%} of one core on average" if session.duration_s > 0 else ""
    user, system = session.totals["cpu_user"], session.totals["cpu_system"]
    return f"{seconds_text(total)} (user {seconds_text(user)}, system {seconds_text(system)}){share}"


def _bytes(session: Session, read: str, written: str) -> str:
    read_bytes, written_bytes = session.totals.get(read), session.totals.get(written)
    if read_bytes is None and written_bytes is None:
        return "unknown"
    return f"{size_text(read_bytes)} read, {size_text(written_bytes)} written"


def _processes(session: Session, unit: MemoryUnit) -> str:
    text = f"{len(session.processes):,}"
    largest = largest_process(session)
    if largest is not None:
        name = shortened(printable(largest.process.name), _NAME)
        kind = "kernel's high-water mark" if largest.by_kernel else "largest sample"
        text += f", the largest: {name}, {unit.label(largest.size)} ({kind})"
    short = short_lived(session)
    if short and len(session.processes) > 1:
        exact = session.sampler.exit_accounting == "complete"
        text += f"; {short:,} seen in fewer than 2 samples: sums may miss them"
        text += ", their own peaks are exact" if exact else ""
    return text


def _sampler(session: Session) -> str:
    facts = session.sampler
    achieved = f"{facts.achieved_interval_s:.4g} s" if facts.achieved_interval_s is not None else "–"
    asked = f"{facts.interval_s:g} s" if facts.interval_s is not None else "–"
    return (
        f"{taken(session):,} samples, interval {achieved} (asked {asked}), "
        f"longest gap {seconds_text(facts.longest_gap_s)}, {facts.missed or 0:,} missed; "
        f"its own cost: {seconds_text(facts.cpu_s)} CPU, {size_text(facts.peak_rss)}"
    )


def _warnings(session: Session, unit: MemoryUnit) -> Iterator[RenderableType]:
    found = hints(session, unit)
    if found:
        yield Text()
    for text in found:
        yield Padding(Text(f"! {printable(text)}", style="yellow"), 0)
