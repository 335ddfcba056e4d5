"""con-duct (0.1 to 0.23): one line of JSON per report, and an info file about the run next to it.

A report, by default every minute, holds maxima of the samples since the last report, by default one per second: of the
sum over all processes, and of each process. Before version 0.4, it holds the first of these samples. Version 0.1 counts
in KiB, names its sums ``rss_kb`` and ``vsz_kb``, and writes texts such as ``"3680 KiB"`` to the info file.

``pcpu`` is the maximum of ps's figure, CPU time divided by the process's lifetime rather than by the time since the
last report; CPU time is therefore unknown.
"""

from __future__ import annotations

import contextlib
import pathlib
from math import inf, nan
from typing import Any

import msgspec

from nncftools import intake
from nncftools.errors import SessionFileError
from nncftools.importers.source import Head, Lines, Source
from nncftools.importers.table import Children, Table, session_of, words
from nncftools.session.model import Exit, Host
from nncftools.session.session import Session
from nncftools.units import size_text

_INFO = "info.json"
_USAGE = ("usage.jsonl", "usage.json")
_LARGEST_INFO = 16 << 20
_UNITS = {"KiB": 1024, "sec": 1}
_WITHOUT_MAXIMA = ("0.1.", "0.2.", "0.3.")


class _Figures(msgspec.Struct):
    rss: float | None = None
    vsz: float | None = None
    rss_kib: float | None = msgspec.field(default=None, name="rss_kb")
    vsz_kib: float | None = msgspec.field(default=None, name="vsz_kb")
    cmd: str = ""


class _Report(msgspec.Struct):
    timestamp: str
    totals: _Figures
    num_samples: int = 1
    processes: dict[str, _Figures] = {}


class _System(msgspec.Struct):
    name: str | None = msgspec.field(default=None, name="hostname")
    system: str | None = msgspec.field(default=None, name="os_name")
    release: str | None = msgspec.field(default=None, name="os_release")
    machine: str | None = msgspec.field(default=None, name="arch")
    cpus: int | None = msgspec.field(default=None, name="cpu_total")
    memory: int | None = msgspec.field(default=None, name="memory_total")


class _Summary(msgspec.Struct):
    code: int | None = msgspec.field(default=None, name="exit_code")
    start_s: float | None = msgspec.field(default=None, name="start_time")
    duration_s: float | str | None = msgspec.field(default=None, name="wall_clock_time")
    peak_rss: float | str | None = None
    working_directory: str | None = None


class _Info(msgspec.Struct):
    execution_summary: _Summary
    command: str = ""
    version: str = msgspec.field(default="", name="duct_version")
    system: _System | None = None
    working_directory: str | None = None


def recognises(head: Head) -> bool:
    """Return whether the file begins with a report, or is an info file."""
    begin = head.text.lstrip()
    is_report = all(key in begin[:200] for key in (b'"timestamp"', b'"num_samples"', b'"processes"'))
    return begin.startswith(b"{") and (is_report or _is_info(head))


def read(source: Source) -> Session:
    """Return the session of a usage and info file, given either one. Raises SessionFileError without a usage file."""
    if not _is_info(source.head):
        return _Reports(source, _adjacent_info(source)).read()
    text = b""
    for lines in source.lines():
        text += lines.text
        if len(text) > _LARGEST_INFO:
            raise SessionFileError(f"{source.path}: larger than {_LARGEST_INFO >> 20} MiB: not an info file")
    info = _info(text, source.path)
    stem = source.path.name.removesuffix(_INFO)
    for name in _USAGE:
        if source.path.with_name(stem + name).exists():
            with source.sibling(stem + name) as usage:
                return _Reports(usage, info).read()
    raise SessionFileError(f"{source.path}: holds no samples, and con-duct's {stem}{_USAGE[0]} is not next to it")


def _is_info(head: Head) -> bool:
    return all(key in head.text for key in (b'"execution_summary"', b'"system"'))


def _info(text: bytes, path: pathlib.Path) -> _Info:
    try:
        info = msgspec.json.decode(text, type=_Info)
        summary = info.execution_summary
        summary.duration_s = _amount(summary.duration_s)
        summary.peak_rss = _amount(summary.peak_rss)
        intake.check(info)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise SessionFileError(f"{path}: not an info file of con-duct: {error}") from error
    return info


def _amount(value: float | str | None) -> float | None:
    """Return bytes or seconds, also of a text with a unit; None for ``unknown``."""
    if not isinstance(value, str):
        return value
    number, _, unit = value.partition(" ")
    with contextlib.suppress(ValueError, KeyError):
        return float(number) * _UNITS[unit]
    return None


