from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nncftools.journal.writing import Plan
from nncftools.sampler.psutil_source import SUPPORTED, PsutilSource
from tests.conftest import HANGING_S
from tests.sampler.fake_proc import Told, facts
from tests.waiting import until

MIB = 2**20
CPU = ("cpu_user", "cpu_system")
SCRIPT = """
import os, subprocess, sys, threading, time
held = bytearray(int(sys.argv[1]) << 20)
held[::4096] = b"x" * len(held[::4096])
hold = threading.Event()
for _ in range(int(sys.argv[2])):
    threading.Thread(target=hold.wait, daemon=True).start()
words = [sys.executable, "-S", "-E", "-c", sys.argv[-1], *sys.argv[3:-1], sys.argv[-1]]
child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) if sys.argv[3:-1] else None
if child:
    child.stdout.readline()
print("ready", flush=True)
sys.stdin.read(1)
if child:
    child.communicate()
os._exit(0)
"""


@pytest.fixture
def family() -> Iterator[Callable[..., psutil.Process]]:
    """Return a function that starts a process and its descendants, by MiB to hold and threads to start of each."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*figures: int) -> psutil.Process:
        words = [sys.executable, "-S", "-E", "-c", SCRIPT, *map(str, figures), SCRIPT]
        child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        return psutil.Process(child.pid)

    yield start
    for child in started:
        child.communicate(timeout=HANGING_S)


def recording(process: psutil.Process, **fields: Any) -> tuple[PsutilSource, Told]:  # noqa: ANN401 — any field of the plan
    """Return a source attached to a process, and the list of its journal lines."""
    told: Told = []
    plan = Plan(SUPPORTED, **{"pid": process.pid, **fields})
    source = PsutilSource(plan, process.pid, lambda *line: told.append(line))
    return source, told


def sampled(source: PsutilSource) -> dict[str, float | None]:
    """Return the next sample, by metric."""
    return dict(zip(SUPPORTED, source.sample(1.0), strict=True))


def resident(pid: int) -> int:
    """Return the kernel's RSS."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.process
def test_two_processes(family: Callable[..., psutil.Process]) -> None:
    """Figures are sums of parent and child; counters begin with the recording; a zombie holds no memory."""
    parent = family(30, 3, 20, 1)
    (child,) = parent.children()
    for process in (parent, child):
        until(lambda of=process: of.status() == psutil.STATUS_SLEEPING, "sleep")  # type: ignore[misc]
    source, told = recording(parent)
    sampled(source)
    both, each = sampled(source), source.each()
    only_parent = sampled(recording(parent, children=False)[0])
    sizes = [resident(parent.pid), resident(child.pid)]
    child.kill()
    until(lambda: child.status() == psutil.STATUS_ZOMBIE, "a zombie")
    alone = sampled(source)
    parent.kill()
    parent.wait(HANGING_S)
    nothing = sampled(source)

    assert (both["processes"], both["threads"]) == (2, 4 + 2)
    assert both["rss"] == pytest.approx(sum(sizes), rel=0.01)
    assert (both["rss"] or 0) > 50 * MIB
    assert [each[0], each[1]] == pytest.approx(sizes, rel=0.01)
    assert [both[name] for name in ("cpu_user", "cpu_system", "read_chars", "write_bytes")] == [0, 0, 0, 0]
    assert [(of["pid"], of["parent"]) for of in facts(told).values()] == [(parent.pid, None), (child.pid, 0)]
    assert (only_parent["processes"], only_parent["threads"]) == (alone["processes"], alone["threads"]) == (1, 4)
    assert alone["rss"] == pytest.approx(sizes[0], rel=0.01)
    assert [nothing[name] for name in ("rss", "vms", "threads", "processes")] == [None] * 4
    assert source.alive(2.0) == []


@pytest.mark.process
def test_child_that_ended() -> None:
    """A child that is gone leaves the sums, is recorded as ended, and its figures stay in the totals."""
    burn = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    source, told = recording(psutil.Process())
    first = sampled(source)
    with subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        before = sampled(source)
        child.kill()
    after = sampled(source)
    (found,) = (of for of in facts(told).values() if of["pid"] == child.pid)

    assert (before["processes"], after["processes"]) == ((first["processes"] or 0) + 1, first["processes"])
    assert (found["end_s"], "end_s" in facts(told)[0]) == (1.0, False)
    assert sum(after[name] or 0 for name in CPU) >= sum(before[name] or 0 for name in CPU) > 0.18


def test_process_that_is_not_there() -> None:
    """A process that is gone already cannot be recorded."""
    source = PsutilSource(Plan([], pid=2**22 - 1), 2**22 - 1, lambda *_: None)

    assert source.alive(0.0) == []
