"""Tests of the question whether two processes share one address space."""

from __future__ import annotations

import os
import subprocess

import pytest

from nncftools.sampler.probes.process import Stat
from nncftools.sampler.tree import PAGE, MemoryKinds
from tests.sampler.fake_proc import FakeProc, pids, vanish

MIB = 2**20


KIB = 1024
STATUS = b"Name:\twork\nVmPTE:\t  40 kB\nRssAnon:\t  %d kB\nRssFile:\t  6 kB\nRssShmem:\t  7 kB\nThreads:\t1\n"


def status(anon: int) -> bytes:
    """Return a status file with so many bytes of anonymous memory."""
    return STATUS % (anon // KIB)


def taken(anon: int, rss: int = 100, parents: int = 0) -> MemoryKinds:
    """Return the kinds of a process after its first reading."""
    kinds = MemoryKinds()
    kinds.take(status(anon), rss, parents)
    return kinds


@pytest.mark.parametrize("data", [b"Name:\twork\nState:\tZ (zombie)\n", b"Name:\tRssAnon:\nVmRSS:\t 9 kB\n", b""])
def test_kinds(data: bytes) -> None:
    """A zombie, and a kernel before 4.5, say nothing: the last reading stays."""
    kinds = taken(500 * KIB)
    kinds.own(100, 0)
    kinds.take(data, 200, 0)

    assert (kinds.anon, kinds.file, kinds.shmem, kinds.tables) == (500 * KIB, 6 * KIB, 7 * KIB, 40 * KIB)
    assert (kinds.rss, kinds.is_new) == (100, False)


@pytest.mark.parametrize(
    "parents, pages, faults, own",
    [
        pytest.param(0, 100, 7, 100, id="program"),
        pytest.param(100, 100, 0, 0, id="fresh copy"),
        pytest.param(100, 160, 60, 60, id="copy that grew"),
        pytest.param(100, 100, 30, 30, id="copy that wrote to pages"),
        pytest.param(100, 100, 3000, 100, id="copy that wrote to all pages"),
        pytest.param(900, 100, 0, 0, id="copy of a process that has grown"),
    ],
)
def test_own(parents: int, pages: int, faults: int, own: int) -> None:
    """A process owns its page tables, and its anonymous memory without the pages that it inherited at a fork."""
    kinds = taken(100 * PAGE, 100, parents=parents * PAGE)
    kinds.take(status(pages * PAGE), pages, 0)

    assert kinds.own(rss=pages, faults=faults) == own * PAGE + 40 * KIB


class TestTree:
    @pytest.mark.parametrize(
        "threads, found",
        [
            pytest.param({1: {1: [5]}, 5: {5: [3]}, 3: None}, [1, 5, 3], id="parents first"),
            pytest.param({1: {1: [], 2: [7]}, 7: None}, [1, 7], id="child of another thread"),
            pytest.param({1: {1: [77]}}, [1], id="child that has ended"),
            pytest.param(
                {1: {1: list(range(10_000, 12_000))}, 10_000: None, 11_999: None},
                [1, 10_000, 11_999],
                id="more children than one read returns",
            ),
        ],
    )
    def test_descendants(
        self, proc: FakeProc, threads: dict[int, dict[int, list[int]] | None], found: list[int]
    ) -> None:
        """One look finds the children of all threads of all processes, by PID and thread."""
        for pid, children in threads.items():
            proc.add(pid, threads=children)
        tree = proc.tree()
        Stat(0).read(tree.processes)
        tree.refresh()

        assert pids(tree.processes) == found

    def test_not_looked_for_unless_there_was_a_stir(self, proc: FakeProc) -> None:
        """While the system's last PID and number of threads stay the same, nothing is scanned; then it is."""
        tree = proc.tree()
        for _ in range(3):
            tree.refresh()
        before = (proc.root / "loadavg").read_text()
        proc.add(8)
        (proc.root / "1/task/1/children").write_text("8 ")
        (proc.root / "loadavg").write_text(before)
        unseen = pids(tree.refresh())
        proc.fork()

        assert (unseen, pids(tree.refresh())) == ([], [8])

    def test_reused_pid_is_a_new_process(self, proc: FakeProc) -> None:
        """After a process is gone, its PID may come again as another process."""
        proc.add(1, threads={1: [6]})
        proc.add(6, name="old")
        tree = proc.tree()
        old = tree.refresh()[0]
        before = open_files()
        tree.remove(old)
        proc.add(6, name="new")
        new = tree.refresh()[0]

        assert (old.name, new.name) == ("old", "new")
        assert old.number != new.number
        assert open_files() == before

    def test_without_children(self, proc: FakeProc) -> None:
        """When descendants are not wanted, none is looked for."""
        proc.add(1, threads={1: [5]})
        proc.add(5)

        assert proc.tree(children=False).refresh() == []


class TestVanishing:
    """Processes and threads that end between two reads."""

    @pytest.mark.parametrize(
        "file, text", [("stat", None), ("status", None), ("stat", ""), ("stat", "5 (cut"), ("stat", "5 (name) S 1")]
    )
    def test_file_that_is_gone(self, proc: FakeProc, file: str, text: str | None) -> None:
        """A process that ends while its files are opened one by one is left out, and nothing stays open."""
        tree = proc.tree()
        proc.add(5)
        (proc.root / "5" / file).unlink()
        if text is not None:
            (proc.root / "5" / file).write_text(text)
        before = open_files()

        assert tree.add(5) is None
        assert (pids(tree.processes), open_files()) == ([1], before)

    @pytest.mark.process
    def test_process_that_ended_has_no_children(self, proc: FakeProc) -> None:
        """A search for children skips a process that was reaped during it, and finds the children of the others."""
        proc.add(1, threads={1: [5, 6]})
        proc.add(5)
        proc.add(6)
        tree = proc.tree()
        tree.refresh()
        vanish(tree.processes[1])
        proc.add(7)
        proc.set_children(6, 7)

        assert pids(tree.refresh()) == [7]

    @pytest.mark.process
    def test_thread_that_ended(self, proc: FakeProc) -> None:
        """When a thread has ended, the children of the other threads are found, and the threads are listed again."""
        proc.add(1, threads={1: [], 2: []})
        tree = proc.tree()
        (process,) = tree.processes
        Stat(0).read(tree.processes)
        tree.refresh()
        os.close(process.threads["2"])
        process.threads["2"] = gone()
        proc.add(1, threads={1: [], 3: [8]})
        proc.add(8)
        proc.root.joinpath("1/task/2/children").unlink()
        proc.root.joinpath("1/task/2").rmdir()
        tree.refresh()
        tree.refresh()

        assert pids(tree.processes) == [1, 8]
        assert set(process.threads) == {"1", "3"}


def test_orphans_are_the_reapers_children(proc: FakeProc) -> None:
    """What was re-parented to the reaper belongs to the tree, without a parent there; the reaper itself does not."""
    proc.add(50, threads={50: [1, 60], 51: []})
    proc.add(60)
    tree = proc.tree(reaper=50)
    tree.refresh()

    assert sorted(pids(tree.processes)) == [1, 60]
    assert [process.parent for process in tree.processes] == [None] * 2


def test_name_of_another_encoding(proc: FakeProc) -> None:
    """Bytes that are no text are written out in name and command."""
    (proc.root / "1/comm").write_bytes(b"caf\xe9\n")
    (proc.root / "1/cmdline").write_bytes(b"caf\xe9\0\0a b\0")
    process = proc.process()

    assert (process.name, process.command) == ("caf\\xe9", ["caf\\xe9", "", "a b"])


def open_files() -> int:
    """Return how many descriptors this process holds."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 — counted, not used


def gone() -> int:
    """Return a descriptor of a proc file whose process has ended."""
    child = subprocess.Popen(["true"])
    descriptor = os.open(f"/proc/{child.pid}/stat", os.O_RDONLY)
    child.wait()
    return descriptor
