from __future__ import annotations

import os
import pathlib
import time
from typing import Any

import pytest

from nncftools.journal.writing import Plan
from nncftools.sampler.occasional import FilesRead, Occasional
from nncftools.sampler.probes import OCCASIONAL
from nncftools.sampler.probes.machine import FreeSpace
from tests import waiting
from tests.sampler.fake_proc import Told

MIB = 2**20


class Reader:
    """A process with open files."""

    def __init__(self, folder: pathlib.Path, rss: int = 1) -> None:
        self.path = str(folder)
        self.rss = rss
        (folder / "fd").mkdir(parents=True)
        (folder / "fdinfo").mkdir()

    def open(self, number: int, target: pathlib.Path | str, flags: int = os.O_RDONLY) -> None:
        """Open a file, which may be gone by now."""
        folder = pathlib.Path(self.path)
        (folder / f"fd/{number}").symlink_to(target)
        (folder / f"fdinfo/{number}").write_text(f"pos:\t0\nflags:\t0{flags | os.O_CLOEXEC:o}\nmnt_id:\t1\n")


class Watched:
    """A watch, and what it told."""

    def __init__(self) -> None:
        self.told: Told = []
        self.files: Any = FilesRead(lambda *line: self.told.append(line))

    def watch(self, read: float, *processes: Reader) -> list[tuple[str, int]]:
        """Look, and return the files that were new."""
        before = len(self.told)
        self.files.watch(read, processes)
        waiting.until(lambda: not self.files._running)
        self.files.write()
        return [file for _, line in self.told[before:] for file in line["files"]]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Return a watch; looking costs nothing."""
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)
    return Watched()


@pytest.fixture
def reader(tmp_path: pathlib.Path) -> Reader:
    """Return a process without open files."""
    return Reader(tmp_path / "7")


def weights(folder: pathlib.Path, size: int = 100) -> pathlib.Path:
    """Write a file."""
    file = folder / f"weights-{size}.bin"
    file.write_bytes(bytes(size))
    return file


def test_files_that_are_read(tmp_path: pathlib.Path, watched: Watched, reader: Reader) -> None:
    """Regular files that are open for reading count with path and size."""
    reader.open(3, weights(tmp_path, 100))
    reader.open(4, weights(tmp_path, 200), os.O_RDWR)
    reader.open(5, weights(tmp_path, 300), os.O_WRONLY)
    reader.open(6, tmp_path)
    reader.open(7, "/dev/null")
    reader.open(8, "/proc/self/status")
    reader.open(9, "socket:[1234]")
    reader.open(10, tmp_path / "gone")

    assert sorted(watched.watch(0, reader)) == [
        (str(tmp_path / "weights-100.bin"), 100),
        (str(tmp_path / "weights-200.bin"), 200),
    ]


def test_each_file_once(tmp_path: pathlib.Path, watched: Watched, reader: Reader) -> None:
    """A file is written again only when it has grown."""
    file = weights(tmp_path)
    reader.open(3, file)
    reader.open(4, file)
    first, second = watched.watch(0, reader), watched.watch(0, reader)
    file.write_bytes(bytes(150))

    assert (first, second) == ([(str(file), 100)], [])
    assert watched.watch(0, reader) == [(str(file), 150)]


def test_due_after_much_was_read(watched: Watched, reader: Reader) -> None:
    """The first look is due after 16 MiB, the next one after as much again."""
    first = watched.files.due_at
    watched.watch(100 * MIB, reader)

    assert (first, watched.files.due_at) == (16 * MIB, 116 * MIB)


def test_cost(tmp_path: pathlib.Path, watched: Watched, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a look, the next one must wait for a hundred times its cost."""
    reader.open(3, weights(tmp_path))
    times = iter((0.0, 60.0))
    monkeypatch.setattr(time, "thread_time", lambda: next(times))
    watched.watch(0, reader)
    reader.open(4, weights(tmp_path, 200))

    assert watched.watch(0, reader) == []


