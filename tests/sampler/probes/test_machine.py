from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nncftools.journal.writing import Plan
from nncftools.sampler.probes.machine import Cgroup, FileSystem, FreeSpace, Meminfo, Pressure
from nncftools.sampler.tree import PAGE
from tests import waiting
from tests.sampler.fake_proc import KIB, MEMINFO, FakeProc
from tests.sampler.grouped import V1, V2, Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine that has other mounts than those of control groups, too."""
    return Machine(tmp_path)


GROUPS = {
    "version 1": (
        "9:cpu,cpuacct:/other & 4:memory:/job & 1:name=systemd:/unit",
        "cgroup;cpu,cpuacct;/;cg/cpu & cgroup;memory;/;cg/memory",
        "cg/cpu/job=1 & cg/memory/job=4096",
        4096,
    ),
    "several controllers in a hierarchy": (
        "4:cpu,memory,pids:/job",
        "cgroup;cpu,memory,pids;/;cg",
        "cg/job=4096",
        4096,
    ),
    "version 2": ("0::/user.slice/a", "cgroup2;;/;cg", "cg/user.slice/a=18446744073709551615", 2**64 - 1),
    "both, memory in version 1": (
        "4:memory:/old & 0::/new",
        "cgroup2;;/;cg/unified & cgroup;memory;/;cg/memory",
        "cg/memory/old=4096 & cg/unified/new=1",
        4096,
    ),
    "both, memory in version 2": (
        "3:cpuset:/old & 1:name=systemd:/old & 0::/new",
        "cgroup;cpuset;/;cg/cpuset & cgroup2;;/;cg/unified",
        "cg/unified/new=8192",
        8192,
    ),
    "container with a root of its own": ("4:memory:/docker/abc", "cgroup;memory;/docker/abc;cg", "cg=4096", 4096),
    "group inside a container": ("0::/docker/abc/job", "cgroup2;;/docker/abc;cg", "cg/job=4096", 4096),
    "root group": ("4:memory:/", "cgroup;memory;/;cg", "cg=4096", 4096),
    "mount of another group": ("4:memory:/docker/abcd", "cgroup;memory;/docker/abc;cg", "cg=4096 & cgd=1", None),
    "second mount": (
        "0::/docker/abc",
        "cgroup2;;/other;cg/first & cgroup2;;/docker;cg/second",
        "cg/first=1 & cg/second/abc=4096",
        4096,
    ),
    "root and mount point that the kernel escapes": (
        "0::/app\\x2done.scope/job",
        "cgroup2;;/app\\x2done.scope;a b\tc\\d",
        "a b\tc\\d/job=4096",
        4096,
    ),
    "no memory controller": ("0::/job", "cgroup2;;/;cg", "", None),
    "no group": ("3:cpuset:/ & 1:name=systemd:/", "cgroup2;;/;cg", "cg=1", None),
    "not mounted": ("4:memory:/job", "", "", None),
    "process that has ended": ("", "cgroup2;;/;cg", "cg=1", None),
}
"""By case: lines of the cgroup file; type, controllers, root and point of mounts; bytes of folders; what is known."""


@pytest.mark.parametrize("groups, mounts, charged, expected", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("optional", ["", "shared:4 master:2 "])
def test_group_of_a_process(  # noqa: PLR0913 — a case
    machine: Machine, groups: str, mounts: str, charged: str, expected: int | None, *, optional: str
) -> None:
    """The group that accounts memory is found by the lines of cgroup and mountinfo; elsewhere nothing is known."""
    kind = ""
    if groups:
        machine.belongs(*groups.split(" & "))
    for mount in filter(None, mounts.split(" & ")):
        kind, controllers, root, point = mount.split(";")
        machine.mount(kind, controllers, root=root, point=point, optional=optional)
    for folder in filter(None, charged.split(" & ")):
        place, _, size = folder.partition("=")
        machine.charge(place, V2 if kind == "cgroup2" else V1, size)

    assert Cgroup(str(machine.proc), 7).read() == (expected,)


def test_group_that_vanishes(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a group is removed while it is recorded, its memory is unknown from then on (ENODEV)."""
    machine.belongs("0::/job")
    machine.mount("cgroup2")
    file = machine.charge("cg/job", V2, 4096)
    probe = Cgroup(str(machine.proc), 7)
    found = [probe.read()]
    file.write_text("5\n")
    found.append(probe.read())

    def removed(*_: object) -> bytes:
        raise OSError(19, "No such device")

    monkeypatch.setattr(os, "pread", removed)

    assert [*found, probe.read()] == [(4096,), (5,), (None,)]


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
    def test_figures(self, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
        """Size, the first, the lowest and the last free bytes are those of ordinary users."""
        of = FileSystem("cwd", "/work")
        monkeypatch.setattr("time.monotonic_ns", lambda: 7_500_000_000)
        for disk.free in (500, 100, 300):
            of.ask()
        sizes = {"size": 1000 * MIB, "first": 500 * MIB, "lowest": 100 * MIB, "last": 300 * MIB}

        assert line(of) == {"role": "cwd", "path": "/work", **sizes}
        assert of.free == 300 * MIB
        lines = [of.line(start_ns, always=True) for start_ns in (5_000_000_000, 8_000_000_000)]
        assert [found and found["lowest_s"] for found in lines] == [2.5, 0.0]
        disk.free = None  # no answer
        assert (of.ask(), of.free) == (1.0, None)
        assert (line(of)["lowest"], line(of)["last"]) == (100 * MIB, None)

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


class TestFreeSpace:
    def test_column_for_each(self, tmp_path: Path) -> None:
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


LARGEST_KIB = 2**54 - 1


@pytest.mark.parametrize(
    "text, expected",
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


STALL = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"
Values = list[float | None]


@pytest.fixture
def pressure_machine(tmp_path: Path) -> Machine:
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
        *(f"behind_the_first_page_{number} 1" for number in range(500)),
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


def test_without_stall(pressure_machine: Machine) -> None:
    """On a kernel without PSI, counts are read each time."""
    (pressure_machine.proc / "pressure/memory").unlink()
    made = pressure_probe(pressure_machine)
    count(pressure_machine, kills=5)

    assert made.read(thorough=False) == [None, 0, 0, 0, 1, 0]
