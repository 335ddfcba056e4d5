from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Callable

import pytest

from nncftools.limits.needs import Available, available
from tests.made_up import MIB
from tests.sampler.grouped import Machine

MEMINFO = "MemTotal:       16384 kB\nMemFree:         1024 kB\nMemAvailable:    8192 kB\n"
IN_GROUP: tuple[Callable[..., None], ...] = (Machine.belongs_to_v1, Machine.belongs_to_v2)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="control groups are of Linux")


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Machine:
    """Return a machine of 16 MiB with 8 MiB available."""
    made = Machine(tmp_path)
    (made.proc / "meminfo").write_text(MEMINFO)
    return made


def test_machine(machine: Machine) -> None:
    """Without a process, and without a group, only the machine counts."""
    assert available(str(machine.proc), None) == Available(8 * MIB, 16 * MIB)
    assert available(str(machine.proc), 7) == Available(8 * MIB, 16 * MIB)


@pytest.mark.parametrize("belongs", IN_GROUP)
def test_group(machine: Machine, belongs: Callable[..., None]) -> None:
    """A group has what its limit leaves."""
    belongs(machine, {"/job": 5 * MIB}, used=2 * MIB)
    found = available(str(machine.proc), 7)

    assert found == Available(8 * MIB, 16 * MIB, 3 * MIB, 5 * MIB)
    assert found.least == 3 * MIB


@pytest.mark.parametrize("belongs", IN_GROUP)
def test_group_above(machine: Machine, belongs: Callable[..., None]) -> None:
    """A group above counts with all that is charged to it."""
    belongs(machine, {"/pod": 6 * MIB, "/pod/job": 5 * MIB}, used=2 * MIB)
    for name in ("memory.usage_in_bytes", "memory.current"):
        machine.charge("cg/pod", name, 5 * MIB)

    assert available(str(machine.proc), 7)[2:] == (1 * MIB, 5 * MIB)


@pytest.mark.parametrize("belongs", IN_GROUP)
def test_cache_can_be_dropped(machine: Machine, belongs: Callable[..., None]) -> None:
    """Files of a group that are cached, and were not used for long, take nothing of what is available."""
    belongs(machine, {"/job": 5 * MIB}, used=4 * MIB)
    stat = machine.folder / "cg/job/memory.stat"
    stat.write_text(stat.read_text().replace("inactive_file 0", f"inactive_file {MIB}"))

    assert available(str(machine.proc), 7).group == 2 * MIB


@pytest.mark.parametrize("belongs", IN_GROUP)
def test_group_without_limit(machine: Machine, belongs: Callable[..., None]) -> None:
    """A group without a limit takes nothing from what the machine has."""
    belongs(machine, {"/job": 0}, used=2 * MIB)
    found = available(str(machine.proc), 7)

    assert found == Available(8 * MIB, 16 * MIB)
    assert found.least == 8 * MIB


@pytest.mark.parametrize("belongs", IN_GROUP)
def test_above_the_limit(machine: Machine, belongs: Callable[..., None]) -> None:
    """A group that holds more than its limit, as it may for a moment, has nothing left."""
    belongs(machine, {"/job": 2 * MIB}, used=3 * MIB)

    assert available(str(machine.proc), 7).group == 0


def test_throttling(machine: Machine) -> None:
    """Memory above memory.high is not available: the kernel would slow the group down."""
    machine.belongs_to_v2({"/job": 5 * MIB}, used=2 * MIB)
    machine.charge("cg/job", "memory.high", 4 * MIB)

    assert available(str(machine.proc), 7)[2:] == (2 * MIB, 4 * MIB)


def test_unknown(tmp_path: pathlib.Path) -> None:
    """Where nothing can be read, nothing is known."""
    assert available(str(tmp_path), 7) == Available()
    assert Available().least is None


def test_this_machine() -> None:
    """On a real machine a part of its memory is available."""
    found = available("/proc", os.getpid())

    assert found.machine is not None
    assert found.machine_size is not None
    assert 0 < found.machine < found.machine_size
