from __future__ import annotations

import signal

import pytest

from nncftools.limits.judges import verdict
from nncftools.session.model import Exit, Host, LimitReached
from nncftools.units import MemoryUnit
from tests import made_up
from tests.limits.deaths import KILLED, NO_KILLS, child, command, disk, judged, limit, run
from tests.made_up import MIB, mib

NOT_BY_KERNEL = "not by the kernel: it killed nothing of the run for want of memory"


class TestMaxMemory:
    @pytest.mark.parametrize("end", [Exit(signal=signal.SIGTERM), KILLED, Exit(code=0)])
    def test_kill(self, end: Exit) -> None:
        """However the command ends after our signal, our limit ended it."""
        reached = LimitReached(at_s=0.9, rss=290 * MIB, limit=280 * MIB, action="kill")
        found = judged(run(end, limit_reached=reached))

        assert (found.cause, found.certainty, found.at_s) == ("max_memory", "certain", 0.9)
        assert found.text == "the command was ended by nncf-tools: RSS exceeded the limit of 280 MiB"

    def test_warning(self) -> None:
        """A limit that only warns ends nothing."""
        reached = LimitReached(at_s=0.9, rss=290 * MIB, limit=280 * MIB, action="warn")

        assert judged(run(KILLED, limit_reached=reached, totals=NO_KILLS)).cause == "killed"


class TestKilled:
    def test_by_somebody(self) -> None:
        """When the counts are known and did not rise, the kernel is excluded, and so is memory."""
        found = judged(run(KILLED, totals=NO_KILLS, memory_limits=[limit(700)]))

        assert (found.cause, found.certainty) == ("killed", "certain")
        assert found.is_not == [NOT_BY_KERNEL, "not for want of memory"]

    def test_near_the_limit(self) -> None:
        """With little memory left, a lack of memory is not excluded: a daemon may have killed it."""
        last = {"processes": [command(KILLED, end_s=1.1)], "duration_s": 1.1}
        found = judged(run(KILLED, totals=NO_KILLS, memory_limits=[limit(310)], **last))

        assert found.is_not == [NOT_BY_KERNEL]

    def test_counts_unknown(self) -> None:
        """Without counts, SIGKILL near the limit is likely a lack of memory."""
        last = {"processes": [command(KILLED, end_s=1.1)], "duration_s": 1.1}
        found = judged(run(KILLED, memory_limits=[limit(310)], **last))

        assert (found.cause, found.certainty) == ("out_of_memory", "likely")

    def test_counts_unknown_far_from_the_limit(self) -> None:
        """Without counts and with memory left, somebody else is likely."""
        found = judged(run(KILLED, memory_limits=[limit(900)]))

        assert (found.cause, found.certainty) == ("killed", "likely")


class TestChildren:
    def test_small_helper(self) -> None:
        """A program may kill a small helper of its own: that is no verdict."""
        session = run(Exit(code=0), child(peak_rss=MIB), totals=NO_KILLS)

        assert verdict(session, MemoryUnit.MiB) is None

    def test_large_worker(self) -> None:
        """A worker that held much has one, also when the command says 0."""
        found = judged(run(Exit(code=0), child(), totals=NO_KILLS))

        assert (found.cause, found.text) == (
            "killed",
            "worker (pid 101) was killed by SIGKILL, from a program or a user",
        )

    def test_the_command_comes_first(self) -> None:
        """The command's own end explains more than that of a helper."""
        assert judged(run(Exit(signal=signal.SIGSEGV), child(), totals=NO_KILLS)).cause == "crashed"

    def test_crash(self) -> None:
        """A child that crashed while the command said 0 has a verdict."""
        assert judged(run(Exit(code=0), child(end=Exit(signal=signal.SIGSEGV)))).cause == "crashed"


class TestExitStatus:
    @pytest.mark.parametrize("code", [129, 130, 141, 150, 192])
    def test_other_statuses(self, code: int) -> None:
        """Programs use statuses above 128 for ordinary failures."""
        assert verdict(run(Exit(code=code)), MemoryUnit.MiB) is None


class TestCrashed:
    def test_segmentation_fault(self) -> None:
        """A fault is named, and that memory was not the reason."""
        found = judged(run(Exit(signal=signal.SIGSEGV)))

        assert found.text == "the command work (pid 100) crashed: segmentation fault (SIGSEGV)"
        assert (found.cause, found.is_not) == ("crashed", ["not for want of memory"])

    def test_shell(self) -> None:
        """A shell's exit status may tell of its command's fault; any program may choose it."""
        found = judged(run(Exit(code=139)))

        assert found.text.startswith("the command ended with status 139, as a shell does whose command dies so: ")
        assert (found.cause, found.certainty) == ("crashed", "possible")


class TestTerminated:
    def test_scheduler(self) -> None:
        """SIGTERM comes from outside."""
        found = judged(run(Exit(signal=signal.SIGTERM)))

        assert (found.cause, found.certainty) == ("terminated", "certain")
        assert found.text.endswith("was ended by SIGTERM, from a scheduler, a program or a user")

    def test_cpu_time(self) -> None:
        """SIGXCPU means that the CPU time is used up (RLIMIT_CPU)."""
        assert "its CPU time was used up" in judged(run(Exit(signal=signal.SIGXCPU))).text


class TestLost:
    def test_full_disk(self) -> None:
        """A journal that breaks off on a full disk is due to that."""
        session = run(exit=None, finished=False, file_systems=[disk(0)])

        assert (judged(session).cause, judged(session).certainty) == ("disk_full", "likely")

    @pytest.mark.parametrize(
        ("size_mib", "cause", "certainty"),
        [(310, "out_of_memory", "likely"), (400, "out_of_memory", "possible"), (900, "recorder_lost", "possible")],
    )
    def test_recording_that_breaks_off(self, size_mib: int, cause: str, certainty: str) -> None:
        """A recording without an end is a lack of memory only as far as memory was near its limit."""
        session = made_up.session(
            {"rss": mib(100, 200, 300)},
            exit=None,
            finished=False,
            duration_s=1.1,
            processes=[command(end_s=None, exit=None)],
            host=Host(memory=4000 * MIB),
            memory_limits=[limit(size_mib)],
        )
        found = judged(session)

        assert (found.cause, found.certainty) == (cause, certainty)
        assert found.text.startswith("the recording breaks off at 1.10 s")
