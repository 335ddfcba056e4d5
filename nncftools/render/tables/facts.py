"""The sentences of a report: how the run ended, its peak, CPU, I/O, processes, models and the sampler's own cost."""

from __future__ import annotations

import contextlib
import datetime as dt
from typing import TYPE_CHECKING

from nncftools import metrics
from nncftools.analysis.peak_text import span_text, where_text
from nncftools.analysis.summary import (
    cores_average,
    cpu_s,
    failed_in_order,
    is_between_samples,
    largest_process,
    pss_near_peak,
    short_lived,
    taken,
)
from nncftools.backports import moment_of
from nncftools.limits.needs import needs
from nncftools.render.tables.table import Cell, Column, Output, Row, Table
from nncftools.units import UNKNOWN, cores_text, printable, seconds_text, shortened, size_text, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nncftools.render.view import View
    from nncftools.session.model import SavedModel
    from nncftools.session.session import Session
    from nncftools.units import MemoryUnit

_PROCESS = 24
"""The length of names, in characters."""
_WIDE = 1.02
"""A bracket of the peak is named from this ratio of its ends on."""
_SETTINGS = ("mode", "preset", "ratio", "group_size", "backup_mode", "subset_size", "model_type", "target_device")


def run(session: Session) -> str:
    """Return when and where the run was, how long it took and how it ended."""
    utc = session.start.utc
    when = "unknown time" if utc is None else printable(utc.replace("T", " ")[:19]) + " UTC"
    machine = printable(session.host.name) or "unknown host"
    if session.ranks:
        machine = f"{machine}, {len(session.ranks)} {'rank' if len(session.ranks) == 1 else 'ranks'}"
    elif session.rank is not None:
        of = "" if session.rank.size is None else f" of {session.rank.size}"
        machine = f"{machine}, rank {session.rank.number}{of}"
    if session.exit is not None:
        first = next((run for run in failed_in_order(session.ranks) if run.exit is not None), None)
        ending = session.exit.text if first is None or first.exit is None else f"{first.name}: {first.exit.text}"
    else:
        ending = "exit status unknown" if session.attached_to is None else f"attached to pid {session.attached_to}"
    return f"{when} on {machine}, {seconds_text(session.duration_s)}, {ending}"


def peak(session: Session, view: View) -> tuple[str, str, str] | None:
    """Return the peak of RSS, its time and its operation; None when the view does not show it."""
    found = session.peaks.get("rss")
    if view.from_zero or "rss" not in view.metrics or found is None or found.low is None:
        return None
    most = f"RSS {view.unit.label(found.low)}"
    place = session.peak_place
    if place is None:
        return f"{most} at an unknown moment (kernel's high-water mark)", "", ""
    seconds = span_text((place.from_s, place.to_s))
    if is_between_samples(found):
        seconds += ", between two samples"
    return most, f"at {_moment(session, place.from_s, seconds)}", where_text(session)


def _moment(session: Session, at_s: float, seconds: str) -> str:
    """Return the time of day (UTC, as in the whole report) if it is known, and the seconds from the start."""
    with contextlib.suppress(ValueError, OverflowError):
        moment = moment_of(session.start.utc or "") + dt.timedelta(seconds=at_s)
        return f"{moment:%H:%M:%S} ({seconds})"
    return seconds


def facts(session: Session, unit: MemoryUnit) -> Table:
    """Return the other facts of the run as headings and texts; in Markdown, the first one is the time of the run."""
    when = Row(cells=(Cell("When"), Cell(run(session))), output=Output.MARKDOWN)
    rows = [Row(cells=(Cell(name), Cell(text))) for name, text in _facts(session, unit)]
    return Table(columns=[Column("Run", is_text=True), Column("", is_text=True)], rows=[when, *rows])


def _facts(session: Session, unit: MemoryUnit) -> Iterator[tuple[str, str]]:
    found = session.peaks.get("rss")
    if found is not None and found.low and found.high and found.high > found.low * _WIDE:
        between = f"between {unit.label(found.low)} and {unit.label(found.high)}"
        yield "RSS peak", f"{between} (high-water marks together)"
    needed = needs(session)
    if needed is not None:
        yield "Needs", needed.text(unit)
    yield from _pss(session, unit)
    yield "CPU", _cpu(session)
    yield from _counters(session)
    yield "Processes", _processes(session, unit)
    for model in session.models:
        if compression := _compression(model):
            yield "Compressed", printable(f"{model.path.rpartition('/')[2]}: {compression}")
    yield "Sampler", _sampler(session)


