from __future__ import annotations

import pathlib
import signal

import pytest

from nncftools.analysis.session import Session
from nncftools.limits import verdict as verdict_module
from nncftools.limits.judges import is_consequence, verdict
from nncftools.limits.verdict import (
    UNKNOWN,
    Cause,
    Verdict,
    kernel_kills,
    last_state,
    take_counts,
    take_kernel_log,
)
from nncftools.session.model import ControlGroup, Exit, Host, KernelKill, RankRun
from nncftools.units import MemoryUnit
from tests import made_up
from tests.limits.deaths import KILLED, child, counted, logged, run
from tests.made_up import MIB, marks, mib, session


@pytest.mark.parametrize(("at_s", "expected"), [(1.0, (0.5, 200 * MIB)), (0.25, (0.0, 100 * MIB)), (0.0, (None, 0))])
def test_sample_before(at_s: float, expected: tuple[float | None, int]) -> None:
    """The sample at the moment itself does not count: what died is gone in it."""
    state = last_state(run(), at_s)

    assert (state.at_s, state.rss) == expected


def test_growth() -> None:
    """The growth is that of the last half second, and of at least three samples."""
    assert last_state(run(), 2.0).growth_per_s == 200 * MIB
    assert last_state(run(), 1.0).growth_per_s is None


def test_unknown_samples() -> None:
    """Samples without a value are passed over."""
    session = made_up.session({"rss": mib(100, 200, None, None)})

    assert last_state(session, 9.0).at_s == pytest.approx(0.5)


def test_largest_processes() -> None:
    """Processes that lived then are listed, the largest first, at most three."""
    others = [child(number, peak_rss=number * MIB, end_s=end_s) for number, end_s in ((1, 0.2), (2, 0.9), (3, 1.0))]
    state = last_state(run(made_up.Exit(code=0), *others), 1.0)

    assert [process.id for process in state.largest] == [0, 3, 2]


def test_operations() -> None:
    """The operations that ran are named, the outermost first."""
    operations = marks("Export 0.1-1, Export/Load 0.2-0.3, Export/Compress 0.6-1")

    assert last_state(run(marks=operations), 0.9).operation == "Export › Compress"


DONE, FAILED, ENDED = Exit(code=0), Exit(code=3), Exit(signal=15)


def job(*ends: tuple[float, Exit | None], machines: tuple[str, ...] = ("box",)) -> Session:
    """Return a job whose ranks ended at these moments in these ways."""
    runs = [
        RankRun(
            name=f"rank {number}",
            host=Host(boot_id=machines[number % len(machines)]),
            start_s=0.5,
            duration_s=at_s - 0.5,
            exit=exit_,
        )
        for number, (at_s, exit_) in enumerate(ends)
    ]
    return session(ranks=runs)


def judged(of: Session) -> tuple[str, str, list[str]] | None:
    """Return text, certainty and evidence."""
    found = verdict(of, MemoryUnit.MiB)
    return None if found is None else (found.text, found.certainty, list(found.evidence))


def test_ended_after_another_had_failed() -> None:
    """The first one that failed is named, and what followed."""
    expected = "the first rank that failed was rank 1: exit status 3"

    assert judged(job((3.0, ENDED), (2.0, FAILED))) == (
        expected,
        "certain",
        ["rank 0: killed by SIGTERM, 1.00 s later"],
    )


def test_many_that_followed() -> None:
    """Of many ranks, the first few are named."""
    found = judged(job((1.0, FAILED), *((2.0, ENDED) for _ in range(5))))

    assert found is not None
    assert found[2][0].startswith("rank 1: ")
    assert found[2][3:] == ["2 more ranks failed after that"]


@pytest.mark.parametrize(
    ("of", "certainty"),
    [
        (job((1.0, FAILED), (2.0, DONE)), "certain"),
        (job((2.0, ENDED), (2.01, ENDED)), "likely"),
        (job((2.0, FAILED), (3.0, ENDED), machines=("box", "other")), "likely"),
    ],
    ids=["alone", "all at once", "clocks of two machines"],
)
def test_how_sure(of: Session, certainty: str) -> None:
    """Ranks that end at once may do so for a common reason, and clocks of several machines may differ."""
    found = judged(of)

    assert found is not None
    assert found[1] == certainty


def test_none_failed() -> None:
    """There is no verdict on a job whose ranks did what they should, or whose ends are unknown."""
    assert judged(job((1.0, DONE), (2.0, None))) is None


def test_by_itself_at_the_same_moment() -> None:
    """Of ranks that ended at the same moment, one that ended by itself comes first."""
    found = judged(job((2.0, ENDED), (2.0, FAILED)))

    assert found is not None
    assert found[0].endswith("rank 1: exit status 3")


@pytest.mark.parametrize(
    ("cause", "name", "expected"),
    [(Cause.TERMINATED, "rank 0", True), (Cause.TERMINATED, "rank 1", False), (Cause.ALLOCATION, "rank 0", False)],
)
def test_consequence(cause: str, name: str, *, expected: bool) -> None:
    """That a later rank was ended is no cause; that it had no memory is one, and so is how the first one ended."""
    found = Verdict(cause=cause, certainty="certain", text="", at_s=0.0, state=UNKNOWN)

    assert is_consequence(found, name, job((3.0, ENDED), (2.0, FAILED))) is expected


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """Return the PIDs for which the kernel's log was read."""
    pids: list[set[int]] = []

    def kernel_kills(of: set[int], _: int) -> list[KernelKill]:
        pids.append(of)
        return [logged()]

    monkeypatch.setattr("nncftools.limits.verdict.kernel_kills", kernel_kills)
    return pids


