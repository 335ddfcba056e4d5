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


def test_the_kernel_before_a_signal_from_outside() -> None:
    """A worker that the kernel killed explains more than the SIGTERM that ended the hanging command."""
    session = run(Exit(signal=signal.SIGTERM), child(), oom_kills=[counted()], control_groups=COUNTED)

    assert (judged(session).cause, judged(session).process) == ("out_of_memory", session.processes[1])


def test_limits_of_nothing() -> None:
    """A file may have limits of 0 bytes: they say nothing."""
    limits = [limit(0), address_space(0)]
    reached = replace(REACHED, limit=0, action="warn")
    session = run(KILLED, memory_limits=limits, limit_reached=reached, oom_kills=[counted()])

    assert judged(session).cause == "out_of_memory"
    assert effective_limit(session) == ("machine", 1000 * MIB, "")


OK = Exit(code=0)


def test_by_count() -> None:
    """A SIGKILL while its group's count rose is certain; the group is to blame when its limit was near."""
    found = judged(run(KILLED, oom_kills=[counted()], memory_limits=[limit(310)]))

    assert (found.cause, found.certainty, found.signal, found.at_s) == ("out_of_memory", "certain", "SIGKILL", 1.0)
    assert found.text == "the command work (pid 100) was killed by the kernel: its control group ran out of memory"
    assert found.limit is not None
    assert found.limit.size == limit(310).size


def test_the_whole_tree() -> None:
    """Of several victims, the largest is named, and how many more there are."""
    others = [child(number, peak_rss=number) for number in (1, 2, 3)]
    found = judged(run(Exit(code=137), *others, oom_kills=[counted(count=3)]))

    assert found.text.startswith("worker (pid 103) and 2 more were killed")


def test_end_of_which_only_the_parent_has_the_status() -> None:
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


@pytest.mark.parametrize("end", [Exit(signal=signal.SIGTERM), KILLED, Exit(code=0)])
def test_kill(end: Exit) -> None:
    """However the command ends after our signal, our limit ended it."""
    found = judged(run(end, limit_reached=REACHED))

    assert (found.cause, found.certainty, found.at_s) == ("max_memory", "certain", 0.9)
    assert found.text == "nncf-tools ended the command: RSS exceeded the limit of 280 MiB"


@pytest.mark.parametrize("size_mib, is_not", [(310, []), (900, ["not because memory ran out"])])
def test_recording_that_breaks_off(size_mib: int, is_not: list[str]) -> None:
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


STILL = {"exit": None, "finished": False, "warnings": [f"{STILL_RUNS}; up to now"]}
LAST = {"processes": [command(KILLED, end_s=1.1)], "duration_s": 1.1}
"""The last sample, at 1.0 s, is before the end."""
TERMINATED, ABORTED, SEGFAULT = (Exit(signal=end) for end in (signal.SIGTERM, signal.SIGABRT, signal.SIGSEGV))
SMALL = child(1, None, peak_rss=MIB)


