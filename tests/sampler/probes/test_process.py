from __future__ import annotations

import re

import pytest

from nncftools.sampler.probes.process import Io, Stat, Status
from nncftools.sampler.tree import PAGE, TICKS_PER_S, Process
from tests.sampler.fake_proc import FILES, KIB, FakeProc, none_kept, none_left

UNKNOWN = (None, None, None, None)
LARGEST = 2**64 - 1
ONE = (5 * KIB, 6 * KIB, 7 * KIB, 8 * KIB)
"""The parts of a fake process."""


def figures(proc: FakeProc, *pids: int) -> dict[str, float | None]:
    """Return the sums over processes, by metric."""
    return dict(zip(Stat.metrics, Stat(0).read([proc.process(pid) for pid in pids]), strict=True))


def test_stat_sums(proc: FakeProc) -> None:
    """Every figure is the sum over the tree, in bytes, seconds and numbers."""
    proc.add(1, pages=10, ticks=(100, 200, 10, 20), faults=(1, 20, 300, 4_000), io=(1, 2, 3, 4))
    proc.add(2, pages=5, ticks=(1, 2, 0, 0), faults=(5, 0, LARGEST, 0), threads={2: [], 3: [], 4: []}, io=(9, 8, 7, 6))
    processes = [proc.process(1), proc.process(2)]

    assert figures(proc, 1, 2) == {
        "rss": 15 * PAGE,
        "vms": 30 * PAGE,
        "cpu_user": 111 / TICKS_PER_S,
        "cpu_system": 222 / TICKS_PER_S,
        "minor_faults": 1 + 20 + 5,
        "major_faults": 300 + 4_000 + LARGEST,
        "threads": 4,
        "processes": 2,
    }
    assert Io(1).read(processes) == (10, 10, 10, 10)
    assert Status(2).read(processes) == tuple(2 * size for size in ONE)


def test_name_with_parenthesis_and_spaces(proc: FakeProc) -> None:
    """A name such as ``a) S 1 (b`` does not move the figures behind it."""
    proc.add(1, name="a) S 1 2 (b) ", pages=7, threads={1: [], 2: []})
    found = figures(proc, 1)

    assert (found["rss"], found["threads"]) == (7 * PAGE, 2)


def test_no_descriptor_left(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose file cannot be opened has not ended for that, and it is known that figures are missing."""
    process = Process(str(proc.root), 1, None, 0, files=FILES, common=none_kept())
    none_left(monkeypatch)
    rss, *_ = Stat(0).read([process])

    assert (rss, process.alive, process.common.ran_out) == (None, True, True)


def test_another_process_with_its_pid(proc: FakeProc) -> None:
    """Without a kept descriptor, a process that has got the PID of an ended one is not taken for it."""
    process = Process(str(proc.root), 1, None, 0, files=FILES, common=none_kept())
    proc.started += 1
    proc.add(1, pages=1000)
    rss, *_ = Stat(0).read([process])

    assert (rss, process.alive) == (None, False)


def test_no_process() -> None:
    """Before the first process, memory is unknown and everything else is 0."""
    assert Stat(0).read([]) == (None, None, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    "line, text, expected",
    [
        pytest.param("RssAnon:.*\n", "", UNKNOWN, id="kernel before 4.5 without anonymous memory"),
        pytest.param("RssShmem:.*\n", "", UNKNOWN, id="kernel before 4.5 without shared memory"),
        pytest.param("Name:.*\n", r"Name:\t\\nRssAnon: 9 kB\n", ONE, id="name that looks like a figure"),
        pytest.param("Groups:\t", f"Groups:\t{'1234567890 ' * 1_000}", ONE, id="many groups of a large directory"),
    ],
)
def test_status_file(proc: FakeProc, line: str, text: str, expected: object) -> None:
    """Where the kernel does not split RSS, the parts are unknown; lines before them do no harm."""
    status = proc.root / "1/status"
    status.write_text(re.sub(line, text, status.read_text()))

    assert Status(2).read([proc.process()]) == expected
