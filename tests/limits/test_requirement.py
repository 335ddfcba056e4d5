from __future__ import annotations

import pytest

from nncftools.limits.needs import Available, Requirement, Room, of_session, shortage
from nncftools.session.model import Exit, FileSystem, Floor
from tests.made_up import MIB, session

GIB = 2**30
MACHINE = Available(8 * GIB, 16 * GIB)
GROUP = Available(8 * GIB, 16 * GIB, 2 * GIB, 4 * GIB)
FLOOR = Floor(size=GIB, at_s=0.5)


class TestOfSession:
    def test_memory_and_disks(self) -> None:
        """A command needs its floor, and of each disk what this had less during the run."""
        disks = [
            FileSystem(role="cwd", size=9 * GIB, first=7 * GIB, lowest=5 * GIB, last=6 * GIB),
            FileSystem(role="output", size=9 * GIB, first=GIB, lowest=GIB, last=GIB),
            FileSystem(role="TMPDIR"),
        ]

        assert of_session(session(floor=FLOOR, file_systems=disks)) == Requirement(GIB, {"cwd": 2 * GIB})

    def test_cut_short(self) -> None:
        """What a run needed that was killed is only a lower bound."""
        assert of_session(session(floor=FLOOR, exit=Exit(signal=9))) == Requirement(GIB, {}, is_bound=True)

    def test_unknown(self) -> None:
        """A session without a floor does not say what is needed."""
        assert of_session(session()) is None


class TestShortage:
    @pytest.mark.parametrize("there", [MACHINE, GROUP, Available()])
    def test_fits(self, there: Available) -> None:
        """Nothing is missing where all fits, and where nothing is known."""
        assert shortage(2 * GIB, [Room("/tmp", GIB, GIB)], there) == ""

    def test_machine(self) -> None:
        """What is needed and what the machine has stand in one line."""
        expected = "12 GiB of memory is needed, 8 GiB is available (machine: 8 of 16 GiB)"

        assert shortage(12 * GIB, [], MACHINE) == expected

    def test_group(self) -> None:
        """The control group may have less than the machine."""
        assert shortage(3 * GIB, [], GROUP) == (
            "3 GiB of memory is needed, 2 GiB is available (machine: 8 of 16 GiB, control group: 2 of 4 GiB)"
        )

    def test_disk(self) -> None:
        """Disks are named by a folder, only those that have too little."""
        rooms = [Room("/home", GIB, 9 * GIB), Room("/tmp", 3 * GIB, GIB)]

        assert shortage(GIB, rooms, MACHINE) == "3 GiB of disk at '/tmp' is needed, 1 GiB is free"

    def test_both(self) -> None:
        """All that is missing is told at once."""
        assert shortage(9 * GIB, [Room("/tmp", 3 * GIB, GIB)], MACHINE).count(" is needed, ") == 2

    def test_nearly_fits(self) -> None:
        """Sizes that read the same are written with more digits."""
        assert "8,193.0 MiB of memory is needed, 8,192.0 MiB is available" in shortage(8 * GIB + MIB, [], MACHINE)
