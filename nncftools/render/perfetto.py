"""The run as trace events for ui.perfetto.dev and chrome://tracing.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU A slice is a bar on a track.
A slice of a stack shows how long a frame was seen at the same depth of a thread's stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
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
from nncftools.render.listing import estimates_by_key, figures_by_key
from nncftools.render.sentences import hints
from nncftools.render.stacks import write_place
from nncftools.render.view import View, command_text, label
from nncftools.session.model import Exit, Frame, Process, RankRun, Snapshots, WatchedProcess
from nncftools.units import MemoryUnit, shortened

Event = dict[str, Any]
Values = Iterable[float | None]
_Span = tuple[float, float, list[Frame]]
"""Start and end of the time in which a thread had a stack, and the frames of the stack."""

MOST_SLICES = 50_000


class StackSlice(NamedTuple):
    """A frame that was seen at the same depth of a stack, from ``from_s`` to ``to_s`` seconds after the start."""

    frame: Frame
    from_s: float
    to_s: float

    @property
    def name(self) -> str:
        """Name of the function, or of the module that is being imported."""
        return what_runs(self.frame)


def slices_by_thread(watched: WatchedProcess, snapshots: Snapshots) -> dict[int, list[StackSlice]]:
    """Return the slices of each thread that had a Python stack, by thread id.

    Slices of a thread are disjoint or nested.
    """
    stacks = []
    for stack in snapshots.stacks:
        frames = [snapshots.frames[index] for index in stack]
        stacks.append([frame for _, frame in reported_frames(frames)])
    spans: dict[int, list[_Span]] = {}
    for window in sorted(watched.windows, key=lambda window: window.from_s):
        for thread in window.threads:
            ends_s = [*thread.time_s[1:], window.to_s]
            for from_s, to_s, index in zip(thread.time_s, ends_s, thread.stacks, strict=True):
                frames = [] if index is None else stacks[index]
                spans.setdefault(thread.thread, []).append((from_s, to_s, frames))
    slices = {thread: list(_make_slices(spans[thread])) for thread in sorted(spans)}
    return {thread: of_thread for thread, of_thread in slices.items() if of_thread}


def _make_slices(spans: Iterable[_Span]) -> Iterator[StackSlice]:
    """Yield the slices of a thread.

    A slice continues if the next stack follows without a gap and has the same frame.
    """
    running: list[StackSlice] = []
    until_s = -inf
    for start_s, to_s, frames in spans:
        from_s = max(start_s, until_s)
        if from_s > to_s:  # an earlier window already has the stack
            continue
        same = 0
        if from_s == until_s:
            same = shared_depth([stack.frame for stack in running], frames)
        yield from running[same:]
        running = [stack._replace(to_s=to_s) for stack in running[:same]]
        running += [StackSlice(frame, from_s, to_s) for frame in frames[same:]]
        until_s = to_s
    yield from running


def longest(slices: Iterable[StackSlice], most: int) -> set[StackSlice]:
    """Return the longest slices, at most ``most``.

    Outer slices are longer, so they are returned with their inner slices.
    """
    return set(sorted(slices, key=lambda stack: stack.from_s - stack.to_s)[:most])


_JSON = msgspec.json.Encoder()
_POINTS = 20_000
"""Largest number of points of a metric: a viewer is slow above about 100,000 points in total."""
_POINTS_OF_PROCESSES = 200_000
"""Largest number of points of all processes together."""
_FEWEST_POINTS = 100
"""Number of points that each process has at least, even if there are very many processes."""
_WINDOWS = 10_000
_NAME = 200
_AFTER_OPERATIONS = 1000
_RATE_UNITS = {"B": "bytes/s", "s": "cores", "": "per second"}
_LEVEL_UNITS = {"B": "bytes", "s": "seconds", "%": "percent", "": "count"}
_OF_OPERATION = ("call", "arguments", "saved", "source", "error", "cpu_s", "cpu_average", "longest_s", "total_s")


def report(session: Session, view: View) -> bytes:
    """Return the trace as JSON in UTF-8. Memory is in bytes, time in microseconds since the start.

    The trace has all metrics, and the operations of all levels. Unknown values are left out.
    """
    title = shortened(view.title or session.name or command_text(session), _NAME)
    facts = _JSON.encode(_describe_run(session, title))
    events = b",\n".join(map(_JSON.encode, _make_events(session, title)))
    return b'{\n"displayTimeUnit": "ms",\n"otherData": %b,\n"traceEvents": [\n%b\n]\n}\n' % (facts, events)


def _describe_run(session: Session, title: str) -> dict[str, Any]:
    facts = msgspec.to_builtins(session.host)
    host = {key: value for key, value in facts.items() if value}
    return _drop_unknown(
        {
            "run": title,
            "command": command_text(session),
            "start_utc": session.start.utc,
            "host": host or None,
            "rank": session.rank,
            "from_zero": session.from_zero or None,
            "tool": f"nncf-tools {session.tool_version}".rstrip(),
            "samples": len(session.samples),
            "points": f"at most {_POINTS:,} of each metric: the extremes of each short interval",
            "rates": f"means of at least {window_s(session, _WINDOWS):.3g} s",
            "warnings": hints(session, MemoryUnit.MiB) or None,
        }
    )


def _make_events(session: Session, title: str) -> Iterator[Event]:
    """Yield the events of the whole run, of the ranks of a job, and of each process, in this order.

    The events of an operation belong to the operation's process, or to the run if the process is unknown.
    """
    free = {process.pid for process in session.processes if process.pid}
    spare = count(max(free, default=0) + 1)
    run = next(spare)
    operations = _group_by_process(session)
    yield from _name_process(run, f"run: {title}", 0)
    if session.command:
        yield _make_metadata("process_labels", run, run, {"labels": command_text(session)})
    facts = _drop_unknown({**_describe_end(session.exit), "start_utc": session.start.utc})
    whole = _make_slice(title, (0.0, run_s(session)), facts)
    yield from _place_on_tracks([whole, *operations.get(None, [])], run, spare)
    yield from _make_peaks(session, run)
    yield from _make_counters(session, run)
    for order, rank in enumerate(session.ranks, start=1):
        yield from _make_rank(rank, next(spare), order)
    share = _POINTS_OF_PROCESSES // max(1, len(session.processes))
    points = min(_POINTS, max(_FEWEST_POINTS, share))
    by_start = sorted(session.processes, key=lambda process: process.start_s or 0.0)
    for order, process in enumerate(by_start, start=len(session.ranks) + 1):
        if process.pid in free:
            pid = process.pid
            free.remove(pid)
        else:
            pid = next(spare)
        yield from _name_process(pid, process.name or "unknown", order)
        slices = [_make_life(process, session), *operations.get(process.id, [])]
        yield from _place_on_tracks(slices, pid, spare)
        series = process.series
        if series is not None:
            track = _Track(pid, label("rss"), "bytes")
            yield from track.write_levels(series.time_s, series.rss, points=points, end_s=process.end_s)
        yield from _make_stacks(session, process.id, pid, spare)
    yield from _make_stacks(session, None, run, spare)


def _group_by_process(session: Session) -> dict[int | None, list[Event]]:
    """Return the events of operations by the ``id`` of their process.

    The key is None if no process had the operation's PID, or if several had it at that time.
    """
    by_pid: dict[int | None, list[Process]] = {}
    for process in session.processes:
        by_pid.setdefault(process.pid, []).append(process)
    by_process: dict[int | None, list[Event]] = {}
    for operation in session.operations:
        candidates = [] if operation.pid is None else by_pid.get(operation.pid, [])
        alive = [process for process in candidates if _is_alive(process, operation.start_s)]
        performers = alive or candidates
        performer = performers[0].id if len(performers) == 1 else None
        by_process.setdefault(performer, []).append(_make_operation(operation))
    return by_process


def _is_alive(process: Process, at_s: float) -> bool:
    return (process.start_s or 0.0) <= at_s and (process.end_s is None or at_s < process.end_s)


def _name_process(pid: int, name: str, order: int) -> Iterator[Event]:
    yield _make_metadata("process_name", pid, pid, {"name": shortened(name, _NAME)})
    yield _make_metadata("process_sort_index", pid, pid, {"sort_index": order})


def _make_metadata(name: str, pid: int, tid: int, args: Event) -> Event:
    return {
        "ph": "M",
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": 0,
        "args": args,
    }


def _make_operation(operation: Operation) -> Event:
    args: Event = {"operation": operation.name}
    for name in _OF_OPERATION:
        args[name] = getattr(operation, name)
    for key, value in figures_by_key(operation).items():
        args["delta" if key == "rss_delta" else key] = value
    for key, is_estimate in estimates_by_key(operation).items():
        args[key] = is_estimate or None
    args["calls"] = operation.count if operation.count > 1 else None
    args["holds_peak"] = {True: True, None: "perhaps"}.get(operation.has_peak)
    args["parallel"] = operation.is_parallel or None
    title = f"{operation.name} {operation.signature or ''}".rstrip()
    event = _make_slice(title, (operation.start_s, operation.end_s), _drop_unknown(args))
    return {**event, "cat": operation.kind or "operation"}


def _make_rank(rank: RankRun, pid: int, order: int) -> Iterator[Event]:
    yield from _name_process(pid, f"{rank.name} on {rank.host.name}" if rank.host.name else rank.name, order)
    facts = _drop_unknown(
        {
            **_describe_end(rank.exit),
            "cpu_s": rank.cpu_s,
            "host": rank.host.name,
        }
    )
    end_s = rank.start_s + rank.duration_s
    yield {
        **_make_slice(rank.name, (rank.start_s, end_s), facts),
        "pid": pid,
        "tid": pid,
    }
    track = _Track(pid, label("rss"), "bytes")
    yield from track.write_levels(rank.time_s, rank.rss, end_s=end_s if rank.finished else None)


def _make_life(process: Process, session: Session) -> Event:
    end_s = run_s(session) if process.end_s is None else process.end_s
    facts = {
        "id": process.id,
        "pid": process.pid,
        "parent": process.parent,
        "command": shortened(" ".join(process.command), _NAME),
        **_describe_end(process.exit),
        "peak_rss": process.peak_rss,
        "high_water_mark": process.high_water_mark,
        "cpu_s": process.cpu_s,
        "began_s": process.start_s,
    }
    event = _make_slice(process.name or "unknown", (process.start_s or 0.0, end_s), _drop_unknown(facts))
    return {**event, "cat": "process"}


def _describe_end(exit_: Exit | None) -> dict[str, int | None]:
    return {} if exit_ is None else {"exit_code": exit_.code, "exit_signal": exit_.signal}


def _make_slice(name: str, span_s: tuple[float, float], args: Event) -> Event:
    """Return an event for a slice, without a track. A slice that began before the recording begins at 0."""
    start = _us(max(0.0, span_s[0]))
    duration = max(0, _us(max(0.0, span_s[1])) - start)
    return {
        "ph": "X",
        "name": shortened(name, _NAME),
        "cat": "run",
        "ts": start,
        "dur": duration,
        "args": args,
    }


def _place_on_tracks(slices: Sequence[Event], pid: int, spare: Iterator[int]) -> Iterator[Event]:
    """Yield the slices on as few tracks as possible: on each track, slices are disjoint or nested."""
    tracks: list[list[Event]] = []
    open_ends: list[list[int]] = []
    """Maps a track to the ends of the slices that are still open, the innermost last."""
    for event in sorted(
        slices,
        key=lambda event: (event["ts"], -event["dur"]),
    ):
        fitting = (number for number, ends in enumerate(open_ends) if _has_room(ends, event))
        number = next(fitting, len(tracks))
        if number == len(tracks):
            tracks.append([])
            open_ends.append([])
        tracks[number].append(event)
        open_ends[number].append(event["ts"] + event["dur"])
    for number, track in enumerate(tracks):
        tid = next(spare) if number else pid
        name = "operations, overlapping" if number else "operations"
        yield from _name_track(pid, tid, name, number)
        for event in track:
            yield {**event, "pid": pid, "tid": tid}


def _has_room(open_ends: list[int], event: Event) -> bool:
    """Return whether a slice fits into a track. The function must be called in the order of the slices' starts."""
    while open_ends and open_ends[-1] <= event["ts"]:
        open_ends.pop()
    return not open_ends or event["ts"] + event["dur"] <= open_ends[-1]


