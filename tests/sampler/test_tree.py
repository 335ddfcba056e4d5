from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time

import pytest

from nncftools.sampler.probes.io import Io
from nncftools.sampler.probes.meminfo import Meminfo
from nncftools.sampler.probes.stat import PAGE, TICKS_PER_S, Stat
from nncftools.sampler.probes.status import Status
from nncftools.sampler.tree import Process, Tree
from tests.conftest import HANGING_S

KIB = 1024
FILES = ("stat", "io", "status")
STATUS = (
    "Name:\t{name}\nVmHWM:\t  {kib} kB\nVmRSS:\t  {kib} kB\nRssAnon:\t  5 kB\nRssFile:\t  6 kB\n"
    "RssShmem:\t  7 kB\nVmSwap:\t  8 kB\n"
)
IO = "rchar: {}\nwchar: {}\nsyscr: 1\nsyscw: 1\nread_bytes: {}\nwrite_bytes: {}\ncancelled_write_bytes: 0\n"


class FakeProc:
    """A proc directory whose processes are files that a test writes."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.forks = 0
        self.add(1, name="first")

    def add(  # noqa: PLR0913 — one parameter per figure
        self,
        pid: int,
        *,
        name: str = "name",
        state: str = "S",
        threads: dict[int, list[int]] | None = None,
        pages: int = 10,
        ticks: tuple[int, int, int, int] = (0, 0, 0, 0),
        io: tuple[int, int, int, int] = (0, 0, 0, 0),
    ) -> None:
        """Write a process; ``threads`` holds the children of each thread."""
        threads = threads or {pid: []}
        folder = self.root / str(pid)
        for thread, children in threads.items():
            (folder / "task" / str(thread)).mkdir(parents=True, exist_ok=True)
            (folder / "task" / str(thread) / "children").write_text("".join(f"{child} " for child in children))
        before = " ".join(["0"] * 6)
        times = " ".join(map(str, ticks))
        tail = f"20 0 {len(threads)} 0 4711 {pages * 2 * PAGE} {pages} 0 0"
        (folder / "stat").write_text(f"{pid} ({name}) {state} {before} 1 2 3 4 {times} {tail}\n")
        (folder / "io").write_text(IO.format(*io))
        (folder / "comm").write_text(f"{name}\n")
        (folder / "cmdline").write_text(f"{name}\0--option\0")
        (folder / "status").write_text(STATUS.format(name=name, kib=pages * 4))
        self.fork()

    def fork(self) -> None:
        """Have the kernel give out a new PID."""
        self.forks += 1
        (self.root / "loadavg").write_text(f"0.10 0.20 0.30 1/100 {self.forks}\n")

    def tree(self, *, children: bool = True) -> Tree:
        """Return the tree of process 1."""
        tree = Tree(str(self.root), FILES, reaper=None, children=children)
        tree.add(1)
        return tree


@pytest.fixture
def proc(tmp_path: pathlib.Path) -> FakeProc:
    """Return a fake proc directory that holds process 1."""
    return FakeProc(tmp_path)


def pids(processes: list[Process]) -> list[int]:
    """Return the PIDs."""
    return [process.pid for process in processes]


class TestTree:
    def test_descendants_come_after_their_parents(self, proc: FakeProc) -> None:
        """One look finds children and grandchildren, parents first."""
        proc.add(1, threads={1: [5]})
        proc.add(5, threads={5: [3]})
        proc.add(3)
        tree = proc.tree()
        tree.refresh()

        assert pids(tree.processes) == [1, 5, 3]

    def test_children_of_every_thread(self, proc: FakeProc) -> None:
        """A child that another thread than the main one started belongs to the tree."""
        proc.add(1, threads={1: [], 2: [7]})
        proc.add(7)
        tree = proc.tree()
        Stat(0).read(tree.processes)
        tree.refresh()

        assert pids(tree.processes) == [1, 7]

    def test_three_hundred_threads(self, proc: FakeProc) -> None:
        """The only child of 300 threads is found."""
        proc.add(1, threads={1000 + thread: [] for thread in range(299)} | {1: [9]})
        proc.add(9)
        tree = proc.tree()
        Stat(0).read(tree.processes)
        tree.refresh()

        assert pids(tree.processes) == [1, 9]

    def test_more_children_than_one_read_returns(self, proc: FakeProc) -> None:
        """A list of children longer than the kernel's buffer is read to its end."""
        many = list(range(10_000, 12_000))
        proc.add(1, threads={1: many})
        for pid in (many[0], many[-1]):
            proc.add(pid)
        tree = proc.tree()
        tree.refresh()

        assert pids(tree.processes) == [1, many[0], many[-1]]

    def test_not_looked_for_unless_there_was_a_stir(self, proc: FakeProc) -> None:
        """While the system's last PID and number of threads stay the same, nothing is scanned; then it is."""
        tree = proc.tree()
        tree.stir()
        for _ in range(3):
            tree.refresh()
        before = (proc.root / "loadavg").read_text()
        proc.add(8)
        (proc.root / "1/task/1/children").write_text("8 ")
        (proc.root / "loadavg").write_text(before)
        quiet, unseen = tree.stir(), pids(tree.refresh())
        proc.fork()

        assert (quiet, unseen) == (False, [])
        assert (tree.stir(), pids(tree.refresh())) == (True, [8])

    def test_reused_pid_is_a_new_process(self, proc: FakeProc) -> None:
        """After a process is gone, its PID may come again as another process."""
        proc.add(1, threads={1: [6]})
        proc.add(6, name="old")
        tree = proc.tree()
        old = tree.refresh()[0]
        tree.remove(old)
        proc.add(6, name="new")
        new = tree.refresh()[0]

        assert (old.name, new.name) == ("old", "new")
        assert old.number != new.number

    def test_child_that_vanished_is_left_out(self, proc: FakeProc) -> None:
        """A child that ends between the list and the look is no error."""
        proc.add(1, threads={1: [77]})

        assert proc.tree().refresh() == []

    def test_without_children(self, proc: FakeProc) -> None:
        """When descendants are not wanted, none is looked for."""
        proc.add(1, threads={1: [5]})
        proc.add(5)

        assert proc.tree(children=False).refresh() == []

    def test_name_with_parenthesis_and_spaces(self, proc: FakeProc) -> None:
        """A name such as ``a) b (c`` does not confuse the fields behind it."""
        proc.add(1, name="a) b (c", ticks=(1, 2, 3, 4))
        tree = proc.tree()

        assert tree.processes[0].name == "a) b (c"
        assert tree.processes[0].started_ticks == 4711
        assert Stat(0).read(tree.processes)[2:4] == (4 / TICKS_PER_S, 6 / TICKS_PER_S)

    def test_forked_copy(self, proc: FakeProc) -> None:
        """A child with its parent's command line was forked without exec."""
        proc.add(1, name="python", threads={1: [2, 3]})
        proc.add(2, name="python")
        proc.add(3, name="other")
        tree = proc.tree()
        tree.refresh()

        assert [process.forked_copy for process in tree.processes] == [False, True, False]

    def test_gives_back_its_descriptors(self, proc: FakeProc) -> None:
        """A process taken out of the tree leaves no descriptor open."""
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 — counted, not used
        tree = proc.tree()
        for _ in range(3):
            tree.refresh()
        tree.remove(tree.processes[0])

        assert len(os.listdir("/proc/self/fd")) - before == 1  # noqa: PTH208 — loadavg stays open


