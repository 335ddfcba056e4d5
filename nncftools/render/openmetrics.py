"""The figures of a run as OpenMetrics 1.0 text, which Prometheus reads as well: single samples, no timestamps.

The format: https://prometheus.io/docs/specs/om/open_metrics_spec/. All are gauges, also totals: they are the figures of
a job that is over, which the next run replaces (https://prometheus.io/docs/practices/instrumentation/#batch-jobs). A
counter must not fall; and OpenMetrics names it without ``_total`` where the older text format wants the suffix, so
``promtool check metrics`` accepts no text with counters that is OpenMetrics, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from nncftools import metrics
from nncftools.analysis.summary import largest_process, level, short_lived, taken
from nncftools.backports import moment_of
from nncftools.metrics import Metric, is_memory, memory_of
from nncftools.render.listing import timeline
from nncftools.render.table import finite
from nncftools.render.view import View, command_text
from nncftools.session.model import END_UNKNOWN, Peak
from nncftools.session.operation import RSS
from nncftools.session.peak_place import span_of
from nncftools.session.session import Session
from nncftools.units import printable, shortened

Labels = Mapping[str, str]
Sample = tuple[Labels, float | None]

_RUN, _TEXT = 120, 400
_UNITS = {"B": "bytes", "s": "seconds", "": ""}
_CPU_MODES: dict[str, Labels] = {"cpu_user": {"mode": "user"}, "cpu_system": {"mode": "system"}, "cpu": {}}


class _Family(NamedTuple):
    """One metric with all its samples; samples of unknown value are left out."""

    name: str
    meaning: str
    samples: Sequence[Sample]

    def lines(self, labels: Labels) -> Iterator[str]:
        """Yield the lines of the family; ``labels`` come before each sample's own."""
        known = [(own, value) for own, value in self.samples if value is not None]
        if not known:
            return
        name = f"nncf_tools_{self.name}"
        yield f"# TYPE {name} gauge"
        unit = next((unit for unit in ("bytes", "seconds") if name.endswith(f"_{unit}")), None)
        if unit is not None:
            yield f"# UNIT {name} {unit}"
        yield f"# HELP {name} {self.meaning}"
        for own, value in known:
            number = repr(float(round(value) if unit == "bytes" else value)).removesuffix(".0")
            yield f"{name}{_braces({**labels, **own})} {number}"


def report(session: Session, view: View) -> str:
    """Return the figures in bytes and seconds, with operations of the view's depth; unknown figures are left out."""
    labels = {"run": shortened(printable(view.title or session.name) or command_text(session), _RUN)}
    if session.rank is not None:
        labels["rank"] = str(session.rank.number)
    of_run = (family for part in (_run, _memory, _totals, _sampler, _ranks) for family in part(session))
    lines = [line for family in (*of_run, *_operations(session, view)) for line in family.lines(labels)]
    return "\n".join([*lines, "# EOF", ""])


def _run(session: Session) -> Iterator[_Family]:
    exit_, host = session.exit, session.host
    facts = {
        "command": command_text(session),
        "host": host.name,
        "system": host.system,
        "machine": host.machine,
        "start": session.start.utc or "",
        "version": session.tool_version,
        "from_zero": "true" if session.from_zero else "",
    }
    known = {name: text for name, text in facts.items() if text}
    yield _Family("run_info", "The run: 1, with its facts as labels.", [(known, 1)])
    unix_s = None
    with contextlib.suppress(ValueError):
        moment = moment_of(session.start.utc or "")
        unix_s = None if moment.tzinfo is None else moment.timestamp()
    yield _of_run("start_time_seconds", "When it began, in Unix time.", unix_s)
    yield _of_run("duration_seconds", "How long it took.", session.duration_s)
    yield _of_run("finished", "1, or 0 when the recording broke off before its end.", session.finished)
    yield _of_run("exit_code", "The command's exit status.", None if exit_ is None else exit_.code)
    yield _of_run("exit_signal", "The signal that killed it.", None if exit_ is None else exit_.signal)


