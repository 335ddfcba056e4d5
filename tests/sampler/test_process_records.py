from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
from typing import Any

import pytest

from nncftools.sampler import process_records
from nncftools.sampler.probes.process import Stat
from nncftools.sampler.process_records import FilesRead, ProcessRecords, find_barriers
from nncftools.sampler.tree import PAGE, TICKS_PER_S, Common, Process, Tree
from tests import waiting
from tests.sampler.fake_proc import FakeProc, Told, facts

MIB = 2**20
_BOOTED_S = 1000
"""The machine has run so long when the recording begins."""


class Recording:
    """The records of the tree of process 1, which is found at the start, and the lines that were written.

    Processes begin with the recording, as a command does that it starts.
    """

    def __init__(self, proc: FakeProc) -> None:
        self.told: Told = []
        proc.started = _BOOTED_S * TICKS_PER_S
        proc.add(1, name="first")
        self.tree: Tree = proc.tree()
        self.records = ProcessRecords(self.tree, self._tell, _BOOTED_S)
        self.records.add(self.tree.processes[0])

    def _tell(self, key: str, value: object) -> None:
        self.told.append((key, value))

    def scan(self) -> list[Process]:
        """Look for descendants and introduce those that are found, as a sample does."""
        found = self.tree.refresh()
        for process in found:
            self.records.add(process)
        return found

    def remove(self, process: Process, now_s: float = 3.0) -> None:
        """Take a process out of the tree that is gone."""
        self.tree.remove(process)
        self.records.write_end(process, now_s, None, None)

    def facts(self, pid: int) -> dict[str, Any]:
        """Return all facts of a process; fail unless it was recorded as one process."""
        (found,) = [of for of in facts(self.told).values() if of.get("pid") == pid]
        return found


@pytest.fixture
def recording(proc: FakeProc) -> Recording:
    """Return a recording of one process."""
    return Recording(proc)


def test_zombie(recording: Recording, proc: FakeProc) -> None:
    """A process of which only the entry in the process table is left is recorded when it is found."""
    proc.add_zombie(5)
    proc.set_children(1, 5)
    (zombie,) = recording.scan()
    recording.remove(zombie)

    assert recording.facts(5)["end_s"] == 3.0


