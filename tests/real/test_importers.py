from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from statistics import median

import pytest

from nncftools import Session
from nncftools.importers.source import read_session
from nncftools.session.model import Exit, Process
from tests.conftest import burner, command_line

pytestmark = pytest.mark.real

LEVELS = burner("levels", "truth", 3, 60, 100)
"""Three processes that hold 60 MiB each, all at the same time while we take 100 samples: two seconds at least."""
WITHIN = 0.01
"""Both read the kernel's count of resident pages of processes that rest, but not at the same moment; the kernel itself
brings what each CPU counted together in batches."""
_BURNERS = (["-S", "-E"], ["-m", "memory_profiler"])
PROFILED = """
import time

@profile
def inner(size):
    held = bytearray(size)
    held[::4096] = b"x" * len(held[::4096])
    time.sleep(0.4)
    return held

@profile
def outer():
    first = inner(60 << 20)
    time.sleep(0.2)
    second = inner(120 << 20)
    time.sleep(0.2)

outer()
"""


class Recorded:
    """One run, recorded by another tool and by ``nncf-tools monitor`` around it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self._environment = environment

    def by(self, tool: list[str], log: str) -> tuple[Session, Session]:
        """Return the tool's log and our session."""
        words = command_line("monitor -i 0.02 --per-process --output ours.json --", *tool)
        subprocess.run(words, cwd=self.folder, env=self._environment, check=False, capture_output=True, timeout=120)
        return read_session(self.folder / log), Session.load(self.folder / "ours.json")


@pytest.fixture
def recorded(tmp_path: Path, real_environment: dict[str, str]) -> Recorded:
    """Return what records in a folder of its own."""
    return Recorded(tmp_path, real_environment)


def measured(ours: Session, script: str = "levels.py") -> list[Process]:
    """Return the processes of our session that the tool measured, too: those that run the burner, not the tool."""
    found = [process for process in ours.processes if any(script in word for word in process.command)]
    return [process for process in found if process.command[1:3] in _BURNERS and not process.forked_copy]


def held(process: Process) -> float:
    """Return what a process held most of its time; its peak may be of the copy of the tool that it was before exec."""
    assert process.series is not None
    return median(process.series.rss)


def together(processes: Iterable[Process]) -> float:
    """Return what the processes held together, most of the time."""
    return sum(map(held, processes))


def test_mprof_with_children(recorded: Recorded) -> None:
    """The sum of command and children from mprof equals ours."""
    log, ours = recorded.by(["mprof", "run", "-C", "-T", "0.05", "-o", "log.dat", *LEVELS], "log.dat")

    assert log.sampler.source == "mprof"
    assert len(measured(ours)) == 3
    assert log.peaks["rss"].sampled == pytest.approx(together(measured(ours)), rel=WITHIN)
    assert log.command == LEVELS
    assert log.warnings == []


def test_mprof_with_a_line_per_child(recorded: Recorded) -> None:
    """The lines of command and children together are our sum, and each child's peak is ours."""
    log, ours = recorded.by(["mprof", "run", "-M", "-T", "0.05", "-o", "log.dat", *LEVELS], "log.dat")
    seen = measured(ours)

    assert log.peaks["rss"].sampled == pytest.approx(together(seen), rel=WITHIN)
    assert {process.pid for process in log.processes[1:]} == {process.pid for process in seen[1:]}
    assert [process.peak_rss for process in log.processes] == [
        pytest.approx(held(process), rel=WITHIN) for process in seen
    ]


def test_mprof_with_functions(recorded: Recorded) -> None:
    """Functions under @profile are operations, with their depth, and the peak lies in the last call of the inner."""
    (recorded.folder / "profiled.py").write_text(PROFILED)
    log, ours = recorded.by(["mprof", "run", "-T", "0.02", "-o", "log.dat", "profiled.py"], "log.dat")
    outer, first, second = log.marks

    assert [(mark.name, mark.depth) for mark in log.marks] == [
        ("__main__.outer", 0),
        ("__main__.inner", 1),
        ("__main__.inner", 1),
    ]
    assert outer.start_s <= first.start_s < (first.end_s or 0) < second.start_s < (second.end_s or 0)
    assert log.peaks["rss"].at_s is not None
    assert second.start_s < log.peaks["rss"].at_s <= (outer.end_s or 0)
    assert log.peaks["rss"].sampled == pytest.approx(measured(ours, "profiled.py")[0].peak_rss, rel=WITHIN)
    assert log.operations[2].rss_peak == log.peaks["rss"].sampled


@pytest.mark.parametrize("style", ["plain", "csv"])
def test_psrecord(recorded: Recorded, style: str) -> None:
    """The sum of shell and children from psrecord equals ours, plain and CSV."""
    command = " ".join(LEVELS)
    tool = ["psrecord", command, "--interval", "0.05", "--include-children", "--include-io"]
    log, ours = recorded.by([*tool, "--log", "log.txt", "--log-format", style], "log.txt")
    shell = [process for process in ours.processes if process.name in ("sh", "dash", "bash")]
    seen = {process.id: process for process in [*shell, *measured(ours)]}

    assert log.sampler.source == "psrecord"
    assert log.peaks["rss"].sampled == pytest.approx(together(seen.values()), rel=WITHIN)
    assert {"cpu", "read_bytes", "write_bytes", "vms"} <= set(log.samples.metrics)
    assert style == "plain" or max(log.samples["processes"]) == len(seen)
    assert log.warnings == []


@pytest.mark.parametrize("given", ["usage.jsonl", "info.json"])
def test_con_duct(recorded: Recorded, given: str) -> None:
    """con-duct's maxima, of all processes and of each one, equal ours; the info file has the other facts."""
    tool = ["duct", "-q", "--sample-interval", "0.2", "--report-interval", "0.6", "-p", "log_", "-o", "none"]
    log, ours = recorded.by([*tool, *LEVELS], f"log_{given}")
    seen = {process.pid: process for process in measured(ours)}

    assert log.sampler.source == "con-duct"
    assert log.peaks["rss"].sampled == pytest.approx(together(seen.values()), rel=WITHIN)
    assert {process.pid: process.peak_rss for process in log.processes} == {
        pid: pytest.approx(held(process), rel=WITHIN) for pid, process in seen.items()
    }
    assert (log.command, log.exit, log.cwd) == (LEVELS, Exit(code=0), str(recorded.folder))
    assert log.host.cpus is not None
    assert (log.sampler.taken or 0) > len(log.samples)
