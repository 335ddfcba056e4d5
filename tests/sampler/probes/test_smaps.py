from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from nncftools.sampler.probes import smaps
from nncftools.sampler.probes.process import Stat
from nncftools.sampler.probes.smaps import Estimate, Smaps
from nncftools.sampler.tree import PAGE, Process
from tests.sampler.fake_proc import FILES, KIB, FakeProc, none_kept, vanish

UNKNOWN = (None, None, None)


class Clock:
    """Time as a pass sees it: it takes ``pass_s`` of CPU."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.pass_s = 0.0

    def monotonic(self) -> float:
        """Return the time of day."""
        return self.now_s

    def thread_time(self) -> float:
        """Return the CPU time of the pass's thread."""
        return self.pass_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the probe's clock, and have its passes done at once."""
    fake = Clock()
    at_once = SimpleNamespace(start_new_thread=lambda work, arguments: work(*arguments))
    monkeypatch.setattr(smaps, "time", fake)
    monkeypatch.setattr(smaps, "_thread", at_once)
    return fake


def add(proc: FakeProc, pid: int, *, pss_kib: int, private_kib: int = 0, pages: int = 10) -> Process:
    """Write a process with its rollup, as Linux 6 writes it; return it as after a sample."""
    proc.add(pid, pages=pages)
    (proc.root / str(pid) / "smaps_rollup").write_text(
        "00400000-7ffee2d31000 ---p 00000000 00:00 0                          [rollup]\n"
        f"Rss:             {pages * PAGE // KIB} kB\nPss:             {pss_kib} kB\nPss_Dirty:          1 kB\n"
        f"Pss_Anon:           2 kB\nShared_Clean:       3 kB\nPrivate_Clean:      {private_kib} kB\n"
        f"Private_Dirty:     {private_kib * 2} kB\nPrivate_Hugetlb:    {private_kib * 3} kB\nSwapPss:            9 kB\n"
    )
    process = proc.process(pid)
    Stat(0).read([process])
    return process


def of_one_pass(processes: Sequence[Process]) -> tuple[float | None, ...]:
    """Return PSS and USS of one pass over processes."""
    probe = Smaps(0.01)
    first = probe.read(processes)
    assert first == UNKNOWN
    return probe.read(processes)[:2]


