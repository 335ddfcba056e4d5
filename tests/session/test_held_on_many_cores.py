from __future__ import annotations

import pytest

from nncftools.session.model import Host, OwnMemory, Process
from nncftools.session.readings import HeldLines, Holdings, Reading, keep
from nncftools.session.session import Session
from tests.made_up import MIB, mib, process, session

ALONE = Reading(rss=200 * MIB, descendants=[], listed=True)


def machine(cpus: int, release: str = "6.8.0") -> Host:
    """Return a machine whose kernel leaves out a batch of pages for each CPU."""
    return Host(system="Linux", release=release, cpus=cpus)


def recorded(host: Host, *processes: Process) -> Session:
    """Return a session of a journal that says of marks that nothing changed."""
    of = session({"rss": mib(200, 200, 200)}, processes=list(processes) or [process()], host=host)
    keep(of, HeldLines([{"from_s": 0.0, "to_s": 0.1, "rss": [[1, 50 * MIB]]}, {"from_s": 0.1, "to_s": 0.5, "rss": []}]))
    return of


def at_mark(of: Session, reading: Reading = ALONE) -> OwnMemory:
    """Return what the tree held at 0.4 s, when the first process marked."""
    found = Holdings(of).at(0.4, 100, reading)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("host", "bounds"),
    [
        (machine(2), (None, None)),
        (machine(64, "6.16.0"), (None, None)),
        (machine(64), (168 * MIB, 232 * MIB)),
        (machine(256), (0, 712 * MIB)),
    ],
    ids=["few cores", "an exact kernel", "many cores", "more than there is"],
)
def test_what_the_kernel_may_leave_out(host: Host, bounds: tuple[int | None, int | None]) -> None:
    """Where RSS itself may be off by more than 1 % or 1 MiB, what a process reads is known within bounds only."""
    found = at_mark(recorded(host))

    assert (found.tree, found.tree_low, found.tree_high) == (200 * MIB, *bounds)


def test_of_each_process() -> None:
    """Each process with memory may be off by as much."""
    of = recorded(machine(64), process(), process(1, parent=None))
    found = at_mark(of)

    assert (found.tree, found.tree_low, found.tree_high) == tuple(mib(250, 186, 314))


def test_a_child_that_was_read() -> None:
    """A child that the marking process read counts once, exactly."""
    of = recorded(machine(2), process(), process(1, parent=0))
    found = at_mark(of, Reading(rss=200 * MIB, descendants=[(101, 30 * MIB)], listed=True))

    assert (found.tree, found.tree_low) == (230 * MIB, None)
