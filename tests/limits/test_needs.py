from __future__ import annotations

import os
import pathlib
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

from nncftools.journal.writing import ADDRESS_SPACE, DATA, THROTTLE
from nncftools.journal.writing import GROUP as CONTROL_GROUP
from nncftools.limits.needs import MACHINE as WHOLE_MACHINE
from nncftools.limits.needs import (
    MAX_MEMORY,
    Available,
    Effective,
    Needs,
    Requirement,
    Room,
    available,
    effective_limit,
    file_systems,
    needs,
    of_session,
    rooms,
    shortage,
)
from nncftools.render.session_tables import facts
from nncftools.session.model import Exit, FileRead, FileSystem, Floor, Host, LimitReached
from nncftools.units import MemoryUnit
from tests.limits.deaths import counted, failure, limit
from tests.made_up import MIB, mib, process, session
from tests.sampler.grouped import Machine

MEMINFO = "MemTotal:       16384 kB\nMemFree:         1024 kB\nMemAvailable:    8192 kB\n"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="control groups are of Linux")
IN_GROUP: tuple[Callable[..., None], ...] = (Machine.belongs_to_v1, Machine.belongs_to_v2)


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Machine:
    """Return a machine of 16 MiB with 8 MiB available."""
    made = Machine(tmp_path)
    (made.proc / "meminfo").write_text(MEMINFO)
    return made


@LINUX
def test_machine(machine: Machine) -> None:
    """Without a process, and without a group, only the machine counts."""
    assert {available(str(machine.proc), pid) for pid in (None, 7)} == {Available(8 * MIB, 16 * MIB)}


@LINUX
@pytest.mark.parametrize("belongs", IN_GROUP)
@pytest.mark.parametrize(
    "limit_mib, used_mib, expected",
    [(5, 2, (3, 5)), (0, 2, (None, None)), (2, 3, (0, 2))],
    ids=["limit", "no limit", "above the limit"],
)
def test_group(
    machine: Machine,
    belongs: Callable[..., None],
    limit_mib: int,
    used_mib: int,
    expected: tuple[float | None, float | None],
) -> None:
    """A group has what its limit leaves, which is nothing while it holds more."""
    belongs(machine, {"/job": limit_mib * MIB}, used=used_mib * MIB)
    found = available(str(machine.proc), 7)

    assert found == Available(8 * MIB, 16 * MIB, *mib(*expected))
    assert found.least == mib(8 if expected[0] is None else expected[0])[0]


@LINUX
@pytest.mark.parametrize("belongs", IN_GROUP)
def test_group_above(machine: Machine, belongs: Callable[..., None]) -> None:
    """A group above counts with all that is charged to it."""
    belongs(machine, {"/pod": 6 * MIB, "/pod/job": 5 * MIB}, used=2 * MIB)
    for name in ("memory.usage_in_bytes", "memory.current"):
        machine.charge("cg/pod", name, 5 * MIB)

    assert available(str(machine.proc), 7)[2:] == (MIB, 5 * MIB)


@LINUX
@pytest.mark.parametrize("belongs", IN_GROUP)
def test_cache_can_be_dropped(machine: Machine, belongs: Callable[..., None]) -> None:
    """Files of a group that are cached, and were not used for long, take nothing of what is available."""
    belongs(machine, {"/job": 5 * MIB}, used=4 * MIB)
    stat = machine.folder / "cg/job/memory.stat"
    stat.write_text(stat.read_text().replace("inactive_file 0", f"inactive_file {MIB}"))

    assert available(str(machine.proc), 7).group == 2 * MIB


@LINUX
def test_throttling(machine: Machine) -> None:
    """Memory above memory.high is not available: the kernel would slow the group down."""
    machine.belongs_to_v2({"/job": 5 * MIB}, used=2 * MIB)
    machine.charge("cg/job", "memory.high", 4 * MIB)

    assert available(str(machine.proc), 7)[2:] == (2 * MIB, 4 * MIB)


@LINUX
def test_available_unknown(tmp_path: pathlib.Path) -> None:
    """Where nothing can be read, nothing is known."""
    assert available(str(tmp_path), 7) == Available()
    assert Available().least is None


def test_smallest_of_all() -> None:
    """The run meets the smallest of the limits of groups, of its own, and of the machine first."""
    of = session(memory_limits=[limit(500), limit(400)], host=Host(memory=8 << 30))

    assert effective_limit(of) == Effective(CONTROL_GROUP, 400 * MIB, limit(400).set_by)
    of.limit_reached = LimitReached(at_s=0.5, rss=310 * MIB, limit=350 * MIB, action="warn")
    assert effective_limit(of) == Effective(MAX_MEMORY, 350 * MIB)
    assert effective_limit(session(host=Host(memory=8 << 30))) == Effective(WHOLE_MACHINE, 8 << 30)