CAUSES = {
    "success": (run(OK), ""),
    "ordinary failure": (run(Exit(code=3), failures=[failure(None)]), ""),
    "a status above 128": (run(Exit(code=150)), ""),
    "Ctrl-C": (run(Exit(signal=signal.SIGINT)), ""),
    "a reader that has enough": (run(Exit(signal=signal.SIGPIPE)), ""),
    "workers that their parent ends": (run(OK, child(end=TERMINATED)), ""),
    "terminated, not killed": (run(OK, child(end=TERMINATED), oom_kills=[counted()]), ""),
    "still running": (run(OK, **STILL), ""),
    "merged ranks": (run(KILLED, ranks=[RankRun(name="rank 0", start_s=0.0, duration_s=1.0)]), ""),
    "exception": (run(failures=[failure("memory")]), "allocation_failed certain"),
    "exception of a call": (run(failures=[failure("memory", fatal=False)]), "allocation_failed likely"),
    "exception without harm": (run(OK, failures=[failure("memory", fatal=False)]), ""),
    "exception of a child": (
        run(OK, child(end=FAILED, pid=7), failures=[failure("memory", pid=7)]),
        "allocation_failed certain",
    ),
    "memory before the disk": (run(failures=[failure("memory")], file_systems=[disk(0)]), "allocation_failed certain"),
    "address space alone": (run(memory_limits=[address_space(310)]), ""),
    "abort": (run(ABORTED, memory_limits=[address_space(310)]), "crashed certain"),
    "disk, by exception": (run(failures=[failure("disk")]), "disk_full certain"),
    "disk, by its room": (run(file_systems=[disk(50), disk(0.5)]), "disk_full likely"),
    "enough room": (run(file_systems=[disk(90)], totals={"write_chars": 20 * MIB}), ""),
    "success on a full disk": (run(OK, file_systems=[disk(0)]), ""),
    "full before": (run(file_systems=[disk(0, 0)]), ""),
    "a disk without room": (run(file_systems=[disk(0, 0, 0)]), ""),
    "other exception": (run(file_systems=[disk(0)], failures=[failure(None, error="ValueError")]), ""),
    "mapped file": (run(Exit(signal=signal.SIGBUS), file_systems=[disk(0)]), "disk_full likely"),
    "journal": (run(exit=None, finished=False, file_systems=[disk(0)]), "disk_full likely"),
    "ours": (run(TERMINATED, limit_reached=REACHED, memory_limits=[limit(310)]), "max_memory certain"),
    "our warning": (run(KILLED, limit_reached=replace(REACHED, action="warn"), totals=NO_KILLS), "killed certain"),
    "by log": (run(KILLED, kernel_kills=[logged()]), "out_of_memory certain"),
    "not in the log": (run(KILLED, oom_kills=[counted()], kernel_kills=[]), "killed certain"),
    "at another time": (run(KILLED, oom_kills=[counted(0.1, 0.2)], totals={"oom_kills": 1}), "out_of_memory possible"),
    "without a sampler": (
        run(KILLED, processes=[command(KILLED, end_s=None)], oom_kills=[counted(0.9, 0.9, 2)]),
        "out_of_memory certain",
    ),
    "others of the group": (run(OK, child(end=OK), oom_kills=[counted()]), ""),
    "its PID, used again": (run(OK, child(end=OK, pid=7), kernel_kills=[logged(pid=7)]), ""),
    "a child": (run(OK, child(), oom_kills=[counted()]), "out_of_memory certain"),
    "a small child that ended then": (run(OK, SMALL, oom_kills=[counted()]), ""),
    "and a failure": (run(FAILED, SMALL, oom_kills=[counted()]), "out_of_memory possible"),
    "counts unknown": (run(KILLED, memory_limits=[limit(310)], **LAST), "killed possible"),
    "counts unknown, memory left": (run(KILLED, memory_limits=[limit(900)]), "killed likely"),
    "a small helper": (run(OK, child(peak_rss=MIB), totals=NO_KILLS), ""),
    "a large worker": (run(OK, child(), totals=NO_KILLS), "killed certain"),
    "the command comes first": (run(SEGFAULT, child(), totals=NO_KILLS), "crashed certain"),
    "a child that crashed": (run(OK, child(end=SEGFAULT)), "crashed certain"),
    "a shell whose command crashed": (run(Exit(code=139)), "crashed possible"),
    "scheduler": (run(TERMINATED), "terminated certain"),
}
"""By case: a run; the cause of its death and its certainty, none without a verdict."""


@pytest.mark.parametrize("of, expected", CAUSES.values(), ids=CAUSES)
def test_cause(of: Session, expected: str) -> None:
    """Each way to die has a cause with its certainty; without a sign of the cause there is no verdict."""
    found = verdict(of, MemoryUnit.MiB)

    assert (f"{found.cause} {found.certainty}" if found else "") == expected


@pytest.mark.parametrize(
    "last, is_not",
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
