"""con-duct (0.1 to 0.23): a line of JSON per report, and an info file about the run in the same folder.

A report, by default every minute, has maxima of the samples since the last report, by default a sample per second: of
the sum over all processes, and of each process. Before version 0.4, a report has the first of these samples. Version
0.1 counts in KiB, names the sums ``rss_kb`` and ``vsz_kb``, and writes texts such as ``"3680 KiB"`` to the info file.

``pcpu`` is the maximum of ps's figure, CPU time divided by the process's lifetime rather than by the time since the
last report; CPU time is therefore unknown.
"""

from __future__ import annotations

import pathlib
import re
from math import inf, nan
from typing import Annotated, Any

import msgspec

from nncftools import intake
from nncftools.analysis.session import Session
from nncftools.errors import SessionFileError
from nncftools.importers.source import Columns, RowLog, Source, split_command
from nncftools.intake import Count, Duration, Seconds, Size, Whole
from nncftools.session.model import Exit, Host
from nncftools.session.samples import TIME

_INFO = "info.json"
_LARGEST_INFO = 16 << 20
_WITHOUT_MAXIMA = ("0.1.", "0.2.", "0.3.")
_HOST = {
    "name": "hostname",
    "system": "os_name",
    "release": "os_release",
    "machine": "arch",
    "cpus": "cpu_total",
    "memory": "memory_total",
}
"""The keys of con-duct by field of a session's host."""
_Figure = Annotated[float, msgspec.Meta(ge=0, le=intake.LARGEST)] | None


class _System(msgspec.Struct, frozen=True, rename=_HOST):
    name: str = ""
    system: str = ""
    release: str = ""
    machine: str = ""
    cpus: Count | None = None
    memory: Size | None = None


class _Sizes(msgspec.Struct):
    rss: _Figure = None
    vsz: _Figure = None
    cmd: str = ""


class _Report(msgspec.Struct):
    timestamp: str
    totals: _Sizes
    num_samples: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] = 1
    processes: dict[str, _Sizes] = {}


class _Summary(msgspec.Struct, rename={"code": "exit_code", "start_s": "start_time", "duration_s": "wall_clock_time"}):
    code: Whole | None = None
    start_s: Seconds | None = None
    duration_s: Duration | None = None
    working_directory: str = ""


class _Info(msgspec.Struct):
    execution_summary: _Summary
    command: str = ""
    duct_version: str = ""
    system: _System = _System()
    working_directory: str = ""


_REPORT = msgspec.json.Decoder(_Report)


class Log(RowLog):
    """A row is a report: the sums, and the time in Unix seconds."""

    head = re.compile(
        rb".*\n\s*\{(?s:(?=.{0,200}\"timestamp\")(?=.{0,200}\"num_samples\")(?=.{0,200}\"processes\")|"
        rb"(?P<info>(?=.*\"execution_summary\")(?=.*\"system\")))"
    )
    recorder = "con-duct"
    columns = ("rss", "vms", TIME)
    start_s = inf
    _info: _Info | None = None
    _samples = 0
    _most_samples = 0

    def read(self) -> Session:
        """Return the session of a usage and info file, given either file. Raises SessionFileError."""
        source = self.source
        if b'"execution_summary"' in source.head:
            stem = source.path.name.removesuffix(_INFO)
            for name in ("usage.jsonl", "usage.json"):
                path = source.path.with_name(stem + name)
                if path.exists():
                    with Source(path, source.progress) as usage:
                        return Log(usage).read()
            raise SessionFileError(
                f"{source.path}: no samples in this file, and con-duct's {stem}usage.jsonl is not in the same folder"
            )
        name = re.sub(r"(usage\.jsonl?(\.gz)?)?$", _INFO, source.path.name, count=1)
        self._read_info(source.path.with_name(name))
        return super().read()

    def _read_info(self, path: pathlib.Path) -> None:
        try:
            text = intake.whole(path, most=_LARGEST_INFO, may_wait=False)
            info = msgspec.json.decode(re.sub(rb'"([\d.]+) sec"', rb"\1", text), type=_Info)  # of version 0.1
        except (msgspec.DecodeError, ValueError, RecursionError, SessionFileError) as error:
            self.source.warn(f"command, exit status and machine are unknown without con-duct's info file: {error}")
            return
        self._info = info
        self.start_s = info.execution_summary.start_s or inf

    def parse(self, texts: list[bytes]) -> Columns:
        """Return reports as rows."""
        if b'"rss_kb"' in texts[0]:  # version 0.1
            self.unit = 1024
            texts = [text.replace(b'_kb"', b'"') for text in texts]
        reports = [_REPORT.decode(text) for text in texts]
        totals = [report.totals for report in reports]
        times = [intake.moment(report.timestamp) for report in reports]
        return {
            "rss": [_or_nan(sizes.rss) for sizes in totals],
            "vms": [_or_nan(sizes.vsz) for sizes in totals],
            TIME: [time.timestamp() for time in times],
            "report": reports,
        }

    def take(self, columns: Columns) -> None:
        """Add the sums and processes of reports."""
        super().take(columns)
        for time_s, report in zip(columns[TIME], columns["report"], strict=True):
            self._samples += report.num_samples
            self._most_samples = max(self._most_samples, report.num_samples)
            for pid, process in report.processes.items():
                if intake.is_pid(pid) and process.rss is not None:
                    command = process.cmd.split()
                    self.children.extend(int(pid), [time_s], [process.rss], command)

    def known(self) -> dict[str, Any]:
        """Return the facts of the info file."""
        info = self._info
        version = "" if info is None else info.duct_version
        if self.unit > 1:
            version = "0.1."
        if self._most_samples > 1 and version.startswith(_WITHOUT_MAXIMA):
            self.source.warn(
                "each row is a report of con-duct before 0.4: the first sample of several, so peaks may be higher"
            )
        elif self._most_samples > 1:
            self.source.warn(
                f"each row is a con-duct report: the maxima of up to {self._most_samples:,} samples before the report; "
                "the peak is exact, its time is the report's time, averages are averages of maxima"
            )
            self.table.taken = self._samples
        if info is None:
            return {}
        summary = info.execution_summary
        code = summary.code or 0
        return {
            "duration_s": summary.duration_s or 0.0,
            "command": split_command(info.command),
            "cwd": info.working_directory or summary.working_directory,
            "exit": Exit(code=summary.code) if code >= 0 else Exit(signal=-code),
            "finished": True,
            "host": Host(**msgspec.structs.asdict(info.system)),
        }


def _or_nan(figure: float | None) -> float:
    return nan if figure is None else figure
