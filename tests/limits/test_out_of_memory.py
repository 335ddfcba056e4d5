from __future__ import annotations

import signal

import pytest

from nncftools.limits.judges import verdict
from nncftools.session.model import Exit
from nncftools.units import MemoryUnit
from tests import made_up
from tests.limits.deaths import FAILED, KILLED, child, command, counted, judged, limit, logged, run
from tests.made_up import MIB, mib

OK = Exit(code=0)


class TestCommand:
    def test_by_count(self) -> None:
        """A SIGKILL while its group's count rose is certain; the group is to blame when its limit was near."""
        found = judged(run(KILLED, oom_kills=[counted()], memory_limits=[limit(310)]))

        assert (found.cause, found.certainty, found.signal, found.at_s) == ("out_of_memory", "certain", "SIGKILL", 1.0)
        assert found.text == "the command work (pid 100) was killed by the kernel: its control group ran out of memory"
        assert found.limit is not None
        assert found.limit.size == limit(310).size

    def test_by_log(self) -> None:
        """The kernel's log alone is enough."""
        found = judged(run(KILLED, kernel_kills=[logged()]))

        assert (found.certainty, found.evidence) == ("certain", ["the kernel's log names it"])

    def test_of_the_machine(self) -> None:
        """The log says when no group's limit was reached."""
        found = judged(run(KILLED, kernel_kills=[logged(group=None)], memory_limits=[limit(310)]))

        assert found.text.endswith("the machine ran out of memory")

    def test_of_the_machine_by_count(self) -> None:
        """Without the log, the machine ran out of memory when nothing of it was left."""
        full = made_up.session({"rss": mib(100, 200, 300), "system": mib(700, 900, 990)})
        session = run(KILLED, oom_kills=[counted()], memory_limits=[limit(900)], samples=full.samples)

        assert judged(session).text.endswith("the machine ran out of memory")

    def test_not_in_the_log(self) -> None:
        """A log that can be read and does not name it says that the kernel did not kill it."""
        session = run(KILLED, oom_kills=[counted()], kernel_kills=[])

        assert (judged(session).cause, judged(session).certainty) == ("killed", "certain")

    def test_at_another_time(self) -> None:
        """Without the log, the count must have risen when it died."""
        session = run(KILLED, oom_kills=[counted(0.1, 0.2)], totals={"oom_kills": 1})

        assert (judged(session).cause, judged(session).certainty) == ("out_of_memory", "possible")

    def test_without_a_sampler(self) -> None:
        """If the sampler was killed, too, the end of the command is unknown: any later rise counts."""
        session = run(KILLED, processes=[command(KILLED, end_s=None)], oom_kills=[counted(0.9, 0.9, 2)])

        assert judged(session).certainty == "certain"

    def test_others_of_the_group(self) -> None:
        """A rise of the count is about somebody else when nothing of the run was killed then."""
        session = run(Exit(code=0), child(end=Exit(code=0)), oom_kills=[counted()])

        assert verdict(session, MemoryUnit.MiB) is None

    def test_another_process_with_the_pid(self) -> None:
        """The log may name an earlier process with the same PID, which ended otherwise."""
        session = run(Exit(code=0), child(end=Exit(code=0), pid=7), kernel_kills=[logged(pid=7)])

        assert verdict(session, MemoryUnit.MiB) is None


class TestChildren:
    def test_while_the_command_says_0(self) -> None:
        """A child that was killed has a verdict although the command succeeded."""
        found = judged(run(OK, child(), oom_kills=[counted()]))

        assert (found.certainty, found.text.split(":")[0]) == ("certain", "worker (pid 101) was killed by the kernel")

    def test_the_whole_tree(self) -> None:
        """Of several victims, the largest is named, and how many more there are."""
        others = [child(number, peak_rss=number) for number in (1, 2, 3)]
        found = judged(run(Exit(code=137), *others, oom_kills=[counted(count=3)]))

        assert found.text.startswith("worker (pid 103) and 2 more were killed")

    def test_end_that_an_ordinary_user_cannot_see(self) -> None:
        """Without exit accounting, what ended while the count rose is likely the victim: the largest of it."""
        sizes = [(1, 50, 0.9), (2, 190, 0.9), (3, 200, 0.2)]
        others = [child(number, None, peak_rss=size * MIB, end_s=end_s) for number, size, end_s in sizes]
        found = judged(run(Exit(code=1), *others, oom_kills=[counted()], memory_limits=[limit(310)]))

        assert (found.certainty, found.process) == ("likely", others[1])

    def test_small_process_that_ended_then(self) -> None:
        """A small one may have ended by itself while the kernel killed another run's process."""
        small = child(1, None, peak_rss=MIB)

        assert verdict(run(OK, small, oom_kills=[counted()]), MemoryUnit.MiB) is None
        assert judged(run(FAILED, small, oom_kills=[counted()])).certainty == "possible"

    def test_shell(self) -> None:
        """A shell that ends with 137 says that its command was killed."""
        found = judged(run(Exit(code=137), oom_kills=[counted()]))

        assert found.text.startswith("a process of the command was killed by the kernel")

    def test_the_command_hangs(self) -> None:
        """A command that used no CPU time after that is said to hang."""
        times = [place / 10 for place in range(60)]
        columns = {
            "time_s": times,
            "rss": [1e8] * 60,
            "cpu_user": [min(at_s, 1.0) for at_s in times],
            "cpu_system": [0.0] * 60,
        }
        session = made_up.session(
            columns, processes=[command(OK, end_s=6.0), child()], exit=OK, oom_kills=[counted()], duration_s=6.0
        )

        assert judged(session).hung_s == pytest.approx(4.9)

    def test_terminated_children_are_no_victims(self) -> None:
        """Only SIGKILL is the kernel's."""
        session = run(OK, child(end=Exit(signal=signal.SIGTERM)), oom_kills=[counted()])

        assert verdict(session, MemoryUnit.MiB) is None


def test_held_before_the_end_of_a_child() -> None:
    """The end of a child is known late: what was held is that of its largest sample, just before."""
    found = judged(run(OK, child(peak_s=0.5, end_s=0.9), oom_kills=[counted()]))

    assert (found.state.at_s, found.state.rss) == (0.5, 200 * MIB)


def test_held_before_the_end_of_the_command() -> None:
    """The command lived until its end: the last sample before counts, also if an earlier one is larger."""
    session = run(KILLED, processes=[command(KILLED, peak_s=0.0)], oom_kills=[counted()])

    assert judged(session).state.at_s == pytest.approx(0.5)