def _name_track(pid: int, tid: int, name: str, order: int) -> Iterator[Event]:
    yield _make_metadata("thread_name", pid, tid, {"name": name})
    yield _make_metadata("thread_sort_index", pid, tid, {"sort_index": order})


def _make_stacks(session: Session, process: int | None, pid: int, spare: Iterator[int]) -> Iterator[Event]:
    """Yield the Python stacks of a process: a track for each thread, a slice for each frame.

    ``process`` is the ID of the process in the session; ``pid`` is its number in the trace. Perfetto ignores the JSON
    fields ``stackFrames`` and ``samples``, so slices show the stacks.
    """
    snapshots = session.snapshots or Snapshots()
    threads: list[tuple[int, list[StackSlice]]] = []
    for watched in snapshots.processes:
        if watched.process == process:
            threads += slices_by_thread(watched, snapshots).items()
    most = MOST_SLICES // max(1, len(snapshots.processes))
    shown = longest(chain.from_iterable(slices for _, slices in threads), most)
    for order, (thread, slices) in enumerate(threads, start=_AFTER_OPERATIONS + 1):
        tid = next(spare)
        yield from _name_track(pid, tid, f"Python stacks, thread {thread}", order)
        for stack in slices:
            if stack in shown:
                place = {"place": write_place(stack.frame)}
                event = _make_slice(stack.name, (stack.from_s, stack.to_s), place)
                yield {**event, "cat": "stack", "pid": pid, "tid": tid}


