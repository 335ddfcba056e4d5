from __future__ import annotations

import pathlib
from typing import Any

import pytest

from nncftools.sampler.control_groups import LimitWatch
from nncftools.sampler.tree import PAGE
from tests.sampler.fake_proc import Told
from tests.sampler.grouped import Machine

MIB = 2**20
PAGES = MIB // PAGE
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max data size             {data:<20} unlimited            bytes
Max address space         {space:<20} unlimited            bytes
Max locked memory         65536                65536                bytes
"""


class FakeProcess:
    """A process of ``mib`` MiB on a machine; it reads the files that it has."""

    def __init__(self, machine: Machine, mib: int = 1, number: int = 3) -> None:
        self._folder = machine.proc / "7"
        self.number = number
        self.rss = mib * PAGES
        self.reads = 0
        self.limit()

    def limit(self, *, data: str = "unlimited", space: str = "unlimited") -> None:
        """Set its limits."""
        (self._folder / "limits").write_text(LIMITS.format(data=data, space=space))

    def read(self, file: str) -> bytes:
        """Return the content of a file. Raises OSError."""
        self.reads += file == "limits"
        return (self._folder / file).read_bytes()


class Watched:
    """A watch, its machine, and what it told."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.machine = Machine(folder)
        self.machine.belongs_to_v2({"/job": 500 * MIB})
        self.told: Told = []
        self.watch: Any = LimitWatch(str(self.machine.proc), lambda *line: self.told.append(line))

    def lines(self, key: str) -> list[Any]:
        """Return the values of the lines with a key."""
        return [value for name, value in self.told if name == key]

    def kill(self, count: int) -> None:
        """Let the kernel have killed so many processes of the group."""
        self.machine.charge("cg/job", "memory.events", f"oom_kill {count}")


@pytest.fixture
def watched(tmp_path: pathlib.Path) -> Watched:
    """Return a watch on a machine where process 7 is in a group with a limit of 500 MiB."""
    return Watched(tmp_path)


class TestLimits:
    def test_of_the_group(self, watched: Watched) -> None:
        """The limit of a process's group is written once, with the process that was seen with it first."""
        watched.watch.look([FakeProcess(watched.machine), FakeProcess(watched.machine, number=4)])

        assert watched.lines("memory_limit") == [
            {
                "kind": "control group",
                "size": 500 * MIB,
                "set_by": f"{watched.machine.folder}/cg/job/memory.max",
                "process": 3,
            }
        ]
        assert watched.lines("group") == [{"folder": f"{watched.machine.folder}/cg/job", "oom_kills": 0, "process": 3}]

    def test_of_the_process(self, watched: Watched) -> None:
        """Limits of address space and data are those that are in force, the soft ones."""
        process = FakeProcess(watched.machine)
        process.limit(data="1000", space="2000")
        watched.watch.look([process])

        assert [(one["kind"], one["size"]) for one in watched.lines("memory_limit")[:2]] == [
            ("RLIMIT_DATA", 1000),
            ("RLIMIT_AS", 2000),
        ]

    def test_set_later(self, watched: Watched) -> None:
        """A process is looked at again when it has doubled, but not below 16 MiB."""
        process = FakeProcess(watched.machine)
        reads = []
        for mib in (1, 10, 15, 16, 31, 32, 20):
            process.rss = mib * PAGES
            watched.watch.look([process])
            reads.append(process.reads)

        assert reads == [1, 1, 1, 2, 2, 3, 3]

    def test_new_limit(self, watched: Watched) -> None:
        """A limit that was set meanwhile is written; one that is known is not written again."""
        process = FakeProcess(watched.machine)
        watched.watch.look([process])
        process.limit(space="2000")
        watched.watch.look_again([process], 1.0)
        watched.watch.look_again([process], 2.0)

        assert [one["kind"] for one in watched.lines("memory_limit")] == ["control group", "RLIMIT_AS"]

    def test_largest_again(self, watched: Watched) -> None:
        """The largest process is looked at again, soon at first and then every ten seconds."""
        small, large = FakeProcess(watched.machine), FakeProcess(watched.machine, 9)
        due = [0.0]
        for _ in range(12):
            watched.watch.look_again([small, large], due[-1])
            due.append(watched.watch.at_s)

        assert (small.reads, large.reads) == (0, 12)
        assert due[:4] == pytest.approx([0.0, 0.05, 0.25, 1.05])
        assert due[-1] - due[-2] == pytest.approx(10.0)

    def test_looked_at(self, watched: Watched) -> None:
        """Those that were looked at are returned: they have grown."""
        small, large = FakeProcess(watched.machine), FakeProcess(watched.machine, 9)

        assert watched.watch.look([small, large]) == [small, large]
        large.rss = 99 * PAGES
        assert watched.watch.look([small, large]) == [large]

    def test_process_that_ended(self, watched: Watched) -> None:
        """A process whose files are gone has no limits; one that was forgotten may end again."""
        process = FakeProcess(watched.machine)
        (watched.machine.proc / "7/cgroup").unlink()
        watched.watch.look([process])
        watched.watch.ended(process)
        watched.watch.ended(process)

        assert watched.told == []


class TestKills:
    def test_kill(self, watched: Watched) -> None:
        """A rise of a group's count is written with the moments of the checks before and after."""
        watched.kill(2)
        watched.watch.look([FakeProcess(watched.machine)])
        watched.watch.check(1.0)
        watched.kill(5)
        watched.watch.check(2.5)
        watched.watch.check(3.0)

        assert watched.lines("oom_kills") == [
            {"group": f"{watched.machine.folder}/cg/job", "from_s": 1.0, "to_s": 2.5, "count": 3}
        ]

    def test_group_that_is_gone(self, watched: Watched) -> None:
        """Of a group that was removed nothing is written."""
        watched.watch.look([FakeProcess(watched.machine)])
        (watched.machine.folder / "cg/job/memory.events").write_text("")  # the kernel's file cannot be read any more
        watched.watch.check(1.0)

        assert watched.lines("oom_kills") == []
