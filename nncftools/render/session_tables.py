"""The parts of a report that every output shows: tables of memory, ranks and processes, and sentences.

The sentences say how the run ended, and state its peak, CPU, I/O, processes, models and the sampler's own cost.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator, Sequence

from nncftools import metrics
from nncftools.analysis import summary
from nncftools.analysis.session import Session
from nncftools.backports import moment_of
from nncftools.limits.needs import needs
from nncftools.render.sentences import hugetlb_text, span_text, where_text
from nncftools.render.table import Cell, Column, Output, Row, Table, signed, size_cell
from nncftools.render.view import View, label
from nncftools.session.model import Device, Process, ProcessTable, SavedModel
from nncftools.units import UNKNOWN, MemoryUnit, cores_text, printable, seconds_text, shortened, size_text, text_of

_FEW_PROCESSES, _MOST_PROCESSES = 5, 300
_SHARE = 0.05
"""Of the largest process's memory, or of all CPU time: a process with less is insignificant."""


def memory(session: Session, view: View) -> Table:
    """Return peak, final value, growth, average and minimum of the view's metrics, unless all of them are 0 as written.

    Text has a second row for each metric, above the first sample, unless that has nothing but 0.
    """
    rows = []
    for number, name in enumerate(view.metrics):
        absolute = summary.level(session, name)
        above = absolute.from_zero()
        if number and _is_nothing(absolute, view.unit):
            continue
        if view.from_zero:
            rows.append(Row(cells=_levels(f"{label(name)} from zero", above, view.unit)))
            continue
        rows.append(Row(cells=_levels(label(name), absolute, view.unit)))
        if not _is_nothing(above, view.unit):
            rows.append(Row(cells=_levels("  from zero", above, view.unit), is_faint=True, output=Output.TEXT))
    figures = map(Column, ("Peak", "at", "Final", "Delta", "Average", "Min"))
    return Table(columns=[Column(f"Memory, {view.unit}", is_text=True), *figures], rows=rows)


def _is_nothing(of: summary.MetricSummary, unit: MemoryUnit) -> bool:
    """Return whether all figures are known, and all would be written as 0."""
    return {unit.text(size) for size in (of.peak, of.final, of.average, of.lowest)} == {unit.text(0)}


def _levels(name: str, of: summary.MetricSummary, unit: MemoryUnit) -> list[Cell]:
    final, average, lowest = (size_cell(size, unit) for size in (of.final, of.average, of.lowest))
    peak, delta = size_cell(of.peak, unit, is_strong=True), Cell(signed(unit.text(of.delta)))
    return [Cell(name), peak, Cell(span_text(of.span_s)), final, delta, average, lowest]


def ranks(session: Session, unit: MemoryUnit) -> Table:
    """Return the ranks of a job; a session that was not merged from ranks has none."""
    texts = [Column("Rank", is_text=True), Column("Machine", is_text=True)]
    columns = [*texts, *map(Column, (f"Peak, {unit}", "at", "Lasted", "CPU", "Exit"))]
    largest, failed = summary.largest_rank(session.ranks), summary.failed_in_order(session.ranks)
    first = failed[0] if len(failed) > 1 else None
    rows = []
    for run in session.ranks:
        peak, is_largest = run.peaks.get("rss"), run is largest
        number = run.name if run.rank is None else f"{run.rank.number}"
        end = UNKNOWN if run.exit is None else run.exit.text.removeprefix("exit status ").removeprefix("killed by ")
        low, span_s = (None, None) if peak is None else (peak.low, peak.span_s)
        figures = [shortened(printable(number), 24), shortened(printable(run.host.name), 20) or UNKNOWN, unit.text(low)]
        figures += [span_text(span_s), seconds_text(run.duration_s), seconds_text(run.cpu_s)]
        cells = [Cell(text) for text in (*figures, f"{end}, first" if run is first else end)]
        rows.append(Row(cells=cells, is_strong=is_largest, note="<- largest" if is_largest else ""))
    return Table(columns=columns, rows=rows)


def processes(session: Session, unit: MemoryUnit) -> Table:
    """Return the process tree, parents above their children; at most the largest and their ancestors."""
    kept = _with_ancestors(_by_size(session.processes)[:_MOST_PROCESSES], session.processes)
    left_out = len(session.processes) - len(kept)
    return _process_table(list(_tree(kept)), unit, 80, f"and {left_out:,} smaller ones" if left_out else "")


def few_processes(session: Session, unit: MemoryUnit) -> Table:
    """Return the significant processes in the order of their starts."""
    shown = sorted(significant(session.processes), key=lambda process: process.start_s or 0.0)
    return _process_table([(process, 0) for process in shown], unit, 28)