class TestProbes:
    def test_sums(self, proc: FakeProc) -> None:
        """Every figure is the sum over the tree, in bytes and seconds."""
        proc.add(1, threads={1: [2]}, pages=10, ticks=(100, 200, 10, 20), io=(1, 2, 3, 4))
        proc.add(2, pages=5, ticks=(1, 2, 0, 0), io=(10, 20, 30, 40))
        tree = proc.tree()
        tree.refresh()

        times = 111 / TICKS_PER_S, 222 / TICKS_PER_S
        assert Stat(0).read(tree.processes) == (15 * PAGE, 30 * PAGE, *times, 6, 14, 2, 2)
        assert Status(2).read(tree.processes) == (10 * KIB, 12 * KIB, 14 * KIB, 16 * KIB)
        assert Io(1).read(tree.processes) == (33, 44, 11, 22)

    def test_retired_child_is_kept(self, proc: FakeProc) -> None:
        """CPU time and I/O of a child of ours that has ended stay in the sums."""
        proc.add(1, ticks=(100, 200, 0, 0), io=(1, 2, 3, 4))
        process = proc.tree().processes[0]
        stat, io = Stat(0), Io(1)
        stat.retire(process)
        io.retire(process)

        assert stat.read([]) == (None, None, 100 / TICKS_PER_S, 200 / TICKS_PER_S, 3, 7, 0, 0)
        assert io.read([]) == (3, 4, 1, 2)

    @pytest.mark.skipif(os.getuid() != 0, reason="gives a file to another user, which only root may")
    def test_locked_io_is_unknown(self, tmp_path: pathlib.Path) -> None:
        """I/O that one process of the tree does not let us read is unknown, not less."""
        script = (
            "import os, sys; sys.path.insert(0, sys.argv[1])\n"
            "from nncftools.sampler.probes.io import Io\nfrom nncftools.sampler.tree import Process\n"
            "os.setuid(65534)\nprint(Io(0).read([Process('/proc', int(sys.argv[2]), None, 0, ('io',))]))"
        )
        here = str(pathlib.Path(__file__).parents[2])
        words = [sys.executable, "-c", script, here, str(os.getpid())]
        shown = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)

        assert shown.stdout == "(None, None, None, None)\n"

    def test_zombie_holds_no_memory_and_keeps_its_times(self) -> None:
        """The memory of a zombie is unknown, not 0, and its CPU time is still there."""
        script = "import time\nwhile time.process_time() < 0.1: pass"
        child = subprocess.Popen([sys.executable, "-S", "-c", script])
        process = Process("/proc", child.pid, None, 0, FILES)
        deadline = time.monotonic() + HANGING_S
        while b") Z " not in process.read("stat"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        rss, vms, user, system, *_, threads, processes = Stat(0).read([process])
        parts = Status(2).read([process])
        child.wait()

        assert (rss, vms, threads, processes) == (None, None, 0, 0)
        assert parts == (None, None, None, None)
        assert user + system >= 0.08

    def test_process_that_is_gone_is_marked(self) -> None:
        """Reading the kept descriptors of a reaped process marks it as gone and adds nothing."""
        child = subprocess.Popen(["sleep", "60"])
        process = Process("/proc", child.pid, None, 0, FILES)
        child.kill()
        child.wait()
        rss, *_ = Stat(0).read([process])

        assert (rss, process.alive) == (None, False)

    def test_system_memory(self, proc: FakeProc) -> None:
        """SYSTEM is total less available, in bytes; unknown on a kernel that does not say."""
        text = "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\nBuffers: 3 kB\n"
        (proc.root / "meminfo").write_text(text)
        known = Meminfo(str(proc.root), 1).read()
        (proc.root / "meminfo").write_text(text.replace("MemAvailable: 400 kB\n", ""))
        unknown = Meminfo(str(proc.root), 1).read()

        assert (known, unknown) == ((600 * 1024,), (None,))
