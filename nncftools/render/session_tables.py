"""Tables of memory, ranks and processes, and sentences about the run, for all reports.

The sentences are about the end of the run, peak, CPU, I/O, processes, models, and the cost of the sampler.
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
from nncftools.render.listing import left_out_text
from nncftools.render.sentences import hugetlb_text, span_text, where_text
from nncftools.render.table import Cell, Column, Output, Row, Table, make_columns, signed, size_cell
from nncftools.render.view import View, clip, label
from nncftools.session.model import UNKNOWN_PEAK, Device, Process, ProcessTable, SavedModel
from nncftools.units import UNKNOWN, MemoryUnit, cores_text, count_text, printable, seconds_text, size_text, text_of

_FEW_PROCESSES = 5
_MOST_PROCESSES = 300
_SHARE = 0.05
"""A process is significant if it has at least this share of the largest process's memory.

A process with at least this share of all CPU time is significant, too.
"""


def memory(session: Session, view: View) -> Table:
    """Return the table of the memory metrics: peak, final value, growth, average and minimum.

    The first metric always has a row. Any other metric has a row unless all its numbers are written as 0. In plain
    text, each metric has a second row, with the first sample subtracted.
    """
    rows = []
    for number, name in enumerate(view.metrics):
        absolute = summary.summarize_level(session, name)
        above = absolute.from_zero()
        if number and _is_zero(absolute, view.unit):
            continue
        if view.from_zero:
            rows.append(Row(cells=_make_levels(f"{label(name)} from zero", above, view.unit)))
            continue
        rows.append(Row(cells=_make_levels(label(name), absolute, view.unit)))
        if not _is_zero(above, view.unit):
            cells = _make_levels("  from zero", above, view.unit)
            rows.append(Row(cells=cells, is_faint=True, output=Output.TEXT))
    figures = ("Peak", "at", "Final", "Delta", "Average", "Min")
    return Table(columns=make_columns(f"Memory, {view.unit}", figures), rows=rows)


def _is_zero(level: summary.MetricSummary, unit: MemoryUnit) -> bool:
    """Return whether all numbers are known and are written as 0."""
    sizes = (level.peak, level.final, level.average, level.lowest)
    return {unit.text(size) for size in sizes} == {unit.text(0)}


def _make_levels(name: str, level: summary.MetricSummary, unit: MemoryUnit) -> list[Cell]:
    return [
        Cell(name),
        size_cell(level.peak, unit, is_strong=True),
        Cell(span_text(level.span_s)),
        size_cell(level.final, unit),
        Cell(signed(unit.text(level.delta))),
        size_cell(level.average, unit),
        size_cell(level.lowest, unit),
    ]


def ranks(session: Session, unit: MemoryUnit) -> Table:
    """Return the table of a job's ranks; the table has no rows if the session is not of a job."""
    figures = (f"Peak, {unit}", "at", "Lasted", "CPU", "Exit")
    columns = [Column("Rank", is_text=True), *make_columns("Machine", figures)]
    largest = summary.largest_rank(session.ranks)
    failed = summary.failed_in_order(session.ranks)
    rows = []
    for run in session.ranks:
        peak = run.peaks.get("rss", UNKNOWN_PEAK)
        name = run.name if run.rank is None else f"{run.rank.number}"
        end = UNKNOWN if run.exit is None else run.exit.text
        end = end.removeprefix("exit status ").removeprefix("killed by ")
        if len(failed) > 1 and run is failed[0]:
            end += ", first"
        texts = [
            clip(name, 24),
            clip(run.host.name, 20) or UNKNOWN,
            unit.text(peak.low),
            span_text(peak.span_s),
            seconds_text(run.duration_s),
            seconds_text(run.cpu_s),
            end,
        ]
        note = "<- largest" if run is largest else ""
        cells = list(map(Cell, texts))
        rows.append(Row(cells=cells, is_strong=run is largest, note=note))
    return Table(columns=columns, rows=rows)