def _process_table(shown: Sequence[tuple[Process, int]], unit: MemoryUnit, longest: int, more: str = "") -> Table:
    columns = [Column("Process", is_text=True), *map(Column, ("pid", "from", "to", f"Peak, {unit}", "CPU"))]
    rows = []
    for process, depth in shown:
        cells = [
            Cell(shortened(printable(process.name), longest) or "?"),
            Cell(UNKNOWN if process.pid is None else f"{process.pid}"),
            *(Cell(seconds_text(moment)) for moment in (process.start_s, process.end_s)),
            size_cell(process.most_memory or None, unit),
            Cell(seconds_text(process.cpu_s)),
        ]
        details = shortened(printable(" ".join(process.command)), 400)
        span_s = None if process.start_s is None else (process.start_s, process.end_s or process.start_s)
        rows.append(Row(cells=cells, depth=depth, details=details, span_s=span_s))
    return Table(columns=columns, rows=rows, more=more)


def significant(every: Sequence[Process]) -> list[Process]:
    """Return the few processes that used the most memory or CPU time."""
    by_cpu = sorted(every, key=lambda process: process.cpu_s or 0.0, reverse=True)[:_FEW_PROCESSES]
    least = max((process.most_memory for process in every), default=0) * _SHARE
    least_s = sum(process.cpu_s or 0.0 for process in every) * _SHARE
    large = [process for process in _by_size(every)[:_FEW_PROCESSES] if process.most_memory >= least]
    busy = [process for process in by_cpu if (process.cpu_s or 0.0) >= least_s and process not in large]
    return [*large, *busy][:_FEW_PROCESSES]


def _by_size(every: Sequence[Process]) -> list[Process]:
    return sorted(every, key=lambda process: (process.most_memory, process.cpu_s or 0.0), reverse=True)


def _with_ancestors(wanted: Sequence[Process], every: Sequence[Process]) -> list[Process]:
    table = ProcessTable(every)
    kept = {above.id for process in wanted for above in table.upwards(process)}
    return [process for process in every if process.id in kept]


def _tree(every: Sequence[Process]) -> Iterator[tuple[Process, int]]:
    """Yield processes with their depth, children after their parent in the order of their starts."""
    ids = {process.id for process in every}
    children: dict[int | None, list[Process]] = {}
    for process in sorted(every, key=lambda process: (process.start_s or 0.0, process.id), reverse=True):
        above = process.parent if process.parent in ids and process.parent != process.id else None
        children.setdefault(above, []).append(process)
    waiting = [(process, 0) for process in children.pop(None, [])]
    while waiting:
        process, depth = waiting.pop()
        yield process, depth
        waiting += [(child, depth + 1) for child in children.pop(process.id, [])]


_PROCESS = 24
"""The length of names, in characters."""
_WIDE = 1.02
"""A bracket of the peak is named from this ratio of its ends on."""
_SETTINGS = ("mode", "preset", "ratio", "group_size", "backup_mode", "subset_size", "model_type", "target_device")


def failure(session: Session) -> str:
    """Return how a command failed; empty for others, and for a job of several ranks."""
    if session.exit is None or session.ranks:
        return ""
    return session.exit.text if session.exit.code or session.exit.signal is not None else ""


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
        first = next((run for run in summary.failed_in_order(session.ranks) if run.exit is not None), None)
        ending = session.exit.text if first is None or first.exit is None else f"{first.name}: {first.exit.text}"
    else:
        ending = "exit status unknown" if session.attached_to is None else f"attached to pid {session.attached_to}"
    return f"{when} on {machine}, {seconds_text(session.duration_s)}, {ending}"


def peak(session: Session, view: View) -> tuple[str, str, str] | None:
    """Return the peak of RSS, its time and its operation; None when the view does not show it."""
    rss = session.rss_peak
    if view.from_zero or "rss" not in view.metrics or rss.low is None:
        return None
    most = f"RSS {view.unit.label(rss.low)}"
    if (moment := session.peak_place) is None:
        return f"{most} at an unknown moment (kernel's high-water mark)", "", ""
    when = span_text((moment.from_s, moment.to_s))
    if summary.is_between_samples(rss):
        when += ", between two samples"
    with contextlib.suppress(ValueError, OverflowError):  # the time of day is unknown
        when = f"{moment_of(session.start.utc or '') + dt.timedelta(seconds=moment.from_s):%H:%M:%S} ({when})"
    return most, f"at {when}", where_text(session)


def facts(session: Session, unit: MemoryUnit) -> Table:
    """Return the other facts of the run as headings and texts; in Markdown, the first one is the time of the run."""
    when = Row(cells=(Cell("When"), Cell(run(session))), output=Output.MARKDOWN)
    rows = [Row(cells=(Cell(name), Cell(text))) for name, text in _facts(session, unit)]
    return Table(columns=[Column("Run", is_text=True), Column("", is_text=True)], rows=[when, *rows])


