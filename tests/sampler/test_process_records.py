from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from nncftools.sampler import process_records
from nncftools.sampler.high_water_marks import HighWaterMarks
from nncftools.sampler.probes.process import Stat
from nncftools.sampler.process_records import Exit, ProcessRecords, log_barriers
from nncftools.sampler.tree import PAGE, TICKS_PER_S, Allowance, Process, Tree
from tests.sampler.fake_proc import FakeProc, Told, facts, look

MIB = 2**20
REAPER = 50
NEVER_MORE_THAN = 4096


def ended(pid: int, parent: int, **fields: Any) -> Exit:  # noqa: ANN401 — any field
    """Return the kernel's report of the end of a process."""
    of = Exit(pid)
    of.parent_pid = parent
    of.name = f"n{pid}"
    for name, value in fields.items():
        setattr(of, name, value)
    return of


class Recording:
    """The records of the tree of process 1, which is found at the start, and the lines that were written.

    Processes begin with the recording, as a command does that it starts.
    """

    def __init__(self, proc: FakeProc, *, children: bool = True, accounting: bool = True) -> None:
        self.told: Told = []
        proc.started = (
            int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S) + 1000
        )  # no machine takes 10 s until the start
        proc.add(1, name="first")
        self.tree: Tree = proc.tree(children=children)
        self.records = ProcessRecords(
            self.tree, self._tell, HighWaterMarks(self._tell), reaper=REAPER, accounting=accounting
        )
        self.records.add(self.tree.processes[0], 0.0)

    def _tell(self, key: str, value: object) -> None:
        self.told.append((key, value))

    def scan(self, now_s: float = 1.0) -> list[Process]:
        """Look for descendants and introduce those that are found, as a sample does."""
        found = look(self.tree)
        for process in found:
            self.records.add(process, now_s)
        return found

    def remove(self, process: Process, now_s: float = 3.0) -> None:
        """Take a process out of the tree that is gone."""
        self.tree.remove(process)
        self.records.write_end(process, now_s, None, None)

    def facts(self, pid: int) -> dict[str, Any]:
        """Return all facts of a process; fail unless it was recorded as one process."""
        (found,) = [of for of in facts(self.told).values() if of.get("pid") == pid]
        return found

    def pids(self) -> list[int | None]:
        """Return the PIDs of the recorded processes, by number."""
        return [of.get("pid") for _, of in sorted(facts(self.told).items())]


@pytest.fixture
def recording(proc: FakeProc) -> Recording:
    """Return a recording with the kernel's exit accounting."""
    return Recording(proc)


class TestUnseen:
    """Processes that ended before any scan found them."""

    def test_child(self, recording: Recording) -> None:
        """A child of a process of the tree is recorded with its parent and all its figures.

        It ended between the last two readings of the messages, and may have begun so much before the first.
        """
        of = ended(5, 1, cpu_s=0.25, elapsed_s=0.5, high_water_mark=3 * MIB, wait_status=3 << 8, forked_copy=True)
        recording.records.add_exits([], 1.75)
        recording.records.add_exits([of], 2.0)

        assert recording.facts(5) == {
            "id": 1,
            "pid": 5,
            "parent": 0,
            "name": "n5",
            "forked_copy": True,
            "start_s": 1.25,
            "end_s": 2.0,
            "high_water_mark": 3 * MIB,
            "accounted": True,
            "cpu_s": 0.25,
            "exit": {"code": 3, "signal": None},
        }

    def test_signal(self, recording: Recording) -> None:
        """A killed process is recorded with the signal, also when it dumped its memory."""
        recording.records.add_exits([ended(5, 1, wait_status=signal.SIGSEGV | 0x80)], 2.0)

        assert recording.facts(5)["exit"] == {"code": None, "signal": signal.SIGSEGV}

    def test_mark_that_is_not_known(self, recording: Recording) -> None:
        """A process without memory of its own has no mark, not one of 0."""
        recording.records.add_exits([ended(5, 1)], 2.0)

        assert recording.facts(5)["high_water_mark"] is None

    def test_older_than_the_recording(self, recording: Recording) -> None:
        """The start of a process that is older than the session is the session's."""
        recording.records.add_exits([ended(5, 1, elapsed_s=60.0)], 2.0)

        assert recording.facts(5)["start_s"] == 0.0

    def test_child_of_the_reaper(self, recording: Recording) -> None:
        """An orphan, which became the sampler's child, is recorded without a parent."""
        recording.records.add_exits([ended(5, REAPER)], 2.0)

        assert recording.facts(5)["parent"] is None

    def test_grandchild(self, recording: Recording) -> None:
        """A grandchild that ended before its parent is recorded after it, with its number as parent."""
        recording.records.add_exits([ended(6, 5), ended(5, 1)], 2.0)

        assert recording.pids() == [1, 5, 6]
        assert recording.facts(6)["parent"] == recording.facts(5)["id"]

    def test_generations(self, recording: Recording) -> None:
        """Each process has its parent, for any number of generations that ended unseen, in any number of readings."""
        recording.records.add_exits([ended(8, 7), ended(7, 6)], 2.0)
        recording.records.add_exits([ended(6, 5)], 2.1)
        before = recording.pids()
        recording.records.add_exits([ended(5, 1)], 2.2)

        assert before == [1]
        assert [recording.facts(pid)["parent"] for pid in (5, 6, 7, 8)] == [
            recording.facts(pid)["id"] for pid in (1, 5, 6, 7)
        ]

    def test_child_of_a_process_that_is_found_later(self, recording: Recording, proc: FakeProc) -> None:
        """A child that ended before its parent was found is recorded together with the parent."""
        recording.records.add_exits([ended(6, 5)], 0.5)
        proc.add(5)
        proc.set_children(1, 5)
        recording.scan()

        assert recording.facts(6)["parent"] == recording.facts(5)["id"]

    def test_child_of_a_parent_that_was_found_dead(self, recording: Recording, proc: FakeProc) -> None:
        """When child and parent ended and the scan finds the parent's rest first, the child has the parent's number."""
        proc.add_zombie(5)
        proc.set_children(1, 5)
        recording.scan()
        recording.records.add_exits([ended(6, 5), ended(5, 1)], 2.0)

        assert recording.facts(6)["parent"] == recording.facts(5)["id"]

    def test_unrelated(self, recording: Recording) -> None:
        """Unrelated processes are not recorded."""
        recording.records.add_exits([ended(900 + place, 800) for place in range(100)], 2.0)

        assert recording.pids() == [1]

    def test_without_children(self, proc: FakeProc) -> None:
        """Without descendants, none is recorded; the command itself still has its figures."""
        recording = Recording(proc, children=False)
        recording.records.add_exits([ended(5, 1), ended(6, REAPER), ended(1, 40, cpu_s=0.5)], 2.0)
        recording.remove(recording.tree.processes[0])

        assert recording.pids() == [1]
        assert recording.facts(1)["cpu_s"] == 0.5


