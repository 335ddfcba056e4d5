from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nncftools.journal.writing import GROUP, THROTTLE
from nncftools.sampler.control_groups import ControlGroup, Hierarchies, LimitWatch
from nncftools.sampler.tree import PAGE
from tests.sampler.fake_proc import Told
from tests.sampler.grouped import V1, V2, Machine

MIB = 2**20
Belongs = Callable[..., None]
BOTH: tuple[Belongs, ...] = (Machine.belongs_to_v1, Machine.belongs_to_v2)
LIMIT_FILES = {Machine.belongs_to_v1: "memory.limit_in_bytes", Machine.belongs_to_v2: "memory.max"}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine without mounted control groups."""
    return Machine(tmp_path)


def group(machine: Machine) -> ControlGroup:
    """Return the group of process 7."""
    found = Hierarchies(str(machine.proc)).group_of(7)
    assert found is not None
    return found


class TestLimits:
    @pytest.mark.parametrize("belongs", BOTH)
    @pytest.mark.parametrize(
        "limits, limited",
        [
            pytest.param({"/job": 5 * MIB}, ["/job"], id="own"),
            pytest.param({"/pod": 8 * MIB, "/pod/a": 5 * MIB, "/pod/a/job": 0}, ["/pod/a"], id="above"),
            pytest.param({"/pod": 8 * MIB, "/pod/a": 5 * MIB, "/pod/a/job": 9 * MIB}, ["/pod/a"], id="smallest"),
            pytest.param({"/job": 0}, [], id="none"),
        ],
    )
    def test_limits(self, machine: Machine, belongs: Belongs, limits: dict[str, int], limited: list[str]) -> None:
        """The smallest limit of the group and of all groups above counts, and is named with its file."""
        belongs(machine, limits)
        files = [f"{machine.folder}/cg{path}/{LIMIT_FILES[belongs]}" for path in limited]

        assert group(machine).limits() == [(GROUP, 5 * MIB, file) for file in files]

    def test_above_what_is_mounted(self, machine: Machine) -> None:
        """Version 1 knows a limit above the part of the hierarchy that a container sees."""
        machine.belongs("4:memory:/docker/abc")
        machine.mount("cgroup", "memory", root="/docker/abc")
        machine.charge("cg", V1, 0)
        machine.charge("cg", "memory.limit_in_bytes", 9 * MIB)
        machine.charge("cg", "memory.stat", f"cache 1\nhierarchical_memory_limit {5 * MIB}\nrss 1")

        assert group(machine).limits() == [(GROUP, 5 * MIB, f"above {machine.folder}/cg")]

    def test_throttling(self, machine: Machine) -> None:
        """Version 2 has a limit above which it only slows down: the smallest one of each kind counts."""
        machine.belongs_to_v2({"/pod": 8 * MIB, "/pod/job": 6 * MIB})
        machine.charge("cg/pod", "memory.high", 4 * MIB)
        machine.charge("cg/pod/job", "memory.high", 5 * MIB)
        cg = machine.folder / "cg"

        assert group(machine).limits() == [
            (GROUP, 6 * MIB, f"{cg}/pod/job/memory.max"),
            (THROTTLE, 4 * MIB, f"{cg}/pod/memory.high"),
        ]

    @pytest.mark.parametrize("belongs", BOTH)
    def test_group_that_is_gone(self, machine: Machine, belongs: Belongs) -> None:
        """A group that was removed has no limits and no counts."""
        belongs(machine, {"/job": 5 * MIB})
        found = group(machine)
        for file in (machine.folder / "cg/job").iterdir():
            file.unlink()

        assert (found.limits(), found.oom_kills(), found.used(), found.available()) == ([], None, None, None)


@pytest.mark.parametrize(
    "belongs, statistics, used",
    [
        (Machine.belongs_to_v1, f"inactive_file 1\ntotal_inactive_file {2 * MIB}", 3 * MIB),
        (Machine.belongs_to_v2, f"anon 0\ninactive_file {2 * MIB}", 3 * MIB),
        (Machine.belongs_to_v1, "", 5 * MIB),
        (Machine.belongs_to_v2, "", 5 * MIB),
    ],
    ids=["version 1 with groups below", "version 2", "version 1 without statistics", "version 2 without statistics"],
)
def test_used(machine: Machine, belongs: Belongs, statistics: str, used: int) -> None:
    """Files that were not used for long do not count: the kernel drops these first."""
    belongs(machine, {"/job": 0}, used=5 * MIB)
    machine.charge("cg/job", "memory.stat", statistics)

    assert group(machine).used() == used


@pytest.mark.parametrize(
    "belongs, file, text, kills",
    [
        (Machine.belongs_to_v1, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3", 3),
        (Machine.belongs_to_v2, "memory.events", "oom 9\noom_kill 3\noom_group_kill 9", 3),
        (Machine.belongs_to_v1, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0", None),
    ],
    ids=["version 1", "version 2", "before Linux 4.13"],
)
def test_oom_kills(machine: Machine, belongs: Belongs, file: str, text: str, kills: int | None) -> None:
    """How many processes were killed is the number beside ``oom_kill``."""
    belongs(machine, {"/job": 0})
    machine.charge("cg/job", file, text)

    assert group(machine).oom_kills() == kills


def test_by_content(machine: Machine) -> None:
    """A group is found by the content of a process's cgroup file; what is not in its format names none."""
    machine.belongs_to_v2({"/a:b/job": 0})
    hierarchies = Hierarchies(str(machine.proc))
    found = hierarchies.group_named(b"3:cpu:/x\n0::/a:b/job\n")

    assert found is not None
    assert found.usage_file == f"{machine.folder}/cg/a:b/job/{V2}"
    assert hierarchies.group_named(b"") is None
    assert hierarchies.group_named(b"hello\n\n0:\n") is None


