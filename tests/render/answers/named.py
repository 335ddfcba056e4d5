"""What an output says by name: which peak, whose CPU time; and what the session answers to the same name.

Outputs for people are read by the patterns below, whatever they are: text, Markdown, page, pictures, a notebook's cell.
Documents for programs are read by their keys.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from html import unescape
from typing import TYPE_CHECKING, Any

from nncftools import metrics
from nncftools.analysis.build_up import held_at_end
from nncftools.analysis.summary import cores_average, cpu_s, highest_rate, summarize_level
from nncftools.metrics import cpu_counters
from tests.render.answers.known import Figure, figure
from tests.render.answers.outputs import COMPARED
from tests.render.page_content import data_of, texts_of, traces_of

if TYPE_CHECKING:
    from nncftools.analysis.session import Session

Said = Iterator[tuple[str, Figure]]
"""Names and figures; a name is of a metric, of an operation, of a process by its PID, or of the run."""

_N, _OPERATION = r"[+-]?[\d,]+(?:\.\d+)?", "Load|Compute|Children|Pool"
_SPAN, _MEMORY = rf"{_N}(?:–{_N})? s", "RSS|Anon|File|PSS|System"
_RATES = rf"(?P<start_s>{_N} s) +(?P<cpu_average>{_N}|–) +(?P<cpu_peak>{_N}|–)"
_TEXT = r"""
(?P<of>{MEMORY}) peak (?P<peak>{N} MiB)(?: at (?P<at>{SPAN}))?
\b(?P<of>RSS) (?P<peak>{N} MiB) at \d\d:\d\d:\d\d \((?P<at>{SPAN})
Peak memory (?P<peak>{N} MiB)(?!\s\(PSS)
^  peak +(?P<peak>{N} MiB)(?!\s\(PSS)
\(PSS; RSS of \d+ processes: (?P<peak>{N}),
 (?P<moment>{N}\ss)\safter\sthe\sstart
\b(?:took|recorded) (?P<duration>{N} s)
[◆,] peak (?P<peak>{N} MiB)(?: at (?P<at>{SPAN}))?
Max memory of (?P<of>{MEMORY}): (?P<peak>{N}) \(
\bRSS (?P<final>{N} MiB)(?:,| +◆)
^ *(?P<of>{MEMORY}) +(?P<peak>{N}) +(?P<at>{SPAN}) +(?P<final>{N}) +(?P<delta>{N}) +(?P<average>{N}) +(?P<lowest>{N}) *$
peak_rss>\+0%: (?P<peak>{N} MiB) against \1
duration>\+0%: (?P<duration>{N} s) against \1
cpu>\+0%: (?P<cpu>{N} s) against \1
rise to its peak of (?P<peak>{N} MiB)
UTC on \S+, (?P<duration>{N} s),
CPU +(?P<cpu>{N} s) \(user (?P<user>{N} s), system (?P<system>{N} s)\), (?P<cores>{N} cores) on average
average\n(?P<cores>{N} cores)
(?P<cpu>{N} s) of CPU
^Cores +(?P<cores_peak>{N})\s
^ *[\d.]+ +(?P<op>{NAME}) +(?P<rss_peak>{N}) +(?P<delta>{N}) +(?P<duration_s>{N} s)(?: +{RATES})?
^ *[\d.]+ +(?P<op>{NAME}) +{RATES}
^(?P<op>{NAME})\n(?P<rss_start>{N})\n(?P<rss_peak>{N})\n(?P<delta>{N})\n(?P<duration_s>{N} s) · \d+ %\n(?P<cpu_s>{N} s)
^ *\w+ +(?P<pid>\d+) +(?P<start>{N} s) +(?P<end>{N} s) +(?P<held>{N}) +(?P<cpu>{N} s)
"""
for name, pattern in (("N", _N), ("SPAN", _SPAN), ("MEMORY", _MEMORY), ("NAME", _OPERATION), ("RATES", _RATES)):
    _TEXT = _TEXT.replace(f"{{{name}}}", pattern)
_PATTERNS = _TEXT.strip("\n").split("\n")
_OF_RUN = ("duration", "cpu", "user", "system", "cores", "cores_peak", "held_at_end")
_MIB = 2**20
_WRITTEN = 0.006
"""The page's lines have two decimals."""
_OF_OPERATION = (
    "start_s",
    "duration_s",
    "rss_start",
    "rss_end",
    "delta",
    "rss_peak",
    "cpu_s",
    "cpu_average",
    "cpu_peak",
)


def answers(session: Session) -> dict[str, float]:
    """Return what the session answers to each name; None is not there."""
    found: dict[str, float | None] = {
        **dict(zip(_OF_RUN[:4], (session.duration_s, cpu_s(session), *map(session.totals.get, _CPU)), strict=True)),
        "cores": cores_average(session),
        "held_at_end": held_at_end(session),
        "cores_peak": highest_rate(session, cpu_counters(session.samples)),
    }
    for column in metrics.memory_of(session.samples.metrics):
        metric, of, peak = metrics.of(column), summarize_level(session, column), session.peaks[column]
        assert metric is not None
        from_s, to_s = peak.span_s or (None, None)
        values = {key: getattr(of, key) for key in ("peak", "first", "final", "delta", "average", "lowest")}
        values |= {"moment": None if from_s is None or to_s is None else (from_s + to_s) / 2}
        values |= {"from": from_s, "to": to_s, "sampled": peak.sampled, "low": peak.low, "high": peak.high}
        found |= {f"{metric.label} {key}": value for key, value in values.items()}
    for operation in session.operations:
        found |= {f"{operation.name} {key}": getattr(operation, key) for key in _OF_OPERATION}
    for process in session.processes:
        held = max(process.peak_rss or 0, process.high_water_mark or 0)
        values = {"start": process.start_s, "end": process.end_s, "held": held, "cpu": process.cpu_s}
        found |= {f"{process.pid} {key}": value for key, value in values.items()}
    return {name: value for name, value in found.items() if value is not None}


_CPU = ("cpu_user", "cpu_system")


def named(output: str, text: str) -> Said:
    """Yield what an output says by name."""
    if output in _READERS:
        yield from _READERS[output](text)
    elif output in COMPARED and output.removeprefix("compare ") in _READERS:
        yield from _READERS[output.removeprefix("compare ")](text)
    else:
        yield from _of_people(re.sub(r"[|*]|</?b>", " ", text))


def _of_people(text: str) -> Said:
    for pattern in _PATTERNS:
        for found in re.finditer(pattern, text, re.MULTILINE):
            whose = found.groupdict()
            of = whose.get("op") or whose.get("pid") or whose.get("of")
            for key, words in whose.items():
                if key not in {"op", "pid", "of"} and words not in {None, "–"}:
                    name = key if key in _OF_RUN and "pid" not in whose else f"{of or 'RSS'} {key}"
                    yield from _read(name, words)


def _read(name: str, words: str) -> Said:
    """Yield a figure; a moment has two ends, and a size without a unit is in MiB."""
    number, _, unit = words.replace("\n", " ").partition(" ")
    if name.endswith(" at"):
        first, _, last = number.partition("–")
        yield f"{name[:-3]} from", figure(first, unit)
        yield f"{name[:-3]} to", figure(last or first, unit)
        return
    is_size = not unit and not name.startswith("c") and "cpu_" not in name and name != "duration"
    yield name, figure(number.lstrip("+"), "MiB" if is_size else unit)


def _exact(value: float) -> Figure:
    return Figure(value, 0.51 if float(value).is_integer() else 2e-6)  # bytes are whole, seconds microseconds


def _of_summary(text: str) -> Said:
    document = json.loads(text)
    for column, peak in document["peaks"].items():
        yield from _of_peak(column, peak)
    for column, of in document["memory"].items():
        for key, value in of.items():
            yield f"{metrics.METRICS[column].label} {key}", _exact(value)
    yield "duration", _exact(document["duration_s"])
    yield "cpu", _exact(document["cpu"]["total_s"])
    yield "cores", _exact(document["cpu"]["cores_average"])
    built_up = (document["peak"] or {}).get("build_up")
    if built_up is not None:
        yield "RSS peak", _exact(built_up["size"])
    for operation in document["phases"]:
        yield from _known(operation["name"], {**operation, "delta": operation["rss_delta"]}, _OF_OPERATION)
    for process in document["processes"]["mattering"]:
        yield f"{process['pid']} cpu", _exact(process["cpu_s"])


def _known(of: str, document: dict[str, Any], keys: tuple[str, ...]) -> Said:
    for key in keys:
        if document.get(key) is not None:
            yield f"{of} {key}", _exact(document[key])


def _of_peak(column: str, peak: dict[str, Any]) -> Said:
    label = metrics.METRICS[column].label
    yield from _known(label, peak, ("sampled", "low", "high"))
    yield f"{label} peak", _exact(peak["low"])
    yield f"{label} to", _exact(peak["rose_to_s"])
    if peak["low_from"] == "sampled":
        yield f"{label} from", _exact(peak["at_s"])  # a sample that was read late shows what rose until then


def _of_session(text: str) -> Said:
    document = json.loads(text)
    for column, peak in document["peaks"].items():
        yield from _of_peak(column, peak)
    yield "duration", _exact(document["duration_s"])
    yield "cpu", _exact(sum(document["totals"][name] for name in _CPU))
    for process in document["processes"]:
        yield f"{process['pid']} cpu", _exact(process["cpu_s"])


def _of_samples(text: str) -> Said:
    rows = list(csv.DictReader(io.StringIO(text)))
    for column in metrics.memory_of(rows[0]):
        known = [float(row[column]) for row in rows if row[column]]
        for key, value in (("sampled", max(known)), ("first", known[0]), ("final", known[-1]), ("lowest", min(known))):
            yield f"{metrics.METRICS[column].label} {key}", _exact(value)


def _of_page(text: str) -> Said:
    yield from _of_people(texts_of(text))
    flame = data_of(text)["flame"]
    if flame:
        yield "RSS peak", _exact(flame["traces"][0]["values"][0])
    for line in traces_of(text, "Memory, "):
        if line["name"]:
            highest = max(size for size in line["y"] if size is not None)
            yield f"{line['name']} sampled", Figure(highest * _MIB, _WRITTEN * _MIB)


def _of_trace(text: str) -> Said:
    for event in json.loads(text)["traceEvents"]:
        args = event["args"]
        if event.get("cat") == "peak":
            yield from _of_people(event["name"])
            label = event["name"].split(" peak ")[0]
            yield f"{label} to", _exact(event["ts"] / 1e6)
            yield from _known(label, args, ("low", "high", "sampled"))
        elif event.get("cat") == "run":
            yield "duration", Figure(event["dur"] / 1e6, 1e-3)
        elif event.get("cat") == "process":
            yield f"{event['pid']} cpu", _exact(args["cpu_s"])
        elif event["ph"] == "X" and "operation" in args:
            yield from _known(args["operation"], args, _OF_OPERATION)
            yield f"{args['operation']} duration_s", _exact(event["dur"] / 1e6)


def _of_stacks(text: str) -> Said:
    yield "RSS peak", _exact(sum(int(line.rpartition(" ")[2]) for line in text.splitlines()))


def _of_speedscope(text: str) -> Said:
    yield "RSS peak", _exact(sum(json.loads(text)["profiles"][0]["weights"]))


_OF_HISTORY = {
    "peak-rss": "RSS peak",
    "peak-pss": "PSS peak",
    "duration": "duration",
    "cpu": "cpu",
    "held-at-end": "held_at_end",
}
_OF_HISTORY_OF_OPERATIONS = {"peak-rss": "rss_peak", "duration": "duration_s", "cpu": "cpu_s"}


def _of_bencher(text: str) -> Said:
    for benchmark, measures in json.loads(text).items():
        operation = benchmark.partition(" › ")[2]
        names = _OF_HISTORY_OF_OPERATIONS if operation else _OF_HISTORY
        for measure, of in measures.items():
            yield f"{operation} {names[measure]}".strip(), _exact(of["value"])


def _of_benchmark_action(text: str) -> Said:
    for entry in json.loads(text):
        *_, operation, label = ["", *entry["name"].split(" › ")[1:]]
        labels = {"Duration": "duration", "CPU time": "cpu", "Held at the end": "held-at-end"}
        measure = labels.get(label, label.lower().replace(" ", "-"))
        names = _OF_HISTORY_OF_OPERATIONS if operation else _OF_HISTORY
        factor = _MIB if entry["unit"] == "MiB" else 1
        yield f"{operation} {names[measure]}".strip(), Figure(entry["value"] * factor, 1e-6 * factor)


def _of_comparison(text: str) -> Said:
    (comparison,) = json.loads(text)["comparisons"]
    for name, of in comparison["figures"].items():
        label = f"{metrics.METRICS[name.removeprefix('peak_')].label} peak" if name.startswith("peak_") else name
        if name.startswith("peak_") or name in _OF_RUN:
            yield label, _exact(of["new"]["median"])
    for operation in comparison["operations"]:
        for key, name in (("peak_rss", "rss_peak"), ("duration", "duration_s"), ("cpu", "cpu_s")):
            yield f"{operation['name']} {name}", _exact(operation["figures"][key]["base"]["median"])


def _of_comparison_tables(text: str) -> Said:
    operation = ""
    for line in re.sub(r"[|*]", " ", text).splitlines():
        heading = re.fullmatch(rf" *({_OPERATION}) *", line)
        row = re.match(rf" *(Peak (?:{_MEMORY})|Duration|CPU time), (MiB|s) +({_N}) +({_N}) ", line)
        moment = re.match(rf"RSS peak of base at ({_SPAN})", line)
        if heading:
            operation = heading[1]
        if moment:
            yield from _read("RSS at", moment[1])
        if row and (not operation or not re.match("Peak (?!RSS)", row[1])):
            run, of_operation = _OF_TABLES.get(row[1], (f"{row[1].removeprefix('Peak ')} peak", "rss_peak"))
            for number in (row[3], row[4]):
                yield f"{operation} {of_operation}" if operation else run, figure(number, row[2])


_OF_TABLES = {"Duration": ("duration", "duration_s"), "CPU time": ("cpu", "cpu_s")}
_READERS = {
    "json": _of_summary,
    "session": _of_session,
    "csv": _of_samples,
    "parquet": _of_samples,
    "html": _of_page,
    "perfetto": _of_trace,
    "collapsed": _of_stacks,
    "speedscope": _of_speedscope,
    "bencher": _of_bencher,
    "benchmark-action": _of_benchmark_action,
    "compare json": _of_comparison,
    "compare text": _of_comparison_tables,
    "compare markdown": _of_comparison_tables,
    "compare html": lambda text: _of_comparison_tables(unescape(re.sub(r"<[^>]*>", "", text))),
}
