"""Stacks and mappings of a recorded command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from nncftools.analysis.build_up import BuildUp, of_peak
from nncftools.analysis.session import Session
from tests.conftest import BURNERS, Run

STACKED = Path(__file__).parents[2] / "benchmarks/workloads/stacked.py"
MIB = 1 << 20


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def burn(how: str = "main", pause: str = "0.1") -> list[str]:
    """Return the command of a program that takes memory in three functions."""
    return [sys.executable, "-S", "-E", str(STACKED), how, pause]


def peak(path: str = "run.json") -> BuildUp:
    """Return the build-up of the peak of a session."""
    found = of_peak(Session.load(path))
    assert found is not None
    return found


def sizes(found: BuildUp, *, certain: bool = False) -> dict[str, float]:
    """Return MiB by function of the program, or those that certainly belong to it."""
    sums = dict.fromkeys(("first", "second", "third"), 0.0)
    for part in found.parts:
        for frame in part.stack[: part.certain] if certain else part.stack:
            name = frame.function.rpartition(".")[2]
            if name in sums:
                sums[name] += part.size / MIB
    return sums


TRUTH = {"first": 100, "second": 200, "third": 300}


def judge(found: BuildUp) -> None:
    """Compare with the truth: 5 % and what grows in 30 ms at each change; busy machines take longer for a look."""
    for name, size in sizes(found).items():
        assert size == pytest.approx(TRUTH[name], abs=TRUTH[name] * 0.05 + 40), sizes(found)
    for name, size in sizes(found, certain=True).items():
        assert size <= TRUTH[name] * 1.05 + 6, sizes(found, certain=True)


def judge_one_of_three(nncf_tools: Run, how: str = "main") -> None:
    """Judge up to three recordings: other programs on the machine delay looks."""
    for is_last in (False, False, True):
        done = nncf_tools("monitor --stacks --force -o run.json --", *burn(how))
        assert done.returncode == 0
        try:
            return judge(peak())
        except AssertionError:
            if is_last:
                raise
    return None


@pytest.mark.long
def test_three_functions(nncf_tools: Run) -> None:
    """Each function has the memory that it took."""
    judge_one_of_three(nncf_tools)
    found, session = peak(), Session.load("run.json")

    assert sum(part.size for part in found.parts) == found.size == session.peaks["rss"].low
    assert session.snapshots is not None
    assert session.snapshots.missing is None
    assert session.snapshots.mappings
    assert not list(Path().glob("*.snapshots.jsonl"))


@pytest.mark.long
@pytest.mark.parametrize("how", ["threads", "at_once", "forked", "spawned", "native", "mapped"])
def test_ways_to_take_memory(nncf_tools: Run, how: str) -> None:
    """It is so in threads beside a spinning one, in children, in native calls, and in mapped files."""
    judge_one_of_three(nncf_tools, how)


AFTER_DURATION = """
import time
import nncftools
for _ in range(20):
    with nncftools.operation("Short"):
        time.sleep(0.1)
with nncftools.operation("Late"):
    held = b"x" * 60_000_000
    time.sleep(0.3)
"""
"""Marks operations during the recording and after it, and takes memory after it."""


@pytest.mark.parametrize("command", [pytest.param("monitor", marks=pytest.mark.long), "profile"])
def test_duration(nncf_tools: Run, command: str) -> None:
    """After --duration, the command goes on, and nothing of it is recorded: no memory, no operation, no stack."""
    Path("work.py").write_text(AFTER_DURATION)
    words = ("--stacks", "--duration", 0.4, "-o", "run.json", "--", sys.executable, "work.py")
    done = nncf_tools(command, *words)
    session = Session.load("run.json")
    of_peak = session.peaks["rss"]

    assert (done.returncode, "Traceback" in done.stderr, session.warnings) == (0, False, [])
    assert 0.4 <= session.duration_s < 2
    assert (of_peak.high or of_peak.low or 0) < 50 * MIB
    assert {mark.name for mark in session.marks} == {"Short"}
    assert session.snapshots is not None
    assert session.snapshots.cpu_s is not None
    assert all(window.time_s[-1] < 2 for process in session.snapshots.processes for window in process.windows)


@pytest.mark.parametrize(
    "command, what, how, expected",
    [
        ("profile", "keeps", "suddenly", 80),
        pytest.param("profile", "keeps", "normally", 80, marks=pytest.mark.long),
        pytest.param("profile", "frees", "normally", 0, marks=pytest.mark.long),
    ],
)
def test_still_held_at_the_end(nncf_tools: Run, command: str, what: str, how: str, expected: int) -> None:
    """What a program never gave back is there at its end, though Python frees it then; what it freed is not."""
    words = [sys.executable, str(BURNERS / "leaves.py"), what, how]
    nncf_tools(command, "-q", "--stacks", "-o", "run.json", "--", *words)
    done = nncf_tools("report run.json --peak --at end --format json")
    waiting = [json.loads(done.stdout)]
    held = dict.fromkeys(("keep", "work"), 0.0)
    for place in waiting:
        waiting += place["children"]
        if place["function"] in held:
            held[place["function"]] += place["bytes"] / MIB

    assert held == pytest.approx({"keep": expected, "work": 0}, abs=12)


@pytest.mark.parametrize("words, is_there", [("profile", True), ("profile --no-stacks", False), ("monitor", False)])
def test_who_takes_them(nncf_tools: Run, words: str, is_there: bool) -> None:  # noqa: FBT001 — of the test
    """Profile takes stacks where it can, unless it is told not to; monitor takes none unless it is told to."""
    nncf_tools(words, "--no-plot", "-o", "run.json", "--", sys.executable, "-c", "pass")

    assert (Session.load("run.json").snapshots is not None) is is_there


def test_not_on_this_platform(in_process: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """If they are asked for where they cannot be taken, one line says so, before anything runs."""
    monkeypatch.setenv("_NNCF_TOOLS_SOURCE", "psutil")
    done = in_process("monitor --stacks -o run.json -- touch ran")

    assert done.returncode == 2
    assert "option --stacks" in done.stderr
    assert not Path("ran").exists()