@pytest.mark.usefixtures("clock")
class TestSums:
    """Passes that are done at once, over files."""

    def test_sum(self, proc: FakeProc) -> None:
        """PSS is the line of that name alone, USS all private pages, in bytes; folders may be found by their path."""
        processes = [add(proc, 1, pss_kib=100, private_kib=10), add(proc, 2, pss_kib=50, private_kib=1)]
        processes[1] = Process(str(proc.root), 2, None, 0, files=FILES, common=none_kept())

        assert processes[1].directory < 0
        assert of_one_pass(processes) == (150 * KIB, 66 * KIB)

    @pytest.mark.process
    def test_process_that_adds_nothing(self, proc: FakeProc) -> None:
        """A process that has ended, a zombie and a child of vfork(2) add nothing, and no descriptor stays open."""
        processes = [add(proc, pid, pss_kib=10_000) for pid in (1, 2, 3, 4)]
        vanish(processes[1])
        (proc.root / "3/smaps_rollup").unlink()
        processes[3].counted = False
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 — counted, not used

        assert of_one_pass(processes) == (10_000 * KIB, 0)
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 — the same

    @pytest.mark.parametrize("pids", [(), (1,), (1, 2)])
    def test_process_that_is_locked(self, proc: FakeProc, pids: tuple[int, ...]) -> None:
        """Without a process, or with one that we may not read, the sums are unknown, not less."""
        processes = [add(proc, pid, pss_kib=100) for pid in pids]
        if pids:  # root cannot read a folder either
            (proc.root / "1/smaps_rollup").unlink()
            (proc.root / "1/smaps_rollup").mkdir()

        assert of_one_pass(processes) == UNKNOWN[:2]

    def test_descriptor_that_the_tree_closes_meanwhile(
        self,
        clock: Clock,
        proc: FakeProc,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A process that leaves the tree while a pass runs is left out, and no other file is read in its place."""
        clock.pass_s = 1.0
        processes = [add(proc, 1, pss_kib=10_000), add(proc, 2, pss_kib=50)]

        def late(work: Callable[..., None], arguments: tuple[list[int]]) -> None:
            processes[1].close()
            work(*arguments)

        monkeypatch.setattr(smaps._thread, "start_new_thread", late)

        assert of_one_pass(processes)[0] == 10_000 * KIB


class TestPasses:
    """When passes begin, and which results are returned."""

    def test_next_pass_waits(self, clock: Clock, proc: FakeProc) -> None:
        """Regular passes take half of the share: after one of 0.5 s of CPU, the next begins 100 s after the first."""
        clock.pass_s = 0.5
        process = add(proc, 1, pss_kib=100)
        probe = Smaps(0.01)
        probe.read([process])
        probe.read([process])
        clock.now_s += 99.9
        early = [probe.read([process]) for _ in range(2)]
        clock.now_s += 0.2
        due = [probe.read([process])]
        clock.now_s += 0.25  # a result is as old as the middle of its pass
        due.append(probe.read([process]))

        assert early == [UNKNOWN] * 2
        assert due == [UNKNOWN, (100 * KIB, 0, 0.25)]

    def test_pass_at_a_new_maximum(self, clock: Clock, proc: FakeProc) -> None:
        """When PSS rose by an estimated 1 %, a pass begins, although the regular one is not due yet."""
        clock.pass_s = 0.1
        process = add(proc, 1, pss_kib=4000, private_kib=100, pages=1000)
        probe = Smaps(0.01)
        probe.read([process])
        clock.pass_s = 0.5
        clock.now_s += 20
        probe.read([process])  # a regular pass
        clock.now_s += 50
        known = []
        for pages in (1009, 1009, 1011, 1011, 1011):
            process.rss = pages
            known.append(probe.read([process])[0])

        assert known == [4000 * KIB, None, None, 4000 * KIB, None]

    def test_new_maxima_keep_to_the_share(self, clock: Clock, proc: FakeProc) -> None:
        """Passes for new maxima wait, too, until the share allows them."""
        clock.pass_s = 0.5
        process = add(proc, 1, pss_kib=100, pages=1000)
        probe = Smaps(0.01)
        known = []
        for second in range(120):
            process.rss = 2000 * (second + 1)
            known.append(probe.read([process])[0])
            clock.now_s += 1

        assert [second for second, pss in enumerate(known) if pss] == [1, 51, 101]

    @pytest.mark.parametrize(
        "pages, expected", [(200, [10_000 * KIB] * 3), (2000, [None, None, 10_000 * KIB])], ids=["little", "much"]
    )
    def test_forks_meanwhile(self, clock: Clock, proc: FakeProc, pages: int, expected: list[int | None]) -> None:
        """Forks during a pass may have taken shares that nobody counted: then it is repeated, but not for ever."""
        clock.pass_s = 0.001
        first = add(proc, 1, pss_kib=10_000, pages=2500)
        probe = Smaps(0.5)
        probe.read([first])
        known = []
        for pid in (5, 6, 7):
            fork = add(proc, pid, pss_kib=0, pages=pages)
            fork.forked_copy = True
            clock.now_s += 1
            known.append(probe.read([first, fork])[0])

        assert known == expected

    @pytest.mark.process
    def test_process_that_ends_meanwhile(self, clock: Clock, proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
        """A process that ends while a pass runs is left out: the others' shares of its pages grow."""
        clock.pass_s = 1.0
        first, second = add(proc, 1, pss_kib=10_000), add(proc, 2, pss_kib=5_000)
        read = Process.read

        def and_end(process: Process, file: str) -> bytes:
            found = read(process, file)
            proc.add_zombie(1)
            return found

        monkeypatch.setattr(Process, "read", and_end)
        probe = Smaps(0.01)
        probe.read([first, second])
        first.common.samples = 1
        Stat(0).read([first, second])

        assert probe.read([first, second])[0] == 5_000 * KIB


class Sampled:
    """A process as a sample leaves it."""

    counted = True
    faults = 0

    def __init__(self, rss: int = 1000, *, forked: bool = False) -> None:
        self.rss = rss
        self.forked_copy = forked


def estimate_of(process: Any, pss: int, uss: int) -> Estimate:  # noqa: ANN401 — a stand-in
    """Return the estimate after a pass that counted these pages."""
    return Estimate([(process, process.rss, pss * PAGE, uss * PAGE)])


@pytest.mark.parametrize(
    "samples, pss",
    [([(1000, 0), (1100, 0), (900, 0)], [600, 700, 500]), ([(1000, 100), (1100, 200), (1100, 900)], [700, 800, 1300])],
    ids=["growth is private", "page faults without growth copy shared pages"],
)
def test_estimate(samples: list[tuple[int, int]], pss: list[int]) -> None:
    """Between two passes, RSS (pages) and page faults of a process change its PSS."""
    one: Any = Sampled()
    estimate = estimate_of(one, 600, 400)
    found = []
    for one.rss, one.faults in samples:
        found.append(estimate.pss([one]))

    assert found == pss


def test_estimate_of_forks() -> None:
    """A new fork shares what it has; another new process has its own; the shares of one that ends stay."""
    one, fork, other = [Sampled(), Sampled(forked=True), Sampled()]
    estimate: Any = estimate_of(one, 1000, 100)

    assert [estimate.pss(found) for found in ([one, fork], [one, fork, other], [fork])] == [1000, 2000, 900]
