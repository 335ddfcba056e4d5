from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

from nncftools.sampler.probes.process import Io, Stat, Status
from nncftools.sampler.tree import PAGE, SMALL, TICKS_PER_S, Common, Process, find_size
from tests.sampler.fake_proc import FILES, IO, KIB, STATUS, FakeProc, locking, none_kept, none_left, vanish
from tests.waiting import until

UNKNOWN = (None, None, None, None)
LARGEST = 2**64 - 1


def test_sums(proc: FakeProc) -> None:
    """Bytes are summed over the tree: read and written by storage, then by system calls."""
    proc.add(1, io=(1, 2, 3, 4))
    proc.add(2, io=(10, 20, 30, 40))

    assert Io(1).read([proc.process(1), proc.process(2)]) == (33, 44, 11, 22)


def test_huge_values(proc: FakeProc) -> None:
    """Counters that fill 64 bits are read whole."""
    (proc.root / "1/io").write_text(IO.replace(" 1\n", f" {LARGEST}\n").format(*[LARGEST] * 4))

    assert Io(1).read([proc.process()]) == (LARGEST,) * 4


def test_locked_file_is_unknown(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    """I/O that one process of the tree does not let us read is unknown, not less."""
    proc.add(2, io=(1, 2, 3, 4))
    monkeypatch.setattr(os, "open", locking("io"))
    locked = proc.process(1)
    monkeypatch.undo()

    assert Io(1).read([locked, proc.process(2)]) == UNKNOWN


@pytest.mark.process
@pytest.mark.skipif(os.getuid() != 0, reason="gives a file to another user, which only root may")
def test_file_of_another_user_is_unknown(tmp_path: pathlib.Path) -> None:
    """What the kernel locks is unknown."""
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from nncftools.sampler.probes.process import Io\nfrom nncftools.sampler.tree import Common, Process\n"
        "os.setuid(65534)\n"
        "print(Io(0).read([Process('/proc', int(sys.argv[2]), None, 0, files=('io',), common=Common())]))"
    )
    here = str(pathlib.Path(__file__).parents[3])
    words = [sys.executable, "-c", script, here, str(os.getpid())]
    shown = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert shown.stdout == "(None, None, None, None)\n"


@pytest.mark.process
def test_process_that_vanished(proc: FakeProc) -> None:
    """A process that was reaped between scan and read adds nothing and is marked; the others are read."""
    proc.add(1, io=(1, 2, 3, 4))
    proc.add(2, io=(10, 20, 30, 40))
    processes = [proc.process(1), proc.process(2)]
    vanish(processes[0])

    assert Io(1).read(processes) == (30, 40, 10, 20)
    assert [process.alive for process in processes] == [False, True]


def test_process_that_another_probe_found_gone(proc: FakeProc) -> None:
    """A process that is known to be gone is not read: its figures are in its parent's by now."""
    proc.add(1, io=(1, 2, 3, 4))
    process = Process(str(proc.root), 1, None, 0, files=FILES, common=none_kept())
    process.alive = False

    assert Io(1).read([process]) == (0, 0, 0, 0)


def test_retired_children_are_kept(proc: FakeProc) -> None:
    """The bytes of children of ours that have ended stay in the sums."""
    proc.add(1, io=(1, 2, 3, 4))
    proc.add(2, io=(10, 20, 30, 40))
    io = Io(1)
    io.retire(proc.process(1))
    io.retire(proc.process(2))

    assert io.read([]) == (33, 44, 11, 22)


