from __future__ import annotations

import os
import pathlib

import pytest

from nncftools.journal.writing import Plan
from nncftools.sampler.probes.machine import Pressure
from nncftools.sampler.tree import PAGE
from tests.sampler.grouped import Machine

STALL = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"
Values = list[float | None]


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Machine:
    """Return a machine that counts, in a control group of version 1."""
    made = Machine(tmp_path)
    made.belongs_to_v1({"/job": 0})
    (made.proc / "pressure").mkdir()
    stall(made, 1_000_000)
    count(made)
    return made


def stall(machine: Machine, total_us: int) -> None:
    """Write for how long some task waited."""
    (machine.proc / "pressure/memory").write_text(STALL.format(total_us))


def count(machine: Machine, files: int = 10, swapped: tuple[int, int] = (20, 30), kills: int = 4) -> None:
    """Write the kernel's counts: in pages, the last one in processes."""
    lines = [
        *("nr_free_pages 1", f"workingset_refault_anon {files}", f"workingset_refault_file {2 * files}"),
        *(f"pswpin {swapped[0]}", f"pswpout {swapped[1]}", f"oom_kill {kills}", "oom_killer 8"),
    ]
    (machine.proc / "vmstat").write_text("".join(f"{line}\n" for line in lines))


def probe(machine: Machine) -> Pressure:
    """Return the probe of process 7."""
    return Pressure(str(machine.proc), 7, Plan([]))


def test_since_the_start(machine: Machine) -> None:
    """All figures count from the first reading: seconds, bytes, and killed processes of machine and group."""
    made = probe(machine)
    first = made.read(thorough=True)
    stall(machine, 1_250_000)
    count(machine, 11, (22, 33), 5)
    machine.charge("cg/job", "memory.oom_control", "oom_kill 1")

    assert first == [0, 0, 0, 0, 0, 0]
    assert made.read(thorough=False) == [0.25, 3 * PAGE, 2 * PAGE, 3 * PAGE, 1, 1]


def test_counts_are_read_after_a_stall(machine: Machine) -> None:
    """While memory does not stall, counts are only read when that is asked for."""
    made = probe(machine)
    count(machine, kills=5)
    before = made.read(thorough=False)[4]

    assert (before, made.read(thorough=True)[4]) == (0, 1)


def test_old_kernel(machine: Machine) -> None:
    """Before Linux 5.9, refaults of files and of anonymous memory are one number."""
    (machine.proc / "vmstat").write_text("nr_free_pages 1\nworkingset_refault 10\npswpin 0\n")
    made = probe(machine)
    (machine.proc / "vmstat").write_text("nr_free_pages 1\nworkingset_refault 14\npswpin 2\n")

    assert made.read(thorough=True) == [0, 4 * PAGE, 2 * PAGE, None, None, 0]


def test_group_with_its_own_stall(machine: Machine) -> None:
    """A group of version 2 knows its own stall, which counts instead of the machine's."""
    machine.mounts.clear()
    machine.belongs_to_v2({"/job": 0})
    machine.charge("cg/job", "memory.pressure", STALL.format(500_000))
    made = probe(machine)
    machine.charge("cg/job", "memory.pressure", STALL.format(600_000))

    assert made.read(thorough=False)[0] == pytest.approx(0.1)


def test_nothing_known(tmp_path: pathlib.Path) -> None:
    """Without the kernel's files nothing is known."""
    assert probe(Machine(tmp_path)).read(thorough=True) == [None] * 6


def test_without_stall(machine: Machine) -> None:
    """On a kernel without PSI, counts are read each time."""
    (machine.proc / "pressure/memory").unlink()
    made = probe(machine)
    count(machine, kills=5)

    assert made.read(thorough=False) == [None, 0, 0, 0, 1, 0]


def test_long_file(machine: Machine) -> None:
    """A count is found behind the first page of the kernel's file, too."""
    filler = "".join(f"counter_{number} 123456789\n" for number in range(1000))
    (machine.proc / "vmstat").write_text(f"{filler}oom_kill 1\n")
    made = probe(machine)
    (machine.proc / "vmstat").write_text(f"{filler}oom_kill 2\n")

    assert made.read(thorough=True)[4] == 1


def test_this_machine() -> None:
    """A real kernel's files are understood: counts do not fall."""
    made = Pressure("/proc", os.getpid(), Plan([]))

    assert all(value is None or value >= 0 for value in made.read(thorough=True))
