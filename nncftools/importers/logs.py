"""The logs of NNCF, mprof, psrecord and con-duct: each class describes the lines of one recorder."""

from __future__ import annotations

import heapq
import pathlib
import re
from collections.abc import Sequence
from itertools import accumulate
from math import inf, nan
from operator import mul, sub
from typing import Annotated, Any

import msgspec

from nncftools import intake
from nncftools.analysis.session import Session
from nncftools.errors import SessionFileError
from nncftools.importers.source import Columns, RowLog, Source, split_command
from nncftools.intake import LARGEST, LARGEST_PID, LATEST_S, Count, Duration, Seconds, Size, Whole, is_pid
from nncftools.metrics import MEMORY, is_counter
from nncftools.session.model import Exit, Host, Mark
from nncftools.session.nesting import in_order
from nncftools.session.samples import TIME
from nncftools.units import MemoryUnit

_COMMAND = LARGEST_PID
"""The PID of ``MEM``, the command: no kernel gives this PID."""
_MAX_CALLS = 10_000


class Mprof(RowLog):
    """``mprof run`` of memory-profiler (0.61): lines that begin with a keyword.

    - ``CMDLINE``: the command;
    - ``MEM``: MiB and Unix seconds;
    - ``CHLD``: PID, MiB and Unix seconds of each child, after the ``MEM`` of the same sample (``--multiprocess``; PID
      0: some children could not be read);
    - ``FUNC``: name, MiB and Unix seconds at the start and at the end, and the call depth.

    ``FUNC`` lines are written when the program ends, while ``MEM`` lines are buffered, fifty at a time. ``FUNC`` may
    come first. A row is PID, MiB and Unix seconds.
    """

    head = re.compile(
        rb".*\n(CMDLINE .|MEM -?[\d.]+ [\d.]+(\n|$)|CHLD \d+ [\d.]+ [\d.]+(\n|$)|FUNC .+( [\d.]+){4}( \d+)?(\n|$))"
    )
    recorder = "mprof"
    columns = ("pid", "rss", TIME)
    unit = MemoryUnit.MiB.factor
    start_s = inf
    first = "command"
    others = (
        r"CMDLINE (?P<command>.*)|"
        r"FUNC \.?(?P<name>.+?) -?\d+\.\d+ (?P<start>\d+\.\d+) -?\d+\.\d+ (?P<end>\d+\.\d+)( (?P<level>\d{1,4}))?"
    )

    def __init__(self, source: Source) -> None:
        """Read nothing yet. Calls may come first, and before the command."""
        super().__init__(source)
        self._calls: list[tuple[float, float, int, str]] = []
        self._unread_children = 0

    def parse(self, texts: list[bytes]) -> Columns:
        """Return ``MEM`` and ``CHLD`` lines as rows."""
        if not all(text.startswith((b"MEM ", b"CHLD ")) for text in texts):
            raise ValueError("a line of CMDLINE, MEM, CHLD or FUNC expected")
        command = b"%d" % _COMMAND
        texts = [text.replace(b"MEM", command) for text in texts]
        return super().parse([text.replace(b"CHLD", b"") for text in texts])

    def take(self, columns: Columns) -> None:
        """Add rows: most logs have no children."""
        if not self.children.tables and {*columns["pid"]} == {_COMMAND}:
            super().take(columns)
            return
        times, sizes = self.table.columns.values()
        for pid, size, time_s in zip(*columns.values(), strict=True):
            if pid == _COMMAND:
                super().take({"rss": [size], TIME: [time_s]})
                if self.children.tables:
                    self.children.extend(None, [time_s], [size])
            elif pid and self.table.taken:
                if not self.children.tables:  # so far, all rows are of the command
                    self.children.extend(None, times, sizes, self._split_command())
                self.children.extend(int(pid), times[-1:], [size])
                sizes[-1] += size
            else:
                self._unread_children += 1

    def take_other(self, found: dict[str, str]) -> None:
        """Take the command, or a call."""
        if "command" in found:
            super().take_other(found)
            return
        start = float(found["start"])
        duration = float(found["end"]) - start
        level = int(found.get("level", 0))
        heapq.heappush(self._calls, (duration, start, level, found["name"]))
        if len(self._calls) > _MAX_CALLS:
            heapq.heappop(self._calls)

    def known(self) -> dict[str, Any]:
        """Return the command and the calls."""
        warn = self.source.warn
        if self.children.tables:
            warn(
                "RSS is the sum of the command (MEM) and its children (CHLD); if mprof also ran with "
                "--include-children, MEM includes the children already, and they are counted twice"
            )
        if self._unread_children:
            warn(f"children (CHLD) without a PID or a sample (MEM): {self._unread_children:,}; RSS is a lower bound")
        if len(self._calls) == _MAX_CALLS:
            warn(f"at most the {_MAX_CALLS:,} longest calls (FUNC) are kept")
        begin = self.began or 0.0
        marks = []
        duration_s = 0.0
        for duration, start, level, name in self._calls:
            end = start + duration
            if duration >= 0 and begin <= end <= LATEST_S:  # the file may have older calls
                duration_s = max(duration_s, end - begin)
                start_s = max(0.0, start - begin)
                mark = Mark(name=name, start_s=start_s, depth=level, source="mprof")
                mark.end_s = end - begin
                marks.append(mark)
        command = self._split_command()
        is_pid_alone = len(command) == 1 and is_pid(command[0])
        pid = int(command[0]) if is_pid_alone else None
        return {
            "command": command if pid is None else [],
            "attached_to": pid,
            "marks": in_order(marks),
            "duration_s": duration_s,
        }

    def _split_command(self) -> list[str]:
        """Return the words of the command; ``mprof attach`` writes a list of words."""
        text = self.found.get("command", "").strip()
        if text.startswith("['"):
            return [word.removesuffix(",") for word in split_command(text.strip("[]"))]
        return split_command(text)


