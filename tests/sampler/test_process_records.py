from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
from typing import Any

import pytest

from nncftools.sampler import process_records
from nncftools.sampler.process_records import FilesRead, find_barriers
from nncftools.sampler.tree import Common, Process
from tests import waiting
from tests.sampler.fake_proc import Told

MIB = 2**20


@pytest.mark.process
class TestApart:
    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
    @pytest.mark.parametrize(
        ("change", "expected"),
        [("os.setuid(65534)", ["user"]), ("os.chroot('/tmp')", ["root"]), ("pass", [])],
    )
    def test_another_user_or_root(self, change: str, expected: list[str]) -> None:
        """Another user or root folder keeps a process from the log; what is unknown does not."""
        program = f"import os; {change}; os.write(1, b'ready'); os.read(0, 1)"
        words = [sys.executable, "-c", program]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.read(5) == b"ready"

            assert find_barriers(live(child.pid)) == expected
            child.kill()


def live(pid: int) -> Process:
    """Return a process that lives."""
    return Process("/proc", pid, None, 0, files=(), common=Common())


MUCH = 16 * MIB


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
        self.read = 0
        self.files: Any = FilesRead(lambda *line: self.told.append(line))

    def watch(self, read: int, *processes: Reader) -> list[tuple[str, int]]:
        """Look after so many more bytes were read, and return the files that were new."""
        before = len(self.told)
        self.read += read
        self.files.watch(self.read, processes)
        waiting.until(lambda: not self.files._running)
        self.files.write()
        return [file for _, line in self.told[before:] for file in line["files"]]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Return a watch; looking costs nothing."""
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)
    monkeypatch.setattr(process_records, "SOONEST_S", 0.0)
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

    assert sorted(watched.watch(MUCH, reader)) == [
        (str(tmp_path / "weights-100.bin"), 100),
        (str(tmp_path / "weights-200.bin"), 200),
    ]


def test_each_file_once(tmp_path: pathlib.Path, watched: Watched, reader: Reader) -> None:
    """A file is written again only when it has grown."""
    file = weights(tmp_path)
    reader.open(3, file)
    reader.open(4, file)
    first, second = watched.watch(MUCH, reader), watched.watch(MUCH, reader)
    file.write_bytes(bytes(150))

    assert (first, second) == ([(str(file), 100)], [])
    assert watched.watch(MUCH, reader) == [(str(file), 150)]


def test_due_after_much_was_read(tmp_path: pathlib.Path, watched: Watched, reader: Reader) -> None:
    """The first look is due after 16 MiB, the next one after as much again."""
    reader.open(3, weights(tmp_path, 1))
    found = [watched.watch(MUCH - 1, reader)]
    found.append(watched.watch(6 * MUCH + 1, reader))
    reader.open(4, weights(tmp_path, 2))
    found += [watched.watch(MUCH - 1, reader), watched.watch(1, reader)]

    assert list(map(len, found)) == [0, 1, 0, 1]


def test_cost(tmp_path: pathlib.Path, watched: Watched, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a look, the next one must wait for a hundred times its cost."""
    reader.open(3, weights(tmp_path))
    times = iter((0.0, 60.0))
    monkeypatch.setattr(time, "thread_time", lambda: next(times))
    watched.watch(MUCH, reader)
    reader.open(4, weights(tmp_path, 200))

    assert (watched.watch(MUCH, reader), watched.files.is_due) == ([], True)


def test_largest_processes(tmp_path: pathlib.Path, watched: Watched) -> None:
    """Of many processes, the eight largest are looked at."""
    readers = [Reader(tmp_path / f"p{number}", rss=number) for number in range(1, 11)]
    for size, reader in enumerate(readers, start=1):
        reader.open(3, weights(tmp_path, size))

    assert sorted(size for _, size in watched.watch(MUCH, *readers)) == list(range(3, 11))
