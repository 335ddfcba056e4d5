"""What comes next takes few files: a metric, an output, an importer and a subcommand that are made up here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import nncftools
from nncftools import Session
from tests.conftest import BURNERS
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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with nncf-tools and three metrics more: a gauge, a counter and one of two devices."""
    folder = tmp_path_factory.mktemp("new")
    package = folder / "package" / "nncftools"
    shutil.copytree(Path(nncftools.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
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


def add_line(path: Path, after: str, line: str) -> None:
    """Add one line to a module."""
    text = path.read_text()
    assert text.count(f"{after}\n") == 1
    path.write_text(text.replace(f"{after}\n", f"{after}\n    {line}\n"))


SERVER = """
import contextlib, io, json, sys
from nncftools.cli.app import run
for line in sys.stdin:
    sys.argv[1:] = json.loads(line)
    output, errors = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        status = run()
    print(json.dumps([status, *(stream.buffer.getvalue().decode() for stream in (output, errors))]), flush=True)
"""
"""Runs one command line after the other: most of their time is that of imports."""


@pytest.fixture(scope="module")
def ours(folder: Path) -> Iterator[Ours]:
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


@pytest.fixture(scope="module")
def recorded(folder: Path) -> Session:
    """Record operations with them."""
    words = ["monitor", *RECORD, "--name", "new", "-o", "run.json", "--", sys.executable, BURNERS / "phases.py", 5]
    line = [sys.executable, "-m", "nncftools", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(folder / "package")}
    subprocess.run(line, cwd=folder, env=environment, timeout=HANGING_S, check=True)
    shutil.copy(folder / "run.json", folder / "other.json")
    return Session.load(folder / "run.json")


COLUMNS = ["npu_memory@npu0", "npu_memory@npu1", "huge", "wakeups"]


def test_recorded(recorded: Session) -> None:
    """The session has a column for each device; levels have peaks, the counter a total."""
    assert set(COLUMNS) <= set(recorded.samples.metrics)
    assert recorded.samples["npu_memory@npu1"][0] == 7 << 20
    assert recorded.totals["wakeups"] is not None


DEVICES = ["NPU memory npu0", "NPU memory npu1"]


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    "words, names",
    [
        ("report run.json --type all --details", [*DEVICES, "Huge pages", "Wake-ups"]),
        ("report run.json --type all -f markdown --details", [*DEVICES, "NPU busy npu1", "Huge pages", "Wake-ups"]),
        ("report run.json --type npu_memory --details", DEVICES),
        ("report run.json --type all -f html", [*DEVICES, "Huge pages", 'title="Wake-ups']),
        ("report run.json -f csv", COLUMNS),
        ("report run.json -f perfetto", [*DEVICES, "Huge pages", "Wake-ups"]),
        ("report run.json -f terminal --type npu_memory@npu1", ["NPU memory npu1", "Wa…ps"]),
        ("report run.json -f made-up", ["samples"]),
        ("compare run.json other.json --details", ["Peak NPU memory npu0", "Wake-ups"]),
        ("compare run.json other.json --fail-if peak_npu_memory@npu0@Export>8GiB --fail-if wakeups>1000000000", []),
    ],
)
def test_outputs(ours: Ours, words: str, names: list[str]) -> None:
    """Each output has each device's memory, and the counter; a gate may name them."""
    text = ours(*words.split()).stdout

    assert [name for name in names if name not in text] == []


@pytest.mark.usefixtures("recorded")
def test_json(ours: Ours) -> None:
    """The summary for scripts has peaks, levels, totals, and what each operation had."""
    document = json.loads(ours("report", "run.json", "--format", "json").stdout)
    first = document["phases"][0]

    assert document["peaks"]["npu_memory@npu1"]["low"] == 7 << 20
    assert document["memory"]["huge"]["average"] == 64 << 20
    assert document["totals"]["wakeups"] > 0
    assert first["npu_memory@npu0_start"] >= 512 << 20
    assert first["wakeups"] > 0
    assert 0 < first["npu_busy@npu1"] < 1


def test_importer(ours: Ours, folder: Path) -> None:
    """An importer is its file and its line."""
    (folder / "log").write_text("MADE UP\n0.5 1024\n")

    assert json.loads(ours("report", "log", "--format", "json").stdout)["sampler"]["source"] == "made-up"


def test_subcommand(ours: Ours) -> None:
    """A subcommand is its file and its line; the help lists it."""
    assert ours("hello").stdout == "hello\n"
    assert "Say hello." in ours("--help").stdout
