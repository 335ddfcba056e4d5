from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from nncftools.limits.judges import verdict
from nncftools.limits.needs import effective_limit
from nncftools.session.model import Device, Exit, Host, LimitReached, RankRun
from nncftools.session.session import STILL_RUNS
from nncftools.units import MemoryUnit
from tests import made_up
from tests.limits.deaths import (
    COUNTED,
    FAILED,
    KILLED,
    NO_KILLS,
    address_space,
    child,
    command,
    counted,
    disk,
    failure,
    judged,
    limit,
    logged,
    run,
)
from tests.made_up import MIB, mib

if TYPE_CHECKING:
    from nncftools.limits.verdict import Verdict


@pytest.mark.parametrize(("fatal", "certainty"), [(True, "certain"), (False, "likely")])
def test_exception(fatal: bool, certainty: str) -> None:  # noqa: FBT001 — a parameter of the test
    """An exception that ended the program is certain; one that ended a call is likely the reason of a failure."""
    found = judged(run(failures=[failure("memory", fatal=fatal, error="MemoryError")]))

    assert (found.cause, found.certainty, found.at_s) == ("allocation_failed", certainty, 0.9)
    assert found.text == "the command work (pid 100) could not allocate memory (MemoryError)"


def out_of_memory_on(device: str, **columns: Sequence[float | None]) -> Verdict:
    """Return the verdict on a run that ended by torch's exception; columns are of this device."""
    given = {
        "exit": FAILED,
        "processes": [command()],
        "devices": [Device(device="nvidia0", model="X", memory=80 * MIB)],
    }
    of_device = {f"{name}@nvidia0": values for name, values in columns.items()}
    lost = replace(failure("device", error="OutOfMemoryError"), device=device)
    return judged(made_up.session({"rss": mib(100, 200, 300), **of_device}, failures=[lost], **given))


def test_memory_of_a_gpu() -> None:
    """A CUDA out-of-memory exception names the device, what the run held, and what others held."""
    found = out_of_memory_on("nvidia0", device_memory=mib(0, 60, None), device_used=mib(5, 70, None))

    assert (found.cause, found.certainty, found.is_for_memory) == ("allocation_failed", "certain", False)
    assert found.text == "the command work (pid 100) could not allocate memory of nvidia0 (OutOfMemoryError)"
    assert list(found.evidence[1:]) == [
        "nvidia0 has 80 MiB (X)",
        "at 0.500 s, the last reading, the run held 60 MiB, others 10 MiB",
    ]


def test_memory_of_a_gpu_that_cannot_be_told() -> None:
    """Where it is unknown what the run held, the evidence is what everyone held."""
    found = out_of_memory_on("nvidia0", device_memory=mib(None, None, None), device_used=mib(5, 70, None))

    assert found.evidence[-1] == "at 0.500 s, the last reading, all programs together held 70 MiB"


def test_memory_of_an_unread_gpu() -> None:
    """Without readings, the exception is the only evidence."""
    found = out_of_memory_on("cuda1")

    assert found.text == "the command work (pid 100) could not allocate memory of cuda1 (OutOfMemoryError)"
    assert list(found.evidence) == ["an exception, reported by the hook of `profile`"]


def test_exception_that_did_no_harm() -> None:
    """A program that caught it and succeeded has no verdict."""
    session = run(Exit(code=0), failures=[failure("memory", fatal=False)])

    assert verdict(session, MemoryUnit.MiB) is None


def test_limit_of_address_space() -> None:
    """A limit of address space is evidence beside an exception; how near the program came to it is not judged."""
    found = judged(run(failures=[failure("memory")], memory_limits=[address_space(310)]))

    assert (found.certainty, found.limit) == ("certain", None)
    assert found.evidence[1:] == [f"RLIMIT_AS limits each process to 310 MiB ({address_space(310).set_by})"]


@pytest.mark.parametrize(
    ("end", "cause"),
    [(FAILED, None), (Exit(signal=signal.SIGABRT), "crashed"), (Exit(signal=signal.SIGSEGV), "crashed")],
)
def test_limit_without_an_exception(end: Exit, cause: str | None) -> None:
    """Without an exception, a limit of address space explains no failure: what was reserved is not known."""
    found = verdict(run(end, memory_limits=[address_space(310)]), MemoryUnit.MiB)

    assert (found and found.cause) == cause


def test_child_while_the_command_says_0() -> None:
    """A child whose program an exception ended has a verdict, too."""
    session = run(Exit(code=0), child(end=Exit(code=1), pid=7), failures=[failure("memory", pid=7)])

    assert judged(session).text == "worker (pid 7) could not allocate memory (SomeError)"


def test_full_disk_exception() -> None:
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
        "the command work (pid 100) failed after a disk was full: /scratch (TMPDIR)",
    )


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


def test_full_disk_another_exception() -> None:
    """A program whose exception says nothing of a disk failed for another reason."""
    session = run(file_systems=[disk(0)], failures=[failure(None, error="ValueError")])

    assert verdict(session, MemoryUnit.MiB) is None


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


