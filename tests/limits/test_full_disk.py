from __future__ import annotations

import signal

from nncftools.limits.judges import verdict
from nncftools.session.model import Exit
from nncftools.units import MemoryUnit
from tests.limits.deaths import disk, failure, judged, run
from tests.made_up import MIB


def test_exception() -> None:
    """An exception that says so is certain, and the room that was seen is its evidence."""
    found = judged(run(failures=[failure("disk", error="OSError")], file_systems=[disk(0)]))

    assert (found.cause, found.certainty) == ("disk_full", "certain")
    assert found.evidence[1] == "free on /scratch (TMPDIR): 100 MiB at first, nothing at 0.800 s"


def test_exception_without_readings() -> None:
    """The exception is enough when the room was not seen."""
    assert judged(run(failures=[failure("disk")])).certainty == "certain"


def test_no_room_was_seen() -> None:
    """A failure after the room was gone is likely due to that."""
    found = judged(run(file_systems=[disk(50), disk(0.5)]))

    assert (found.certainty, found.text) == (
        "likely",
        "the command work (pid 100) failed after the disk of /scratch (TMPDIR) was full",
    )


def test_as_much_written_as_was_free() -> None:
    """A file may be removed before its room is read: what was written tells, too."""
    found = judged(run(file_systems=[disk(90)], totals={"write_chars": 95 * MIB}))

    assert (found.cause, found.certainty) == ("disk_full", "possible")


def test_enough_room() -> None:
    """A failure with enough room is ordinary."""
    session = run(file_systems=[disk(90)], totals={"write_chars": 20 * MIB})

    assert verdict(session, MemoryUnit.MiB) is None


def test_success_on_a_full_disk() -> None:
    """A full disk alone is no death."""
    assert verdict(run(Exit(code=0), file_systems=[disk(0)]), MemoryUnit.MiB) is None


def test_bus_error() -> None:
    """Writing to a mapped file on a full disk ends in SIGBUS."""
    found = judged(run(Exit(signal=signal.SIGBUS), file_systems=[disk(0)]))

    assert found.cause == "disk_full"


def test_full_before() -> None:
    """Room that was gone before the run says nothing, and neither does a file system without any."""
    assert verdict(run(file_systems=[disk(0, 0)]), MemoryUnit.MiB) is None
    assert verdict(run(file_systems=[disk(0, 0, 0)]), MemoryUnit.MiB) is None


def test_another_exception() -> None:
    """A program whose exception says nothing of a disk failed for another reason."""
    session = run(file_systems=[disk(0)], failures=[failure(None, error="ValueError")])

    assert verdict(session, MemoryUnit.MiB) is None