def processes(session: Session, unit: MemoryUnit) -> Table:
    """Return the process tree, each parent above its children.

    If there are very many processes, the table has only the largest processes and their ancestors.
    """
    table = ProcessTable(session.processes)
    shown = set[int]()
    for process in _sort_by_size(session.processes)[:_MOST_PROCESSES]:
        shown.update(ancestor.id for ancestor in table.upwards(process))
    tree = list(_order_as_tree([process for process in session.processes if process.id in shown]))
    more = left_out_text(len(session.processes) - len(tree))
    return _make_process_table(tree, unit, 80, more)


def few_processes(session: Session, unit: MemoryUnit) -> Table:
    """Return the table of the significant processes in the order of their starts."""
    shown = sorted(significant(session.processes), key=lambda process: process.start_s or 0.0)
    return _make_process_table([(process, 0) for process in shown], unit, 28)


def _make_process_table(
    processes: Sequence[tuple[Process, int]], unit: MemoryUnit, longest: int, more: str = ""
) -> Table:
    rows = []
    for process, depth in processes:
        cells = [
            Cell(clip(process.name, longest) or "?"),
            Cell(UNKNOWN if process.pid is None else f"{process.pid}"),
            Cell(seconds_text(process.start_s)),
            Cell(seconds_text(process.end_s)),
            size_cell(process.most_memory or None, unit),
            Cell(seconds_text(process.cpu_s)),
        ]
        details = clip(" ".join(process.command), 400)
        span_s = None
        if process.start_s is not None:
            span_s = (process.start_s, process.end_s or process.start_s)
        rows.append(Row(cells=cells, depth=depth, details=details, span_s=span_s))
    columns = make_columns("Process", ("pid", "from", "to", f"Peak, {unit}", "CPU"))
    return Table(columns=columns, rows=rows, more=more)


def significant(processes: Sequence[Process]) -> list[Process]:
    """Return the few processes with the most memory or CPU time."""
    by_size = _sort_by_size(processes)[:_FEW_PROCESSES]
    by_cpu = sorted(processes, key=lambda process: process.cpu_s or 0.0, reverse=True)[:_FEW_PROCESSES]
    least = max((process.most_memory for process in processes), default=0) * _SHARE
    least_s = sum(process.cpu_s or 0.0 for process in processes) * _SHARE
    large = [process for process in by_size if process.most_memory >= least]
    busy = [process for process in by_cpu if (process.cpu_s or 0.0) >= least_s]
    return [*large, *(process for process in busy if process not in large)][:_FEW_PROCESSES]


def _sort_by_size(processes: Sequence[Process]) -> list[Process]:
    def measure(process: Process) -> tuple[int, float]:
        return process.most_memory, process.cpu_s or 0.0

    return sorted(processes, key=measure, reverse=True)


def _order_as_tree(processes: Sequence[Process]) -> Iterator[tuple[Process, int]]:
    """Yield each process with its depth in the tree. The children follow their parent, in the order of their starts."""
    ids = {process.id for process in processes}
    children: dict[int | None, list[Process]] = {}
    for process in sorted(
        processes,
        key=lambda process: (process.start_s or 0.0, process.id),
        reverse=True,
    ):
        has_parent = process.parent in ids and process.parent != process.id
        children.setdefault(process.parent if has_parent else None, []).append(process)
    waiting = [(process, 0) for process in children.pop(None, [])]
    while waiting:
        process, depth = waiting.pop()
        yield process, depth
        waiting += [(child, depth + 1) for child in children.pop(process.id, [])]


_PROCESS = 24
"""Longest name of a process, in characters."""
_WIDE = 1.02
"""If the upper bound of the peak is more than this multiple of the lower bound, the report gives both."""
_SETTINGS = ("mode", "preset", "ratio", "group_size", "backup_mode", "subset_size", "model_type", "target_device")


def failure(session: Session) -> str:
    """Return how the command failed; empty after success, and for a job of several ranks."""
    if session.exit is None or session.ranks:
        return ""
    return session.exit.text if session.exit.code or session.exit.signal is not None else ""


