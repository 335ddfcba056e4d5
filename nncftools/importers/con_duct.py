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
import re
from math import inf, nan
from typing import Any

import msgspec

from nncftools import intake
from nncftools.errors import SessionFileError
from nncftools.importers.source import Head, Source
from nncftools.importers.table import Children, RowLog, words
from nncftools.session.model import Exit, Host
from nncftools.session.samples import TIME
from nncftools.session.session import Session
from nncftools.units import size_text

_INFO = "info.json"
_USAGE = ("usage.jsonl", "usage.json")
_LARGEST_INFO = 16 << 20
_UNITS = {"KiB": 1024, "sec": 1}
_WITHOUT_MAXIMA = ("0.1.", "0.2.", "0.3.")
_IS_INFO = re.compile(rb'\s*\{(?=.*"execution_summary")(?=.*"system")', re.DOTALL)
_IS_USAGE = re.compile(rb'\s*\{(?=.{0,200}"timestamp")(?=.{0,200}"num_samples")(?=.{0,200}"processes")', re.DOTALL)
_HOST = {
    "name": "hostname",
    "system": "os_name",
    "release": "os_release",
    "machine": "arch",
    "cpus": "cpu_total",
    "memory": "memory_total",
}
"""By field of a session's host: the key of con-duct."""


class _Sizes(msgspec.Struct):
    rss: float | None = None
    vsz: float | None = None
    rss_kb: float | None = None
    vsz_kb: float | None = None
    cmd: str = ""


class _Report(msgspec.Struct):
    timestamp: str
    totals: _Sizes
    num_samples: int = 1
    processes: dict[str, _Sizes] = {}


class _Summary(msgspec.Struct, rename={"code": "exit_code", "start_s": "start_time", "duration_s": "wall_clock_time"}):
    code: int | None = None
    start_s: float | None = None
    duration_s: float | str | None = None
    peak_rss: float | str | None = None
    working_directory: str | None = None


class _Info(msgspec.Struct):
    execution_summary: _Summary
    command: str = ""
    duct_version: str = ""
    system: dict[str, Any] | None = None
    working_directory: str | None = None


def recognises(head: Head) -> bool:
    """Return whether the file begins with a report, or is an info file."""
    return _IS_USAGE.match(head.text) is not None or _IS_INFO.match(head.text) is not None


def read(source: Source) -> Session:
    """Return the session of a usage and info file, given either one. Raises SessionFileError without a usage file."""
    if _IS_INFO.match(source.head.text) is None:
        return _Reports(source, _adjacent_info(source)).read()
    info = _read_info(source.path)
    stem = source.path.name.removesuffix(_INFO)
    for name in _USAGE:
        path = source.path.with_name(stem + name)
        if path.exists():
            with Source(path, source.progress) as usage:
                return _Reports(usage, info).read()
    raise SessionFileError(f"{source.path}: holds no samples, and con-duct's {stem}{_USAGE[0]} is not next to it")


def _adjacent_info(source: Source) -> dict[str, Any]:
    """Return the facts of the info file next to a usage file; warn when no file is there."""
    path = source.path.with_name(re.sub(r"usage\.jsonl?$", _INFO, source.head.name))
    if path.name == source.head.name or not path.is_file():
        source.problems.warn("con-duct's info file is not next to it: command, exit status and machine are unknown")
        return {}
    try:
        return _read_info(path)
    except SessionFileError as error:
        source.problems.warn(f"con-duct's info file next to it cannot be read: {error}")
        return {}


def _read_info(path: pathlib.Path) -> dict[str, Any]:
    """Return the facts of an info file. Raises SessionFileError."""
    try:
        info = msgspec.json.decode(intake.whole(path, most=_LARGEST_INFO, may_wait=False), type=_Info)
        summary = info.execution_summary
        summary.duration_s = _amount(summary.duration_s)
        summary.peak_rss = _amount(summary.peak_rss)
        intake.check(info)
        system = info.system or {}
        known = {name: system[key] for name, key in _HOST.items() if system.get(key) is not None}
        host = msgspec.convert(known, Host)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise SessionFileError(f"{path}: not an info file of con-duct: {error}") from error
    return {
        "start_s": summary.start_s,
        "version": info.duct_version,
        "peak_rss": summary.peak_rss,
        "duration_s": summary.duration_s or 0.0,
        "command": words(info.command),
        "cwd": info.working_directory or summary.working_directory or "",
        "exit": None if summary.code is None else _exit(summary.code),
        "finished": True,
        "host": host,
    }