def test_ignored() -> None:
    """Limits of address space do not count, nor those that the run clearly exceeded: RSS may exceed them a little."""
    limits = [limit(400, ADDRESS_SPACE), limit(400, DATA), limit(250), limit(290), limit(400, THROTTLE)]
    found = [effective_limit(session(memory_limits=[given])) for given in limits]

    assert [of is not None for of in found] == [
        False,
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("size, text", [(0, "0 %"), (7.6, "95 %"), (8, "100 %"), (9, "112 %"), (0.01, "less than 1 %")])
def test_share(size: float, text: str) -> None:
    """A share is in whole per cent."""
    assert Effective(CONTROL_GROUP, 8).share_text(size) == text


@pytest.fixture
def devices(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return devices by folder below ``tmp_path``, which is the working folder: add to it to mount one there."""
    mounted: dict[str, int] = {}
    real = pathlib.Path.stat

    class Facts:
        def __init__(self, of: os.stat_result, device: int) -> None:
            self.st_dev, self.st_mode = device, of.st_mode

    def stat(path: pathlib.Path, **options: bool) -> Facts:
        inside = [device for folder, device in mounted.items() if path.is_relative_to(tmp_path / folder)]
        return Facts(real(path, **options), inside[-1] if inside else 1)

    for folder in ("work", "tmp", "out", "data", "more"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(pathlib.Path, "stat", stat)
    return mounted


def file_systems_found(tmp_path: pathlib.Path, *words: str) -> str:
    """Return roles and folders for a command, whose recording is in ``out``."""
    found = file_systems(["work", *words], tmp_path / "out")
    return " ".join(f"{role}={pathlib.Path(folder).relative_to(tmp_path)}" for role, folder in found)


@pytest.mark.parametrize(
    "mounted, words, expected",
    [
        ("", "{}/data/model", "cwd=work"),
        ("tmp out data", "{}/data", "cwd=work TMPDIR=tmp output=out argument=data"),
        ("data more", "{0}/data/a --output={0}/more/b", "cwd=work argument=data argument-2=more"),
        ("data", "data --flag --size=3 https://host/data a/\0b", "cwd=work"),
        ("data", "/" + "x" * 5000, "cwd=work"),
        ("data", "-o{}/data/x", "cwd=work argument=data"),
        ("data", "a={}/data:b", "cwd=work argument=data"),
        ("data", "head</dev/zero>{}/data/new", "cwd=work argument=data"),
        ("work/models", "./models/new/int4", "cwd=work argument=work/models"),
    ],
    ids=["one", "roles", "arguments", "no paths", "too long", "-o", "a list", "for a shell", "relative"],
)
def test_file_systems(tmp_path: pathlib.Path, devices: dict[str, int], mounted: str, words: str, expected: str) -> None:
    """A file system counts once, in the first role that it has; a path that does not exist yet is in its folder's."""
    (tmp_path / "work/models").mkdir()
    devices.update({name: number for number, name in enumerate(mounted.split(), 2)})

    assert file_systems_found(tmp_path, *words.format(tmp_path).split()) == expected


def test_roles_that_share_one(tmp_path: pathlib.Path, devices: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Roles that had file systems of their own need the sum of a shared one, here with 5 free blocks of 100 bytes."""
    devices["data"] = 4
    real = os.statvfs("/")
    free = os.statvfs_result([real.f_bsize, 100, 10, 7, 5, *list(real)[5:]])
    monkeypatch.setattr(os, "statvfs", lambda _: free)
    used = {"cwd": 300, "TMPDIR": 700, "output": 10, "argument": 1, "argument-2": 2000}

    assert rooms(used, ["work", f"{tmp_path}/data"], tmp_path / "out") == [
        (str(tmp_path / "work"), 3010, 500),
        (str(tmp_path / "data"), 1, 500),
    ]
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)  # no folder for temporary files is usable
    assert file_systems_found(tmp_path) == "cwd=work"


FLOOR = Floor(size=250 * MIB, at_s=0.5, mapped=50 * MIB)


def found(**fields: Any) -> Needs:  # noqa: ANN401 — any field of a session
    """Return what a run needs that had, by default, a floor of 250 MiB at 0.5 s, and 50 MiB of mapped files."""
    result = needs(session(**{"floor": FLOOR, **fields}))
    assert result is not None
    return result


def test_unknown() -> None:
    """Without a floor nothing is known, and no report names anything."""
    assert needs(session()) is None
    assert all(row.cells[0].text != "Needs" for row in facts(session(), MemoryUnit.MiB).rows)


def test_floor() -> None:
    """The floor is what was sampled, and 2 % of what is mapped; with more, mapped files can be kept in memory."""
    assert found() == (251 * MIB, 0.5, 300 * MIB, False, False)


@pytest.mark.parametrize("size, rss, floor", [(250, 0, 291), (250, 330, 261), (310, 0, 341)])
def test_between_samples(size: int, rss: int, floor: int) -> None:
    """What a high-water mark proves above samples and the floor's reading counts as anonymous."""
    read = Floor(size=size * MIB, at_s=0.5, mapped=50 * MIB, rss=rss * MIB)
    assert found(floor=read, processes=[process(high_water_mark=340 * MIB)]).floor == floor * MIB


@pytest.mark.parametrize("read_mib, comfortable_mib", [(None, 400), (500, 400), (60, 360)])
def test_files(read_mib: int | None, comfortable_mib: int) -> None:
    """Files that were read count with their sizes, but with no more than was read."""
    files = [FileRead(path="/a", size=70 * MIB), FileRead(path="/b", size=30 * MIB)]
    totals = {"read_chars": None if read_mib is None else read_mib * MIB}

    assert found(files_read=files, totals=totals).comfortable == comfortable_mib * MIB


@pytest.mark.parametrize(
    "fields, is_bound",
    [
        ({}, False),
        ({"exit": Exit(code=3)}, False),
        ({"exit": Exit(signal=9)}, True),
        ({"exit": None}, True),
        ({"finished": False}, True),
        ({"exit": Exit(code=1), "failures": [failure("memory")]}, True),
        ({"exit": Exit(code=0), "oom_kills": [counted()]}, True),
        ({"totals": {"refaults": 900 * MIB, "memory_stall": 2.0}}, False),
    ],
)
def test_cut_short(fields: dict[str, Any], is_bound: bool) -> None:  # noqa: FBT001 — parametrized
    """A run that did not end by itself would have needed more; where files were dropped, more is comfortable."""
    assert found(**fields)[3:] == (is_bound, "totals" in fields)


@pytest.mark.parametrize(
    "of, unit, text",
    [
        (Needs(1 << 30, 1, 2 << 30), "MiB", "a limit of at least 1,024 MiB; with 2,048 MiB no file is read twice"),
        (Needs(1055 * MIB, 1, 1055 * MIB + 4096), "MiB", "a limit of at least 1,055 MiB"),
        (Needs(1055 * MIB, 1, 1312 * MIB, is_bound=True), "MiB", "more than 1,055 MiB"),
        (
            Needs(6 << 30, 1, 7 << 30, is_short=True),
            "GiB",
            "a limit of at least 6.00 GiB; more than 7.00 GiB to read no file twice",
        ),
    ],
)
def test_text(of: Needs, unit: str, text: str) -> None:
    """It is told in the view's unit, without needless digits."""
    assert of.text(MemoryUnit(unit)) == text


GIB = 2**30
MACHINE = Available(8 * GIB, 16 * GIB)
GROUP = Available(8 * GIB, 16 * GIB, 2 * GIB, 4 * GIB)


def test_memory_and_disks() -> None:
    """A command needs its floor, and of each disk what this had less during the run."""
    disks = [
        FileSystem(role="cwd", size=9 * GIB, first=7 * GIB, lowest=5 * GIB, last=6 * GIB),
        FileSystem(role="output", size=9 * GIB, first=GIB, lowest=GIB, last=GIB),
        FileSystem(role="TMPDIR"),
    ]
    of = session(floor=Floor(size=GIB, at_s=0.5), file_systems=disks)

    assert of_session(of) == Requirement(GIB, {"cwd": 2 * GIB})


def test_shortage() -> None:
    """The control group may have less than the machine; disks are named by a folder, only those with too little."""
    rooms = [Room("/home", GIB, 9 * GIB), Room("/tmp", 3 * GIB, GIB)]

    assert shortage(3 * GIB, rooms, GROUP) == (
        "3 GiB of memory is needed, 2 GiB is available (machine: 8 of 16 GiB, control group: 2 of 4 GiB); "
        "3 GiB of disk at '/tmp' is needed, 1 GiB is free"
    )


def test_nearly_fits() -> None:
    """Sizes that read the same are written with more digits."""
    assert "8,193.0 MiB of memory is needed, 8,192.0 MiB is available" in shortage(8 * GIB + MIB, [], MACHINE)