def run(session: Session) -> str:
    """Return the start time and host of the run, its duration, and how it ended (such as the exit status)."""
    utc = session.start.utc
    when = "unknown time" if utc is None else f"{printable(utc.replace('T', ' ')[:19])} UTC"
    machine = printable(session.host.name) or "unknown host"
    if session.ranks:
        machine = f"{machine}, {count_text(len(session.ranks), 'rank')}"
    elif session.rank is not None:
        size = "" if session.rank.size is None else f" of {session.rank.size}"
        machine = f"{machine}, rank {session.rank.number}{size}"
    ending = "exit status unknown"
    if session.exit is not None:
        ending = session.exit.text
        for rank in summary.failed_in_order(session.ranks)[:1]:
            ending = ending if rank.exit is None else f"{rank.name}: {rank.exit.text}"
    elif session.attached_to is not None:
        ending = f"attached to pid {session.attached_to}"
    return f"{when} on {machine}, {seconds_text(session.duration_s)}, {ending}"


def peak(session: Session, view: View) -> str:
    """Return the RSS peak with time and operation; empty if the view does not show RSS."""
    rss = session.rss_peak
    if view.from_zero or "rss" not in view.metrics or rss.low is None:
        return ""
    size = f"RSS {view.unit.label(rss.low)}"
    place = session.peak_place
    if place is None:
        return f"{size} at an unknown moment (kernel's high-water mark)"
    when = span_text((place.from_s, place.to_s))
    if summary.is_between_samples(rss):
        when += ", between two samples"
    with contextlib.suppress(ValueError, OverflowError):  # the time of day is unknown
        moment = moment_of(session.start.utc or "") + dt.timedelta(seconds=place.from_s)
        when = f"{moment:%H:%M:%S} ({when})"
    return f"{size} at {when} {where_text(session)}".rstrip()


def facts(session: Session, unit: MemoryUnit) -> Table:
    """Return the table of facts about the run, such as needed memory, CPU and I/O.

    In Markdown, the first row has start time, host, duration and exit status.
    """
    rows = [
        Row(
            cells=(Cell("When"), Cell(run(session))),
            output=Output.MARKDOWN,
        )
    ]
    for heading, text in list_facts(session, unit):
        rows.append(Row(cells=(Cell(heading), Cell(text))))
    columns = [Column("Run", is_text=True), Column("", is_text=True)]
    return Table(columns=columns, rows=rows)


def list_facts(session: Session, unit: MemoryUnit) -> Iterator[tuple[str, str]]:
    """Yield pairs of heading and text about the run: bounds of the peak, needed memory, CPU, I/O and others."""
    rss = session.rss_peak
    if rss.low and rss.high and rss.high > rss.low * _WIDE:
        bracket = f"between {unit.label(rss.low)} and {unit.label(rss.high)}"
        yield "RSS peak", f"{bracket} (the sum of high-water marks)"
    needed = needs(session)
    if needed is not None:
        yield "Needs", needed.text(unit)
    if "pss" in session.samples:
        yield "PSS", _describe_pss(session, unit)
    hugetlb = hugetlb_text(session)
    if hugetlb:
        yield "Hugetlb pages", hugetlb
    devices = [_describe_device(session, device, unit) for device in session.devices]
    if any(devices):
        yield "Devices", "; ".join(filter(None, devices))
    yield "CPU", _describe_cpu(session)
    yield from _list_counters(session)
    yield "Processes", _describe_processes(session, unit)
    for model in session.models:
        compression = _describe_compression(model)
        if compression:
            yield "Compressed", printable(f"{model.path.rpartition('/')[2]}: {compression}")
    yield "Sampler", _describe_sampler(session)


def _describe_pss(session: Session, unit: MemoryUnit) -> str:
    """Return the number of samples with PSS, and the bounds of the PSS peak.

    The sampler reads PSS seldom, because a reading takes long.
    """
    known = session.samples.figures("pss").known
    text = f"known in {known:,} of {len(session.samples):,} samples"
    near = summary.pss_near_peak(session)
    if near is not None:
        text += f", the nearest {seconds_text(near.distance_s)} from the RSS peak"
    peak = session.peaks.get("pss", UNKNOWN_PEAK)
    if peak.low and peak.high:
        text += f"; its peak is between {unit.label(peak.low)} and {unit.label(peak.high)}"
    return text


