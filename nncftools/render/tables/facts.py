"""What a report says of a run in words: how it ended, its peak, CPU, I/O, processes and the sampler's own cost."""

from __future__ import annotations

import contextlib
import datetime as dt
import signal
from typing import TYPE_CHECKING

from nncftools import metrics
from nncftools.analysis.summary import cpu_s, is_between_samples, largest_process, short_lived, taken
from nncftools.render.tables.models import models
from nncftools.render.tables.table import Column, Output, Row, Table, Words
from nncftools.text import printable, shortened
from nncftools.units import UNKNOWN, seconds_text, size_text, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nncftools.render.view import View
    from nncftools.session.model import Exit
    from nncftools.session.session import Session
    from nncftools.units import MemoryUnit

_NAME = 24
_OPERATION = 40
_WIDE = 1.02
_OURS = {"", "proc", "psutil"}


def run(session: Session) -> str:
    """Return when and where it was, how long it took and how it ended."""
    utc = session.start.utc
    when = "unknown time" if utc is None else printable(utc.replace("T", " ")[:19]) + " UTC"
    machine = printable(session.host.name) or "unknown host"
    if session.ranks:
        machine = f"{machine}, {len(session.ranks)} {'rank' if len(session.ranks) == 1 else 'ranks'}"
    elif session.rank is not None:
        of = "" if session.rank.size is None else f" of {session.rank.size}"
        machine = f"{machine}, rank {session.rank.number}{of}"
    return f"{when} on {machine}, {seconds_text(session.duration_s)}, {_ending(session)}"


def _ending(session: Session) -> str:
    if session.exit is None:
        return f"attached to pid {session.attached_to}" if session.attached_to is not None else "exit status unknown"
    return exit_text(session.exit)


def exit_text(exit_: Exit) -> str:
    """Return how a process ended: ``"exit status 0"``, ``"killed by SIGKILL"``."""
    if exit_.signal is None:
        return f"exit status {'unknown' if exit_.code is None else exit_.code}"
    try:
        return f"killed by {signal.Signals(exit_.signal).name}"
    except ValueError:
        return f"killed by signal {exit_.signal}"


def peak(session: Session, view: View) -> tuple[str, str, str] | None:
    """Return how much RSS was held at most, when, and during which operation; None when that is not to be shown."""
    found = session.peaks.get("rss")
    if view.from_zero or "rss" not in view.metrics or found is None or found.sampled is None or found.at_s is None:
        return None
    most = f"RSS {view.unit.label(found.low)}"
    if is_between_samples(found):
        return f"{most} between two samples (kernel's high-water mark)", "", ""
    with_peak = [operation for operation in session.operations if operation.has_peak]
    during = max(with_peak, key=lambda operation: operation.depth, default=None)
    name = "" if during is None else f"during {shortened(printable(during.name), _OPERATION)}"
    return most, f"at {_moment(session, found.at_s)}", name


def _moment(session: Session, at_s: float) -> str:
    """Return the time of day (UTC, as all of the report) where it is known, and the seconds from the start."""
    seconds = seconds_text(at_s)
    with contextlib.suppress(ValueError, OverflowError):
        moment = dt.datetime.fromisoformat(session.start.utc or "") + dt.timedelta(seconds=at_s)
        return f"{moment:%H:%M:%S} ({seconds})"
    return seconds


def facts(session: Session, unit: MemoryUnit) -> Table:
    """Return what else is known of the run: headings and texts; Markdown begins with when it was."""
    when = Row(cells=(Words("When"), Words(run(session))), output=Output.MARKDOWN)
    rows = [Row(cells=(Words(name), Words(text))) for name, text in _facts(session, unit)]
    return Table(columns=[Column("Run", is_text=True), Column("", is_text=True)], rows=[when, *rows])


def _facts(session: Session, unit: MemoryUnit) -> Iterator[tuple[str, str]]:
    yield from _bracket(session, unit)
    yield "CPU", _cpu(session)
    yield from _counters(session)
    yield "Processes", _processes(session, unit)
    yield from models(session)
    yield "Sampler", _sampler(session)


def _bracket(session: Session, unit: MemoryUnit) -> Iterator[tuple[str, str]]:
    """Say how far up the real peak can have been, where the samples leave that open."""
    found = session.peaks.get("rss")
    if found is not None and found.low and found.high and found.high > found.low * _WIDE:
        between = f"between {unit.label(found.low)} and {unit.label(found.high)}"
        yield "RSS peak", f"{between} (high-water marks together)"


def _cpu(session: Session) -> str:
    total = cpu_s(session)
    if total is None:
        return "unknown"
    share = f", {total / session.duration_s:.0%} of one core on average" if session.duration_s > 0 else ""
    user, system = session.totals.get("cpu_user"), session.totals.get("cpu_system")
    parts = "" if user is None else f" (user {seconds_text(user)}, system {seconds_text(system)})"
    return f"{seconds_text(total)}{parts}{share}"


def _counters(session: Session) -> Iterator[tuple[str, str]]:
    """Say what was read and written, and what else was counted of operations."""
    families: dict[str, list[tuple[str, float | None, str]]] = {}
    for column in metrics.of_operations(session.totals):
        metric = metrics.of(column)
        if metric is not None and metric.is_counter:
            name = metric.label if metric.family is None else metric.family[0]
            families.setdefault(name, []).append((metric.action, session.totals.get(column), metric.unit))
    for name, parts in families.items():
        if all(total is None for _, total, _ in parts):
            yield name, "unknown"
        else:
            yield name, ", ".join(f"{text_of(total, unit)} {action}".rstrip() for action, total, unit in parts)


def _processes(session: Session, unit: MemoryUnit) -> str:
    if not session.processes:
        return "unknown"
    text = f"{len(session.processes):,}"
    largest = largest_process(session)
    if largest is not None:
        name = shortened(printable(largest.process.name), _NAME) or "one without a name"
        kind = "kernel's high-water mark" if largest.by_kernel else "largest sample"
        text += f", the largest: {name}, {unit.label(largest.size)} ({kind})"
    short = short_lived(session)
    if short and len(session.processes) > 1:
        exact = session.sampler.exit_accounting == "complete"
        text += f"; {short:,} seen in fewer than 2 samples: sums may miss them"
        text += ", their own peaks are exact" if exact else ""
    return text


def _sampler(session: Session) -> str:
    of = session.sampler
    achieved = f"{of.achieved_interval_s:.4g} s" if of.achieved_interval_s is not None else UNKNOWN
    by = "" if of.source in _OURS else f" by {printable(of.source)}"
    asked = "" if of.interval_s is None else f" (asked {of.interval_s:g} s)"
    text = f"{taken(session):,} samples{by}, interval {achieved}{asked}, longest gap {seconds_text(of.longest_gap_s)}"
    if of.missed is not None:
        text += f", {of.missed:,} missed"
    if of.cpu_s is None and of.peak_rss is None:
        return f"{text}; its own cost is unknown"
    return f"{text}; its own cost: {seconds_text(of.cpu_s)} CPU, {size_text(of.peak_rss)}"
