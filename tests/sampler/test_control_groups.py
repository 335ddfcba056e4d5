from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

from nncftools.journal.writing import GROUP, THROTTLE
from nncftools.sampler.control_groups import ControlGroup, Hierarchies
from tests import waiting
from tests.memory_group import IS_POSSIBLE, MemoryGroup
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