def _pss(session: Session, unit: MemoryUnit) -> Iterator[tuple[str, str]]:
    """Yield how much of PSS is known: it is counted seldom, because that takes long."""
    if "pss" not in session.samples:
        return
    known = session.samples.figures("pss").known
    text = f"known in {known:,} of {len(session.samples):,} samples"
    near = pss_near_peak(session)
    if near is not None:
        text += f", the nearest {seconds_text(near.distance_s)} from the RSS peak"
    peak = session.peaks.get("pss")
    if peak is not None and peak.low and peak.high:
        text += f"; its peak is between {unit.label(peak.low)} and {unit.label(peak.high)}"
    yield "PSS", text


def _cpu(session: Session) -> str:
    total = cpu_s(session)
    if total is None:
        return "unknown"
    cores = cores_average(session)
    busy = "" if cores is None else f", {cores_text(cores)} on average"
    user, system = session.totals.get("cpu_user"), session.totals.get("cpu_system")
    parts = "" if user is None else f" (user {seconds_text(user)}, system {seconds_text(system)})"
    return f"{seconds_text(total)}{parts}{busy}"


def _counters(session: Session) -> Iterator[tuple[str, str]]:
    """Yield the totals of the counters that operations have, one text for each family."""
    families: dict[str, list[tuple[str, float | None, str]]] = {}
    for column in metrics.of_operations(session.totals):
        metric = metrics.of(column)
        if metric is not None and metric.is_counter:
            name = metric.label if metric.family is None else f"{metric.family[0]} {metric.device}".rstrip()
            families.setdefault(name, []).append((metric.action, session.totals.get(column), metric.unit))
    for name, parts in families.items():
        texts = [f"{text_of(total, unit)} {action}".rstrip() for action, total, unit in parts]
        yield name, "unknown" if all(total is None for _, total, _ in parts) else ", ".join(texts)


def _processes(session: Session, unit: MemoryUnit) -> str:
    if not session.processes:
        return "unknown"
    text = f"{len(session.processes):,}"
    largest = largest_process(session)
    if largest is not None:
        name = shortened(printable(largest.process.name), _PROCESS) or "one without a name"
        kind = "kernel's high-water mark" if largest.by_kernel else "largest sample"
        text += f", the largest: {name}, {unit.label(largest.size)} ({kind})"
    short = short_lived(session)
    if short and len(session.processes) > 1:
        exact = session.sampler.exit_accounting == "complete"
        text += f"; {short:,} seen in fewer than 2 samples: sums may miss them"
        text += ", their own peaks are exact" if exact else ""
    return text


def _compression(model: SavedModel) -> str:
    """Return algorithm, settings and the enabled refinements: ``weight_compression, mode int4_sym, awq``."""
    places = [(place.split("/"), value) for place, value in model.facts.items()]
    settings = [(*parts[1:], value) for parts, value in places if parts[0] == "nncf" and len(parts) == 3]  # noqa: PLR2004 — nncf/ALGORITHM/SETTING
    texts = [algorithm for algorithm, _, _ in settings]
    for wanted in _SETTINGS:
        texts += [f"{name} {value}" for _, name, value in settings if name == wanted and value != "None"]
    texts += [name for _, name, value in settings if value == "True"]
    return ", ".join(dict.fromkeys(texts))


def _sampler(session: Session) -> str:
    of = session.sampler
    achieved = f"{of.achieved_interval_s:.4g} s" if of.achieved_interval_s is not None else UNKNOWN
    by = "" if of.source in {"", "proc", "psutil"} else f" by {printable(of.source)}"
    asked = "" if of.interval_s is None else f" (asked {of.interval_s:g} s)"
    text = f"{taken(session):,} samples{by}, interval {achieved}{asked}, longest gap {seconds_text(of.longest_gap_s)}"
    if of.missed is not None:
        text += f", {of.missed:,} missed"
    if of.cpu_s is None and of.peak_rss is None:
        return f"{text}; its own cost is unknown"
    return f"{text}; its own cost: {seconds_text(of.cpu_s)} CPU, {size_text(of.peak_rss)}"