def _facts(session: Session, unit: MemoryUnit) -> Iterator[tuple[str, str]]:
    rss = session.rss_peak
    if rss.low and rss.high and rss.high > rss.low * _WIDE:
        between = f"between {unit.label(rss.low)} and {unit.label(rss.high)}"
        yield "RSS peak", f"{between} (the sum of high-water marks)"
    if (needed := needs(session)) is not None:
        yield "Needs", needed.text(unit)
    yield from _pss(session, unit)
    if hugetlb := hugetlb_text(session):
        yield "Hugetlb pages", hugetlb
    if devices := [text for device in session.devices if (text := _device(session, device, unit))]:
        yield "Devices", "; ".join(devices)
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
    if (near := summary.pss_near_peak(session)) is not None:
        text += f", the nearest {seconds_text(near.distance_s)} from the RSS peak"
    peak = session.peaks.get("pss")
    if peak is not None and peak.low and peak.high:
        text += f"; its peak is between {unit.label(peak.low)} and {unit.label(peak.high)}"
    yield "PSS", text


def _device(session: Session, device: Device, unit: MemoryUnit) -> str:
    """Return what the run and everyone held of a GPU; empty if the run did not use it."""
    held, used = (session.peaks.get(f"{metric}@{device.device}") for metric in ("device_memory", "device_used"))
    size = "" if device.memory is None else f", {size_text(device.memory)}"
    name = f"{device.device} ({printable(device.model)}{size})"
    if device.missing is not None:
        rise = summary.device_rise(session, device.device)
        known = f"at least {unit.label(held.low)}, at times " if held is not None and held.low else ""
        text = f"{name}: {known}unknown, because {printable(device.missing)}"
        if rise is None:
            return text
        return (
            f"{text}; at most {unit.label(rise[0])} more than at {seconds_text(rise[1])}: by that, everyone's use rose"
        )
    if held is None or not held.low:
        return ""
    everyone = "" if used is None else f", of everyone {unit.label(used.low)}"
    return f"{name}: peak of the run {unit.label(held.low)}{everyone}"


def _cpu(session: Session) -> str:
    if (total := summary.cpu_s(session)) is None:
        return "unknown"
    cores = summary.cores_average(session)
    busy = "" if cores is None else f", {cores_text(cores)} on average"
    user, system = session.totals.get("cpu_user"), session.totals.get("cpu_system")
    parts = "" if user is None else f" (user {seconds_text(user)}, system {seconds_text(system)})"
    return f"{seconds_text(total)}{parts}{busy}"


def _counters(session: Session) -> Iterator[tuple[str, str]]:
    """Yield the totals of the counters that operations have, one text for each family."""
    families: dict[str, list[tuple[str, float | None, str]]] = {}
    for column, metric in metrics.of_operations(session.totals).items():
        if metric.is_counter:
            name = metric.label if metric.family is None else f"{metric.family[0]} {metric.device}".rstrip()
            families.setdefault(name, []).append((metric.action, session.totals.get(column), metric.unit))
    for name, parts in families.items():
        texts = [f"{text_of(total, unit)} {action}".rstrip() for action, total, unit in parts]
        yield name, "unknown" if all(total is None for _, total, _ in parts) else ", ".join(texts)


def _processes(session: Session, unit: MemoryUnit) -> str:
    if not session.processes:
        return "unknown"
    text = f"{len(session.processes):,}"
    if (largest := summary.largest_process(session)) is not None:
        name = shortened(printable(largest.process.name), _PROCESS) or "one without a name"
        kind = "kernel's high-water mark" if largest.by_kernel else "largest sample"
        text += f", the largest: {name}, {unit.label(largest.size)} ({kind})"
    short = summary.short_lived(session)
    if short and len(session.processes) > 1:
        text += f"; {short:,} seen in fewer than 2 samples: sums may miss them"
    return text


def _compression(model: SavedModel) -> str:
    """Return algorithm, settings and the enabled refinements: ``weight_compression, mode int4_sym, awq``."""
    facts = [(path.split("/"), value) for path, value in model.facts.items()]
    settings = [(*parts[1:], value) for parts, value in facts if parts[0] == "nncf" and len(parts) == 3]  # noqa: PLR2004 — nncf/ALGORITHM/SETTING
    texts = [algorithm for algorithm, _, _ in settings]
    for wanted in _SETTINGS:
        texts += [f"{name} {value}" for _, name, value in settings if name == wanted and value != "None"]
    texts += [name for _, name, value in settings if value == "True"]
    return ", ".join(dict.fromkeys(texts))


def _sampler(session: Session) -> str:
    of = session.sampler
    achieved = f"{of.achieved_interval_s:.3g} s" if of.achieved_interval_s is not None else UNKNOWN
    by = "" if of.source in {"", "proc", "psutil"} else f" by {printable(of.source)}"
    asked = "" if of.interval_s is None else f" (asked {of.interval_s:g} s)"
    gap = seconds_text(of.longest_gap_s)
    samples = f"{(count := summary.taken(session)):,} sample{'s' * (count != 1)}"
    text = f"{samples}{by}, interval {achieved}{asked}, longest gap {gap}"
    if of.missed is not None:
        text += f", {of.missed:,} missed"
    if of.cpu_s is None and of.peak_rss is None:
        return f"{text}; its own cost is unknown"
    return f"{text}; its own cost: {seconds_text(of.cpu_s)} CPU, {size_text(of.peak_rss)}"
