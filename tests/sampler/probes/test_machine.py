from __future__ import annotations

import os
import pathlib
import shutil
from typing import Any

import pytest

from nncftools.journal.writing import Plan
from nncftools.sampler.probes import machine as probes_machine
from nncftools.sampler.probes.machine import Cgroup, FileSystem, FreeSpace, Meminfo, Pressure
from nncftools.sampler.tree import PAGE
from tests import waiting
from tests.sampler.fake_proc import KIB, MEMINFO, FakeProc
from tests.sampler.grouped import V1, V2, Machine

MISSING = "no memory controller accounts this process's control group"


def read(machine: Machine) -> int | None:
    """Return what the probe reads of the group of process 7."""
    return Cgroup(str(machine.proc), 7).read()[0]


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Machine:
    """Return a machine that has other mounts than those of control groups, too."""
    return Machine(tmp_path)


class TestHierarchies:
    def test_v1(self, machine: Machine) -> None:
        """Of version 1, the hierarchy with the memory controller is read, and not another."""
        machine.belongs("9:cpu,cpuacct:/other", "4:memory:/job", "1:name=systemd:/unit")
        machine.mount("cgroup", "cpu,cpuacct", point="cg/cpu")
        machine.mount("cgroup", "memory", point="cg/memory")
        machine.charge("cg/cpu/job", V1, 1)
        machine.charge("cg/memory/job", V1, 4096)

        assert read(machine) == 4096

    def test_v1_with_several_controllers(self, machine: Machine) -> None:
        """The memory controller may share its hierarchy with others."""
        machine.belongs("4:cpu,memory,pids:/job")
        machine.mount("cgroup", "cpu,memory,pids")
        machine.charge("cg/job", V1, 4096)

        assert read(machine) == 4096

    def test_v2(self, machine: Machine) -> None:
        """Version 2 has one hierarchy."""
        machine.belongs("0::/user.slice/job.scope")
        machine.mount("cgroup2")
        machine.charge("cg/user.slice/job.scope", V2, 8192)

        assert read(machine) == 8192

    def test_hybrid_with_memory_in_v1(self, machine: Machine) -> None:
        """Where both are mounted and version 1 has the memory controller, its group counts."""
        machine.belongs("4:memory:/old", "0::/new")
        machine.mount("cgroup", "memory", point="cg/memory")
        machine.mount("cgroup2", point="cg/unified")
        machine.charge("cg/memory/old", V1, 4096)
        (machine.folder / "cg/unified/new").mkdir(parents=True)

        assert read(machine) == 4096

    def test_hybrid_with_memory_in_v2(self, machine: Machine) -> None:
        """Where version 1 has other controllers only, the group of version 2 counts."""
        machine.belongs("3:cpuset:/old", "1:name=systemd:/old", "0::/new")
        machine.mount("cgroup", "cpuset", point="cg/cpuset")
        machine.mount("cgroup2", point="cg/unified")
        machine.charge("cg/unified/new", V2, 8192)

        assert read(machine) == 8192

    def test_largest_figure(self, machine: Machine) -> None:
        """A figure of 64 bits is read whole."""
        machine.belongs("0::/job")
        machine.mount("cgroup2")
        machine.charge("cg/job", V2, 2**64 - 1)

        assert read(machine) == 2**64 - 1