def _make_peaks(session: Session, run: int) -> Iterator[Event]:
    """Yield an instant event for the peak of each memory metric, at the end of the time in which the peak occurred."""
    for name, peak in session.peaks.items():
        if is_memory(name) and peak.span_s is not None:
            yield {
                "ph": "i",
                "name": f"{label(name)} peak {MemoryUnit.MiB.label(peak.low)}",
                "cat": "peak",
                "s": "p",
                "ts": _us(peak.span_s[1]),
                "pid": run,
                "tid": run,
                "args": _drop_unknown(msgspec.to_builtins(peak)),
            }


def _make_counters(session: Session, run: int) -> Iterator[Event]:
    """Yield gauges as levels, and counters as rates. The rate of CPU time is the number of busy cores."""
    samples = session.samples
    both = cpu_counters(samples)
    if len(both) > 1:
        yield from _Track(run, "CPU", "cores").write_rates(session, both)
    for name in samples.metrics:
        metric = metrics.of(name)
        if metric is None:
            yield from _Track(run, name, "value").write_levels(samples.time_s, samples[name])
        elif metric.is_counter:
            track = _Track(run, metric.label, _RATE_UNITS[metric.unit])
            yield from track.write_rates(session, [name])
        else:
            track = _Track(run, metric.label, _LEVEL_UNITS[metric.unit])
            yield from track.write_levels(samples.time_s, samples[name])