class TestSeen:
    """Processes that a scan found while they lived."""

    def test_who_it_is(self, proc: FakeProc) -> None:
        """A process is recorded with name, command, parent and start."""
        recording = Recording(proc)
        proc.add(5, name="worker")
        proc.set_children(1, 5)
        recording.scan()
        found = recording.facts(5)

        assert (found["id"], found["parent"], found["name"], found["command"]) == (
            1,
            0,
            "worker",
            ["worker", "--option"],
        )
        assert found["forked_copy"] is False
        assert found["start_s"] == recording.facts(1)["start_s"]

    def test_start(self, proc: FakeProc) -> None:
        """The start is counted from the session's, before which it may lie."""
        recording = Recording(proc)
        for place, after_s in enumerate((-7.0, 2.0, -0.5 / TICKS_PER_S)):
            recording.records._begun_s = 47.11 - after_s
            proc.started = 4711
            proc.add(5 + place)
            proc.set_children(1, *range(5, 6 + place))
            recording.scan()

        assert [recording.facts(pid)["start_s"] for pid in (5, 6, 7)] == [-7.0, 2.0, 0.0]

    def test_end(self, recording: Recording) -> None:
        """A process that is gone is recorded with the figures of the samples."""
        (process,) = recording.tree.processes
        process.peak_rss, process.sampled_from, process.cpu_ticks = 10, 1, 7
        process.common.samples = 3
        recording.remove(process)
        found = recording.facts(1)

        assert (found["peak_rss"], found["samples"]) == (10 * PAGE, 3)
        assert (found["cpu_s"], found["exit"]) == (7 / TICKS_PER_S, None)

    def test_reaped_end(self, recording: Recording) -> None:
        """Status and limit from the reaping are recorded."""
        (process,) = recording.tree.processes
        recording.tree.remove(process)
        recording.records.write_end(process, 3.0, {"code": None, "signal": 9}, 5 * MIB)
        found = recording.facts(1)

        assert (found["exit"], found["high_water_limit"]) == ({"code": None, "signal": 9}, 5 * MIB)

    def test_never_sampled(self, recording: Recording) -> None:
        """A process that was found between two samples has no largest sample, not one of 0."""
        recording.remove(recording.tree.processes[0])

        assert recording.facts(1)["peak_rss"] is None

    def test_outlives_the_recording(self, recording: Recording) -> None:
        """A process that outlives the recording is recorded with its figures and without an end."""
        (process,) = recording.tree.processes
        Stat(0).read([process])
        process.common.samples += 1
        recording.records.write_figures(process)

        assert (recording.facts(1)["samples"], "end_s" in recording.facts(1)) == (1, False)

    def test_mark_of_the_living(self, recording: Recording) -> None:
        """The kernel's high-water mark is recorded only when it has risen."""
        (process,) = recording.tree.processes
        process.high_water_mark = MIB
        recording.records.update_high_water_mark(process)
        once = len(recording.told)
        recording.records.update_high_water_mark(process)
        twice = len(recording.told)
        process.high_water_mark = 2 * MIB
        recording.records.update_high_water_mark(process)

        assert (once, twice) == (2, 2)
        assert recording.facts(1)["high_water_mark"] == 2 * MIB

    def test_mark_of_before_the_recording(self, recording: Recording, proc: FakeProc) -> None:
        """Of a process that is older than the recording, the mark of before is an upper bound, not a mark."""
        proc.started = 4711
        proc.add(5, pages=100)
        proc.set_children(1, 5)
        (process,) = recording.scan()
        recording.records.write_figures(process)

        assert recording.facts(5)["start_s"] < 0
        assert recording.facts(5)["high_water_mark"] is None
        assert recording.facts(5)["high_water_limit"] == 100 * PAGE

    def test_cpu_time_of_before_the_recording(self, recording: Recording, proc: FakeProc) -> None:
        """Of a process that is older than the recording, only CPU time of the recording counts."""
        proc.started = 4711
        proc.add(5, ticks=(200, 100, 7, 7))
        proc.set_children(1, 5)
        (process,) = recording.scan()
        proc.add(5, ticks=(210, 105, 9, 9))
        Stat(0).read([process])
        recording.remove(process)

        assert recording.facts(5)["cpu_s"] == pytest.approx(0.15)

    def test_exec(self, recording: Recording, proc: FakeProc) -> None:
        """A new name is recorded once."""
        proc.add(1, name="program")
        for _ in range(2):
            recording.records.update_identity(recording.tree.processes[0])

        assert [value["name"] for _, value in recording.told] == ["first", "program"]


@pytest.mark.process
class TestApart:
    def test_itself(self) -> None:
        """Nothing keeps a process from its own marks log."""
        assert find_barriers(live(os.getpid())) == []

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


def test_soonest(tmp_path: pathlib.Path, watched: Watched, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little a look costs, the next one must wait for a moment."""
    monkeypatch.setattr(process_records, "SOONEST_S", 60.0)
    watched.watch(MUCH, reader)
    reader.open(3, weights(tmp_path))

    assert (watched.watch(MUCH, reader), watched.files.is_due) == ([], True)


def test_largest_processes(tmp_path: pathlib.Path, watched: Watched) -> None:
    """Of many processes, the eight largest are looked at."""
    readers = [Reader(tmp_path / f"p{number}", rss=number) for number in range(1, 11)]
    for size, reader in enumerate(readers, start=1):
        reader.open(3, weights(tmp_path, size))

    assert sorted(size for _, size in watched.watch(MUCH, *readers)) == list(range(3, 11))


def test_files_read_process_that_ended(tmp_path: pathlib.Path, watched: Watched, reader: Reader) -> None:
    """A process that has ended is left out, the others are not."""
    gone = Reader(tmp_path / "8")
    (tmp_path / "8/fd").rmdir()
    reader.open(3, weights(tmp_path))

    assert len(watched.watch(MUCH, gone, reader)) == 1


def test_name_that_is_no_text(tmp_path: pathlib.Path, watched: Watched, reader: Reader) -> None:
    """A path in no encoding is written with escapes."""
    file = os.fsencode(tmp_path) + b"/\xff.bin"
    with open(file, "wb") as opened:  # noqa: PTH123 — of bytes
        opened.write(b"12")
    reader.open(3, os.fsdecode(file))

    assert watched.watch(MUCH, reader) == [(f"{tmp_path}/\\xff.bin", 2)]


def test_limit_of_threads(watched: Watched, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can be started, nothing is known, and it is tried again."""

    def fails(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("_thread.start_new_thread", fails)

    assert watched.watch(MUCH, reader) == []
    assert watched.watch(MUCH, reader) == []