_COLUMNS = {
    "elapsed time": TIME,
    "real (mb)": "rss",
    "mem real": "rss",
    "virtual (mb)": "vms",
    "mem virtual": "vms",
    "cpu (%)": "cpu",
    "cpu": "cpu",
    "nproc": "processes",
    "read bytes": "read_bytes",
    "write bytes": "write_bytes",
}
"""Metrics by column name; other columns are ignored."""


class Psrecord(RowLog):
    """psrecord (1.4): a header, then one row per sample, plain or CSV.

    Memory is in units of 2^20 bytes, CPU in per cent of one core since the previous row (psutil's ``cpu_percent``: 0 in
    a process's first row). Read and write bytes are storage I/O of the live processes. The text that psrecord prints
    around the rows on standard output is read, too. The header before the rows names the columns.
    """

    head = re.compile(
        rb"(.*\n){1,3}(# *Elapsed time  +CPU \(%\)  +Real \(MB\)  +Virtual \(MB\)|elapsed_time,nproc,cpu,mem_real,)"
    )
    """Two lines may precede the header."""
    recorder = "psrecord"
    columns: Sequence[str] = (TIME, "cpu", "rss", "vms")
    unit = MemoryUnit.MiB.factor
    first = "header"
    others = (
        r"(?P<header># *Elapsed time  .*|elapsed_time,.*)|Attaching to process (?P<pid>\d{1,9})|"
        r"Starting up command '(?P<command>.*)' and attaching to process|"
        r"Process finished \((?P<duration>\d{1,9}\.\d+) seconds\)"
    )

    def reset(self) -> None:
        """Drop all rows."""
        super().reset()
        self._last: Columns = {}
        """The last row, as in the log."""

    def take(self, columns: Columns) -> None:
        """Add rows, with CPU time and bytes counted from the first row."""
        rises = {}
        for name, values in columns.items():
            previous = [*self._last.get(name, values[:1]), *values]
            rises[name] = list(map(sub, values, previous))
        self._last = {name: values[-1:] for name, values in columns.items()}
        for name in filter(is_counter, columns):
            gains = [max(0.0, rise) for rise in rises[name]]
            if name == "cpu":  # per cent of a core since the previous row
                products = map(mul, columns[name], rises[TIME])
                gains = [product / 100 for product in products]
            total = self.table.columns[name][-1:] or [0.0]
            columns[name] = list(accumulate(gains, initial=total[0]))[1:]
        super().take(columns)

    def take_other(self, found: dict[str, str]) -> None:
        """Take the columns that a header names, or a fact that psrecord printed."""
        super().take_other(found)
        if "header" in found:
            header = found["header"].strip("# ").lower().replace("_", " ")
            names = re.split(r" {2,}|,", header)
            self.columns = [_COLUMNS.get(name, f"?{name}") for name in names]
            self.reset()

    def known(self) -> dict[str, Any]:
        """Return the facts that psrecord printed."""
        return {
            "command": split_command(self.found.get("command", "")),
            "attached_to": int(self.found.get("pid", 0)) or None,
            "duration_s": float(self.found.get("duration", 0)),
        }


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


