"""The run as trace events for ui.perfetto.dev and chrome://tracing.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU

Stacks are slices: how long a frame, at one line, was seen at its place in the stack of a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from math import inf
from typing import Any, NamedTuple

import msgspec
import numpy as np

from nncftools import metrics
from nncftools.analysis.code_places import reported_frames, shared_depth, what_runs
from nncftools.analysis.operation import Operation
from nncftools.analysis.session import Session
from nncftools.analysis.summary import keep_extremes, rates_of, run_s, window_s
from nncftools.metrics import cpu_counters, is_memory
from nncftools.render.listing import by_key, estimates_by_key
from nncftools.render.sentences import hints
from nncftools.render.stacks import place_text
from nncftools.render.view import View, command_text, label
from nncftools.session.model import Exit, Frame, Process, RankRun, Snapshots, WatchedProcess
from nncftools.units import MemoryUnit, shortened

Event = dict[str, Any]
Values = Iterable[float | None]
_Span = tuple[float, float, list[Frame]]
"""From when until when a thread had a stack."""

MOST_SLICES = 50_000


class StackSlice(NamedTuple):
    """A frame for as long as it was seen at one place of a stack, in seconds since the start."""

    frame: Frame
    from_s: float
    to_s: float

    @property
    def name(self) -> str:
        """The function, or the module that is imported."""
        return what_runs(self.frame)


def slices_by_thread(watched: WatchedProcess, snapshots: Snapshots) -> dict[int, list[StackSlice]]:
    """Return the slices of each thread that had a Python stack, by its ID: nested or disjoint ones."""
    stacks = [[of for _, of in reported_frames([snapshots.frames[at] for at in stack])] for stack in snapshots.stacks]
    spans: dict[int, list[_Span]] = {}
    for window in sorted(watched.windows, key=lambda window: window.from_s):
        for thread in window.threads:
            frames = [[] if stack is None else stacks[stack] for stack in thread.stacks]
            in_window = zip(thread.time_s, [*thread.time_s[1:], window.to_s], frames, strict=True)
            spans.setdefault(thread.thread, []).extend(in_window)
    return {thread: slices for thread, of in sorted(spans.items()) if (slices := list(_slices_of(of)))}


def _slices_of(spans: Iterable[_Span]) -> Iterator[StackSlice]:
    """Yield the slices of a thread: outer frames go on where the next stack follows at once, at the same lines."""
    running: list[StackSlice] = []
    until_s = -inf
    for begin_s, to_s, frames in spans:
        from_s = max(begin_s, until_s)
        if from_s > to_s:  # the window before has it
            continue
        same = shared_depth([of.frame for of in running], frames) if from_s == until_s else 0
        yield from running[same:]
        running = [of._replace(to_s=to_s) for of in running[:same]]
        running += [StackSlice(frame, from_s, to_s) for frame in frames[same:]]
        until_s = to_s
    yield from running


def longest(slices: Iterable[StackSlice], most: int) -> set[StackSlice]:
    """Return the longest slices: what encloses one of them is among them."""
    return set(sorted(slices, key=lambda stack: stack.from_s - stack.to_s)[:most])


_JSON = msgspec.json.Encoder()
_POINTS = 20_000
"""Of one metric; a viewer shows about 100,000 points in total without a pause."""
_POINTS_OF_PROCESSES, _FEWEST_POINTS = 200_000, 100
"""Of all processes together, and of each."""
_WINDOWS = 10_000
_NAME = 200
_AFTER_OPERATIONS = 1000
_RATE_UNITS = {"B": "bytes/s", "s": "cores", "": "per second"}
_LEVEL_UNITS = {"B": "bytes", "s": "seconds", "%": "percent", "": "count"}
_OF_OPERATION = ("call", "arguments", "saved", "source", "error", "cpu_s", "cpu_average", "longest_s", "total_s")


def report(session: Session, view: View) -> bytes:
    """Return the trace in UTF-8: microseconds since the start, bytes; all metrics and operations of all depths.

    Unknown values are left out.
    """
    title = shortened(view.title or session.name or command_text(session), _NAME)
    head = b'{\n"displayTimeUnit": "ms",\n"otherData": %b,\n"traceEvents": [\n' % _JSON.encode(_facts(session, title))
    return b"%b%b\n]\n}\n" % (head, b",\n".join(map(_JSON.encode, _events(session, title))))


def _facts(session: Session, title: str) -> dict[str, Any]:
    host = {key: value for key, value in msgspec.to_builtins(session.host).items() if value}
    return _known(
        {
            "run": title,
            "command": command_text(session),
            "start_utc": session.start.utc,
            "host": host or None,
            "rank": session.rank,
            "from_zero": session.from_zero or None,
            "tool": f"nncf-tools {session.tool_version}".rstrip(),
            "samples": len(session.samples),
            "points": f"of each metric at most {_POINTS:,}: the smallest and the largest value of every stretch",
            "rates": f"means of at least {window_s(session, _WINDOWS):.3g} s",
            "warnings": hints(session, MemoryUnit.MiB) or None,
        }
    )


def _events(session: Session, title: str) -> Iterator[Event]:
    """Yield the run as a process with the counters, then the ranks of a job, then each process of the run.

    An operation is shown in the process in which it ran; if this is unknown, in that of the run.
    """
    free = {process.pid for process in session.processes if process.pid}
    spare = count(max(free, default=0) + 1)
    run = next(spare)
    operations = _by_process(session)
    yield from _named(run, f"run: {title}", 0)
    if session.command:
        yield _metadata("process_labels", run, run, {"labels": command_text(session)})
    whole = _slice(title, (0.0, run_s(session)), _known({**_ending(session.exit), "start_utc": session.start.utc}))
    yield from _slices([whole, *map(_operation, operations.get(None, []))], run, spare)
    yield from _peaks(session, run)
    yield from _counters(session, run)
    for order, rank in enumerate(session.ranks, start=1):
        yield from _rank(rank, next(spare), order)
    points = min(_POINTS, max(_FEWEST_POINTS, _POINTS_OF_PROCESSES // max(1, len(session.processes))))
    for order, process in enumerate(sorted(session.processes, key=lambda process: process.start_s or 0.0), start=1):
        if process.pid in free:
            pid = process.pid
            free.remove(pid)
        else:
            pid = next(spare)
        yield from _named(pid, process.name or "unknown", len(session.ranks) + order)
        life = _life(process, session)
        yield from _slices([life, *map(_operation, operations.get(process.id, []))], pid, spare)
        if (series := process.series) is not None:
            moments, rss = series.time_s, series.rss
            yield from _counter(pid, label("rss"), "bytes", moments, rss, points=points, end_s=process.end_s)
        yield from _stacks(session, process.id, pid, spare)
    yield from _stacks(session, None, run, spare)


def _by_process(session: Session) -> dict[int | None, list[Operation]]:
    """Return operations by the ``id`` of their process; None when no process, or several at once, had their PID."""
    by_pid: dict[int | None, list[Process]] = {}
    for process in session.processes:
        by_pid.setdefault(process.pid, []).append(process)
    by_process: dict[int | None, list[Operation]] = {}
    for operation in session.operations:
        candidates = [] if operation.pid is None else by_pid.get(operation.pid, [])
        alive = [
            of
            for of in candidates
            if (of.start_s or 0.0) <= operation.start_s and (of.end_s is None or operation.start_s < of.end_s)
        ]
        performers = alive or candidates
        by_process.setdefault(performers[0].id if len(performers) == 1 else None, []).append(operation)
    return by_process


def _named(pid: int, name: str, order: int) -> Iterator[Event]:
    yield _metadata("process_name", pid, pid, {"name": shortened(name, _NAME)})
    yield _metadata("process_sort_index", pid, pid, {"sort_index": order})


def _metadata(name: str, pid: int, tid: int, args: Event) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args}


def _operation(operation: Operation) -> Event:
    args = {
        "operation": operation.name,
        **{name: getattr(operation, name) for name in _OF_OPERATION},
        **{key if key != "rss_delta" else "delta": value for key, value in by_key(operation).items()},
        **{key: is_estimate or None for key, is_estimate in estimates_by_key(operation).items()},
        "calls": operation.count if operation.count > 1 else None,
        "holds_peak": None if operation.has_peak is False else operation.has_peak or "perhaps",
        "parallel": operation.is_parallel or None,
    }
    title = f"{operation.name} {operation.signature or ''}".rstrip()
    return {**_slice(title, (operation.start_s, operation.end_s), _known(args)), "cat": operation.kind or "operation"}


def _rank(rank: RankRun, pid: int, order: int) -> Iterator[Event]:
    yield from _named(pid, f"{rank.name} on {rank.host.name}" if rank.host.name else rank.name, order)
    facts = _known({**_ending(rank.exit), "cpu_s": rank.cpu_s, "host": rank.host.name})
    yield {**_slice(rank.name, (rank.start_s, rank.start_s + rank.duration_s), facts), "pid": pid, "tid": pid}
    end_s = rank.start_s + rank.duration_s if rank.finished else None
    yield from _counter(pid, label("rss"), "bytes", rank.time_s, rank.rss, end_s=end_s)


def _life(process: Process, session: Session) -> Event:
    end_s = run_s(session) if process.end_s is None else process.end_s
    facts = {
        **{name: getattr(process, name) for name in ("id", "pid", "parent")},
        "command": shortened(" ".join(process.command), _NAME),
        **_ending(process.exit),
        **{name: getattr(process, name) for name in ("peak_rss", "high_water_mark", "cpu_s")},
        "began_s": process.start_s,
    }
    return {**_slice(process.name or "unknown", (process.start_s or 0.0, end_s), _known(facts)), "cat": "process"}


def _ending(exit_: Exit | None) -> dict[str, int | None]:
    return {} if exit_ is None else {"exit_code": exit_.code, "exit_signal": exit_.signal}


def _slice(name: str, span_s: tuple[float, float], args: Event) -> Event:
    """Return a slice without its track; one that began before the recording begins at 0."""
    start, end = (_us(max(0.0, moment)) for moment in span_s)
    name = shortened(name, _NAME)
    return {"ph": "X", "name": name, "cat": "run", "ts": start, "dur": max(0, end - start), "args": args}


def _slices(slices: Sequence[Event], pid: int, spare: Iterator[int]) -> Iterator[Event]:
    """Yield slices on few tracks. Those of one track do not overlap, or one contains the other."""
    tracks: list[list[Event]] = []
    open_until: list[list[int]] = []
    """Of each track, the ends of the slices that are open, the innermost last."""
    for event in sorted(slices, key=lambda event: (event["ts"], -event["dur"])):
        number = next((number for number, ends in enumerate(open_until) if _has_room(ends, event)), len(tracks))
        if number == len(tracks):
            tracks.append([])
            open_until.append([])
        tracks[number].append(event)
        open_until[number].append(event["ts"] + event["dur"])
    for number, track in enumerate(tracks):
        tid = next(spare) if number else pid
        yield from _track(pid, tid, "operations, overlapping" if number else "operations", number)
        yield from ({**event, "pid": pid, "tid": tid} for event in track)


def _has_room(open_until: list[int], event: Event) -> bool:
    """Return whether a slice fits into a track; slices come in the order of their starts."""
    while open_until and open_until[-1] <= event["ts"]:
        open_until.pop()
    return not open_until or event["ts"] + event["dur"] <= open_until[-1]


def _track(pid: int, tid: int, name: str, order: int) -> Iterator[Event]:
    yield _metadata("thread_name", pid, tid, {"name": name})
    yield _metadata("thread_sort_index", pid, tid, {"sort_index": order})


def _stacks(session: Session, process: int | None, pid: int, spare: Iterator[int]) -> Iterator[Event]:
    """Yield the Python stacks of a process, given by its ``id``, each frame as a slice; every thread has its track.

    Slices, because Perfetto ignores ``stackFrames`` and ``samples`` in JSON.
    """
    snapshots = session.snapshots or Snapshots()
    looked_at = [watched for watched in snapshots.processes if watched.process == process]
    threads = [item for watched in looked_at for item in slices_by_thread(watched, snapshots).items()]
    most = MOST_SLICES // max(1, len(snapshots.processes))
    shown = longest((stack for _, slices in threads for stack in slices), most)
    for order, (thread, slices) in enumerate(threads, start=1):
        tid = next(spare)
        yield from _track(pid, tid, f"Python stacks, thread {thread}", _AFTER_OPERATIONS + order)
        for stack in slices:
            if stack in shown:
                event = _slice(stack.name, (stack.from_s, stack.to_s), {"place": place_text(stack.frame)})
                yield {**event, "cat": "stack", "pid": pid, "tid": tid}


def _peaks(session: Session, run: int) -> Iterator[Event]:
    """Yield the peak of each memory metric as an instant: the moment at which it was certainly reached."""
    for name, peak in session.peaks.items():
        span_s = peak.span_s
        if is_memory(name) and span_s is not None:
            text = f"{label(name)} peak {MemoryUnit.MiB.label(peak.low)}"
            args = _known(msgspec.to_builtins(peak))
            moment = {"ph": "i", "name": text, "cat": "peak", "s": "p", "ts": _us(span_s[1])}
            yield {**moment, "pid": run, "tid": run, "args": args}


def _counters(session: Session, run: int) -> Iterator[Event]:
    """Yield gauges as levels and counters as rates; the rate of CPU time is the number of busy cores."""
    samples = session.samples
    both = cpu_counters(samples)
    if len(both) > 1:
        yield from _rates(session, "CPU", both, "cores", run)
    for name in samples.metrics:
        metric = metrics.of(name)
        if metric is not None and metric.is_counter:
            yield from _rates(session, metric.label, [name], _RATE_UNITS[metric.unit], run)
            continue
        unit = "value" if metric is None else _LEVEL_UNITS[metric.unit]
        yield from _counter(run, name if metric is None else metric.label, unit, samples.time_s, samples[name])


def _rates(session: Session, name: str, counters: Sequence[str], unit: str, run: int) -> Iterator[Event]:
    """Yield rates at the beginning of their windows, and the last one at the end of its window as well."""
    moments, speed = rates_of(session, counters, _WINDOWS)
    yield from _counter(run, name, unit, moments, np.append(speed, speed[-1:]))


def _counter(  # noqa: PLR0913 — a track and its data
    pid: int, name: str, unit: str, time_s: Values, values: Values, *, points: int = _POINTS, end_s: float | None = None
) -> Iterator[Event]:
    """Yield the known values, about ``points`` at most; the value is 0 from ``end_s`` on."""
    time, value = np.array(time_s, dtype=float), np.array(values, dtype=float)
    known = ~np.isnan(value)
    time, value = keep_extremes(time[known], value[known], points)
    if end_s is not None and len(time):
        time, value = np.append(time, max(end_s, time[-1])), np.append(value, 0.0)
    for moment, amount in zip(time.tolist(), value.tolist(), strict=True):
        shown = int(amount) if amount == int(amount) else round(amount, 4)
        yield {"ph": "C", "name": name, "pid": pid, "ts": _us(moment), "args": {unit: shown}}


def _us(moment_s: float) -> int:
    """Return whole microseconds: rounding keeps the order of moments, so nested slices stay nested."""
    return round(moment_s * 1_000_000)


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if value is not None and value != ""}
