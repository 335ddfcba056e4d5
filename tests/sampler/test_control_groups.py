from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from nncftools.journal.writing import GROUP, THROTTLE
from nncftools.sampler.control_groups import ControlGroup, Hierarchies, LimitWatch
from nncftools.sampler.tree import PAGE
from tests import waiting
from tests.memory_group import IS_POSSIBLE, MemoryGroup
from tests.sampler.fake_proc import Told
from tests.sampler.grouped import V1, V2, Machine

MIB = 2**20
Belongs = Callable[..., None]
BOTH: tuple[Belongs, ...] = (Machine.belongs_to_v1, Machine.belongs_to_v2)
LIMIT_FILES = {Machine.belongs_to_v1: "memory.limit_in_bytes", Machine.belongs_to_v2: "memory.max"}


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Machine:
    """Return a machine without mounted control groups."""
    return Machine(tmp_path)


def group(machine: Machine) -> ControlGroup:
    """Return the group of process 7."""
    found = Hierarchies(str(machine.proc)).group_of(7)
    assert found is not None
    return found


class TestLimits:
    @pytest.mark.parametrize("belongs", BOTH)
    def test_own(self, machine: Machine, belongs: Belongs) -> None:
        """The limit of the group itself is named with its file."""
        belongs(machine, {"/job": 5 * MIB})
        file = machine.folder / "cg/job" / LIMIT_FILES[belongs]

        assert group(machine).limits() == [(GROUP, 5 * MIB, str(file))]

    @pytest.mark.parametrize("belongs", BOTH)
    @pytest.mark.parametrize("own", [0, 9 * MIB])
    def test_above(self, machine: Machine, belongs: Belongs, own: int) -> None:
        """The smallest limit of all groups above counts, also when the group has none of its own."""
        belongs(machine, {"/pod": 8 * MIB, "/pod/a": 5 * MIB, "/pod/a/job": own})
        file = machine.folder / "cg/pod/a" / LIMIT_FILES[belongs]

        assert group(machine).limits() == [(GROUP, 5 * MIB, str(file))]

    @pytest.mark.parametrize("belongs", BOTH)
    def test_none(self, machine: Machine, belongs: Belongs) -> None:
        """The kernel's words for no limit are none."""
        belongs(machine, {"/job": 0})

        assert group(machine).limits() == []

    def test_above_what_is_mounted(self, machine: Machine) -> None:
        """Version 1 knows a limit above the part of the hierarchy that a container sees."""
        machine.belongs("4:memory:/docker/abc")
        machine.mount("cgroup", "memory", root="/docker/abc")
        machine.charge("cg", V1, 0)
        machine.charge("cg", "memory.limit_in_bytes", 9 * MIB)
        machine.charge("cg", "memory.stat", f"cache 1\nhierarchical_memory_limit {5 * MIB}\nrss 1")

        assert group(machine).limits() == [(GROUP, 5 * MIB, f"above {machine.folder}/cg")]

    def test_throttling(self, machine: Machine) -> None:
        """Version 2 has a limit above which it only slows down: the smallest one of each kind counts."""
        machine.belongs_to_v2({"/pod": 8 * MIB, "/pod/job": 6 * MIB})
        machine.charge("cg/pod", "memory.high", 4 * MIB)
        machine.charge("cg/pod/job", "memory.high", 5 * MIB)
        cg = machine.folder / "cg"

        assert group(machine).limits() == [
            (GROUP, 6 * MIB, f"{cg}/pod/job/memory.max"),
            (THROTTLE, 4 * MIB, f"{cg}/pod/memory.high"),
        ]

    @pytest.mark.parametrize("belongs", BOTH)
    def test_group_that_is_gone(self, machine: Machine, belongs: Belongs) -> None:
        """A group that was removed has no limits and no counts."""
        belongs(machine, {"/job": 5 * MIB})
        found = group(machine)
        for file in (machine.folder / "cg/job").iterdir():
            file.unlink()

        assert (found.limits(), found.oom_kills(), found.used(), found.available()) == ([], None, None, None)


