from __future__ import annotations

import re

import pytest

from nncftools.sampler.probes.process import Io, Stat, Status
from nncftools.sampler.tree import PAGE, SMALL, TICKS_PER_S, Process
from tests.sampler.fake_proc import FILES, KIB, FakeProc, none_kept, none_left

UNKNOWN = (None, None, None, None)
LARGEST = 2**64 - 1


def test_sums(proc: FakeProc) -> None:
    """Bytes are summed over the tree: read and written by storage, then by system calls."""
    proc.add(1, io=(1, 2, 3, 4))
    proc.add(2, io=(10, 20, 30, 40))

    assert Io(1).read([proc.process(1), proc.process(2)]) == (33, 44, 11, 22)


def figures(proc: FakeProc, *pids: int) -> dict[str, float | None]:
    """Return the sums over processes, by metric."""
    return dict(zip(Stat.metrics, Stat(0).read([proc.process(pid) for pid in pids]), strict=True))


def test_stat_sums(proc: FakeProc) -> None:
    """Every figure is the sum over the tree, in bytes, seconds and numbers."""
    proc.add(1, pages=10, ticks=(100, 200, 10, 20), faults=(1, 20, 300, 4_000))
    proc.add(2, pages=5, ticks=(1, 2, 0, 0), faults=(5, 0, 7, 0), threads={2: [], 3: [], 4: []})

    assert figures(proc, 1, 2) == {
        "rss": 15 * PAGE,
        "vms": 30 * PAGE,
        "cpu_user": 111 / TICKS_PER_S,
        "cpu_system": 222 / TICKS_PER_S,
        "minor_faults": 1 + 20 + 5,
        "major_faults": 300 + 4_000 + 7,
        "threads": 4,
        "processes": 2,
    }


def test_name_with_parenthesis_and_spaces(proc: FakeProc) -> None:
    """A name such as ``a) S 1 (b`` does not move the figures behind it."""
    proc.add(1, name="a) S 1 2 (b) ", pages=7, threads={1: [], 2: []})
    found = figures(proc, 1)

    assert (found["rss"], found["threads"]) == (7 * PAGE, 2)


def test_stat_huge_values(proc: FakeProc) -> None:
    """Figures that fill 64 bits, behind the longest name, are read whole: what is read at once is enough for them."""
    name = "n" * 64
    numbers = " ".join([str(LARGEST)] * 4 + [str(2**63)] * 4)
    line = (
        f"4194304 ({name}) S {' '.join(['4194304'] * 6)} {numbers} -100 -20 4194304 0 {LARGEST} {LARGEST} {LARGEST} 0"
    )
    (proc.root / "1/stat").write_text(f"{line}\n")
    found = figures(proc, 1)

    assert len(line) < SMALL
    assert (found["rss"], found["vms"], found["threads"]) == (LARGEST * PAGE, LARGEST, 4_194_304)
    assert (found["minor_faults"], found["major_faults"]) == (2 * LARGEST, 2 * LARGEST)
    assert found["cpu_user"] == 2**64 / TICKS_PER_S


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


ONE = (5 * KIB, 6 * KIB, 7 * KIB, 8 * KIB)
"""The parts of a fake process."""


def test_status_sums(proc: FakeProc) -> None:
    """Every part of RSS is the sum over the tree, in bytes."""
    proc.add(2)

    assert Status(2).read([proc.process(1), proc.process(2)]) == tuple(2 * size for size in ONE)


@pytest.mark.parametrize(
    ("line", "text", "expected"),
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
