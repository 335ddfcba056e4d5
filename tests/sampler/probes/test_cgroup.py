from __future__ import annotations

import os
import pathlib
import shutil
from typing import Any

import pytest

from nncftools.sampler.probes import machine as probes_machine
from nncftools.sampler.probes.machine import Cgroup
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
