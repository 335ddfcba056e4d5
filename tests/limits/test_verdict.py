from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

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


@pytest.mark.parametrize("at_s, expected", [(1.0, (0.5, 200 * MIB)), (0.25, (0.0, 100 * MIB)), (0.0, (None, 0))])
def test_sample_before(at_s: float, expected: tuple[float | None, int]) -> None:
    """The sample at the moment itself does not count: what died is gone in it."""
    state = last_state(run(), at_s)

    assert (state.at_s, state.rss) == expected


def test_growth() -> None:
    """The growth is that of the last half second, and of at least three samples."""
    assert [last_state(run(), at_s).growth_per_s for at_s in (1.0, 2.0)] == [None, 200 * MIB]


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


def job(ends: str, machines: Sequence[str] = ("box",)) -> Session:
    """Return a job from a text such as ``3:-15 2:7 2:?``: when its ranks ended, with which signal or status."""
    runs = []
    for number, words in enumerate(ends.split()):
        at_s, _, status = words.partition(":")
        end = None
        if status != "?":
            end = Exit(signal=-int(status)) if status.startswith("-") else Exit(code=int(status))
        host = Host(boot_id=machines[number % len(machines)])
        duration_s = float(at_s) - 0.5
        runs.append(RankRun(name=f"rank {number}", host=host, start_s=0.5, duration_s=duration_s, exit=end))
    return session(ranks=runs)


def judged(of: Session) -> str:
    """Return the last words of the text, the certainty and the evidence; nothing without a verdict."""
    found = verdict(of, MemoryUnit.MiB)
    if found is None:
        return ""
    return "; ".join((found.text.partition(" was ")[2], found.certainty, *found.evidence))


FOLLOWED, MORE = "killed by SIGTERM, 1.00 s later", "2 more ranks failed after that"


@pytest.mark.parametrize(
    "ends, machines, expected",
    [
        ("3:-15 2:3", ["box"], f"rank 1: exit status 3; certain; rank 0: {FOLLOWED}"),
        ("2:-15 2:3", ["box"], "rank 1: exit status 3; likely; rank 0: killed by SIGTERM, 0.000 s later"),
        (
            "1:3 2:-15 2:-15 2:-15 2:-15 2:-15",
            ["box"],
            f"rank 0: exit status 3; certain; rank 1: {FOLLOWED}; rank 2: {FOLLOWED}; rank 3: {FOLLOWED}; {MORE}",
        ),
        ("1:3 2:0", ["box"], "rank 0: exit status 3; certain"),
        ("2:-15 2.01:-15", ["box"], "rank 0: killed by SIGTERM; likely; rank 1: killed by SIGTERM, 0.010 s later"),
        ("2:3 3:-15", ["box", "other"], f"rank 0: exit status 3; likely; rank 1: {FOLLOWED}"),
        ("1:0 2:?", ["box"], ""),
    ],
    ids=[
        *("one followed", "at the same moment, one by itself", "many followed", "alone", "all at once"),
        *("clocks of two machines", "none failed"),
    ],
)
def test_first_rank_that_failed(ends: str, machines: list[str], expected: str) -> None:
    """The first rank that failed is named, and some that followed; what ends at once may have a common reason."""
    assert judged(job(ends, machines)) == expected


@pytest.mark.parametrize(
    "cause, name, expected",
    [(Cause.TERMINATED, "rank 0", True), (Cause.TERMINATED, "rank 1", False), (Cause.ALLOCATION, "rank 0", False)],
)
def test_consequence(cause: str, name: str, *, expected: bool) -> None:
    """That a later rank was ended is no cause; that it had no memory is one, and so is how the first one ended."""
    found = Verdict(cause=cause, certainty="certain", text="", at_s=0.0, state=UNKNOWN)

    assert is_consequence(found, name, job("3:-15 2:3")) is expected


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

    def test_reasons(self, asked: list[set[int]]) -> None:
        """Nothing was killed: no reason. A rise of a group's count is a reason: children may have ended unseen."""
        for end in (Exit(code=0), Exit(signal=signal.SIGTERM)):
            take_kernel_log(run(end))
        assert asked == []

        take_kernel_log(run(Exit(code=0), oom_kills=[counted()]))
        assert len(asked) == 1


class TestCounts:
    def test_after_the_sampler(self, tmp_path: Path) -> None:
        """What the count of a group rose after the last one that the sampler saw happened after its last sample."""
        (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n")
        group = ControlGroup(folder=str(tmp_path), oom_kills=4)
        session = run(KILLED, control_groups=[group], oom_kills=[counted()], duration_s=1.2)
        session.oom_kills = [rise for rise in session.oom_kills if rise.group == str(tmp_path)]
        take_counts(session)

        assert [(rise.from_s, rise.to_s, rise.count) for rise in session.oom_kills] == [(1.0, 1.2, 3)]

    def test_group_that_is_gone(self, tmp_path: Path) -> None:
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


def log(folder: Path, *texts: str, at_us: int = 100_500_000) -> str:
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
    monkeypatch.setattr(verdict_module, "_FIRST_NAMESPACE", Path("/proc/self/ns/pid").stat().st_ino)


def test_log_of_another_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container the log is unknown: the PIDs in it are not those of the container."""
    monkeypatch.setattr(verdict_module, "_FIRST_NAMESPACE", 1)

    assert kernel_kills({4711}, SINCE_NS, log(tmp_path, CHOSEN)) is None


@pytest.mark.usefixtures("first_namespace")
def test_of_a_group(tmp_path: Path) -> None:
    """A victim has the group whose limit was reached, and what it held."""
    path = log(tmp_path, CHOSEN, f"Memory cgroup out of memory: {HELD}")

    assert found(path, 4711) == [
        KernelKill(pid=4711, name="my (odd) name", group="/job", anon=2 << 20, file=1 << 20, shmem=4096)
    ]


@pytest.mark.usefixtures("first_namespace")
@pytest.mark.parametrize(
    "texts, at_us, groups",
    [
        ([OF_MACHINE, f"Out of memory: {HELD}"], 100_500_000, [None]),
        ([f"Memory cgroup out of memory: {HELD}"], 100_500_000, [""]),
        ([f"Out of memory: {HELD.replace('4711', '4712')}"], 100_500_000, []),
        ([f"Out of memory: {HELD}"], 90_000_000, []),
    ],
    ids=["machine", "group without a name", "another process", "before the run"],
)
def test_victims(tmp_path: Path, texts: list[str], at_us: int, groups: list[str | None]) -> None:
    """Victims of the run have the group whose limit was reached; None is the machine."""
    assert [kill.group for kill in found(log(tmp_path, *texts, at_us=at_us), 4711)] == groups


def test_unreadable(tmp_path: Path) -> None:
    """Without permission nothing is known."""
    assert kernel_kills({4711}, SINCE_NS, str(tmp_path / "missing")) is None


@pytest.mark.usefixtures("first_namespace")
def test_other_records(tmp_path: Path) -> None:
    """Records of other kinds, and broken ones, are passed over."""
    path = tmp_path / "kmsg"
    path.write_text("nothing\n6,1;short\n6,2,x,-;text\n")

    assert found(str(path), 4711) == []