def _adjacent_info(source: Source) -> _Info | None:
    """Return the info file next to a usage file; warn and return None when no file is there."""
    name = source.head.name
    stem = next((name.removesuffix(ending) for ending in _USAGE if name.endswith(ending)), None)
    path = source.path.with_name(f"{stem}{_INFO}")
    if stem is None or not path.is_file():
        source.problems.warn("con-duct's info file is not next to it: command, exit status and machine are unknown")
        return None
    try:
        return _info(intake.whole(path, most=_LARGEST_INFO), path)
    except SessionFileError as error:
        source.problems.warn(f"con-duct's info file next to it cannot be read: {error}")
        return None


class _Reports:
    def __init__(self, source: Source, info: _Info | None) -> None:
        self._source = source
        self._info = info
        self._began = info.execution_summary.start_s if info is not None else None
        self._table = Table(["rss", "vms"])
        self._children = Children()
        self._has_maxima = info is None or not info.version.startswith(_WITHOUT_MAXIMA)
        self._samples = 0
        self._max_samples = 0

    def _take(self, lines: Lines) -> None:
        problems = self._source.problems
        for number, line in lines.numbered():
            try:
                report = _REPORT.decode(line)
                intake.check(report)
                moment = intake.moment(report.timestamp).timestamp()
                totals = report.totals
                unit = 1
                if totals.rss_kib is not None:
                    unit = _UNITS["KiB"]
                    totals.rss, totals.vsz = totals.rss_kib, totals.vsz_kib
                    self._has_maxima = False
                values = [_value(totals.rss, unit), _value(totals.vsz, unit)]
            except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as why:
                problems.unreadable(number, line, why, is_whole=lines.whole)
                continue
            if self._began is None or (moment < self._began and not self._table.taken):
                self._began = moment
            time_s = moment - self._began
            if time_s < self._table.last_s:
                problems.went_back(number, self._table.last_s, time_s)
                continue
            self._table.append((time_s, *values))
            for pid, process in report.processes.items():
                if intake.is_pid(pid) and process.rss is not None and 0 <= process.rss * unit <= intake.LARGEST:
                    self._children.take(int(pid), time_s, process.rss * unit, process.cmd.split())
            self._samples += max(report.num_samples, 1)
            self._max_samples = max(self._max_samples, report.num_samples)

    def read(self) -> Session:
        for lines in self._source.lines():
            self._take(lines)
        self._warn()
        last_s = self._table.last_s if self._info is None else inf  # with the info file, all have ended
        known = {"processes": self._children.processes(last_s), **_session_fields(self._info)}
        session = session_of(self._source, "con-duct", self._table, began=self._began, **known)
        session.duration_s = max(session.duration_s, self._table.last_s)
        if self._max_samples > 1 and self._has_maxima:
            span_s = session.samples.time_s[-1] - session.samples.time_s[0]
            session.sampler = msgspec.structs.replace(
                session.sampler,
                taken=self._samples,
                achieved_interval_s=span_s / (self._samples - 1),
                merged_s=session.sampler.merged_s or session.sampler.achieved_interval_s,
                longest_gap_s=None,
            )
        return session

    def _warn(self) -> None:
        warn = self._source.problems.warn
        if self._max_samples > 1 and self._has_maxima:
            of_samples = f"the maxima of up to {self._max_samples:,} samples before it"
            exact = "the peak is exact, its time is that of the report, averages are those of maxima"
            warn(f"each row is a con-duct report: {of_samples}; {exact}")
        elif self._max_samples > 1:
            warn("each row is a report of con-duct before 0.4: the first sample of several, so peaks may be higher")
        self._children.warn(self._source.problems)
        reported = self._info.execution_summary.peak_rss if self._info is not None else None
        highest = max(self._table.columns()["rss"], default=nan)
        if self._has_maxima and isinstance(reported, float | int) and reported > highest:
            peaks = f"a peak of {size_text(reported)}, the reports reach only {size_text(highest)}"
            warn(f"the info file gives {peaks}: reports are missing")


_REPORT = msgspec.json.Decoder(_Report)


def _value(size: float | None, unit: int) -> float:
    """Return bytes, NaN for unknown. Raises ValueError for impossible sizes."""
    if size is None:
        return nan
    if not 0 <= size * unit <= intake.LARGEST:
        raise ValueError("bytes from 0 to 2^63 expected")
    return size * unit


def _session_fields(info: _Info | None) -> dict[str, Any]:
    if info is None:
        return {}
    summary = info.execution_summary
    system = msgspec.structs.asdict(info.system or _System())
    fields = {
        "command": words(info.command),
        "cwd": info.working_directory or summary.working_directory or "",
        "exit": None if summary.code is None else _exit(summary.code),
        "finished": True,
        "host": Host(**{name: value for name, value in system.items() if value is not None}),
    }
    return fields if summary.duration_s is None else {**fields, "duration_s": summary.duration_s}


def _exit(code: int) -> Exit:
    """Return how the command ended; before version 0.3, a code below 0 is that of a signal."""
    return Exit(signal=-code) if code < 0 else Exit(code=code)
