"""Snapshots from the log of the helper process, which may be cut off by a kill."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nncftools import intake
from nncftools.journal.snapshot_lines import SnapshotLine
from nncftools.redaction import Redaction
from nncftools.session.snapshots import (
    MOST_FRAMES,
    Frame,
    Look,
    MappingGroup,
    MappingsMoment,
    ProcessMappings,
    Snapshots,
    ThreadLook,
    WatchedProcess,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.journal import snapshot_lines as lines
    from nncftools.session.model import Process, Start

TICKS_PER_S = 100
"""Clock ticks in ``/proc`` (USER_HZ), the same on all machines that Linux runs on today."""
_OUR_FILE = "<frozen importlib._bootstrap nncf-tools>"
"""Frames of the hook: see ``marks/hook/sitecustomize.py``."""


def snapshots_from(
    data: bytes, start: Start, processes: Sequence[Process], redact: Sequence[str] | None
) -> Snapshots | None:
    """Return what the helper's log ``data`` contains; None if it is empty.

    Unreadable lines are left out; after a lost frame or stack, nothing more is read.
    """
    if start.monotonic_ns is None or not data:
        return None
    reader = _Reader(start.monotonic_ns, processes, Redaction(redact))
    for text in data.split(b"\n"):
        if text:
            try:
                line = msgspec.json.decode(text, type=SnapshotLine)
                intake.check(line)
                reader.take(line)
            except _LostError:
                break
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LookupError, TypeError, ValueError):
                continue
    return reader.finished()


class _LostError(Exception):
    """A frame or a stack is missing: later lines may name another one by its number."""


class _Reader:
    def __init__(self, start_ns: int, processes: Sequence[Process], redaction: Redaction) -> None:
        self.found = Snapshots()
        self._start_ns = start_ns
        self._processes = processes
        self._redaction = redaction
        self._watched: dict[int, WatchedProcess] = {}
        self._stacks: dict[int, dict[int, int]] = {}
        """By process and thread: the stack at the last look."""

    def take(self, line: SnapshotLine) -> None:
        if "helper" in line:
            self.found.missing = line["helper"]["missing"]
        elif "frame" in line:
            number, function, file, line_number = line["frame"]
            self._expect(number, len(self.found.frames))
            self.found.frames.append(Frame(function, self._redaction.text(file), line_number))
        elif "stack" in line:
            self._take_stack(*line["stack"])
        elif "process" in line:
            self._take_process(line["process"])
        elif "rss" in line:
            self._take_points(line["rss"])
        elif "look" in line:
            self._take_look(line["look"])
        elif "mappings" in line:
            self._take_mappings(line["mappings"])
        elif "problem" in line:
            self.found.missing = self.found.missing or self._problem(line["problem"])
        elif "end" in line:
            self.found.cpu_s, self.found.failed = line["end"]["cpu_s"], line["end"]["failed"]

    def finished(self) -> Snapshots:
        """Return what was found; a log without its last line says so."""
        if self.found.cpu_s is None and self.found.missing is None:
            last_s = max((watched.time_s[-1] for watched in self.found.processes if watched.time_s), default=0.0)
            self.found.missing = f"the helper process ended early, at {last_s:.1f} s"
        return self.found

    def _expect(self, number: int, expected: int) -> None:
        if number != expected:
            raise _LostError(f"number {expected} is missing")

    def _seconds(self, t_ns: int) -> float:
        return max(0.0, round((t_ns - self._start_ns) / 1e9, 6))

    def _take_stack(self, number: int, stack: list[int]) -> None:
        self._expect(number, len(self.found.stacks))
        if len(stack) > MOST_FRAMES or not all(0 <= frame < len(self.found.frames) for frame in stack):
            raise _LostError("the line was damaged")
        self.found.stacks.append([place for place in stack if self.found.frames[place].file != _OUR_FILE])

    def _take_process(self, line: lines.WatchedProcess) -> None:
        at_s = self._seconds(line["t_ns"])
        same = [process for process in self._processes if process.pid == line["pid"] and _lives(process, at_s)]
        watched = WatchedProcess(process=same[-1].id if same else None, pid=line["pid"], inherited=line["inherited"])
        self._watched[line["number"]] = watched
        self.found.processes.append(watched)

    def _take_points(self, line: lines.RssPoints) -> None:
        watched = self._watched[line["process"]]
        for t_ns, rss in zip(line["t_ns"], line["rss"], strict=False):
            time_s = self._seconds(t_ns)
            before = (watched.time_s[-1], watched.rss[-1]) if watched.time_s else (0.0, None)
            if (time_s, rss) != before and time_s >= before[0]:
                watched.time_s.append(time_s)
                watched.rss.append(rss)

    def _take_look(self, line: lines.Look) -> None:
        known = self._stacks.setdefault(line["process"], {})
        for thread, stack in line["stacks"].items():
            if stack is None:
                known.pop(thread, None)
            else:
                if not 0 <= stack < len(self.found.stacks):
                    raise LookupError("the line was damaged")
                known[thread] = stack
        faults, ticks = line["faults"], line["ticks"]
        threads = [
            ThreadLook(thread, known.get(thread), faults.get(thread, 0), ticks.get(thread, 0) / TICKS_PER_S)
            for thread in sorted(known.keys() | faults.keys())
        ]
        look = Look(self._seconds(line["t_ns"]), threads, line["lost"])
        looks = self._watched[line["process"]].looks
        intake.check_rising([*(before.time_s for before in looks[-1:]), look.time_s], "$.look.t_ns")
        looks.append(look)

    def _take_mappings(self, line: lines.Mappings) -> None:
        listed = []
        for number, groups in line["processes"]:
            watched = self._watched.get(number)
            found = [MappingGroup(kind, self._redaction.text(file), *sizes) for kind, file, sizes in groups]
            listed.append(ProcessMappings(None if watched is None else watched.process, found))
        moment = MappingsMoment(time_s=self._seconds(line["t_ns"]), total=line["total"], processes=listed)
        self.found.mappings.append(moment)

    def _problem(self, line: lines.Problem) -> str:
        watched = self._watched.get(line["process"])
        who = "a process" if watched is None else f"process {watched.pid}"
        if line["text"] == "refused":
            return f"the kernel does not allow to read the stacks of {who}"
        if line["text"] == "no_python":
            return f"no program that grew runs Python, {who} for instance"
        return f"the stacks of {who} could not be read: {line['text']}"


def _lives(process: Process, at_s: float) -> bool:
    near_s = 0.2
    return (process.start_s or 0.0) - near_s <= at_s and (process.end_s is None or at_s <= process.end_s + near_s)
