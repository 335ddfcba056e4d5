from __future__ import annotations

import pathlib

from nncftools.limits.aftermath import kernel_kills
from nncftools.session.model import KernelKill

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