class ConDuct(RowLog):
    """con-duct (0.1 to 0.23): a line of JSON per report, and an info file about the run in the same folder.

    A report, by default every minute, has maxima of the samples since the last report, by default a sample per second:
    of the sum over all processes, and of each process. Before version 0.4, a report has the first of these samples.
    Version 0.1 counts in KiB, names the sums ``rss_kb`` and ``vsz_kb``, and writes texts such as ``"3680 KiB"`` to the
    info file.

    ``pcpu`` is the maximum of ps's figure, CPU time divided by the process's lifetime rather than by the time since the
    last report; CPU time is therefore unknown.

    A row is a report: the sums, and the time in Unix seconds.
    """

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
                        return ConDuct(usage).read()
            raise SessionFileError(
                f"{source.path}: no samples in this file, and con-duct's {stem}usage.jsonl is not in the same folder"
            )
        name = re.sub(r"(usage\.jsonl?(\.gz)?)?$", _INFO, source.path.name, count=1)
        self._read_info(source.path.with_name(name))
        return super().read()

    def _read_info(self, path: pathlib.Path) -> None:
        try:
            text = intake.read_file(path, most=_LARGEST_INFO, may_wait=False)
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
        if self._most_samples > 1:
            warning = "each row is a report of con-duct before 0.4: the first sample of several, so peaks may be higher"
            if not version.startswith(_WITHOUT_MAXIMA):
                warning = (
                    f"each row is a con-duct report: the maxima of up to {self._most_samples:,} samples before the "
                    "report; the peak is exact, its time is the report's time, averages are averages of maxima"
                )
                self.table.taken = self._samples
            self.source.warn(warning)
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


_ALIASES = {"rss_top": "rss", "system-normalized": "system"}
_NAME = rf"(?:.*[^a-z])?((?:{'|'.join((*MEMORY, *_ALIASES))})(?:@[\w.]+?)?)_memory_usage.*"
_FROM_ZERO = re.compile("_from-zero|_mem_increase|system-normalized_")
_NEVER_ZERO = ("rss", "vms", "pss", "system")
"""A running program never has 0 of these."""
_ROW = r"\d+(\.\d+)?(e-\d+)? -?\d+\.\d{3}(\n|$)"
_OURS = re.compile(rb"\d+\.\d{3} ")
"""Only nncf-tools writes times with three decimals."""


class Nncf(RowLog):
    """NNCF's memory monitor (``memory_monitor.py``): rows of seconds and a value, then total time and maximum.

    ``report --format memory-log`` writes the same format. So does llm_bench of OpenVINO GenAI, with a third line at the
    end: the start in whole Unix seconds. Only the last line, ``Max memory: 900.000 (MiB)``, gives the unit.

    The file name gives the metric: ``rss_memory_usage.txt``. It also says if the first value was subtracted from all
    values: ``system_memory_usage_from-zero.txt``; in llm_bench, ``rss_memory_usage_mem_increase_0.txt``; in the older
    ``memory_logger.py``, ``system-normalized_memory_usage.txt``.

    A file is such a log if the rows begin at 0, if the maximum ends the file, if the file has a name like these, or if
    the log is empty.
    """

    head = re.compile(
        rf".*\n(No measurements recorded\.|Total time: no samples|0+(\.0+)?(e-0+)? -?\d+\.\d{{3}}\n{_ROW}|"
        rf"{_ROW}(.*\n)*Max memory: )|{_NAME}\n{_ROW}".encode()
    )
    recorder = "nncf"
    lowest = -LARGEST
    other_may_end_open = True
    others = (
        r"(Timestamp: (?P<began>\d{1,10})|Total time: \d+(\.\d+)?(e-\d+)?|"
        r"Max memory: -?\d+(\.\d+)? \((?P<unit>B|KiB|MiB|GiB|KB|MB|GB)\))\s*"
    )
    last = "unit"

    def __init__(self, source: Source, metric: str | None = None, unit: MemoryUnit = MemoryUnit.MiB) -> None:
        """Read nothing yet; ``metric`` overrides the file name, ``unit`` is used if the last line is missing."""
        named = re.fullmatch(_NAME, source.path.name)
        if metric is None and named is None:
            source.warn(
                "the file name does not give the metric, RSS is assumed; "
                "NNCF's names are rss_memory_usage.txt, system_memory_usage.txt"
            )
        metric = metric or (named[1] if named else "rss")
        self.columns = (TIME, _ALIASES.get(metric, metric))
        self._unit = unit
        super().__init__(source)

    def known(self) -> dict[str, Any]:
        """Return the unit and start that the last lines give, and whether the values are relative."""
        warn = self.source.warn
        unit = MemoryUnit(self.found.get("unit", self._unit))
        if "unit" not in self.found:
            warn(f"the last line, which gives the unit, is missing: {unit} is assumed")
        metric = self.columns[1]
        values = self.table.columns[metric]
        may_be_0 = _OURS.match(self.source.head) or metric not in _NEVER_ZERO
        is_from_zero = bool(_FROM_ZERO.search(self.source.path.name))
        rises_from_zero = values[0] == 0 < max(values)
        if not is_from_zero and (min(values) < 0 or (rises_from_zero and not may_be_0)):
            is_from_zero = True
            warn("some values are below zero, or the first is 0: all are taken as relative to an unknown first sample")
        self.unit = unit.factor
        if "began" in self.found:
            self.began = float(self.found["began"])
        return {
            "from_zero": is_from_zero,
            "finished": "unit" in self.found,
        }