class TestMounts:
    def test_container_with_its_own_root(self, machine: Machine) -> None:
        """In a container, a part of the hierarchy is mounted, and the group is named from its very root."""
        machine.belongs("4:memory:/docker/abc")
        machine.mount("cgroup", "memory", root="/docker/abc")
        machine.charge("cg", V1, 4096)

        assert read(machine) == 4096

    def test_group_inside_a_container(self, machine: Machine) -> None:
        """Below such a root, only the rest of the group's name is a path."""
        machine.belongs("0::/docker/abc/job")
        machine.mount("cgroup2", root="/docker/abc")
        machine.charge("cg/job", V2, 4096)

        assert read(machine) == 4096

    def test_root_group(self, machine: Machine) -> None:
        """The group of everything is the mount point itself."""
        machine.belongs("4:memory:/")
        machine.mount("cgroup", "memory")
        machine.charge("cg", V1, 4096)

        assert read(machine) == 4096

    def test_mount_of_another_group(self, machine: Machine) -> None:
        """A mount that shows another group's part is not read, also when its name begins in the same way."""
        machine.belongs("4:memory:/docker/abcd")
        machine.mount("cgroup", "memory", root="/docker/abc")
        machine.charge("cg", V1, 4096)
        machine.charge("cgd", V1, 1)

        assert read(machine) is None

    def test_second_mount(self, machine: Machine) -> None:
        """Where a hierarchy is mounted twice, the one that shows the group is read."""
        machine.belongs("0::/docker/abc")
        machine.mount("cgroup2", root="/other", point="cg/first")
        machine.mount("cgroup2", root="/docker", point="cg/second")
        machine.charge("cg/first", V2, 1)
        machine.charge("cg/second/abc", V2, 4096)

        assert read(machine) == 4096

    @pytest.mark.parametrize("name", ["a b", "a\tb", "a\\b"], ids=["space", "tab", "backslash"])
    def test_escaped_mount_point(self, machine: Machine, name: str) -> None:
        """A mount point with characters that the kernel writes in octal is found (proc(5), mountinfo)."""
        machine.belongs("0::/job")
        machine.mount("cgroup2", point=name)
        machine.charge(f"{name}/job", V2, 4096)

        assert read(machine) == 4096

    def test_escaped_root(self, machine: Machine) -> None:
        r"""The part that is shown is written in the same way: systemd's units have ``\x2d`` in their names."""
        machine.belongs("0::/app\\x2done.scope/job")
        machine.mount("cgroup2", root="/app\\x2done.scope")
        machine.charge("cg/job", V2, 4096)

        assert read(machine) == 4096

    @pytest.mark.parametrize("optional", ["", "shared:4 ", "shared:4 master:2 propagate_from:1 "])
    def test_optional_fields(self, machine: Machine, optional: str) -> None:
        """Between the mount's options and its type there may be any number of fields."""
        machine.belongs("0::/job")
        machine.mount("cgroup2", optional=optional)
        machine.charge("cg/job", V2, 4096)

        assert read(machine) == 4096