def _of_run(name: str, meaning: str, value: float | None) -> _Family:
    return _Family(name, meaning, [({}, value)])


def _memory(session: Session) -> Iterator[_Family]:
    peaks = [(name, peak) for name, peak in session.peaks.items() if is_memory(name)]
    brackets = [sample for name, peak in peaks for sample in _bracket({"metric": name}, peak)]
    yield _Family("peak_bytes", "The largest sample; the real peak lies between low and high.", brackets)
    spans = [({"metric": name}, span_s) for name, peak in peaks if (span_s := span_of(peak)) is not None]
    for name, end, meaning in (
        ("peak_offset_seconds", 1, "When memory had reached the peak, since the start."),
        ("peak_earliest_offset_seconds", 0, "After this moment it rose to the peak."),
    ):
        yield _Family(name, meaning, [(labels, span_s[end]) for labels, span_s in spans])
    levels = [(name, level(session.samples, name, session.peaks)) for name in memory_of(session.samples.metrics)]
    for key, meaning in (
        ("first", "The first known sample."),
        ("final", "The last known sample."),
        ("average", "The mean of the samples."),
        ("lowest", "The smallest sample."),
    ):
        yield _Family(f"{key}_bytes", meaning, [({"metric": name}, getattr(of, key)) for name, of in levels])


def _bracket(labels: Labels, peak: Peak) -> list[Sample]:
    return [({**labels, "bound": bound}, getattr(peak, bound)) for bound in ("sampled", "low", "high")]


def _totals(session: Session) -> Iterator[_Family]:
    totals = session.totals
    spent = [(labels, totals.get(name)) for name, labels in _CPU_MODES.items()]
    yield _Family("cpu_seconds", "CPU time of all processes.", spent)
    for name, columns in _counters([*totals, *metrics.of_operations(())]).items():
        samples = [(_device(metric), totals.get(column)) for column, metric in columns.items()]
        yield _Family(name, _meaning(columns), samples)
    seen, largest = len(session.processes) or None, largest_process(session)
    yield _of_run("processes", "Processes that were seen.", seen)
    short = None if seen is None else short_lived(session)
    yield _of_run("short_lived_processes", "Processes that appear in fewer than two samples.", short)
    size = None if largest is None else largest.size
    yield _of_run("largest_process_bytes", "The most memory that a single process held.", size)


def _counters(columns: Iterable[str]) -> dict[str, dict[str, Metric]]:
    """Return all counters except CPU time by their family's name; the devices of a metric are one family."""
    families: dict[str, dict[str, Metric]] = {}
    for column in metrics.in_order(dict.fromkeys(columns)):
        metric = metrics.of(column)
        if metric is not None and metric.is_counter and metric.family != metrics.CPU_TIME:
            name = metric.name if metric.family is None else f"{metric.family[1].lower()}_{metric.action}"
            unit = _UNITS[metric.unit]
            families.setdefault(f"{name}_{unit}" if unit and not name.endswith(unit) else name, {})[column] = metric
    return families


def _device(metric: Metric) -> Labels:
    return {"device": metric.device} if metric.device else {}


def _meaning(columns: Mapping[str, Metric]) -> str:
    text = next(iter(columns.values())).meaning
    return f"{text[:1].upper()}{text[1:]}."


def _sampler(session: Session) -> Iterator[_Family]:
    of = session.sampler
    yield _of_run("samples", "Samples that were taken.", taken(session))
    yield _of_run("missed_samples", "Deadlines that passed without a sample.", of.missed)
    intervals = [({"kind": "asked"}, of.interval_s), ({"kind": "achieved"}, of.achieved_interval_s)]
    yield _Family("interval_seconds", "The time between two samples.", intervals)
    yield _of_run("longest_gap_seconds", "The longest time between two samples.", of.longest_gap_s)
    yield _of_run("sampler_cpu_seconds", "CPU time of the sampler itself.", of.cpu_s)
    yield _of_run("sampler_peak_bytes", "Peak memory of the sampler itself.", of.peak_rss)


