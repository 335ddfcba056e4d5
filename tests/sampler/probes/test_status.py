from __future__ import annotations

import re

import pytest

from nncftools.sampler.probes.process import Status
from nncftools.sampler.tree import value_of
from tests.sampler.fake_proc import KIB, STATUS, FakeProc, vanish

UNKNOWN = (None, None, None, None)
ONE = (5 * KIB, 6 * KIB, 7 * KIB, 8 * KIB)
"""The parts of a fake process."""


def test_sums(proc: FakeProc) -> None:
    """Every part of RSS is the sum over the tree, in bytes."""
    proc.add(2)

    assert Status(2).read([proc.process(1), proc.process(2)]) == tuple(2 * size for size in ONE)


@pytest.mark.parametrize("key", ["RssAnon", "RssFile", "RssShmem"])
def test_kernel_that_does_not_tell(proc: FakeProc, key: str) -> None:
    """On a kernel before 4.5, which does not split RSS, the parts are unknown and not 0."""
    status = proc.root / "1/status"
    status.write_text(re.sub(f"{key}:.*\n", "", status.read_text()))

    assert Status(2).read([proc.process()]) == UNKNOWN


def test_zombie_adds_nothing(proc: FakeProc) -> None:
    """A zombie has no memory, and does not make that of the others unknown."""
    proc.add_zombie(2)

    assert Status(2).read([proc.process(1), proc.process(2)]) == ONE


def test_process_with_its_parents_memory(proc: FakeProc) -> None:
    """What is not counted, a child of vfork(2), adds nothing."""
    proc.add(2)
    child = proc.process(2)
    child.counted = False

    assert Status(2).read([proc.process(1), child]) == ONE


def test_only_zombies(proc: FakeProc) -> None:
    """When nothing but zombies is left, the parts are unknown."""
    proc.add_zombie(1)

    assert Status(2).read([proc.process()]) == UNKNOWN


def test_no_process() -> None:
    """Without a process, the parts are unknown."""
    assert Status(2).read([]) == UNKNOWN


@pytest.mark.process
def test_process_that_vanished(proc: FakeProc) -> None:
    """A process that was reaped between scan and read adds nothing and is marked; the others are read."""
    proc.add(2)
    processes = [proc.process(1), proc.process(2)]
    vanish(processes[0])

    assert Status(2).read(processes) == ONE
    assert [process.alive for process in processes] == [False, True]


def test_name_that_looks_like_a_figure(proc: FakeProc) -> None:
    """A process that calls itself by a key is not taken at its word: the kernel writes a line's end as ``\\n``."""
    (proc.root / "1/status").write_text(STATUS.format(name="\\nRssAnon: 9 kB", state="S", groups="", kib=40, mark=40))

    assert Status(2).read([proc.process()]) == ONE


def test_many_groups(proc: FakeProc) -> None:
    """Memory is found after the list of groups, however long that is (as in a large directory)."""
    groups = " ".join(str(1_234_500_000 + place) for place in range(1_000))
    (proc.root / "1/status").write_text(STATUS.format(name="name", state="S", groups=groups, kib=40, mark=40))

    assert Status(2).read([proc.process()]) == ONE


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"VmHWM:\t      12 kB", 12 * KIB),
        (b"VmHWM:\t18014398509481983 kB", 18014398509481983 * KIB),
        (b"VmPeak: 1 kB", None),
    ],
)
def test_value(line: bytes, expected: int | None) -> None:
    """A line of kB is read as bytes, one that is missing is unknown."""
    assert value_of(b"Name:\tname\n" + line + b"\nThreads:\t1\n", b"\nVmHWM:") == expected
