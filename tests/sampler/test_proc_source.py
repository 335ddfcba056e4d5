from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from nncftools.journal.writing import Plan
from nncftools.sampler import process_records
from nncftools.sampler.probes import OCCASIONAL, list_references, load_probe
from nncftools.sampler.proc_source import ProcSource
from nncftools.sampler.tree import PAGE, TICKS_PER_S
from tests.made_up import cases
from tests.sampler.fake_proc import KIB, FakeProc, Told, facts, locking, vanish
from tests.waiting import until

COLUMNS = ("rss", "cpu_user", "read_bytes", "processes")
ENDED = {"code": 0, "signal": None}


def test_process_that_is_older_than_the_recording(proc: FakeProc) -> None:
    """CPU time counts from the start of the recording; the earlier high-water mark is only an upper bound."""
    proc.add(1, pages=100, ticks=(200, 100, 7, 7), io=(0, 0, 7, 0))
    source, told = proc.source(*COLUMNS, pid=1)
    rows = []
    for at_s, (huge, faults) in enumerate([(0, 1), (6 << 10, 4), (2 << 10, 9)]):
        rows.append(source.sample(float(at_s)))
        ticks = (210, 105, 9, 9)
        proc.add(1, pages=100, huge=huge, faults=(faults, 0, 0, 0), ticks=ticks, io=(0, 0, 9, 0))
    rows.append(source.sample(3.0))
    source.close(9.0)
    found = facts(told)[0]

    assert rows[0] == [100 * PAGE, 0.0, 0, 1]
    assert rows[-1] == [100 * PAGE, pytest.approx(12 / TICKS_PER_S), 2, 1]
    assert found["start_s"] < 0
    assert (found["high_water_mark"], found["high_water_limit"]) == (None, 100 * PAGE)
    assert found["cpu_s"] == pytest.approx(0.15)
    assert found["hugetlb"] == 6 << 20  # the most, also where RSS stays the same


