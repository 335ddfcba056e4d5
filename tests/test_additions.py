"""What comes next takes few files: a metric, an output, an importer and a subcommand that are made up here."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

import nncftools
from nncftools import Session
from tests.conftest import BURNERS
from tests.render.page_content import rows_of, traces_of
from tests.surroundings import HANGING_S

pytestmark = [pytest.mark.long, pytest.mark.process]

DECLARED = """
        Metric("npu_memory", "B", "NPU memory", "memory in use on an accelerator",
               probe="npu:Npu", scope=DEVICE, per_operation=True),
        Metric("npu_sent", "B", "Sent to NPU", "bytes sent to an accelerator", kind=COUNTER,
               probe="npu:Npu", scope=DEVICE, family=("NPU transfer", "NPU"), action="sent"),
        Metric("npu_busy", "s", "NPU busy", "time in which an accelerator was busy", kind=COUNTER,
               probe="npu:Npu", scope=DEVICE, per_operation=True),
        Metric("huge", "B", "Huge pages", "memory in huge pages",
               probe="made_up:MadeUp", per_operation=True),
        Metric("wakeups", "", "Wake-ups", "how often processes woke", kind=COUNTER,
               probe="made_up:MadeUp", per_operation=True),
    )
}  # fmt: skip
"""
NPU = """
from nncftools.sampler.probes import SYSTEM

class Npu:
    kind = SYSTEM
    metrics = ("npu_memory", "npu_sent", "npu_busy")
    source = "made up"
    cost = "nothing"

    def __init__(self, root, pid):
        self.columns = tuple(f"{name}@{device}" for name in self.metrics for device in ("npu0", "npu1"))
        self._count = 0

    def read(self):
        self._count += 1
        count = self._count
        return (count << 20) + (512 << 20), 7 << 20, count * 4096, count * 512, count * 0.005, count * 0.001
"""
MADE_UP = """
from nncftools.sampler.probes import SYSTEM

class MadeUp:
    kind = SYSTEM
    metrics = ("huge", "wakeups")
    source = "made up"
    cost = "nothing"

    def __init__(self, root, pid):
        self._count = 0

    def read(self):
        self._count += 1
        return 64 << 20, self._count * 1000
"""
EXPORT = """
def report(session, view):
    return f"{len(session.samples)} samples\\n"
"""
IMPORTER = """
import re

from nncftools.importers.source import RowLog

class Log(RowLog):
    head = re.compile(rb".*\\nMADE UP")
    recorder = "made-up"
    columns = ("time_s", "rss")
    others = "MADE UP"
