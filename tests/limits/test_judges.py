from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
    from nncftools.analysis.session import Session
    from nncftools.limits.verdict import Verdict


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


REACHED = LimitReached(at_s=0.9, rss=290 * MIB, limit=280 * MIB, action="kill")


class TestNobodyDied:
    def test_merged_ranks(self) -> None:
        """Merged ranks have none: a rank's own recording does."""
        session = run(KILLED, ranks=[RankRun(name="rank 0", start_s=0.0, duration_s=1.0)])

        assert verdict(session, MemoryUnit.MiB) is None


class TestOrder:
    def test_the_kernel_before_a_signal_from_outside(self) -> None:
        """A worker that the kernel killed explains more than the SIGTERM that ended the hanging command."""
        session = run(Exit(signal=signal.SIGTERM), child(), oom_kills=[counted()], control_groups=COUNTED)

        assert (judged(session).cause, judged(session).process) == ("out_of_memory", session.processes[1])


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


class TestChildren:
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
        assert " more were " not in found.text


def test_held_before_the_end_of_a_child() -> None:
    """The end of a child is known late: what was held is that of its largest sample, just before."""
    found = judged(run(OK, child(peak_s=0.5, end_s=0.9), oom_kills=[counted()]))

    assert (found.state.at_s, found.state.rss) == (0.5, 200 * MIB)


NOT_BY_KERNEL = "not by the kernel, which killed no process of the run"


class TestMaxMemory:
    @pytest.mark.parametrize("end", [Exit(signal=signal.SIGTERM), KILLED, Exit(code=0)])
    def test_kill(self, end: Exit) -> None:
        """However the command ends after our signal, our limit ended it."""
        reached = LimitReached(at_s=0.9, rss=290 * MIB, limit=280 * MIB, action="kill")
        found = judged(run(end, limit_reached=reached))

        assert (found.cause, found.certainty, found.at_s) == ("max_memory", "certain", 0.9)
        assert found.text == "nncf-tools ended the command: RSS exceeded the limit of 280 MiB"


class TestLost:
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