def _amount(value: float | str | None) -> float | None:
    """Return bytes or seconds, also of a text with a unit; None for ``unknown``."""
    if not isinstance(value, str):
        return value
    number, _, unit = value.partition(" ")
    with contextlib.suppress(ValueError, KeyError):
        return float(number) * _UNITS[unit]
    return None


def _exit(code: int) -> Exit:
    """Return how the command ended; before version 0.3, a code below 0 is that of a signal."""
    return Exit(signal=-code) if code < 0 else Exit(code=code)


_REPORT = msgspec.json.Decoder(_Report)


class _Reports(RowLog):
    """A row is a report: its sums, in Unix seconds."""

    recorder = "con-duct"
    metrics = ("rss", "vms")
    is_unix = True
    row_may_end_open = True

    def __init__(self, source: Source, facts: dict[str, Any]) -> None:
        self.start_s = facts.pop("start_s", None) or inf
        self._peak = facts.pop("peak_rss", None) or 0.0
        self._has_maxima = not facts.pop("version", "").startswith(_WITHOUT_MAXIMA)
        self._facts = facts
        self._children = Children()
        self._samples = 0
        self._most_samples = 0
        super().__init__(source, (*self.metrics, TIME))

    def parse(self, text: bytes) -> dict[str, Any]:
        report = _REPORT.decode(text)
        intake.check(report)
        totals = report.totals
        if totals.rss_kb is not None:
            self.unit = _UNITS["KiB"]
            self._has_maxima = False
            totals.rss, totals.vsz = totals.rss_kb, totals.vsz_kb
        rss, vms = (nan if size is None else size for size in (totals.rss, totals.vsz))
        if rss < 0 or vms < 0:
            raise ValueError("bytes from 0 to 2^63 expected")
        return {"rss": rss, "vms": vms, TIME: intake.moment(report.timestamp).timestamp(), "report": report}

    def take(self, row: dict[str, Any]) -> None:
        report: _Report = row.pop("report")
        super().take(row)
        self._samples += max(report.num_samples, 1)
        self._most_samples = max(self._most_samples, report.num_samples)
        for pid, process in report.processes.items():
            if intake.is_pid(pid) and process.rss is not None and process.rss >= 0:
                self._children.take(int(pid), row[TIME], process.rss, process.cmd.split())

    def known(self) -> dict[str, Any]:
        self._warn()
        if self._most_samples > 1 and self._has_maxima:
            self.table.taken = self._samples
            self.table.longest_gap_s = None
        end_s = inf if self._facts else self.table.last_s  # with the info file, all processes have ended
        return {
            **self._facts,
            "processes": self._children.processes(end_s, self.unit),
            "duration_s": max(self._facts.get("duration_s", 0.0), self.table.last_s),
        }

    def _warn(self) -> None:
        warn = self.source.problems.warn
        if self._most_samples > 1 and self._has_maxima:
            of_samples = f"the maxima of up to {self._most_samples:,} samples before it"
            exact = "the peak is exact, its time is that of the report, averages are those of maxima"
            warn(f"each row is a con-duct report: {of_samples}; {exact}")
        elif self._most_samples > 1:
            warn("each row is a report of con-duct before 0.4: the first sample of several, so peaks may be higher")
        self._children.warn(self.source.problems)
        highest = max(self.table.columns()["rss"], default=nan)
        if self._has_maxima and self._peak > highest:
            peaks = f"a peak of {size_text(self._peak)}, the reports reach only {size_text(highest)}"
            warn(f"the info file gives {peaks}: reports are missing")
