from __future__ import annotations

import pathlib
import signal

import pytest

from nncftools.limits import aftermath
from nncftools.limits.aftermath import kernel_kills
from nncftools.session.model import ControlGroup, Exit, KernelKill
from tests.limits.deaths import KILLED, counted, logged, run


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """Return the PIDs for which the kernel's log was read."""
    pids: list[set[int]] = []

    def kernel_kills(of: set[int], _: int) -> list[KernelKill]:
        pids.append(of)
        return [logged()]

    monkeypatch.setattr(aftermath, "kernel_kills", kernel_kills)
    return pids


class TestKernelLog:
    def test_after_a_sigkill(self, asked: list[set[int]]) -> None:
        """The log is asked about all processes of a run in which one was killed."""
        session = run(KILLED)
        aftermath.take_kernel_log(session)

        assert (session.kernel_kills, asked) == ([logged()], [{100}])

    @pytest.mark.parametrize("end", [Exit(code=0), Exit(signal=signal.SIGTERM)])
    def test_not_without_a_reason(self, asked: list[set[int]], end: Exit) -> None:
        """It is not read when nothing was killed."""
        aftermath.take_kernel_log(run(end))

        assert asked == []

    def test_after_a_rise(self, asked: list[set[int]]) -> None:
        """A rise of a group's count is a reason, too: an ordinary user does not see how children ended."""
        aftermath.take_kernel_log(run(Exit(code=0), oom_kills=[counted()]))

        assert len(asked) == 1


class TestCounts:
    def test_after_the_sampler(self, tmp_path: pathlib.Path) -> None:
        """What the count of a group rose after the last one that the sampler saw happened after its last sample."""
        (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n")
        group = ControlGroup(folder=str(tmp_path), oom_kills=4)
        session = run(KILLED, control_groups=[group], oom_kills=[counted()], duration_s=1.2)
        session.oom_kills = [rise for rise in session.oom_kills if rise.group == str(tmp_path)]
        aftermath.take_counts(session)

        assert [(rise.from_s, rise.to_s, rise.count) for rise in session.oom_kills] == [(1.0, 1.2, 3)]

    def test_group_that_is_gone(self, tmp_path: pathlib.Path) -> None:
        """A group that was removed says nothing."""
        session = run(KILLED, control_groups=[ControlGroup(folder=str(tmp_path / "gone"), oom_kills=0)])
        aftermath.take_counts(session)

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


def test_of_a_group(tmp_path: pathlib.Path) -> None:
    """A victim has the group whose limit was reached, and what it held."""
    path = log(tmp_path, CHOSEN, f"Memory cgroup out of memory: {HELD}")

    assert found(path, 4711) == [
        KernelKill(pid=4711, name="my (odd) name", group="/job", anon=2 << 20, file=1 << 20, shmem=4096)
    ]


def test_of_the_machine(tmp_path: pathlib.Path) -> None:
    """When the machine was out of memory, there is no group."""
    assert found(log(tmp_path, OF_MACHINE, f"Out of memory: {HELD}"), 4711)[0].group is None


def test_group_without_a_name(tmp_path: pathlib.Path) -> None:
    """The second line alone says that it was a group."""
    assert found(log(tmp_path, f"Memory cgroup out of memory: {HELD}"), 4711)[0].group == ""


def test_others(tmp_path: pathlib.Path) -> None:
    """Victims that are not of the run are left out."""
    assert found(log(tmp_path, CHOSEN, f"Memory cgroup out of memory: {HELD}"), 4712) == []


def test_earlier(tmp_path: pathlib.Path) -> None:
    """So are victims from before the run, whose PID a process of the run may have."""
    assert found(log(tmp_path, f"Out of memory: {HELD}", at_us=90_000_000), 4711) == []


def test_unreadable(tmp_path: pathlib.Path) -> None:
    """Without permission nothing is known."""
    assert kernel_kills({4711}, SINCE_NS, str(tmp_path / "missing")) is None


def test_other_records(tmp_path: pathlib.Path) -> None:
    """Records of other kinds, and broken ones, are passed over."""
    path = tmp_path / "kmsg"
    path.write_text("nothing\n6,1;short\n6,2,x,-;text\n")

    assert found(str(path), 4711) == []
