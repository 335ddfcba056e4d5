from __future__ import annotations

import pathlib
from typing import Any

import pytest

from nncftools.journal.writing import Plan
from nncftools.sampler.occasional import Occasional
from nncftools.sampler.probes import OCCASIONAL
from nncftools.sampler.probes.machine import FreeSpace
from tests import waiting
from tests.sampler.fake_proc import Told


class Counts:
    """A probe that says how often it was read, and how often thoroughly."""

    kind = OCCASIONAL
    metrics = ("refaults", "oom_kills")

    def __init__(self, root: str, pid: int, plan: Plan) -> None:
        self.of = root, pid, plan
        self.reads = self.thorough = 0

    def read(self, *, thorough: bool) -> list[int]:
        """Count the reading."""
        self.reads += 1
        self.thorough += thorough
        return [self.reads, self.thorough]


class Checks:
    """In place of the watch of limits: when it was asked."""

    def __init__(self) -> None:
        self.at_s: list[float] = []

    def check(self, now_s: float) -> None:
        """Count the check."""
        self.at_s.append(now_s)


class Read:
    """The occasional probes of a recording, and what they told."""

    def __init__(self, *classes: Any, **plan: Any) -> None:  # noqa: ANN401 — probes, and any field of the plan
        self.told: Told = []
        self.checks: Any = Checks()
        self.all = Occasional(classes, "/proc", Plan([], **plan), self.checks, lambda *line: self.told.append(line))
        self.all.start(7)


@pytest.fixture
def read() -> Read:
    """Return a recording with one probe."""
    return Read(Counts)


def test_columns(read: Read) -> None:
    """The columns are those of all probes, in the order of their values."""
    assert Read(Counts, Counts).all.columns == ["refaults", "oom_kills"] * 2
    assert read.all.read(0.0) == [1, 0]


def test_once_a_second(read: Read) -> None:
    """The next reading is due a second later; each one checks for killed processes."""
    first = read.all.at_s
    read.all.read(3.5)

    assert (first, read.all.at_s, read.checks.at_s) == (0.0, 4.5, [3.5])


def test_process_that_ended(read: Read) -> None:
    """After the end of a process all is read soon, once thoroughly."""
    read.all.read(3.0)
    read.all.process_ended(3.1)
    due = read.all.at_s
    read.all.process_ended(3.9)
    values = [read.all.read(due), read.all.read(5.0)]

    assert due == pytest.approx(3.35)
    assert values == [[2, 1], [3, 1]]


def test_end_just_before_the_next_reading(read: Read) -> None:
    """The end of a process does not put off a reading that is due."""
    read.all.read(3.0)
    read.all.process_ended(3.9)

    assert read.all.at_s == 4.0


def test_room(tmp_path: pathlib.Path) -> None:
    """Room on disks is written when it is known, and again at the end."""
    read = Read(FreeSpace, file_systems=[["cwd", str(tmp_path)]])
    waiting.until(lambda: read.all.values(thorough=False) != [None])
    read.all.read(1.0)
    read.all.close(2.0)

    assert [(key, line["role"], line["path"]) for key, line in read.told] == [("file_system", "cwd", str(tmp_path))] * 2
    assert read.checks.at_s == [1.0, 2.0]