PAGES = MIB // PAGE
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max data size             {data:<20} unlimited            bytes
Max address space         {space:<20} unlimited            bytes
Max locked memory         65536                65536                bytes
"""


class FakeProcess:
    """A process on a machine; it reads the files that it has."""

    def __init__(self, machine: Machine, number: int = 3) -> None:
        self._folder = machine.proc / "7"
        self.number = number
        self.rss = PAGES
        self.limit()

    def limit(self, *, data: str = "unlimited", space: str = "unlimited") -> None:
        """Set its limits."""
        (self._folder / "limits").write_text(LIMITS.format(data=data, space=space))

    def read(self, file: str) -> bytes:
        """Return the content of a file. Raises OSError."""
        return (self._folder / file).read_bytes()


class Watched:
    """A watch, its machine, and what it told."""

    def __init__(self, folder: Path) -> None:
        self.machine = Machine(folder)
        self.machine.belongs_to_v2({"/job": 500 * MIB})
        self.told: Told = []
        self.watch: Any = LimitWatch(str(self.machine.proc), lambda *line: self.told.append(line))

    def lines(self, key: str) -> list[Any]:
        """Return the values of the lines with a key."""
        return [value for name, value in self.told if name == key]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    """Return a watch on a machine where process 7 is in a group with a limit of 500 MiB."""
    return Watched(tmp_path)


def test_limits_are_written_once(watched: Watched) -> None:
    """Limits of a process are written with the process that was seen with them first; soft limits are in force."""
    processes = [FakeProcess(watched.machine), FakeProcess(watched.machine, number=4)]
    processes[0].limit(data="1000", space="2000")
    watched.watch.look(processes)
    folder = f"{watched.machine.folder}/cg/job"

    assert watched.lines("group") == [{"folder": folder, "oom_kills": 0, "process": 3}]
    *of_process, of_group = watched.lines("memory_limit")
    assert [(line["kind"], line["size"]) for line in of_process] == [("RLIMIT_DATA", 1000), ("RLIMIT_AS", 2000)]
    of_file = {"kind": "control group", "size": 500 * MIB, "set_by": f"{folder}/memory.max", "process": 3}
    assert of_group == of_file


def test_process_that_ended(watched: Watched) -> None:
    """A process whose files are gone has no limits; one that was forgotten may end again."""
    process = FakeProcess(watched.machine)
    (watched.machine.proc / "7/cgroup").unlink()
    watched.watch.look([process])
    watched.watch.ended(process)
    watched.watch.ended(process)

    assert watched.told == []


def test_kills(watched: Watched) -> None:
    """A rise of a group's count is written with the checks before and after, until the group is removed."""
    for at_s, kills in enumerate(("oom_kill 2", "oom_kill 2", "oom_kill 5", "oom_kill 5", "")):
        watched.machine.charge("cg/job", "memory.events", kills)
        watched.watch.look([FakeProcess(watched.machine)])
        watched.watch.check(float(at_s))

    assert watched.lines("oom_kills") == [
        {"group": f"{watched.machine.folder}/cg/job", "from_s": 1.0, "to_s": 2.0, "count": 3}
    ]
