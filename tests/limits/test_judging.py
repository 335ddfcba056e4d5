from __future__ import annotations

import signal

import pytest

from nncftools.limits.judges import verdict
from nncftools.limits.needs import effective_limit
from nncftools.session.model import Exit, LimitReached, RankRun
from nncftools.session.session import STILL_RUNS
from nncftools.units import MemoryUnit
from tests.limits.deaths import COUNTED, KILLED, address_space, child, counted, disk, failure, judged, limit, run
from tests.made_up import MIB

REACHED = LimitReached(at_s=0.9, rss=290 * MIB, limit=280 * MIB, action="kill")


class TestNobodyDied:
    def test_success(self) -> None:
        """A command that ended by itself with status 0 has no verdict."""
        assert verdict(run(Exit(code=0)), MemoryUnit.MiB) is None

    def test_ordinary_failure(self) -> None:
        """Neither has one that failed without a sign of what ran out, even with an exception."""
        assert verdict(run(Exit(code=3), failures=[failure(None)]), MemoryUnit.MiB) is None

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGPIPE])
    def test_ended_by_the_user(self, number: int) -> None:
        """Ctrl-C, and a reader that has enough, are no reason for a verdict."""
        assert verdict(run(Exit(signal=number)), MemoryUnit.MiB) is None

    def test_workers_that_their_parent_ends(self) -> None:
        """A pool ends its workers by SIGTERM when its work is done."""
        session = run(Exit(code=0), child(end=Exit(signal=signal.SIGTERM)))

        assert verdict(session, MemoryUnit.MiB) is None

    def test_still_running(self) -> None:
        """A recording that still runs has no verdict."""
        session = run(Exit(code=0), exit=None, finished=False, warnings=[f"{STILL_RUNS}; up to now"])

        assert verdict(session, MemoryUnit.MiB) is None

    def test_merged_ranks(self) -> None:
        """Merged ranks have none: a rank's own recording does."""
        session = run(KILLED, ranks=[RankRun(name="rank 0", start_s=0.0, duration_s=1.0)])

        assert verdict(session, MemoryUnit.MiB) is None


class TestOrder:
    def test_our_own_limit_comes_first(self) -> None:
        """When our own limit ended the command, no other cause is named."""
        session = run(Exit(signal=signal.SIGTERM), limit_reached=REACHED, memory_limits=[limit(310)])

        assert judged(session).cause == "max_memory"

    def test_the_kernel_before_a_signal_from_outside(self) -> None:
        """A worker that the kernel killed explains more than the SIGTERM that ended the hanging command."""
        session = run(Exit(signal=signal.SIGTERM), child(), oom_kills=[counted()], control_groups=COUNTED)

        assert (judged(session).cause, judged(session).process) == ("out_of_memory", session.processes[1])

    def test_memory_before_the_disk(self) -> None:
        """An exception about memory explains more than a disk that has little room."""
        session = run(failures=[failure("memory")], file_systems=[disk(0)])

        assert judged(session).cause == "allocation_failed"

    def test_an_allocation_before_a_crash(self) -> None:
        """With a limit of address space, an abort is a failed allocation rather than a crash."""
        session = run(Exit(signal=signal.SIGABRT), memory_limits=[address_space(310)])

        assert judged(session).cause == "allocation_failed"


def test_limits_of_nothing() -> None:
    """A file may have limits of 0 bytes: they say nothing."""
    limits = [limit(0), address_space(0)]
    reached = LimitReached(at_s=0.9, rss=290 * MIB, limit=0, action="warn")
    session = run(KILLED, memory_limits=limits, limit_reached=reached, oom_kills=[counted()])

    assert judged(session).cause == "out_of_memory"
    assert effective_limit(session) == ("machine", 1000 * MIB, "")