def test_locked_child_that_has_ended_stays_unknown(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a child of ours ends whose I/O could not be read, the totals are unknown: they lack its bytes."""
    monkeypatch.setattr(os, "open", locking("io"))
    locked = proc.process()
    monkeypatch.undo()
    io = Io(1)
    io.retire(locked)

    assert io.read([]) == UNKNOWN


def test_unknown_for_good(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another child leaves behind later does not make the totals known again."""
    proc.add(2, io=(10, 20, 30, 40))
    monkeypatch.setattr(os, "open", locking("io"))
    locked = proc.process()
    monkeypatch.undo()
    io = Io(1)
    io.retire(locked)
    io.retire(proc.process(2))

    assert io.read([proc.process(2)]) == UNKNOWN


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


def test_three_hundred_threads(proc: FakeProc) -> None:
    """A process of 300 threads has its memory once and its threads all."""
    proc.add(1, pages=7, threads={thread: [] for thread in range(1, 301)})
    found = figures(proc, 1)

    assert (found["rss"], found["threads"], found["processes"]) == (7 * PAGE, 300, 1)


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


def test_peak_and_samples_of_each_process(proc: FakeProc) -> None:
    """Every process knows its last and its largest size, and in how many samples it was seen."""
    process, stat = proc.process(), Stat(0)
    for pages in (10, 30, 20):
        proc.add(1, pages=pages)
        stat.read([process])
        process.common.samples += 1

    assert (process.rss, process.peak_rss, process.samples) == (20, 30, 3)


def test_zombie(proc: FakeProc) -> None:
    """A zombie counts neither as process nor as memory; its CPU time and faults do."""
    proc.add_zombie(2, ticks=(100, 200, 0, 0))
    found = figures(proc, 1, 2)

    assert (found["rss"], found["threads"], found["processes"]) == (10 * PAGE, 1, 1)
    assert (found["cpu_user"], found["minor_faults"]) == (100 / TICKS_PER_S, 6)


def test_process_with_its_parents_memory(proc: FakeProc) -> None:
    """What is not counted has its CPU time in the sums, and neither memory nor threads."""
    process = proc.process()
    process.counted = False
    proc.add(1, ticks=(100, 0, 0, 0))
    rss, vms, user, *_, threads, count = Stat(0).read([process])

    assert (rss, vms, user, threads, count) == (None, None, 100 / TICKS_PER_S, 0, 0)
    assert (process.samples, process.peak_rss) == (0, 0)


def test_only_zombies(proc: FakeProc) -> None:
    """When nothing but zombies is left, memory is unknown, and no process runs."""
    proc.add_zombie(1)
    found = figures(proc, 1)

    assert [found[name] for name in ("rss", "vms", "threads", "processes")] == [None, None, 0, 0]


@pytest.mark.process
def test_stat_process_that_vanished(proc: FakeProc) -> None:
    """A process that was reaped between scan and read adds nothing and is marked; the others are read."""
    proc.add(2)
    processes = [proc.process(1), proc.process(2)]
    vanish(processes[0])
    rss, *_, threads, count = Stat(0).read(processes)

    assert (rss, threads, count) == (10 * PAGE, 1, 1)
    assert [process.alive for process in processes] == [False, True]


def test_descriptor_that_was_closed(proc: FakeProc) -> None:
    """A descriptor that is no longer open reads as a process that is gone."""
    process = proc.process()
    os.close(process.files[0])
    process.files[0] = 2**20
    rss, *_ = Stat(0).read([process])

    assert (rss, process.alive) == (None, False)


def test_without_kept_descriptors(proc: FakeProc) -> None:
    """Where no descriptor may be kept, the figures are the same."""
    kept, unkept = proc.process(), Process(str(proc.root), 1, None, 0, files=FILES, common=none_kept())

    assert max(unkept.files) < 0
    assert Stat(0).read([unkept]) == Stat(0).read([kept])


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


def test_retired_child_is_kept(proc: FakeProc) -> None:
    """CPU time and faults of a child of ours that has ended stay in the sums."""
    proc.add_zombie(1, ticks=(100, 200, 0, 0))
    stat = Stat(0)
    stat.retire(proc.process())

    assert stat.read([]) == (None, None, 100 / TICKS_PER_S, 200 / TICKS_PER_S, 3, 7, 0, 0)


def test_several_retired_children_add_up(proc: FakeProc) -> None:
    """What ended before is not forgotten when the next one ends, nor counted twice."""
    proc.add(1, ticks=(100, 0, 0, 0))
    proc.add(2, ticks=(30, 0, 0, 0))
    proc.add(3, ticks=(7, 0, 0, 0))
    stat = Stat(0)
    for pid in (1, 2):
        stat.retire(proc.process(pid))

    assert stat.read([proc.process(3)])[2] == 137 / TICKS_PER_S


@pytest.mark.process
def test_retired_too_late(proc: FakeProc) -> None:
    """A child that is gone before it could be read for the last time leaves what is known of the others."""
    stat = Stat(0)
    stat.retire(proc.process())
    process = proc.process()
    vanish(process)
    stat.retire(process)

    assert stat.read([])[4:6] == (3, 7)


@pytest.mark.process
def test_zombie_of_the_kernel() -> None:
    """The memory of a real zombie is unknown, not 0, and its CPU time is still there."""
    script = "import time\nwhile time.process_time() < 0.1: pass"
    child = subprocess.Popen([sys.executable, "-S", "-c", script])
    process = Process("/proc", child.pid, None, 0, files=FILES, common=Common())
    until(lambda: b") Z " in process.read("stat"), "a zombie")
    rss, vms, user, system, *_, threads, processes = Stat(0).read([process])
    parts = Status(2).read([process])
    child.wait()

    assert (rss, vms, threads, processes) == (None, None, 0, 0)
    assert parts == (None, None, None, None)
    assert user + system >= 0.08


@pytest.mark.process
def test_process_that_is_gone_is_marked() -> None:
    """Reading the kept descriptors of a reaped process marks it as gone and adds nothing."""
    child = subprocess.Popen(["sleep", "60"])
    process = Process("/proc", child.pid, None, 0, files=FILES, common=Common())
    child.kill()
    child.wait()
    rss, *_ = Stat(0).read([process])

    assert (rss, process.alive) == (None, False)


@pytest.mark.parametrize("place", range(len(Stat.metrics)), ids=Stat.metrics)
def test_no_process(place: int) -> None:
    """Before the first process, memory is unknown and everything else is 0."""
    assert Stat(0).read([])[place] == (None if place < 2 else 0)


ONE = (5 * KIB, 6 * KIB, 7 * KIB, 8 * KIB)
"""The parts of a fake process."""


def test_status_sums(proc: FakeProc) -> None:
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


def test_status_process_with_its_parents_memory(proc: FakeProc) -> None:
    """What is not counted, a child of vfork(2), adds nothing."""
    proc.add(2)
    child = proc.process(2)
    child.counted = False

    assert Status(2).read([proc.process(1), child]) == ONE


def test_status_only_zombies(proc: FakeProc) -> None:
    """When nothing but zombies is left, the parts are unknown."""
    proc.add_zombie(1)

    assert Status(2).read([proc.process()]) == UNKNOWN


def test_status_no_process() -> None:
    """Without a process, the parts are unknown."""
    assert Status(2).read([]) == UNKNOWN


@pytest.mark.process
def test_status_process_that_vanished(proc: FakeProc) -> None:
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
    assert find_size(b"Name:\tname\n" + line + b"\nThreads:\t1\n", b"\nVmHWM:") == expected
