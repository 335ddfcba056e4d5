from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from nncftools.sampler import process_records
from nncftools.sampler.process_records import FilesRead, find_barriers
from nncftools.sampler.tree import Common, Process
from tests.sampler.fake_proc import Told
from tests.waiting import until


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(
    ("change", "expected"),
    [("os.setuid(65534)", ["user"]), ("os.chroot('/tmp')", ["root"]), ("pass", [])],
)
def test_another_user_or_root(change: str, expected: list[str]) -> None:
    """Another user or root folder keeps a process from the log; what is unknown does not."""
    program = f"import os; {change}; os.write(1, b'ready'); os.read(0, 1)"
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.read(5) == b"ready"
        process = Process("/proc", child.pid, None, 0, files=(), common=Common())

        assert find_barriers(process) == expected
        child.kill()


class Reader:
    """A process whose open files a test writes; it has read a number of bytes."""

    rss = 1

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.path = str(folder / "7")
        self.read = 0
        self.told: Told = []
        self.files: Any = FilesRead(lambda *line: self.told.append(line))
        for name in ("fd", "fdinfo"):
            (folder / "7" / name).mkdir(parents=True)

    def open(self, target: pathlib.Path | str, flags: int = os.O_RDONLY) -> None:
        """Open a file, which may be gone by now."""
        number = len(os.listdir(f"{self.path}/fd"))  # noqa: PTH208 — counted, not used
        (self.folder / f"7/fd/{number}").symlink_to(target)
        (self.folder / f"7/fdinfo/{number}").write_text(f"pos:\t0\nflags:\t0{flags | os.O_CLOEXEC:o}\nmnt_id:\t1\n")

    def watch(self, read: int = 16 * 2**20) -> list[tuple[str, int]]:
        """Look after so many more bytes were read, and return the files that were new."""
        self.told.clear()
        self.read += read
        self.files.watch(self.read, [SimpleNamespace(path="/gone", rss=2), self])
        until(lambda: not self.files._running)
        self.files.write()
        return [file for _, line in self.told for file in line["files"]]


@pytest.fixture
def reader(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """Return a process without open files; looking costs nothing."""
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)
    monkeypatch.setattr(process_records, "SOONEST_S", 0.0)
    return Reader(tmp_path)


def test_files_that_are_read(tmp_path: pathlib.Path, reader: Reader) -> None:
    """Regular files that are open for reading count with path and size, once, and again when they have grown."""
    plain, both, written, strange = (tmp_path / name for name in ("a", "b", "c", os.fsdecode(b"\xff")))
    for size, file in enumerate((plain, both, written, strange), start=1):
        file.write_bytes(bytes(size))
    for target in (plain, plain, strange, tmp_path, "/dev/null", "/proc/self/status", "socket:[1234]", "/gone"):
        reader.open(target)
    reader.open(both, os.O_RDWR)
    reader.open(written, os.O_WRONLY)
    first = sorted(reader.watch())
    second = reader.watch()
    plain.write_bytes(bytes(9))

    assert first == [(f"{tmp_path}/\\xff", 4), (str(plain), 1), (str(both), 2)]
    assert (second, reader.watch()) == ([], [(str(plain), 9)])