NO_VERDICT = ("", "")
STILL = {"exit": None, "finished": False, "warnings": [f"{STILL_RUNS}; up to now"]}
LAST = {"processes": [command(KILLED, end_s=1.1)], "duration_s": 1.1}
"""The last sample, at 1.0 s, is before the end."""
TERMINATED, ABORTED, SEGFAULT = (Exit(signal=end) for end in (signal.SIGTERM, signal.SIGABRT, signal.SIGSEGV))
SMALL = child(1, None, peak_rss=MIB)


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        pytest.param(run(OK), NO_VERDICT, id="success"),
        pytest.param(run(Exit(code=3), failures=[failure(None)]), NO_VERDICT, id="ordinary failure"),
        pytest.param(run(Exit(code=150)), NO_VERDICT, id="a status above 128"),
        pytest.param(run(Exit(signal=signal.SIGINT)), NO_VERDICT, id="Ctrl-C"),
        pytest.param(run(Exit(signal=signal.SIGPIPE)), NO_VERDICT, id="a reader that has enough"),
        pytest.param(run(OK, child(end=TERMINATED)), NO_VERDICT, id="workers that their parent ends"),
        pytest.param(run(OK, child(end=TERMINATED), oom_kills=[counted()]), NO_VERDICT, id="terminated, not killed"),
        pytest.param(run(OK, **STILL), NO_VERDICT, id="still running"),
        pytest.param(run(failures=[failure("memory")]), ("allocation_failed", "certain"), id="exception"),
        pytest.param(
            run(failures=[failure("memory", fatal=False)]), ("allocation_failed", "likely"), id="exception of a call"
        ),
        pytest.param(run(OK, failures=[failure("memory", fatal=False)]), NO_VERDICT, id="exception without harm"),
        pytest.param(
            run(OK, child(end=FAILED, pid=7), failures=[failure("memory", pid=7)]),
            ("allocation_failed", "certain"),
            id="exception of a child",
        ),
        pytest.param(
            run(failures=[failure("memory")], file_systems=[disk(0)]),
            ("allocation_failed", "certain"),
            id="memory before the disk",
        ),
        pytest.param(run(memory_limits=[address_space(310)]), NO_VERDICT, id="address space alone"),
        pytest.param(run(ABORTED, memory_limits=[address_space(310)]), ("crashed", "certain"), id="abort"),
        pytest.param(run(failures=[failure("disk")]), ("disk_full", "certain"), id="disk, by exception"),
        pytest.param(run(file_systems=[disk(50), disk(0.5)]), ("disk_full", "likely"), id="disk, by its room"),
        pytest.param(run(file_systems=[disk(90)], totals={"write_chars": 20 * MIB}), NO_VERDICT, id="enough room"),
        pytest.param(run(OK, file_systems=[disk(0)]), NO_VERDICT, id="success on a full disk"),
        pytest.param(run(file_systems=[disk(0, 0)]), NO_VERDICT, id="full before"),
        pytest.param(run(file_systems=[disk(0, 0, 0)]), NO_VERDICT, id="a disk without room"),
        pytest.param(
            run(file_systems=[disk(0)], failures=[failure(None, error="ValueError")]), NO_VERDICT, id="other exception"
        ),
        pytest.param(
            run(Exit(signal=signal.SIGBUS), file_systems=[disk(0)]), ("disk_full", "likely"), id="mapped file"
        ),
        pytest.param(run(exit=None, finished=False, file_systems=[disk(0)]), ("disk_full", "likely"), id="journal"),
        pytest.param(
            run(TERMINATED, limit_reached=REACHED, memory_limits=[limit(310)]), ("max_memory", "certain"), id="ours"
        ),
        pytest.param(
            run(KILLED, limit_reached=replace(REACHED, action="warn"), totals=NO_KILLS),
            ("killed", "certain"),
            id="our warning",
        ),
        pytest.param(run(KILLED, kernel_kills=[logged()]), ("out_of_memory", "certain"), id="by log"),
        pytest.param(run(KILLED, oom_kills=[counted()], kernel_kills=[]), ("killed", "certain"), id="not in the log"),
        pytest.param(
            run(KILLED, oom_kills=[counted(0.1, 0.2)], totals={"oom_kills": 1}),
            ("out_of_memory", "possible"),
            id="at another time",
        ),
        pytest.param(
            run(KILLED, processes=[command(KILLED, end_s=None)], oom_kills=[counted(0.9, 0.9, 2)]),
            ("out_of_memory", "certain"),
            id="without a sampler",
        ),
        pytest.param(run(OK, child(end=OK), oom_kills=[counted()]), NO_VERDICT, id="others of the group"),
        pytest.param(run(OK, child(end=OK, pid=7), kernel_kills=[logged(pid=7)]), NO_VERDICT, id="its PID, used again"),
        pytest.param(run(OK, child(), oom_kills=[counted()]), ("out_of_memory", "certain"), id="a child"),
        pytest.param(run(OK, SMALL, oom_kills=[counted()]), NO_VERDICT, id="a small child that ended then"),
        pytest.param(run(FAILED, SMALL, oom_kills=[counted()]), ("out_of_memory", "possible"), id="and a failure"),
        pytest.param(run(KILLED, memory_limits=[limit(310)], **LAST), ("killed", "possible"), id="counts unknown"),
        pytest.param(run(KILLED, memory_limits=[limit(900)]), ("killed", "likely"), id="counts unknown, memory left"),
        pytest.param(run(OK, child(peak_rss=MIB), totals=NO_KILLS), NO_VERDICT, id="a small helper"),
        pytest.param(run(OK, child(), totals=NO_KILLS), ("killed", "certain"), id="a large worker"),
        pytest.param(run(SEGFAULT, child(), totals=NO_KILLS), ("crashed", "certain"), id="the command comes first"),
        pytest.param(run(OK, child(end=SEGFAULT)), ("crashed", "certain"), id="a child that crashed"),
        pytest.param(run(Exit(code=139)), ("crashed", "possible"), id="a shell whose command crashed"),
        pytest.param(run(TERMINATED), ("terminated", "certain"), id="scheduler"),
    ],
)
def test_cause(of: Session, expected: tuple[str, str]) -> None:
    """Each way to die has a cause with its certainty; without a sign of the cause there is no verdict."""
    found = verdict(of, MemoryUnit.MiB)

    assert ((found.cause, found.certainty) if found else NO_VERDICT) == expected


@pytest.mark.parametrize(
    ("last", "is_not"),
    [
        ({"memory_limits": [limit(700)]}, [NOT_BY_KERNEL, "not because memory ran out"]),
        ({"memory_limits": [limit(310)], **LAST}, [NOT_BY_KERNEL]),
    ],
    ids=["memory left", "near the limit"],
)
def test_killed_by_somebody(last: dict[str, Any], is_not: list[str]) -> None:
    """Where the kernel's count did not rise, it killed nothing; a daemon may kill where memory is short."""
    assert judged(run(KILLED, totals=NO_KILLS, **last)).is_not == is_not


def test_log_of_the_machine() -> None:
    """The log says where no group's limit was reached."""
    found = judged(run(KILLED, kernel_kills=[logged(group=None)], memory_limits=[limit(310)]))

    assert found.text.endswith("the machine ran out of memory")


def test_cpu_time() -> None:
    """SIGXCPU means that the CPU time is used up (RLIMIT_CPU)."""
    assert "because the limit of CPU time was reached" in judged(run(Exit(signal=signal.SIGXCPU))).text