class TestUnknown:
    def test_no_memory_controller(self, machine: Machine) -> None:
        """Where the controller is switched off, there is no file and nothing is known."""
        machine.belongs("0::/job")
        machine.mount("cgroup2")
        (machine.folder / "cg/job").mkdir(parents=True)

        assert read(machine) is None

    def test_no_control_group(self, machine: Machine) -> None:
        """The figure is unknown on a kernel without control groups, and in a group without a memory controller."""
        machine.belongs("3:cpuset:/", "1:name=systemd:/")

        assert read(machine) is None

    def test_hierarchy_that_is_not_mounted(self, machine: Machine) -> None:
        """A group whose hierarchy is not mounted here cannot be read."""
        machine.belongs("4:memory:/job")

        assert read(machine) is None

    def test_process_that_ended(self, machine: Machine) -> None:
        """Of a process that is gone the group is unknown."""
        machine.mount("cgroup2")

        assert read(machine) is None

    def test_group_that_was_removed_before(self, machine: Machine) -> None:
        """A group that vanished before it was opened is unknown."""
        machine.belongs("0::/job (deleted)")
        machine.mount("cgroup2")
        machine.charge("cg/job", V2, 1)
        shutil.rmtree(machine.folder / "cg/job")

        assert read(machine) is None

    def test_group_that_vanishes(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        """When a group is removed while it is recorded, its memory is unknown from then on (ENODEV)."""
        machine.belongs("0::/job")
        machine.mount("cgroup2")
        machine.charge("cg/job", V2, 4096)
        probe = Cgroup(str(machine.proc), 7)
        before = probe.read()

        def removed(*_: object) -> bytes:
            raise OSError(19, "No such device")

        monkeypatch.setattr(os, "pread", removed)

        assert (before, probe.read()) == ((4096,), (None,))


def test_figure_of_now(machine: Machine) -> None:
    """The file is opened once and read again each time."""
    machine.belongs("0::/job")
    machine.mount("cgroup2")
    file = machine.charge("cg/job", V2, 4096)
    probe = Cgroup(str(machine.proc), 7)
    before = probe.read()
    file.write_text("5\n")

    assert (before, probe.read()) == ((4096,), (5,))


@pytest.mark.parametrize(("accounted", "expected"), [(True, ""), (False, MISSING)])
def test_availability(machine: Machine, monkeypatch: pytest.MonkeyPatch, *, accounted: bool, expected: str) -> None:
    """Whether there is a figure is asked for this process itself."""
    machine.belongs("0::/job")
    machine.mount("cgroup2")
    if accounted:
        machine.charge("cg/job", V2, 4096)
    fake: Any = probes_machine.os
    monkeypatch.setattr(fake, "getpid", lambda: 7)

    assert Cgroup.why_unavailable(str(machine.proc)) == expected


def test_this_machine() -> None:
    """On a real machine the figure is known exactly when the probe has no reason for the contrary."""
    (used,) = Cgroup("/proc", os.getpid()).read()

    assert (used is None) == bool(Cgroup.why_unavailable("/proc"))
    assert used is None or used > 0


MIB = 2**20


class Disk:
    """A file system of 1,000 MiB, of which root may use 10 more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free: int | None = 500
        """In MiB; None when it does not answer."""
        monkeypatch.setattr(os, "statvfs", self._answer)

    def _answer(self, _: object) -> os.statvfs_result:
        if self.free is None:
            raise OSError(116, "Stale file handle")
        return os.statvfs_result([4096, MIB, 1000, self.free + 10, self.free, 0, 0, 0, 0, 255])


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Return the file system of every folder."""
    return Disk(monkeypatch)


def line(of: FileSystem, *, always: bool = True) -> dict[str, Any]:
    """Return the line of a file system without its time; empty when none is due."""
    found = dict(of.line(0, always=always) or {})
    found.pop("lowest_s", None)
    return found


class TestFileSystem:
    def test_figures(self, disk: Disk) -> None:
        """Size, the first, the lowest and the last free bytes are those of ordinary users."""
        of = FileSystem("cwd", "/work")
        for disk.free in (500, 100, 300):
            of.ask()
        sizes = {"size": 1000 * MIB, "first": 500 * MIB, "lowest": 100 * MIB, "last": 300 * MIB}

        assert line(of) == {"role": "cwd", "path": "/work", **sizes}
        assert of.free == 300 * MIB

    def test_time_of_the_lowest(self, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
        """The moment of the least room counts from the start; before it is the start."""
        of = FileSystem("cwd", "/work")
        monkeypatch.setattr("time.monotonic_ns", lambda: 7_500_000_000)
        of.ask()
        lines = [of.line(start_ns, always=True) for start_ns in (5_000_000_000, 8_000_000_000)]

        assert disk.free == 500
        assert [found and found["lowest_s"] for found in lines] == [2.5, 0.0]

    def test_line_is_due(self, disk: Disk) -> None:
        """After the first line, another one is due when the least room has halved."""
        of = FileSystem("cwd", "/work")
        nothing_known = line(of)
        written = []
        for disk.free in (500, 260, 250, 125, 400, 0):
            of.ask()
            written.append(line(of, always=False).get("lowest"))

        assert nothing_known == {}
        assert written == [500 * MIB, None, 250 * MIB, 125 * MIB, None, 0]

    def test_no_answer(self, disk: Disk) -> None:
        """While it does not answer, its room is unknown, and what was known is kept."""
        of = FileSystem("cwd", "/work")
        of.ask()
        disk.free = None
        again_s = of.ask()

        assert (of.free, again_s) == (None, 1.0)
        assert (line(of)["lowest"], line(of)["last"]) == (500 * MIB, None)

    @pytest.mark.parametrize(("free", "again_s"), [(9000, 1.0), (512, 0.25), (1, 0.01), (0, 0.01)])
    def test_asked_again(self, disk: Disk, free: int, again_s: float) -> None:
        """The less room there is, the sooner it is asked for again."""
        disk.free = free

        assert FileSystem("cwd", "/work").ask() == again_s

    def test_calm(self, disk: Disk) -> None:
        """A full file system where nothing changes is asked less often."""
        disk.free = 0
        of = FileSystem("cwd", "/work")
        of.ask()

        assert of.ask() == 0.05


class TestFreeSpace:
    def test_column_for_each(self, tmp_path: pathlib.Path) -> None:
        """Each file system has a column by its role, and its free bytes become known."""
        folders = [["cwd", str(tmp_path)], ["output", str(tmp_path / "missing")]]
        probe = FreeSpace("/proc", 7, Plan([], file_systems=folders))
        waiting.until(lambda: probe.read(thorough=False)[0] is not None)
        values = probe.read(thorough=False)
        lines = probe.lines()
        probe.close()

        assert probe.columns == ("disk_free@cwd", "disk_free@output")
        assert values[1] is None
        assert [one["role"] for one in lines] == ["cwd"]
        assert probe.lines() == []
        assert len(probe.lines(always=True)) == 1

    def test_none(self) -> None:
        """Without file systems there are no columns, and no thread."""
        probe = FreeSpace("/proc", 7, Plan([]))
        probe.close()

        assert (probe.columns, probe.read(thorough=True), probe.lines(always=True)) == ((), [], [])

    def test_limit_of_threads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where no thread can be started, the figures are unknown."""

        def fails(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr("_thread.start_new_thread", fails)
        probe = FreeSpace("/proc", 7, Plan([], file_systems=[["cwd", "/"]]))

        assert (probe.columns, probe.read(thorough=False)) == (("disk_free@cwd",), [None])


LARGEST_KIB = 2**54 - 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(MEMINFO, 600 * KIB, id="total less available"),
        pytest.param(MEMINFO.replace("MemAvailable:    400 kB\n", ""), None, id="a kernel before 3.14"),
        pytest.param(
            MEMINFO.replace(" 1000", f" {LARGEST_KIB}"), (LARGEST_KIB - 400) * KIB, id="as much as there can be"
        ),
    ],
)
def test_system(proc: FakeProc, text: str, expected: int | None) -> None:
    """SYSTEM is total minus available, in bytes; unknown on a kernel without MemAvailable."""
    (proc.root / "meminfo").write_text(text)

    assert Meminfo(str(proc.root), 1).read() == (expected,)


def test_follows_the_file(proc: FakeProc) -> None:
    """The file is opened once and read again each time."""
    (proc.root / "meminfo").write_text(MEMINFO)
    meminfo = Meminfo(str(proc.root), 1)
    before = meminfo.read()
    (proc.root / "meminfo").write_text(MEMINFO.replace("400", "100"))

    assert (before, meminfo.read()) == ((600 * KIB,), (900 * KIB,))


def test_meminfo_this_machine() -> None:
    """On a real machine some memory is in use, and not all of it."""
    with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123 — the kernel's file
        total = int(file.readline().split()[1]) * KIB
    (used,) = Meminfo("/proc", 1).read()

    assert used is not None
    assert 0 < used < total


STALL = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"
Values = list[float | None]


@pytest.fixture
def pressure_machine(tmp_path: pathlib.Path) -> Machine:
    """Return a machine that counts, in a control group of version 1."""
    made = Machine(tmp_path)
    made.belongs_to_v1({"/job": 0})
    (made.proc / "pressure").mkdir()
    stall(made, 1_000_000)
    count(made)
    return made


def stall(pressure_machine: Machine, total_us: int) -> None:
    """Write for how long some task waited."""
    (pressure_machine.proc / "pressure/memory").write_text(STALL.format(total_us))


def count(pressure_machine: Machine, files: int = 10, swapped: tuple[int, int] = (20, 30), kills: int = 4) -> None:
    """Write the kernel's counts: in pages, the last one in processes."""
    lines = [
        *("nr_free_pages 1", f"workingset_refault_anon {files}", f"workingset_refault_file {2 * files}"),
        *(f"pswpin {swapped[0]}", f"pswpout {swapped[1]}", f"oom_kill {kills}", "oom_killer 8"),
    ]
    (pressure_machine.proc / "vmstat").write_text("".join(f"{line}\n" for line in lines))


def pressure_probe(pressure_machine: Machine) -> Pressure:
    """Return the probe of process 7."""
    return Pressure(str(pressure_machine.proc), 7, Plan([]))


def test_pressure_since_the_start(pressure_machine: Machine) -> None:
    """All figures count from the first reading: seconds, bytes, and killed processes of machine and group."""
    made = pressure_probe(pressure_machine)
    first = made.read(thorough=True)
    stall(pressure_machine, 1_250_000)
    count(pressure_machine, 11, (22, 33), 5)
    pressure_machine.charge("cg/job", "memory.oom_control", "oom_kill 1")

    assert first == [0, 0, 0, 0, 0, 0]
    assert made.read(thorough=False) == [0.25, 3 * PAGE, 2 * PAGE, 3 * PAGE, 1, 1]


def test_counts_are_read_after_a_stall(pressure_machine: Machine) -> None:
    """While memory does not stall, counts are only read when that is asked for."""
    made = pressure_probe(pressure_machine)
    count(pressure_machine, kills=5)
    before = made.read(thorough=False)[4]

    assert (before, made.read(thorough=True)[4]) == (0, 1)


def test_old_kernel(pressure_machine: Machine) -> None:
    """Before Linux 5.9, refaults of files and of anonymous memory are one number."""
    (pressure_machine.proc / "vmstat").write_text("nr_free_pages 1\nworkingset_refault 10\npswpin 0\n")
    made = pressure_probe(pressure_machine)
    (pressure_machine.proc / "vmstat").write_text("nr_free_pages 1\nworkingset_refault 14\npswpin 2\n")

    assert made.read(thorough=True) == [0, 4 * PAGE, 2 * PAGE, None, None, 0]


def test_group_with_its_own_stall(pressure_machine: Machine) -> None:
    """A group of version 2 knows its own stall, which counts instead of the machine's."""
    pressure_machine.mounts.clear()
    pressure_machine.belongs_to_v2({"/job": 0})
    pressure_machine.charge("cg/job", "memory.pressure", STALL.format(500_000))
    made = pressure_probe(pressure_machine)
    pressure_machine.charge("cg/job", "memory.pressure", STALL.format(600_000))

    assert made.read(thorough=False)[0] == pytest.approx(0.1)


def test_nothing_known(tmp_path: pathlib.Path) -> None:
    """Without the kernel's files nothing is known."""
    assert pressure_probe(Machine(tmp_path)).read(thorough=True) == [None] * 6


def test_without_stall(pressure_machine: Machine) -> None:
    """On a kernel without PSI, counts are read each time."""
    (pressure_machine.proc / "pressure/memory").unlink()
    made = pressure_probe(pressure_machine)
    count(pressure_machine, kills=5)

    assert made.read(thorough=False) == [None, 0, 0, 0, 1, 0]


def test_long_file(pressure_machine: Machine) -> None:
    """A count is found behind the first page of the kernel's file, too."""
    filler = "".join(f"counter_{number} 123456789\n" for number in range(1000))
    (pressure_machine.proc / "vmstat").write_text(f"{filler}oom_kill 1\n")
    made = pressure_probe(pressure_machine)
    (pressure_machine.proc / "vmstat").write_text(f"{filler}oom_kill 2\n")

    assert made.read(thorough=True)[4] == 1


def test_pressure_this_machine() -> None:
    """A real kernel's files are understood: counts do not fall."""
    made = Pressure("/proc", os.getpid(), Plan([]))

    assert all(value is None or value >= 0 for value in made.read(thorough=True))