def test_largest_processes(tmp_path: pathlib.Path, watched: Watched) -> None:
    """Of many processes, the eight largest are looked at."""
    readers = [Reader(tmp_path / f"p{number}", rss=number) for number in range(1, 11)]
    for size, reader in enumerate(readers, start=1):
        reader.open(3, weights(tmp_path, size))

    assert sorted(size for _, size in watched.watch(0, *readers)) == list(range(3, 11))


def test_files_read_process_that_ended(tmp_path: pathlib.Path, watched: Watched, reader: Reader) -> None:
    """A process that has ended is left out, the others are not."""
    gone = Reader(tmp_path / "8")
    (tmp_path / "8/fd").rmdir()
    reader.open(3, weights(tmp_path))

    assert len(watched.watch(0, gone, reader)) == 1


def test_name_that_is_no_text(tmp_path: pathlib.Path, watched: Watched, reader: Reader) -> None:
    """A path in no encoding is written with escapes."""
    file = os.fsencode(tmp_path) + b"/\xff.bin"
    with open(file, "wb") as opened:  # noqa: PTH123 — of bytes
        opened.write(b"12")
    reader.open(3, os.fsdecode(file))

    assert watched.watch(0, reader) == [(f"{tmp_path}/\\xff.bin", 2)]


def test_limit_of_threads(watched: Watched, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can be started, nothing is known, and it is tried again."""

    def fails(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("_thread.start_new_thread", fails)

    assert watched.watch(0, reader) == []
    assert watched.watch(0, reader) == []


class Counts:
    """A probe that says how often it was read, and how often thoroughly."""

    kind = OCCASIONAL
    metrics = ("refaults", "oom_kills")

    def __init__(self, root: str, pid: int, plan: Plan) -> None:
        self.of = root, pid, plan
        self.reads = self.thorough = 0

    def read(self, *, thorough: bool) -> list[int]:
        """Count the reading."""
        self.reads += 1
        self.thorough += thorough
        return [self.reads, self.thorough]


class Checks:
    """In place of the watch of limits: when it was asked."""

    def __init__(self) -> None:
        self.at_s: list[float] = []

    def check(self, now_s: float) -> None:
        """Count the check."""
        self.at_s.append(now_s)


class Read:
    """The occasional probes of a recording, and what they told."""

    def __init__(self, *classes: Any, **plan: Any) -> None:  # noqa: ANN401 — probes, and any field of the plan
        self.told: Told = []
        self.checks: Any = Checks()
        self.all = Occasional(classes, "/proc", Plan([], **plan), self.checks, lambda *line: self.told.append(line))
        self.all.start(7)


@pytest.fixture
def read() -> Read:
    """Return a recording with one probe."""
    return Read(Counts)


def test_columns(read: Read) -> None:
    """The columns are those of all probes, in the order of their values."""
    assert Read(Counts, Counts).all.columns == ["refaults", "oom_kills"] * 2
    assert read.all.read(0.0) == [1, 0]


def test_once_a_second(read: Read) -> None:
    """The next reading is due a second later; each one checks for killed processes."""
    first = read.all.at_s
    read.all.read(3.5)

    assert (first, read.all.at_s, read.checks.at_s) == (0.0, 4.5, [3.5])


def test_process_that_ended(read: Read) -> None:
    """After the end of a process all is read soon, once thoroughly."""
    read.all.read(3.0)
    read.all.process_ended(3.1)
    due = read.all.at_s
    read.all.process_ended(3.9)
    values = [read.all.read(due), read.all.read(5.0)]

    assert due == pytest.approx(3.35)
    assert values == [[2, 1], [3, 1]]


def test_end_just_before_the_next_reading(read: Read) -> None:
    """The end of a process does not put off a reading that is due."""
    read.all.read(3.0)
    read.all.process_ended(3.9)

    assert read.all.at_s == 4.0


def test_room(tmp_path: pathlib.Path) -> None:
    """Room on disks is written when it is known, and again at the end."""
    read = Read(FreeSpace, file_systems=[["cwd", str(tmp_path)]])
    waiting.until(lambda: read.all.values(thorough=False) != [None])
    read.all.read(1.0)
    read.all.close(2.0)

    assert [(key, line["role"], line["path"]) for key, line in read.told] == [("file_system", "cwd", str(tmp_path))] * 2
    assert read.checks.at_s == [1.0, 2.0]