def _ranks(session: Session) -> Iterator[_Family]:
    ranks = [({"rank": run.name if run.rank is None else str(run.rank.number)}, run) for run in session.ranks]
    peaks = [({**rank, "metric": name}, peak) for rank, run in ranks for name, peak in run.peaks.items()]
    brackets = [sample for labels, peak in peaks for sample in _bracket(labels, peak)]
    yield _Family("rank_peak_bytes", "The peak of one rank, as that of the run.", brackets)
    yield _Family("rank_duration_seconds", "How long one rank took.", [(rank, run.duration_s) for rank, run in ranks])
    spent = [(rank, run.cpu_s) for rank, run in ranks]
    yield _Family("rank_cpu_seconds", "CPU time of all processes of one rank.", spent)


def _operations(session: Session, view: View) -> Iterator[_Family]:
    """Yield the figures of operations; the label ``index`` counts operations of one name from 1."""
    operations = timeline(session.operations, view.depth)
    numbers: dict[str, int] = {}
    labels: list[Labels] = []
    for operation in operations:
        name = _text(operation.name)
        numbers[name] = numbers.get(name, 0) + 1
        kind = {} if operation.kind is None else {"kind": operation.kind}
        labels.append({"operation": name, "index": str(numbers[name]), "depth": str(operation.depth), **kind})

    def family(name: str, meaning: str, values: Sequence[float | None]) -> _Family:
        return _Family(f"operation_{name}", meaning, list(zip(labels, values, strict=True)))

    calls = [(own, of) for own, of in zip(labels, operations, strict=True) if of.call is not None]
    facts = [
        {"function": of.signature or of.call or "", **({"saved": of.saved} if of.saved else {})} for _, of in calls
    ]
    called = [({**own, **more}, 1) for (own, _), more in zip(calls, facts, strict=True)]
    yield _Family("operation_info", "What it called, and the file that it saved: 1, with both as labels.", called)
    yield family("start_offset_seconds", "When it began, since the start.", [of.start_s for of in operations])
    yield family("duration_seconds", "How long it took.", [of.known_duration_s for of in operations])
    yield family("calls", "Calls that are counted as one operation.", [of.count for of in operations])
    failed = [None if of.error == END_UNKNOWN else of.error is not None for of in operations]
    yield family("failed", "1 when an exception, or the end of its process, ended it.", failed)

    def of_columns(columns: Mapping[str, Metric], figure: str) -> list[Sample]:
        return [
            ({**own, **_device(metric)}, getattr(operation.of(column), figure))
            for column, metric in columns.items()
            for own, operation in zip(labels, operations, strict=True)
        ]

    columns = metrics.of_operations(session.samples.metrics)
    memory: dict[str, dict[str, Metric]] = {}
    for column, metric in columns.items():
        if metric.is_memory:
            memory.setdefault(metric.name, {})[column] = metric
    for name, gauges in memory.items():
        text = metrics.METRICS[name].label
        peaks = of_columns(gauges, "peak_low")
        yield _Family(f"operation_peak_{name}_bytes", f"{text} reached at least this during it.", peaks)
        change = f"{text} at its end minus {text} at its start."
        yield _Family(f"operation_{name}_change_bytes", change, of_columns(gauges, "delta"))
    for end, word in enumerate(("least", "most")):
        bounds = [(finite(operation.of(RSS).delta_bounds) or (None, None))[end] for operation in operations]
        yield family(f"rss_change_at_{word}_bytes", f"RSS changed by at {word} this, where that is not known.", bounds)
    spent = [operation.cpu_s for operation in operations]
    yield family("cpu_seconds", "CPU time of all processes during it.", spent)
    for name, counters in _counters(columns).items():
        yield _Family(f"operation_{name}", _meaning(counters), of_columns(counters, "spent"))


def _braces(labels: Labels) -> str:
    special = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    return "{" + ",".join(f'{name}="{_text(text).translate(special)}"' for name, text in labels.items()) + "}"


def _text(text: str) -> str:
    return shortened(printable(text), _TEXT)