class TestRow:
    def test_order_of_the_columns(self, proc: FakeProc) -> None:
        """Values come in the order of the plan's columns, whichever files they are from."""
        proc.add(1, pages=7, ticks=(100, 200, 0, 0), io=(1, 2, 3, 4))
        source, _ = proc.source("write_chars", "system", "rss", "swap", "cpu_system", "threads", "cgroup")

        assert source.sample(0.0) == [2, 600 * KIB, 7 * PAGE, 8 * KIB, 200 / TICKS_PER_S, 1, None]

    @pytest.mark.parametrize("age_s, counted_s", [(-10, 0.1), (0.1, 0.0)], ids=["just now", "a while ago"])
    def test_child_with_its_parents_program(self, proc: FakeProc, age_s: float, counted_s: float) -> None:
        """A new child may be of vfork(2), and show its parent's memory: it counts from its second sample on."""
        proc.add(1, name="shell", threads={1: [5]})
        proc.started = int((time.clock_gettime(time.CLOCK_BOOTTIME) - age_s) * TICKS_PER_S)
        proc.add(5, name="shell", pages=7, ticks=(50, 0, 0, 0))
        source, told = proc.source(*COLUMNS)
        first, each = source.sample(0.0), source.each()
        second = source.sample(0.1)
        proc.add(5, name="program", pages=7, ticks=(50, 0, 0, 0))
        source.sample(0.2)
        source.close(0.5)
        child = facts(told)[1]

        assert second == [17 * PAGE, 50 / TICKS_PER_S, 0, 2]
        assert (child["counted_s"], child["first_rss"]) == (counted_s, 7 * PAGE)
        assert (child["name"], child["forked_copy"]) == ("program", False)  # its own, after exec
        if counted_s:
            assert (first, each) == ([10 * PAGE, 50 / TICKS_PER_S, 0, 1], {0: 10 * PAGE})

    def test_in_the_midst_of_exec(self, proc: FakeProc) -> None:
        """A process that has no command yet is looked at again at every sample, before its children are."""
        command = proc.root / "1" / "cmdline"
        whole = command.read_bytes()
        command.write_bytes(b"")
        source, told = proc.source(*COLUMNS)
        source.sample(0.01)
        before = facts(told)[0]["command"]
        command.write_bytes(whole)
        proc.add(1, name="name1", threads={1: [5]})
        proc.add(5, name="name1")
        source.sample(0.02)

        assert before == []
        assert facts(told)[0]["command"] == ["name1", "--option"]
        assert facts(told)[1]["forked_copy"]

    def test_sampler_of_a_program_in_the_midst_of_its_start(self, proc: FakeProc) -> None:
        """A detached sampler that has its name before it has a command is left out once, and closed once."""
        proc.add(1, threads={1: [5]})
        proc.add(5, name="name1")
        (proc.root / "5" / "cmdline").write_bytes(b"")
        source, told = proc.source(*COLUMNS)
        source.sample(0.0)
        (proc.root / "5" / "comm").write_text("nncf-sampler\n")
        proc.add(1, threads={1: []})
        for moment in (0.1, 0.2, 0.3):
            source.sample(moment)

        assert [line for line in told if line[1].get("left_out")] == [("process", {"id": 1, "left_out": True})]

    def test_locked_io(self, proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
        """I/O that we may not read is unknown in samples and totals, also after the command's end."""
        monkeypatch.setattr(os, "open", locking("io"))
        source, _ = proc.source(*COLUMNS)
        row = source.sample(0.0)
        source.retire(1)
        source.ended(1, 1.0, ENDED, None)

        assert row == [10 * PAGE, 0.0, None, 1]
        assert source.close(1.0)[1:3] == [0.0, None]


class TestEnds:
    @pytest.mark.process
    def test_vanished_between_scan_and_read(self, proc: FakeProc) -> None:
        """A process that is gone when it is read leaves the tree and is recorded as ended; the others are read."""
        proc.add(1, threads={1: [5]})
        proc.add(5, ticks=(50, 0, 0, 0), io=(0, 0, 9, 0))
        source, told = proc.source(*COLUMNS)
        before = source.sample(0.0)
        vanish(source.tree.processes[1])
        proc.set_children(1)
        after = source.sample(1.0)

        assert (before[0], before[3]) == (20 * PAGE, 2)
        assert after == [10 * PAGE, before[1], before[2], 1]
        assert facts(told)[1]["end_s"] == pytest.approx(1.0, abs=0.5)  # a busy machine reads it late
        assert "end_s" not in facts(told)[0]
        assert source.each() == {0: 10 * PAGE}

    @pytest.mark.process
    def test_counters_do_not_fall(self, proc: FakeProc) -> None:
        """Until the kernel has folded an ended child into its parent, totals stay, and then go on from the parent's."""
        proc.add(1, threads={1: [5]}, ticks=(10, 0, 0, 0))
        proc.add(5, ticks=(50, 0, 0, 0))
        source, _ = proc.source(*COLUMNS)
        before = source.sample(0.0)[1]
        vanish(source.tree.processes[1])
        between = source.sample(1.0)[1]
        proc.add(1, ticks=(10, 0, 55, 0))
        after = source.sample(2.0)[1]

        assert [before, between, after] == [60 / TICKS_PER_S, 60 / TICKS_PER_S, 65 / TICKS_PER_S]

    def test_totals_of_a_command_that_has_ended(self, proc: FakeProc) -> None:
        """The last figures of a command that was reaped are the totals."""
        source, told = proc.source(*COLUMNS)
        source.sample(0.0)
        proc.add_zombie(1, ticks=(70, 0, 0, 0), io=(0, 0, 9, 0))
        source.retire(1)
        source.ended(1, 1.0, {"code": 3, "signal": None}, 12 * KIB)

        assert source.close(1.0)[1:3] == [70 / TICKS_PER_S, 9]
        assert facts(told)[0]["exit"] == {"code": 3, "signal": None}
        assert (facts(told)[0]["end_s"], facts(told)[0]["high_water_limit"]) == (1.0, 12 * KIB)

    @pytest.mark.process
    @pytest.mark.parametrize("took_s, end_s, is_late", [(0.0005, 1.0, False), (0.003, 1.003, True)])
    def test_end_during_a_sample(
        self, proc: FakeProc, monkeypatch: pytest.MonkeyPatch, took_s: float, end_s: float, *, is_late: bool
    ) -> None:
        """The journal says when a sample took long; a process that is gone may have ended until then."""
        proc.add(5)
        proc.set_children(1, 5)
        source, told = proc.source(*COLUMNS)
        source.sample(0.0)
        vanish(source.tree.processes[1])
        told.clear()
        clock = iter([50.0, *[50.0 + took_s] * 20])
        monkeypatch.setattr(time, "monotonic", clock.__next__)
        source.sample(1.0)

        assert facts(told)[1]["end_s"] == end_s
        assert [value for key, value in told if key == "late"] == [{"from_s": 1.0, "to_s": end_s}] * is_late

    def test_unseen_child_of_ours(self, proc: FakeProc) -> None:
        """An orphan that has ended when it is first seen is read, recorded once and kept in the totals."""
        source, told = proc.source(*COLUMNS)
        source.sample(0.0)
        proc.add_zombie(5, ticks=(30, 0, 0, 0))
        proc.add_zombie(6, ticks=(7, 0, 0, 0))
        for pid in (5, 6, 77):  # nothing can be read of 77 any more
            source.retire(pid)
            source.ended(pid, 1.0, ENDED, None)

        assert source.sample(1.0)[1] == 37 / TICKS_PER_S
        assert [of["pid"] for of in facts(told).values()] == [1, 5, 6]


def test_close(proc: FakeProc) -> None:
    """A process that still runs is recorded without an end, a zombie with one."""
    proc.add(1, threads={1: [4]})
    proc.add(4)
    source, told = proc.source(*COLUMNS)
    source.sample(0.0)
    proc.add_zombie(4)
    proc.add(5)
    proc.set_children(1, 5)
    source.close(1.0)

    assert [(of.get("end_s"), of["samples"]) for of in facts(told).values()] == [(None, 1), (1.0, 1), (None, 0)]


def test_out_of_descriptors_is_told_once(proc: FakeProc) -> None:
    """That processes are left out for the limit of open files is warned of once."""
    source, told = proc.source(*COLUMNS)
    source.tree.common.ran_out = True
    for second in range(3):
        source.sample(second)

    assert [value for key, value in told if key == "warning"] == [
        "some processes are left out of the figures: the limit of open files is too low (ulimit -n)"
    ]


EXECS = """
exec | 4 4 5 5 | 1-2
in the midst | 4 4 0 5 5 | 2-3
two | 4 5 6 | 0-1 1-2
ends | 4 4 0 |
hidden | 4 1 1 4 |
exec while hidden | 4 1 1 5 6 | 0-3 3-4
in the midst while hidden | 4 1 0 1 5 | 2-4
"""
"""By case: where the code begins at each sample; from when to when an exec was."""


@pytest.mark.parametrize("codes, spans", cases(EXECS))
def test_exec(proc: FakeProc, codes: str, spans: str) -> None:
    """A process whose code has moved since it was last seen runs another program; hidden code and none say nothing."""
    source, told = proc.source("rss")
    for number, code in enumerate(map(int, codes.split())):
        proc.add(1, code=code, faults=(number + 1, 0, 0, 0))
        source.sample(float(number))
    lines = [value for key, value in told if key == "exec"]

    assert " ".join(f"{line['from_s']:g}-{int(line['to_s'])}" for line in lines) == spans


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


def counting(proc: FakeProc, *columns: str) -> tuple[ProcSource, Told]:
    """Return a source of these columns, the last two of which are an occasional probe's, and its journal lines."""
    told: Told = []
    plan = Plan([*columns, "refaults", "oom_kills"])
    probes = [load_probe(reference) for reference in list_references(columns)]
    return proc.opened(plan, [*probes, Counts], told), told


class TestOccasional:
    """Probes that are read once a second, once thoroughly after a process has ended."""

    @pytest.mark.parametrize("ends_s, read_s", [([0.1], 0.35), ([0.1, 0.3], 0.35), ([0.9], 1.0)])
    def test_process_that_ended(self, proc: FakeProc, ends_s: list[float], read_s: float) -> None:
        """After the end of a process all is read soon; a reading that is due before is not put off."""
        source, _ = counting(proc, "rss")
        source.sample(0.0)
        for number, end_s in enumerate(ends_s, start=5):
            proc.add_zombie(number)
            source.retire(number)
            source.ended(number, end_s, ENDED, None)
        rows = [source.sample(now_s) for now_s in (read_s - 0.01, read_s, read_s + 0.999, read_s + 1.0)]

        assert [row[1:] for row in rows] == [[None, None], [2, 1], [None, None], [3, 1]]


class TestStillness:
    """A tree whose files say the same is not read again, and counted all the same."""

    def test_samples(self, proc: FakeProc) -> None:
        """Each process is in as many samples as were taken with its memory, however few of them read anything new."""
        proc.add(1, threads={1: [5]})
        proc.add(5)
        source, told = proc.source(*COLUMNS)
        rows = [source.sample(now_s / 10) for now_s in range(8)]
        proc.add_zombie(5)
        rows += [source.sample(now_s / 10) for now_s in range(8, 12)]
        source.close(1.2)

        assert [row[3] for row in rows] == [2] * 8 + [1] * 4
        assert rows[5] is rows[6]
        assert [found["samples"] for found in facts(told).values()] == [12, 8]

    def test_limit_that_is_set_meanwhile(self, proc: FakeProc) -> None:
        """The limits of a process that rests are read again."""
        limits = proc.root / "1/limits"
        (proc.root / "1/cgroup").write_text("")
        limits.write_text(f"{'Max data size':<26}{'unlimited':<21}unlimited            bytes\n")
        source, told = proc.source(*COLUMNS)
        source.sample(0.0)
        source.sample(0.01)
        limits.write_text(limits.read_text().replace("unlimited", "77       ", 1))
        before = [value["size"] for key, value in told if key == "memory_limit"]
        source.sample(0.06)

        assert before == []
        assert [value["size"] for key, value in told if key == "memory_limit"] == [77]

    def test_files_that_are_read(self, proc: FakeProc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Regular files that are open for reading are written once, and when they grew, also while a process rests."""
        monkeypatch.setattr(process_records, "SOONEST_S", 0.0)
        monkeypatch.setattr(time, "thread_time", lambda: 0.0)
        plain, both, written, strange = (tmp_path / name for name in ("a", "b", "c", os.fsdecode(b"\xff")))
        for size, file in enumerate((plain, both, written, strange), start=1):
            file.write_bytes(bytes(size))
        for name in ("fd", "fdinfo"):
            (proc.root / "1" / name).mkdir()
        opened = (plain, plain, both, written, strange, tmp_path, "/dev/null", "/proc/self/status", "socket:[1]", "/no")
        for number, target in enumerate(opened):
            flags = {both: os.O_RDWR, written: os.O_WRONLY}.get(target, os.O_RDONLY) | os.O_CLOEXEC
            (proc.root / f"1/fd/{number}").symlink_to(target)
            (proc.root / f"1/fdinfo/{number}").write_text(f"pos:\t0\nflags:\t0{flags:o}\nmnt_id:\t1\n")
        source, told = proc.source(*COLUMNS, "read_chars")
        for mib in (10, 20, 40, 60):
            proc.add(1, io=(mib << 20, 0, 0, 0))
            until(lambda: source.sample(0.1) and not source._files.is_due and not source._files._running)
            if mib == 40:
                plain.write_bytes(bytes(9))
        source.close(0.3)
        files = [file for key, value in told if key == "files_read" for file in value["files"]]

        assert sorted(files[:3]) == [(f"{tmp_path}/\\xff", 4), (str(plain), 1), (str(both), 2)]
        assert files[3:] == [(str(plain), 9)]

    def test_what_it_was_before(self, proc: FakeProc) -> None:
        """A file that says what it said a while ago is read again."""
        source, _ = proc.source(*COLUMNS)
        rows = []
        for number, pages in enumerate((10, 10, 10, 20, 10, 20, 20, 20, 10)):
            proc.add(1, pages=pages)
            rows.append(source.sample(number / 100))

        assert [(row[0] or 0) // PAGE for row in rows] == [10, 10, 10, 20, 10, 20, 20, 20, 10]


def test_limit_of_threads(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can be started, slow figures are unknown and tried again."""
    calls = []

    def fails(*_: object) -> None:
        calls.append(1)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("_thread.start_new_thread", fails)
    proc.add(1, io=(20 << 20, 0, 0, 0))
    source, _ = proc.source("rss", "read_chars", "pss", "disk_free", file_systems=[["cwd", "/"]])
    rows = [source.sample(now_s) for now_s in (0.0, 1.0)]

    assert rows == [[10 * PAGE, 20 << 20, None, None]] * 2
    assert len(calls) == 4