class TestBounds:
    def test_processes_of_others_are_forgotten(self, recording: Recording, proc: FakeProc) -> None:
        """Of the ends whose parents are not known, the last 4,096 are kept."""
        pids = range(10_000, 10_000 + NEVER_MORE_THAN + 10)
        recording.records.add_exits([ended(2 * pid, pid) for pid in pids], 0.5)
        for pid in (pids[0], pids[-1]):
            proc.add(pid)
        proc.set_children(1, pids[0], pids[-1])
        recording.scan()

        assert recording.pids() == [1, pids[0], pids[-1], 2 * pids[-1]]

    @pytest.mark.parametrize("parents", [1, 2, 5_000])
    def test_number_that_is_kept(self, recording: Recording, parents: int) -> None:
        """However the ends are spread over parents, no more than 4,096 are kept."""
        for place in range(10_000):
            recording.records.add_exits([ended(20_000 + place, 10_000 + place % parents)], 2.0)

        assert sum(map(len, recording.records._parentless.values())) <= NEVER_MORE_THAN
        assert recording.records._kept == sum(map(len, recording.records._parentless.values()))

    def test_too_many_to_list(self, recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
        """Beyond a number, only what is larger than all before is listed; the others are counted."""
        monkeypatch.setattr(process_records, "_LISTED_MOST", 3)
        marks = [10, 10, 5, 10, 20, 20, 30]
        recording.records.add_exits(
            [ended(100 + place, 1, high_water_mark=mark) for place, mark in enumerate(marks)], 2.0
        )
        recording.records.close()

        assert recording.pids() == [1, 100, 101, 104, 106]
        assert recording.told[-1] == ("warning", "3 more processes, all small and short-lived, are not listed")

    def test_nothing_left_out(self, recording: Recording) -> None:
        """When all processes are listed, there is no warning."""
        recording.records.close()

        assert [key for key, _ in recording.told] == ["process"]


class TestZombie:
    """A process of which only the entry in the process table is left when it is found."""

    def test_found_before_its_message(self, recording: Recording, proc: FakeProc) -> None:
        """A zombie that the scan finds before its message is recorded once, by the message."""
        proc.add_zombie(5)
        proc.set_children(1, 5)
        (zombie,) = recording.scan()
        before = recording.pids()
        recording.records.add_exits([ended(5, 1, cpu_s=0.5)], 2.0)
        recording.remove(zombie)

        assert before == [1]
        assert (recording.facts(5)["cpu_s"], recording.facts(5)["end_s"]) == (0.5, 2.0)

    def test_found_after_its_message(self, recording: Recording, proc: FakeProc) -> None:
        """A zombie that the scan finds after its message is recorded once."""
        recording.records.add_exits([ended(5, 1, cpu_s=0.5)], 2.0)
        proc.add_zombie(5)
        proc.set_children(1, 5)
        (zombie,) = recording.scan(2.1)
        recording.remove(zombie)

        assert (recording.facts(5)["cpu_s"], recording.facts(5)["end_s"]) == (0.5, 2.0)

    def test_dying_process_that_is_found_after_its_message(self, recording: Recording, proc: FakeProc) -> None:
        """A process that still frees its memory after the message about its end is recorded once."""
        recording.records.add_exits([ended(5, 1)], 2.0)
        proc.add(5)
        proc.set_children(1, 5)
        (dying,) = recording.scan(2.5)
        recording.records.update_high_water_mark(dying)
        recording.records.update_identity(dying)
        recording.records.write_figures(dying)
        recording.remove(dying)

        assert recording.facts(5)["end_s"] == 2.0

    def test_reused_pid(self, recording: Recording, proc: FakeProc) -> None:
        """Some time after an end, a process with the same PID is another one."""
        recording.records.add_exits([ended(5, 1)], 2.0)
        recording.records.add_exits([], 3.5)
        proc.add(5, name="other")
        proc.set_children(1, 5)
        recording.scan(3.6)

        assert recording.pids() == [1, 5, 5]

    def test_without_accounting(self, proc: FakeProc) -> None:
        """Without exit accounting, a zombie is recorded when it is found."""
        recording = Recording(proc, accounting=False)
        proc.add_zombie(5)
        proc.set_children(1, 5)
        (zombie,) = recording.scan()
        recording.remove(zombie)

        assert (recording.facts(5)["end_s"], "accounted" in recording.facts(5)) == (3.0, False)


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

    def test_accounted_end(self, recording: Recording) -> None:
        """When a process leaves the tree, the kernel's report of its end replaces the figures of the samples.

        Its end is that of the report: it may have been a zombie since then.
        """
        (process,) = recording.tree.processes
        process.peak_rss, process.samples, process.cpu_ticks = 10, 3, 7
        recording.records.add_exits([ended(1, 40, cpu_s=0.123, high_water_mark=MIB, wait_status=3 << 8)], 2.0)
        before = recording.facts(1)
        recording.remove(process)
        after = recording.facts(1)

        assert "end_s" not in before
        assert (after["accounted"], after["cpu_s"], after["high_water_mark"]) == (True, 0.123, MIB)
        assert (after["exit"], after["end_s"]) == ({"code": 3, "signal": None}, 2.0)
        assert (after["samples"], after["peak_rss"]) == (3, 10 * PAGE)

    def test_end_without_message(self, recording: Recording) -> None:
        """A process whose message was lost is recorded with the figures of the samples."""
        (process,) = recording.tree.processes
        process.peak_rss, process.samples, process.cpu_ticks = 10, 3, 7
        recording.remove(process)
        found = recording.facts(1)

        assert (found["peak_rss"], found["cpu_s"], found["exit"]) == (10 * PAGE, 7 / TICKS_PER_S, None)
        assert "accounted" not in found

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

    @pytest.mark.parametrize(("pages", "told"), [(100, None), (101, 101 * PAGE)])
    def test_accounted_mark_of_before_the_recording(
        self, recording: Recording, proc: FakeProc, pages: int, told: int | None
    ) -> None:
        """The same holds for the mark in the kernel's report of the end."""
        proc.started = 4711
        proc.add(5, pages=100)
        proc.set_children(1, 5)
        (process,) = recording.scan()
        recording.records.add_exits([ended(5, 1, high_water_mark=pages * PAGE)], 2.0)
        recording.remove(process)

        assert (recording.facts(5)["high_water_mark"], recording.facts(5)["high_water_limit"]) == (told, 100 * PAGE)

    @pytest.mark.parametrize(("reports", "spent"), [([], 0.15), ([ended(5, 1, cpu_s=3.1515)], 0.1515)])
    def test_cpu_time_of_before_the_recording(
        self, recording: Recording, proc: FakeProc, reports: list[Exit], spent: float
    ) -> None:
        """Of a process that is older than the recording, only CPU time of the recording counts."""
        proc.started = 4711
        proc.add(5, ticks=(200, 100, 7, 7))
        proc.set_children(1, 5)
        (process,) = recording.scan()
        proc.add(5, ticks=(210, 105, 9, 9))
        Stat(0).read([process])
        recording.records.add_exits(reports, 2.0)
        recording.remove(process)

        assert recording.facts(5)["cpu_s"] == pytest.approx(spent)

    def test_accounted_mark_of_the_last_program(self, recording: Recording) -> None:
        """The mark in the kernel's report is of the last program: that of a program before its exec may be larger."""
        (process,) = recording.tree.processes
        process.high_water_mark = 600 * MIB
        recording.records.add_exits([ended(1, 40, high_water_mark=MIB)], 2.0)
        recording.remove(process)

        assert recording.facts(1)["high_water_mark"] == 600 * MIB

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