def test_limits_of_nothing() -> None:
    """A file may have limits of 0 bytes: they say nothing."""
    limits = [limit(0), address_space(0)]
    reached = LimitReached(at_s=0.9, rss=290 * MIB, limit=0, action="warn")
    session = run(KILLED, memory_limits=limits, limit_reached=reached, oom_kills=[counted()])

    assert judged(session).cause == "out_of_memory"
    assert effective_limit(session) == ("machine", 1000 * MIB, "")


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

        assert (found.certainty, found.evidence) == ("certain", ["the kernel's log names the process"])

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

    def test_end_of_which_only_the_parent_has_the_status(self) -> None:
        """What ended while the count rose is likely the victim: the largest of it."""
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


NOT_BY_KERNEL = "not by the kernel, which killed no process of the run"


class TestMaxMemory:
    @pytest.mark.parametrize("end", [Exit(signal=signal.SIGTERM), KILLED, Exit(code=0)])
    def test_kill(self, end: Exit) -> None:
        """However the command ends after our signal, our limit ended it."""
        reached = LimitReached(at_s=0.9, rss=290 * MIB, limit=280 * MIB, action="kill")
        found = judged(run(end, limit_reached=reached))

        assert (found.cause, found.certainty, found.at_s) == ("max_memory", "certain", 0.9)
        assert found.text == "nncf-tools ended the command: RSS exceeded the limit of 280 MiB"

    def test_warning(self) -> None:
        """A limit that only warns ends nothing."""
        reached = LimitReached(at_s=0.9, rss=290 * MIB, limit=280 * MIB, action="warn")

        assert judged(run(KILLED, limit_reached=reached, totals=NO_KILLS)).cause == "killed"


class TestKilled:
    def test_by_somebody(self) -> None:
        """When the counts are known and did not rise, the kernel is excluded, and so is memory."""
        found = judged(run(KILLED, totals=NO_KILLS, memory_limits=[limit(700)]))

        assert (found.cause, found.certainty) == ("killed", "certain")
        assert found.is_not == [NOT_BY_KERNEL, "not because memory ran out"]

    def test_near_the_limit(self) -> None:
        """With little memory left, a lack of memory is not excluded: a daemon may have killed it."""
        last = {"processes": [command(KILLED, end_s=1.1)], "duration_s": 1.1}
        found = judged(run(KILLED, totals=NO_KILLS, memory_limits=[limit(310)], **last))

        assert found.is_not == [NOT_BY_KERNEL]

    def test_counts_unknown(self) -> None:
        """Without counts and near the limit, nobody knows who killed it."""
        last = {"processes": [command(KILLED, end_s=1.1)], "duration_s": 1.1}
        found = judged(run(KILLED, memory_limits=[limit(310)], **last))

        assert (found.cause, found.certainty, found.is_not) == ("killed", "possible", [])

    def test_counts_unknown_far_from_the_limit(self) -> None:
        """Without counts and with memory left, somebody else is likely."""
        found = judged(run(KILLED, memory_limits=[limit(900)]))

        assert (found.cause, found.certainty) == ("killed", "likely")


class TestSignalsChildren:
    def test_small_helper(self) -> None:
        """A program may kill a small helper of its own: that is no verdict."""
        session = run(Exit(code=0), child(peak_rss=MIB), totals=NO_KILLS)

        assert verdict(session, MemoryUnit.MiB) is None

    def test_large_worker(self) -> None:
        """A worker that held much has one, also when the command says 0."""
        found = judged(run(Exit(code=0), child(), totals=NO_KILLS))

        assert (found.cause, found.text) == (
            "killed",
            "worker (pid 101) was killed by SIGKILL from another program or a user",
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
        assert (found.cause, found.is_not) == ("crashed", ["not because memory ran out"])

    def test_shell(self) -> None:
        """A shell's exit status may tell of its command's fault; any program may choose it."""
        found = judged(run(Exit(code=139)))

        assert found.text.startswith("a process of the command (exit status 139) crashed: ")
        assert (found.cause, found.certainty) == ("crashed", "possible")


class TestTerminated:
    def test_scheduler(self) -> None:
        """SIGTERM comes from outside."""
        found = judged(run(Exit(signal=signal.SIGTERM)))

        assert (found.cause, found.certainty) == ("terminated", "certain")
        assert found.text.endswith("was ended by SIGTERM from a scheduler, another program or a user")

    def test_cpu_time(self) -> None:
        """SIGXCPU means that the CPU time is used up (RLIMIT_CPU)."""
        assert "because the limit of CPU time was reached" in judged(run(Exit(signal=signal.SIGXCPU))).text


class TestLost:
    def test_full_disk(self) -> None:
        """A journal that breaks off on a full disk is due to that."""
        session = run(exit=None, finished=False, file_systems=[disk(0)])

        assert (judged(session).cause, judged(session).certainty) == ("disk_full", "likely")

    @pytest.mark.parametrize(("size_mib", "is_not"), [(310, []), (900, ["not because memory ran out"])])
    def test_recording_that_breaks_off(self, size_mib: int, is_not: list[str]) -> None:
        """A recording without an end says how it ended only as far as the kernel's counts or a disk show it."""
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

        assert (found.cause, found.certainty, found.is_not) == ("recorder_lost", "possible", is_not)
        assert found.text.startswith("the recording stops at 1.10 s")
