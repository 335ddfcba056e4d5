from __future__ import annotations

import os
import pathlib
from typing import Any

import pytest

from nncftools.journal.writing import Plan
from nncftools.sampler.probes.machine import FileSystem, FreeSpace
from tests import waiting

MIB = 2**20


class Disk:
    """A file system of 1,000 MiB, of which root may use 10 more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free: int | None = 500
        """In MiB; None when it does not answer."""
        monkeypatch.setattr(os, "statvfs", self._answer)

    def _answer(self, _: object) -> os.statvfs_result:
        if self.free is None:
            raise OSError(116, "Stale file handle")
        return os.statvfs_result([4096, MIB, 1000, self.free + 10, self.free, 0, 0, 0, 0, 255])


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Return the file system of every folder."""
    return Disk(monkeypatch)


def line(of: FileSystem, *, always: bool = True) -> dict[str, Any]:
    """Return the line of a file system without its time; empty when none is due."""
    found = dict(of.line(0, always=always) or {})
    found.pop("lowest_s", None)
    return found


class TestFileSystem:
    def test_figures(self, disk: Disk) -> None:
        """Size, the first, the lowest and the last free bytes are those of ordinary users."""
        of = FileSystem("cwd", "/work")
        for disk.free in (500, 100, 300):
            of.ask()
        sizes = {"size": 1000 * MIB, "first": 500 * MIB, "lowest": 100 * MIB, "last": 300 * MIB}

        assert line(of) == {"role": "cwd", "path": "/work", **sizes}
        assert of.free == 300 * MIB

    def test_time_of_the_lowest(self, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
        """The moment of the least room counts from the start; before it is the start."""
        of = FileSystem("cwd", "/work")
        monkeypatch.setattr("time.monotonic_ns", lambda: 7_500_000_000)
        of.ask()
        lines = [of.line(start_ns, always=True) for start_ns in (5_000_000_000, 8_000_000_000)]

        assert disk.free == 500
        assert [found and found["lowest_s"] for found in lines] == [2.5, 0.0]

    def test_line_is_due(self, disk: Disk) -> None:
        """After the first line, another one is due when the least room has halved."""
        of = FileSystem("cwd", "/work")
        nothing_known = line(of)
        written = []
        for disk.free in (500, 260, 250, 125, 400, 0):
            of.ask()
            written.append(line(of, always=False).get("lowest"))

        assert nothing_known == {}
        assert written == [500 * MIB, None, 250 * MIB, 125 * MIB, None, 0]

    def test_no_answer(self, disk: Disk) -> None:
        """While it does not answer, its room is unknown, and what was known is kept."""
        of = FileSystem("cwd", "/work")
        of.ask()
        disk.free = None
        again_s = of.ask()

        assert (of.free, again_s) == (None, 1.0)
        assert (line(of)["lowest"], line(of)["last"]) == (500 * MIB, None)

    @pytest.mark.parametrize(("free", "again_s"), [(9000, 1.0), (512, 0.25), (1, 0.01), (0, 0.01)])
    def test_asked_again(self, disk: Disk, free: int, again_s: float) -> None:
        """The less room there is, the sooner it is asked for again."""
        disk.free = free

        assert FileSystem("cwd", "/work").ask() == again_s

    def test_calm(self, disk: Disk) -> None:
        """A full file system where nothing changes is asked less often."""
        disk.free = 0
        of = FileSystem("cwd", "/work")
        of.ask()

        assert of.ask() == 0.05


class TestFreeSpace:
    def test_column_for_each(self, tmp_path: pathlib.Path) -> None:
        """Each file system has a column by its role, and its free bytes become known."""
        folders = [["cwd", str(tmp_path)], ["output", str(tmp_path / "missing")]]
        probe = FreeSpace("/proc", 7, Plan([], file_systems=folders))
        waiting.until(lambda: probe.read(thorough=False)[0] is not None)
        values = probe.read(thorough=False)
        lines = probe.lines(0)
        probe.close()

        assert probe.columns == ("disk_free@cwd", "disk_free@output")
        assert values[1] is None
        assert [one["role"] for one in lines] == ["cwd"]
        assert probe.lines(0) == []
        assert len(probe.lines(0, always=True)) == 1

    def test_none(self) -> None:
        """Without file systems there are no columns, and no thread."""
        probe = FreeSpace("/proc", 7, Plan([]))
        probe.close()

        assert (probe.columns, probe.read(thorough=True), probe.lines(0, always=True)) == ((), [], [])

    def test_limit_of_threads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where no thread can be started, the figures are unknown."""

        def fails(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr("_thread.start_new_thread", fails)
        probe = FreeSpace("/proc", 7, Plan([], file_systems=[["cwd", "/"]]))

        assert (probe.columns, probe.read(thorough=False)) == (("disk_free@cwd",), [None])
