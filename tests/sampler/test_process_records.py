from __future__ import annotations

import os
import subprocess
import sys
from typing import Any
from unittest import mock

import pytest

from nncftools.sampler.probes.process import Stat
from nncftools.sampler.process_records import ProcessRecords, log_barriers
from nncftools.sampler.tree import PAGE, TICKS_PER_S, Allowance, Process, Tree
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
        with mock.patch("time.clock_gettime", return_value=_BOOTED_S):
            self.records = ProcessRecords(self.tree, self._tell)
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
        boot_s = recording.records._boot_at_start_s
        for place, after_s in enumerate((-7.0, 2.0, -0.5 / TICKS_PER_S)):
            recording.records._boot_at_start_s = 47.11 - after_s
            proc.started = 4711
            proc.add(5 + place)
            proc.set_children(1, *range(5, 6 + place))
            recording.scan()

        assert boot_s > 0
        assert [recording.facts(pid)["start_s"] for pid in (5, 6, 7)] == [-7.0, 2.0, 0.0]

    def test_end(self, recording: Recording) -> None:
        """A process that is gone is recorded with the figures of the samples."""
        (process,) = recording.tree.processes
        process.peak_rss, process.samples, process.cpu_ticks = 10, 3, 7
        recording.remove(process)
        found = recording.facts(1)

        assert (found["peak_rss"], found["cpu_s"], found["exit"]) == (10 * PAGE, 7 / TICKS_PER_S, None)

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
        assert log_barriers(live(os.getpid())) == []

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

            assert log_barriers(live(child.pid)) == expected
            child.kill()


def live(pid: int) -> Process:
    """Return a process that lives."""
    return Process("/proc", pid, None, 0, (), allowance=Allowance())