"""
COMMAND = '''
def register(app):
    app.command(name="hello")(hello)

def hello() -> None:
    """Say hello."""
    print("hello")
'''
RECORD = ("--type", "rss", "--type", "npu_memory", "--type", "huge", "--interval", "0.01")


class Output(NamedTuple):
    """What a command wrote."""

    stdout: str
    stderr: str


Ours = Callable[..., Output]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return a folder with nncf-tools and three metrics more: a gauge, a counter and one of two devices."""
    folder = tmp_path_factory.mktemp("new")
    package = folder / "package" / "nncftools"
    shutil.copytree(pathlib.Path(nncftools.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    declared = package / "metrics.py"
    before, end, after = declared.read_text().partition("    )\n}  # fmt: skip\n")
    assert end
    declared.write_text(f"{before}{DECLARED.lstrip(chr(10))}{after}")
    (package / "sampler" / "probes" / "npu.py").write_text(NPU)
    (package / "sampler" / "probes" / "made_up.py").write_text(MADE_UP)
    (package / "render" / "made_up.py").write_text(EXPORT)
    add_line(package / "render" / "view.py", "FORMATS = {", '"made-up": "nncftools.render.made_up:report",')
    (package / "importers" / "made_up.py").write_text(IMPORTER)
    add_line(package / "importers" / "__init__.py", "IMPORTERS = {", '"made-up": "nncftools.importers.made_up:Log",')
    (package / "cli" / "hello.py").write_text(COMMAND)
    add_line(package / "cli" / "app.py", '    "Reference": {', '    "hello": "Say hello.",')
    return folder


def add_line(path: pathlib.Path, after: str, line: str) -> None:
    """Add one line to a module."""
    text = path.read_text()
    assert text.count(f"{after}\n") == 1
    path.write_text(text.replace(f"{after}\n", f"{after}\n    {line}\n"))


SERVER = """
import contextlib, io, json, sys
from nncftools.cli.app import run
for line in sys.stdin:
    sys.argv[1:] = json.loads(line)
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(io.StringIO()) as errors:
        status = run()
    print(json.dumps([status, output.getvalue(), errors.getvalue()]), flush=True)
"""
"""Runs one command line after the other: most of their time is that of imports."""


@pytest.fixture(scope="module")
def ours(folder: pathlib.Path) -> Iterator[Ours]:
    """Run that nncf-tools."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "package"), "COLUMNS": "80", "NO_COLOR": "1"}
    words = [sys.executable, "-c", SERVER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, cwd=folder, env=environment, text=True, **pipes) as server:

        def run(*words: object) -> Output:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps([str(word) for word in words]) + "\n")
            server.stdin.flush()
            status, output, errors = json.loads(server.stdout.readline())
            assert status == 0, errors
            return Output(output, errors)

        yield run


def alone(folder: pathlib.Path, *words: object) -> str:
    """Run that nncf-tools in a process of its own; return its output."""
    line = [sys.executable, "-m", "nncftools", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(folder / "package"), "COLUMNS": "80", "NO_COLOR": "1"}
    done = subprocess.run(line, cwd=folder, env=environment, stdout=subprocess.PIPE, timeout=HANGING_S, check=True)
    return done.stdout.decode()


@pytest.fixture(scope="module")
def recorded(folder: pathlib.Path) -> Session:
    """Record operations with them."""
    alone(folder, "monitor", *RECORD, "--name", "new", "--", sys.executable, BURNERS / "phases.py", 5)
    shutil.copy(folder / "memory_logs" / "latest" / "session.json", folder / "run.json")
    return Session.load(folder / "run.json")


COLUMNS = ["npu_memory@npu0", "npu_memory@npu1", "huge", "wakeups"]


def test_recorded(recorded: Session) -> None:
    """The session has a column for each device; levels have peaks, the counter a total."""
    assert set(COLUMNS) <= set(recorded.samples.metrics)
    assert recorded.samples["npu_memory@npu1"][0] == 7 << 20
    assert recorded.totals["wakeups"] is not None


@pytest.mark.usefixtures("recorded")
class TestReport:
    @pytest.mark.parametrize("name", ["text", "markdown"])
    def test_tables(self, ours: Ours, name: str) -> None:
        """Text and Markdown have them in the tables of memory and operations, and the counter's total."""
        text = " ".join(ours("report", "run.json", "--type", "all", "--format", name, "--details").stdout.split())

        assert "NPU memory npu0" in text
        assert "NPU memory npu1" in text
        assert "Huge pages" in text
        assert text.count("Wake-ups") == 2

    def test_devices_in_order(self, ours: Ours) -> None:
        """Columns of devices are in one order; a family of counters is headed by its device."""
        text = ours("report", "run.json", "--format", "markdown").stdout
        (head,) = (line for line in text.splitlines() if line.startswith("| # "))
        places = [head.index(name) for name in ("NPU memory npu0", "NPU memory npu1", "NPU busy npu0", "NPU busy npu1")]

        assert places == sorted(places)

    def test_type_of_devices(self, ours: Ours) -> None:
        """The name of a metric means all of its devices."""
        text = ours("report", "run.json", "--type", "npu_memory", "--details").stdout

        assert "NPU memory npu0" in text
        assert "NPU memory npu1" in text

    def test_text_fits_a_terminal(self, ours: Ours) -> None:
        """However many columns there are, no line is longer than it may be, and no figure is cut."""
        text = ours("report", "run.json", "--type", "all").stdout

        assert max(map(len, text.splitlines())) <= 100
        assert "…" not in text.partition("Operations\n")[2]

    def test_page(self, ours: Ours, folder: pathlib.Path) -> None:
        """The page has them in tables and charts."""
        ours("report", "run.json", "--type", "all", "--format", "html", "--output", "page.html", "--force")
        text = (folder / "page.html").read_text()

        assert {row.cells[0] for row in rows_of(text, "memory")} >= {"NPU memory npu0", "Huge pages"}
        assert '<th scope="col" class="" title="Wake-ups' in text
        assert {line["name"] for line in traces_of(text, "Memory")} >= {"NPU memory npu0", "NPU memory npu1"}

    def test_json(self, ours: Ours) -> None:
        """The summary for scripts has peaks, levels, totals, and what each operation had."""
        document = json.loads(ours("report", "run.json", "--format", "json").stdout)
        first = document["phases"][0]

        assert document["peaks"]["npu_memory@npu1"]["low"] == 7 << 20
        assert document["memory"]["huge"]["average"] == 64 << 20
        assert document["totals"]["wakeups"] > 0
        assert first["npu_memory@npu0_start"] >= 512 << 20
        assert first["wakeups"] > 0
        assert 0 < first["npu_busy@npu1"] < 1

    def test_csv(self, ours: Ours) -> None:
        """CSV has a column for each."""
        header = ours("report", "run.json", "--format", "csv").stdout.partition("\n")[0]

        assert set(COLUMNS) <= set(header.split(","))

    def test_parquet(self, ours: Ours, folder: pathlib.Path) -> None:
        """Parquet has a column of whole numbers for each."""
        ours("report", "run.json", "--format", "parquet", "--output", "run.parquet", "--force")
        import pandas as pd

        frame = pd.read_parquet(folder / "run.parquet")

        assert [str(frame[name].dtype) for name in COLUMNS] == ["Int64"] * 4

    def test_perfetto(self, ours: Ours, folder: pathlib.Path) -> None:
        """The trace has a track for each."""
        ours("report", "run.json", "--format", "perfetto", "--output", "trace.json", "--force")
        events = json.loads((folder / "trace.json").read_text())["traceEvents"]
        tracks = {event["name"] for event in events if event["ph"] == "C"}

        assert tracks >= {"NPU memory npu0", "NPU memory npu1", "Huge pages", "Wake-ups"}

    def test_pictures(self, ours: Ours, folder: pathlib.Path) -> None:
        """Both pictures are drawn: levels over time, and as many columns of bars as fit."""
        ours("report", "run.json", "--panels", "panels.svg", "--plot", "plot.svg", "--type", "npu_memory@npu0")

        assert "NPU memory npu0 peak" in (folder / "plot.svg").read_text()
        assert "NPU memory npu0, MiB" in (folder / "panels.svg").read_text()

    def test_chart(self, ours: Ours) -> None:
        """The chart for a terminal draws a device's memory, and the counter as a rate."""
        text = ours("report", "run.json", "--format", "terminal", "--type", "npu_memory@npu1").stdout

        assert "NPU memory npu1" in text
        assert "\nWa…ps" in text


@pytest.mark.usefixtures("recorded")
def test_comparison(ours: Ours, folder: pathlib.Path) -> None:
    """They are compared, of the whole run and of operations."""
    shutil.copy(folder / "run.json", folder / "other.json")
    text = ours("compare", "run.json", "other.json", "--details").stdout

    assert text.count("Peak NPU memory npu0") == 5
    assert text.count("Wake-ups") == 5


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    "gate", ["peak_npu_memory@npu1>8MiB", "peak_npu_memory@npu0@Export>8GiB", "wakeups>1000000000", "peak_huge>+1%"]
)
def test_gate(ours: Ours, folder: pathlib.Path, gate: str) -> None:
    """A gate names a device's memory, of the run or of an operation, and a counter."""
    shutil.copy(folder / "run.json", folder / "again.json")

    assert "passed" in ours("compare", "run.json", "again.json", "--fail-if", gate).stderr


@pytest.mark.usefixtures("recorded")
def test_live_view(folder: pathlib.Path) -> None:
    """The view of a run knows them: it names the metric that was asked for."""
    text = alone(folder, "replay", "run.json", "--type", "npu_memory@npu1", "--speed", "1000")

    assert "NPU memory npu1 7.0 MiB" in text


@pytest.mark.usefixtures("recorded")
def test_output(ours: Ours) -> None:
    """An output is its file and its line."""
    assert " samples\n" in ours("report", "run.json", "--format", "made-up").stdout


def test_importer(ours: Ours, folder: pathlib.Path) -> None:
    """An importer is its file and its line."""
    (folder / "log").write_text("MADE UP\n0.5 1024\n")

    assert json.loads(ours("report", "log", "--format", "json").stdout)["sampler"]["source"] == "made-up"


def test_subcommand(ours: Ours) -> None:
    """A subcommand is its file and its line; the help lists it."""
    assert ours("hello").stdout == "hello\n"
    assert "Say hello." in ours("--help").stdout
