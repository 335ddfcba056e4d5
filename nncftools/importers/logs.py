"""Read the logs of NNCF, mprof, psrecord and con-duct. Each class describes the lines of one recorder."""

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
"""Used as the PID of the command, because ``MEM`` lines have no PID. The kernel gives no process such a large PID."""
_MAX_CALLS = 10_000


class Mprof(RowLog):
    """``mprof run`` of memory-profiler (0.61): each line begins with a keyword.

    - ``CMDLINE``: the command;
    - ``MEM``: MiB and Unix seconds of the command;
    - ``CHLD``: PID, MiB and Unix seconds of a child, after the ``MEM`` of the same sample (with ``--multiprocess``). If
      some children could not be read, the PID is 0;
    - ``FUNC``: a call. Name, MiB and Unix seconds at the start, MiB and Unix seconds at the end, and the call depth.

    mprof writes ``MEM`` lines in blocks of fifty, and ``FUNC`` lines when the program ends, so ``FUNC`` may come first.
    A row is PID, MiB and Unix seconds.
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
        super().__init__(source)
        self._calls: list[tuple[float, float, int, str]] = []
        self._unread_children = 0

    def parse(self, texts: list[bytes]) -> Columns:
        """Return ``MEM`` and ``CHLD`` lines as rows: PID, MiB, Unix seconds."""
        if not all(text.startswith((b"MEM ", b"CHLD ")) for text in texts):
            raise ValueError("a line of CMDLINE, MEM, CHLD or FUNC expected")
        command = b"%d" % _COMMAND
        texts = [text.replace(b"MEM", command) for text in texts]
        return super().parse([text.replace(b"CHLD", b"") for text in texts])

    def take(self, columns: Columns) -> None:
        """Add rows to the samples and, if the log has children, to the processes."""
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
                if not self.children.tables:  # the first child: all rows before are of the command
                    self.children.extend(None, times, sizes, self._split_command())
                self.children.extend(int(pid), times[-1:], [size])
                sizes[-1] += size
            else:
                self._unread_children += 1

    def take_other(self, found: dict[str, str]) -> None:
        """Store the command of a ``CMDLINE`` line, or the call of a ``FUNC`` line."""
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
        """Return command, calls and duration as fields of the session."""
        warn = self.source.warn
        if self.children.tables:
            warn(
                "RSS is the sum of the command (MEM) and its children (CHLD); if mprof ran with --include-children, "
                "MEM includes the children, so that they count twice"
            )
        if self._unread_children:
            warn(
                f"lines of children (CHLD) without a PID or a MEM line: {self._unread_children:,}; RSS is a lower bound"
            )
        if len(self._calls) == _MAX_CALLS:
            warn(f"at most the {_MAX_CALLS:,} longest calls (FUNC) are kept")
        begin = self.began or 0.0
        marks = []
        duration_s = 0.0
        for duration, start, level, name in self._calls:
            end = start + duration
            if duration >= 0 and begin <= end <= LATEST_S:  # drop calls from before the first sample
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
        """Return the words of the command. A log of ``mprof attach`` has a list of words instead of a command line."""
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
"""Metrics by name of the column in the log; other columns are ignored."""


class Psrecord(RowLog):
    """psrecord (1.4): a header that names the columns, then a row per sample, as plain text or CSV.

    Memory is in units of 2^20 bytes. CPU is in per cent of a core since the previous row (psutil's ``cpu_percent``; 0
    in the first row of a process). Read and written bytes are storage I/O of the processes that are alive. If the log
    is psrecord's standard output, the text around the rows is also read.
    """

    head = re.compile(
        rb"(.*\n){1,3}(# *Elapsed time  +CPU \(%\)  +Real \(MB\)  +Virtual \(MB\)|elapsed_time,nproc,cpu,mem_real,)"
    )
    """Matches the file name, a line break, and the beginning of a log that has the header in the first three lines."""
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
        """Drop all rows, and forget the previous row."""
        super().reset()
        self._last: Columns = {}
        """The previous row as written in the log: ``{column: [value]}``; empty before the first row."""

    def take(self, columns: Columns) -> None:
        """Add rows. Counters of the log are converted to totals since the first row."""
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
        """Store the columns that a header names, or a fact that psrecord printed."""
        super().take_other(found)
        if "header" in found:
            header = found["header"].strip("# ").lower().replace("_", " ")
            names = re.split(r" {2,}|,", header)
            self.columns = [_COLUMNS.get(name, f"?{name}") for name in names]
            self.reset()

    def known(self) -> dict[str, Any]:
        """Return fields of the session: the facts that psrecord printed."""
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
"""Fields of ``Host`` with their keys in con-duct's info file."""
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
    """con-duct (0.1 to 0.23): a usage file with a report per line, and an info file in the same folder.

    con-duct writes a report every minute, and takes a sample every second (by default). A report has maxima over the
    samples since the previous report: the maximum of the sum over all processes, and the maximum of each process.
    Before version 0.4, a report has only the first of these samples. Version 0.1 counts in KiB, names the sums
    ``rss_kb`` and ``vsz_kb``, and writes texts such as ``"3680 KiB"`` to the info file.

    CPU time is unknown: ``pcpu`` is ps's figure, the CPU time divided by the whole lifetime of the process.

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
        """Return the session of a usage file and an info file. ``self.source`` may be either file.

        Raises SessionFileError.
        """
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
            info = msgspec.json.decode(re.sub(rb'"([\d.]+) sec"', rb"\1", text), type=_Info)  # texts of version 0.1
        except (msgspec.DecodeError, ValueError, RecursionError, SessionFileError) as error:
            self.source.warn(f"command, exit status and machine are unknown without con-duct's info file: {error}")
            return
        self._info = info
        self.start_s = info.execution_summary.start_s or inf

    def parse(self, texts: list[bytes]) -> Columns:
        """Return reports as rows: the sums, the time, and the report itself."""
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
        """Add con-duct's reports.

        The sums in a report become a sample. For each process, the RSS becomes a sample of this process in
        ``children``.
        """
        super().take(columns)
        for time_s, report in zip(columns[TIME], columns["report"], strict=True):
            self._samples += report.num_samples
            self._most_samples = max(self._most_samples, report.num_samples)
            for pid, process in report.processes.items():
                if intake.is_pid(pid) and process.rss is not None:
                    command = process.cmd.split()
                    self.children.extend(int(pid), [time_s], [process.rss], command)

    def known(self) -> dict[str, Any]:
        """Return the facts of the info file as fields of the session."""
        info = self._info
        version = "" if info is None else info.duct_version
        if self.unit > 1:
            version = "0.1."
        if self._most_samples > 1:
            warning = "con-duct before 0.4 reports only the first of several samples, so peaks may be higher"
            if not version.startswith(_WITHOUT_MAXIMA):
                warning = (
                    f"each sample is a con-duct report, with the maxima of up to {self._most_samples:,} samples: "
                    "the peak is exact, but has the time of the report, and averages are averages of maxima"
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
"""Metrics that are never 0 for a running program."""
_ROW = r"\d+(\.\d+)?(e-\d+)? -?\d+\.\d{3}(\n|$)"
_OURS = re.compile(rb"\d+\.\d{3} ")
"""Matches a time with three decimals, which only nncf-tools writes."""


class Nncf(RowLog):
    """NNCF's memory monitor (``memory_monitor.py``): rows of seconds and a value, then total time and maximum.

    ``report --format memory-log`` writes the same format. llm_bench of OpenVINO GenAI adds a third line at the end: the
    start in whole Unix seconds. Only the line ``Max memory: 900.000 (MiB)`` gives the unit.

    The file name gives the metric, as in ``rss_memory_usage.txt``. The name also says whether the first value was
    subtracted from all values: as in ``system_memory_usage_from-zero.txt``, in llm_bench's
    ``rss_memory_usage_mem_increase_0.txt``, and in ``system-normalized_memory_usage.txt`` of the older
    ``memory_logger.py``.

    A file is recognised by any of these: the rows begin at 0, the maximum ends the file, the file has such a name, or
    the text says that there are no samples.
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
        """Start without rows. ``unit`` is used if the log does not give a unit.

        If ``metric`` is None, the file name gives the metric of the log; for any other file name, the metric is RSS.
        """
        named = re.fullmatch(_NAME, source.path.name)
        if metric is None and named is None:
            source.warn(
                "the file name does not give the metric, so RSS is assumed; "
                "NNCF's file names are rss_memory_usage.txt and system_memory_usage.txt"
            )
        metric = metric or (named[1] if named else "rss")
        self.columns = (TIME, _ALIASES.get(metric, metric))
        self._unit = unit
        super().__init__(source)

    def known(self) -> dict[str, Any]:
        """Return two fields of the session, and set the unit and the start from the last lines of the log.

        The fields are ``from_zero`` (the first value was subtracted from all values) and ``finished`` (the log is
        complete).
        """
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
            warn("a value is below 0, or the first is 0: all values are read as changes from an unknown start value")
        self.unit = unit.factor
        if "began" in self.found:
            self.began = float(self.found["began"])
        return {
            "from_zero": is_from_zero,
            "finished": "unit" in self.found,
        }