def _describe_device(session: Session, device: Device, unit: MemoryUnit) -> str:
    """Return the peak memory of the run, and of all programs, on a device; empty if the run did not use the device."""
    held = session.peaks.get(f"device_memory@{device.device}", UNKNOWN_PEAK).low
    used = session.peaks.get(f"device_used@{device.device}")
    size = "" if device.memory is None else f", {size_text(device.memory)}"
    name = f"{device.device} ({printable(device.model)}{size})"
    if device.missing is None:
        everyone = "" if used is None else f", of everyone {unit.label(used.low)}"
        return f"{name}: peak of the run {unit.label(held)}{everyone}" if held else ""
    known = f"at least {unit.label(held)}, at times " if held else ""
    text = f"{name}: {known}unknown, because {printable(device.missing)}"
    rise = summary.device_rise(session, device.device)
    if rise is None:
        return text
    return f"{text}; largest rise of all programs together since {seconds_text(rise[1])}: {unit.label(rise[0])}"


def _describe_cpu(session: Session) -> str:
    total_s = summary.cpu_s(session)
    if total_s is None:
        return "unknown"
    text = seconds_text(total_s)
    user_s = session.totals.get("cpu_user")
    if user_s is not None:
        text += f" (user {seconds_text(user_s)}, system {seconds_text(session.totals.get('cpu_system'))})"
    cores = summary.cores_average(session)
    return text if cores is None else f"{text}, {cores_text(cores)} on average"


def _list_counters(session: Session) -> Iterator[tuple[str, str]]:
    """Yield the totals of the counters, with a text for each family of counters: CPU, storage, system calls."""
    families: dict[str, list[str]] = {}
    known = set()
    for column, metric in metrics.of_operations(session.totals).items():
        if metric.is_counter:
            name = metric.label if metric.family is None else f"{metric.family[0]} {metric.device}".rstrip()
            total = session.totals.get(column)
            families.setdefault(name, []).append(f"{text_of(total, metric.unit)} {metric.action}".rstrip())
            if total is not None:
                known.add(name)
    for name, texts in families.items():
        yield name, ", ".join(texts) if name in known else "unknown"


def _describe_processes(session: Session, unit: MemoryUnit) -> str:
    if not session.processes:
        return "unknown"
    text = f"{len(session.processes):,}"
    largest = summary.largest_process(session)
    if largest is not None:
        name = clip(largest.process.name, _PROCESS) or "a process without name"
        kind = "kernel's high-water mark" if largest.by_kernel else "largest sample"
        text += f", the largest: {name}, {unit.label(largest.size)} ({kind})"
    short = summary.count_short_lived(session)
    if short and len(session.processes) > 1:
        text += f"; {short:,} seen in fewer than 2 samples: sums may miss them"
    return text


def _describe_compression(model: SavedModel) -> str:
    """Return how a model was compressed: ``weight_compression, mode int4_sym, awq``."""
    algorithms = []
    settings = []
    for path, value in model.facts.items():
        tool, *rest = path.split("/")
        if tool == "nncf" and len(rest) == 2:  # noqa: PLR2004 — nncf/ALGORITHM/SETTING
            algorithms.append(rest[0])
            settings.append((rest[1], value))
    texts = algorithms
    for wanted in _SETTINGS:
        texts += [f"{name} {value}" for name, value in settings if name == wanted and value != "None"]
    texts += [name for name, value in settings if value == "True"]
    return ", ".join(dict.fromkeys(texts))


def _describe_sampler(session: Session) -> str:
    sampler = session.sampler
    text = count_text(summary.count_samples(session), "sample")
    if sampler.source not in {"", "proc", "psutil"}:
        text += f" by {printable(sampler.source)}"
    achieved_s = sampler.achieved_interval_s
    text += f", interval {UNKNOWN if achieved_s is None else f'{achieved_s:.3g} s'}"
    if sampler.interval_s is not None:
        text += f" (asked {sampler.interval_s:g} s)"
    text += f", longest gap {seconds_text(sampler.longest_gap_s)}"
    if sampler.missed is not None:
        text += f", {sampler.missed:,} missed"
    if sampler.cpu_s is None and sampler.peak_rss is None:
        return f"{text}; sampling cost is unknown"
    return f"{text}; sampling cost: {seconds_text(sampler.cpu_s)} CPU, {size_text(sampler.peak_rss)}"