class TestUse:
    @pytest.mark.parametrize("belongs", BOTH)
    def test_used(self, machine: Machine, belongs: Belongs) -> None:
        """What is charged counts without files that were not used for long: the kernel drops these first."""
        belongs(machine, {"/job": 0}, used=5 * MIB)
        stat = machine.folder / "cg/job/memory.stat"
        stat.write_text(stat.read_text().replace("inactive_file 0", f"inactive_file {2 * MIB}"))

        assert group(machine).used() == 3 * MIB

    def test_used_by_v1_with_groups_below(self, machine: Machine) -> None:
        """In version 1, only the lines that begin with ``total_`` contain the groups below, as the use does."""
        machine.belongs_to_v1({"/job": 0}, used=5 * MIB)
        machine.charge("cg/job", "memory.stat", f"inactive_file 1\ntotal_inactive_file {4 * MIB}")

        assert group(machine).used() == MIB

    @pytest.mark.parametrize("belongs", BOTH)
    def test_without_statistics(self, machine: Machine, belongs: Belongs) -> None:
        """Without statistics all that is charged counts."""
        belongs(machine, {"/job": 0}, used=5 * MIB)
        (machine.folder / "cg/job/memory.stat").unlink()

        assert group(machine).used() == 5 * MIB


class TestOomKills:
    @pytest.mark.parametrize(("belongs", "file"), [(BOTH[0], "memory.oom_control"), (BOTH[1], "memory.events")])
    def test_count(self, machine: Machine, belongs: Belongs, file: str) -> None:
        """How many processes were killed is the number beside ``oom_kill``, and no other one."""
        belongs(machine, {"/job": 0})
        before = group(machine).oom_kills()
        text = (machine.folder / "cg/job" / file).read_text().replace("oom_kill 0", "oom_kill 3")
        machine.charge("cg/job", file, text.replace("oom_group_kill 0", "oom_group_kill 9"))

        assert (before, group(machine).oom_kills()) == (0, 3)

    def test_old_kernel(self, machine: Machine) -> None:
        """Version 1 has no such number before Linux 4.13."""
        machine.belongs_to_v1({"/job": 0})
        machine.charge("cg/job", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0")

        assert group(machine).oom_kills() is None


def test_by_content(machine: Machine) -> None:
    """A group is found by the content of a process's cgroup file; what is not in its format names none."""
    machine.belongs_to_v2({"/a:b/job": 0})
    hierarchies = Hierarchies(str(machine.proc))
    found = hierarchies.group_named(b"3:cpu:/x\n0::/a:b/job\n")

    assert found is not None
    assert found.usage_file == f"{machine.folder}/cg/a:b/job/{V2}"
    assert hierarchies.group_named(b"") is None
    assert hierarchies.group_named(b"hello\n\n0:\n") is None


def test_our_own() -> None:
    """The group of this very process, where there is one, has charged something."""
    ours = Hierarchies("/proc").group_of(os.getpid())

    assert ours is None or (ours.used() or 0) > 0


@pytest.mark.process
@pytest.mark.skipif(not IS_POSSIBLE, reason="no control groups of version 1 that we may make")
def test_real_kill() -> None:
    """In a real group, its limit, its use and its killed process are seen."""
    with MemoryGroup("groups", 20 * MIB) as real:
        hold = "import sys; sys.stdin.read(1); held = b'x' * (100 << 20)"
        words = ["sh", "-c", f'{real.enter} && exec "$@"', "sh", sys.executable, "-S", "-E", "-c", hold]
        with subprocess.Popen(words, stdin=subprocess.PIPE) as process:

            def entered() -> ControlGroup | None:
                of = Hierarchies("/proc").group_of(process.pid)
                return of if of is not None and of.folder == str(real.folder) else None

            found = waiting.until(entered)
            assert found is not None
            limits, before, used = found.limits(), found.oom_kills(), found.used()
            process.communicate(b"1")
        after = found.oom_kills()

    assert limits == [(GROUP, 20 * MIB, f"{real.folder}/memory.limit_in_bytes")]
    assert used is not None
    assert used <= 20 * MIB
    assert (process.returncode, before, after) == (-9, 0, 1)


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


class TestLimitWatchLimits:
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
            due.append(watched.watch.look_again([small, large], due[-1]))

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