class _Track(NamedTuple):
    pid: int
    name: str
    unit: str

    def write_rates(self, session: Session, counters: Sequence[str]) -> Iterator[Event]:
        """Yield each rate at the start of the time window; repeat the last rate at the end of the last window."""
        moments, rates = rates_of(session, counters, _WINDOWS)
        return self.write_levels(moments, np.append(rates, rates[-1:]))

    def write_levels(
        self, time_s: Values, values: Values, *, points: int = _POINTS, end_s: float | None = None
    ) -> Iterator[Event]:
        """Yield at most about ``points`` known values; from ``end_s`` on, the value is 0."""
        time = np.array(time_s, dtype=float)
        value = np.array(values, dtype=float)
        known = ~np.isnan(value)
        time, value = keep_extremes(time[known], value[known], points)
        if end_s is not None and len(time):
            time = np.append(time, max(end_s, time[-1]))
            value = np.append(value, 0.0)
        for moment_s, amount in zip(time.tolist(), value.tolist(), strict=True):
            shown = int(amount) if amount == int(amount) else round(amount, 4)
            yield {
                "ph": "C",
                "name": self.name,
                "pid": self.pid,
                "ts": _us(moment_s),
                "args": {self.unit: shown},
            }


def _us(moment_s: float) -> int:
    """Return whole microseconds. Rounding keeps the order of moments, so nested slices stay nested."""
    return round(moment_s * 1_000_000)


def _drop_unknown(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if value is not None and value != ""}