class TestKernelLog:
    def test_after_a_sigkill(self, asked: list[set[int]]) -> None:
        """The log is asked about all processes of a run in which one was killed."""
        session = run(KILLED)
        take_kernel_log(session)

        assert (session.kernel_kills, asked) == ([logged()], [{100}])

    @pytest.mark.parametrize("end", [Exit(code=0), Exit(signal=signal.SIGTERM)])
    def test_not_without_a_reason(self, asked: list[set[int]], end: Exit) -> None:
        """It is not read when nothing was killed."""
        take_kernel_log(run(end))

        assert asked == []

    def test_after_a_rise(self, asked: list[set[int]]) -> None:
        """A rise of a group's count is a reason, too: an ordinary user does not see how children ended."""
        take_kernel_log(run(Exit(code=0), oom_kills=[counted()]))

        assert len(asked) == 1


class TestCounts:
    def test_after_the_sampler(self, tmp_path: pathlib.Path) -> None:
        """What the count of a group rose after the last one that the sampler saw happened after its last sample."""
        (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n")
        group = ControlGroup(folder=str(tmp_path), oom_kills=4)
        session = run(KILLED, control_groups=[group], oom_kills=[counted()], duration_s=1.2)
        session.oom_kills = [rise for rise in session.oom_kills if rise.group == str(tmp_path)]
        take_counts(session)

        assert [(rise.from_s, rise.to_s, rise.count) for rise in session.oom_kills] == [(1.0, 1.2, 3)]

    def test_group_that_is_gone(self, tmp_path: pathlib.Path) -> None:
        """A group that was removed says nothing."""
        session = run(KILLED, control_groups=[ControlGroup(folder=str(tmp_path / "gone"), oom_kills=0)])
        take_counts(session)

        assert session.oom_kills == []


SINCE_NS = 100 * 10**9
CHOSEN = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job,"
    "task_memcg=/job/step,task=python3,pid=4711,uid=0"
)
OF_MACHINE = (
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
    "task_memcg=/user,task=python3,pid=4711,uid=1000"
)
HELD = "Killed process 4711 (my (odd) name) total-vm:112168kB, anon-rss:2048kB, file-rss:1024kB, shmem-rss:4kB, UID:0"


def log(folder: pathlib.Path, *texts: str, at_us: int = 100_500_000) -> str:
    """Write records as ``/dev/kmsg`` gives them; return the path."""
    path = folder / "kmsg"
    path.write_text("".join(f"6,{number},{at_us},-;{text}\n" for number, text in enumerate(texts)))
    return str(path)


def found(path: str, *pids: int) -> list[KernelKill]:
    """Return the victims among the PIDs."""
    victims = kernel_kills(set(pids), SINCE_NS, path)
    assert victims is not None
    return victims


@pytest.fixture
def first_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this test's PID namespace be the machine's first: the log names PIDs of the first one."""
    monkeypatch.setattr(verdict_module, "_FIRST_NAMESPACE", pathlib.Path("/proc/self/ns/pid").stat().st_ino)


def test_log_of_another_namespace(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container the log is unknown: the PIDs in it are not those of the container."""
    monkeypatch.setattr(verdict_module, "_FIRST_NAMESPACE", 1)

    assert kernel_kills({4711}, SINCE_NS, log(tmp_path, CHOSEN)) is None


@pytest.mark.usefixtures("first_namespace")
def test_of_a_group(tmp_path: pathlib.Path) -> None:
    """A victim has the group whose limit was reached, and what it held."""
    path = log(tmp_path, CHOSEN, f"Memory cgroup out of memory: {HELD}")

    assert found(path, 4711) == [
        KernelKill(pid=4711, name="my (odd) name", group="/job", anon=2 << 20, file=1 << 20, shmem=4096)
    ]


@pytest.mark.usefixtures("first_namespace")
@pytest.mark.parametrize(
    ("texts", "at_us", "groups"),
    [
        ([OF_MACHINE, f"Out of memory: {HELD}"], 100_500_000, [None]),
        ([f"Memory cgroup out of memory: {HELD}"], 100_500_000, [""]),
        ([f"Out of memory: {HELD.replace('4711', '4712')}"], 100_500_000, []),
        ([f"Out of memory: {HELD}"], 90_000_000, []),
    ],
    ids=["machine", "group without a name", "another process", "before the run"],
)
def test_victims(tmp_path: pathlib.Path, texts: list[str], at_us: int, groups: list[str | None]) -> None:
    """Victims of the run have the group whose limit was reached; None is the machine."""
    assert [kill.group for kill in found(log(tmp_path, *texts, at_us=at_us), 4711)] == groups


def test_unreadable(tmp_path: pathlib.Path) -> None:
    """Without permission nothing is known."""
    assert kernel_kills({4711}, SINCE_NS, str(tmp_path / "missing")) is None


@pytest.mark.usefixtures("first_namespace")
def test_other_records(tmp_path: pathlib.Path) -> None:
    """Records of other kinds, and broken ones, are passed over."""
    path = tmp_path / "kmsg"
    path.write_text("nothing\n6,1;short\n6,2,x,-;text\n")

    assert found(str(path), 4711) == []
