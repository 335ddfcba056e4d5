from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nncftools.sampler import link
from nncftools.sampler.link import MarkWatch
from nncftools.sampler.proc_source import ProcSource
from nncftools.sampler.process_records import Floor
from nncftools.sampler.tree import PAGE, MemoryKinds
from tests.made_up import cases
from tests.sampler.fake_proc import FakeProc, Told


class FakeProcess:
    """A process whose kinds of memory a test sets: ``10 file=30`` are MiB; ``name`` and the ``parents`` at a fork."""

    def __init__(self, text: str) -> None:
        self.kinds = MemoryKinds()
        self.name = "work"
        self.counted = True
        self.faults = 0
        self.reads = 0
        self._parents = 0
        self.hold(text)

    def hold(self, text: str) -> None:
        """Set what it holds."""
        anon, *words = text.split()
        fields = dict(word.split("=") for word in words if "=" in word)
        self.name = fields.get("name", self.name)
        self._parents = int(fields.get("parents", 0)) * MIB
        kinds = {"RssAnon": float(anon), "RssFile": float(fields.get("file", 0))}
        kinds["RssShmem"] = float(fields.get("shmem", 0))
        self._status = "".join(f"\n{key}:\t{int(size * 1024)} kB" for key, size in kinds.items()).encode()
        self.rss = int(sum(kinds.values()) * PAGES)

    def read_memory(self) -> None:
        """Read it."""
        self.reads += 1
        self.kinds.take(self._status, self.rss, self._parents)


FLOORS = """
largest sum at one moment | a 100, b 50; a 20, b 90; a 80, b 90; a 80, b 90.8 | 150+0 of 150, 170+0 of 170
shared memory counts once | a 10 shmem=50, b 10 shmem=40 | 70+0 of 110
forked copy counts its own | a 100, b 100 parents=100 | 100+0 of 200
files of each program are beside it | a 10 file=30, b 10 file=20, c 10 file=5 name=other | 30+35 of 85
memory that was freed without a page fault | a 100, b 50; a 10 rest, b 120 | 150+0 of 150
ended | a 100, b 50; a ended, b 140; b 170 | 150+0 of 150, 170+0 of 170
ended, and its parent has not waited | a 100, b 50; a 0, b 90; a 0, b 170 | 150+0 of 150, 170+0 of 170
read before it counted | a 10, b 50 early; a 10, b 50 | 10+0 of 10, 60+0 of 60
"""
"""By case: what processes hold at each sample, and the floors that are written, with mapped memory and RSS; in MiB."""


@pytest.mark.parametrize("samples, expected", cases(FLOORS))
def test_floor(samples: str, expected: str) -> None:
    """The floor is the largest sum at one moment, without rises of less than half a per cent."""
    told: list[Any] = []
    floor: Any = Floor(lambda _, line: told.append(line))
    processes: dict[str, FakeProcess] = {}
    for at_s, sample in enumerate(samples.split("; ")):
        restless = []
        for text in sample.split(", "):
            name, _, size = text.partition(" ")
            if size == "ended":
                floor.ended(processes[name])
                floor.ended(processes.pop(name))
                continue
            process = processes.setdefault(name, FakeProcess(size))
            process.hold(size)
            process.counted = "early" not in size
            if not process.counted:
                process.read_memory()
            elif "rest" not in size:
                restless.append(process)
        floor.read(list(processes.values()), restless, float(at_s))

    written = [f"{line['size'] / MIB:g}+{line['mapped'] / MIB:g} of {line['rss'] / MIB:g}" for line in told]
    assert ", ".join(written) == expected


def test_readings_for_marks() -> None:
    """What was read for the marks costs nothing more, so it counts of all processes; at the end, all are read again."""
    told: list[Any] = []
    floor: Any = Floor(lambda _, line: told.append(line["size"] // MIB))
    work, *read = (FakeProcess(size) for size in ("10", "50", "60", "70"))
    for process in read:
        process.read_memory()
    floor.read([work, *read], [work], 0.1)
    assert (told, [process.reads for process in read]) == ([190], [1, 1, 1])

    work.hold("100")
    floor.close([work, *read], 0.2)
    assert told == [190, 280]


def held(source: ProcSource, told: Told, at_s: float) -> Any:  # noqa: ANN401 — anything that JSON has
    """Return the entries of the sample for a mark, in pages."""
    told.clear()
    source.sample(at_s, for_mark=True)
    (rss,) = [value["rss"] for key, value in told if key == "held"]
    return None if rss is None else [[number, *(size // PAGE for size in sizes)] for number, *sizes in rss]


def test_held_at_marks(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark has each process once, then when its RSS changed, with the RSS of the sample before and a new maximum."""
    proc.add(1, pages=100, threads={1: [5]})
    proc.add(5, pages=100)
    source, told = proc.source("rss")
    found = [held(source, told, 0.0), held(source, told, 1.0)]
    proc.add(5, pages=120)
    found.append(held(source, told, 2.0))
    proc.add(1, pages=130, threads={1: [5]})
    source.sample(3.0)
    found.append(held(source, told, 4.0))
    proc.add(6, pages=40)
    proc.set_children(1, 5, 6)
    found.append(held(source, told, 5.0))
    proc.add_zombie(5)
    found.append(held(source, told, 6.0))
    monkeypatch.setattr(ProcSource, "_has_own_memory", lambda _, process: process.pid != 7)
    proc.add(7, name="name1", pages=130)
    proc.add(1, name="name1", pages=130, threads={1: [6, 7]})
    found.append(held(source, told, 7.0))
    proc.started = 1 << 40  # so young that exec may follow
    proc.add(8, name="name1", pages=130)
    proc.set_children(1, 6, 7, 8)
    found.append(held(source, told, 8.0))
    proc.add_zombie(8)
    found.append(held(source, told, 9.0))
    proc.add(6, pages=40, mark=900, faults=(9, 0, 0, 0))
    found.append(held(source, told, 10.0))
    proc.add_zombie(9)
    proc.set_children(1, 6, 7, 8, 9)
    found.extend([held(source, told, 11.0), held(source, told, 12.0)])

    assert found == [
        [[0, 100, 0], [1, 100, 0]],
        [],
        [[1, 120, 100]],
        [[0, 130]],
        [[2, 40, 0]],
        [[1, 0, 120]],
        [[3, 0]],  # a child of vfork(2) holds nothing before its exec
        [[4, 130, 0]],
        [[4, 0, 130]],  # a forked copy that ended before its second sample, from which on it counts
        [[2, 40, 900]],  # a process that was larger between the two samples
        [[5, 0, 0]],  # a process that began and ended between the two samples
        [],
    ]


MIB = 2**20
PAGES = MIB // PAGE
"""In a MiB."""


class Watched:
    """A tree of process 1 that is sampled each second, and the rises that were recorded."""

    def __init__(self, proc: FakeProc, **plan: Any) -> None:  # noqa: ANN401 — any field of the plan
        self.proc = proc
        self.faults: dict[int, int] = {}
        self.source: ProcSource
        self.told: Told
        self.source, self.told = proc.source("rss", **plan)

    def set(self, pid: int, mib: int, mark: int | None = None, *, faults: int = 0, **fields: Any) -> None:  # noqa: ANN401 — any field of a process
        """Set RSS and high-water mark of a process in MiB; ``faults`` more page faults than before."""
        self.faults[pid] = self.faults.get(pid, 1) + faults
        pages = None if mark is None else mark * PAGES
        self.proc.add(pid, pages=mib * PAGES, mark=pages, faults=(self.faults[pid], 0, 0, 0), **fields)

    def sample(self, *times_s: float, **how: bool) -> None:
        """Take samples."""
        for now_s in times_s:
            self.source.sample(now_s, **how)

    def rise_together(self, pids: Sequence[int]) -> None:
        """Sample children of process 1 twice, then let the marks of all of them rise to 300 MiB."""
        for pid in pids:
            self.set(pid, 10 + pid)
        self.proc.add(1, pages=10 * PAGES, threads={1: list(pids)}, faults=(1, 0, 0, 0))
        self.sample(1.0, 1.1)
        for pid in pids:
            self.set(pid, 10 + pid, 300, faults=500)

    @property
    def rises(self) -> list[tuple[int, float, float, float]]:
        """Number, seconds before, seconds after and MiB of each rise; moments are rounded down to seconds."""
        found = [value for key, value in self.told if key == "rise"]
        return [(of["id"], of["from_s"], int(of["to_s"]), of["high_water_mark"] / MIB) for of in found]

    @property
    def others(self) -> list[float]:
        """The MiB that the other processes held during each rise."""
        return [value["others"] / MIB for key, value in self.told if key == "rise"]


@pytest.fixture
def watched(proc: FakeProc) -> Watched:
    """Return a tree of one process of 10 MiB."""
    proc.add(1, pages=10 * PAGES, faults=(1, 0, 0, 0))
    return Watched(proc)


RISES = """
between two samples | 10/10/0 10/600/500 | 2-3 600
a sample shows it | 600/600/500 10/600/1 |
each higher mark | 10/100/500 10/100/500 10/200/500 | 1-2 100, 3-4 200
after exec the mark begins again | 10/600/500 5/5/500 5/400/500 5/700/500 | 1-2 600, 4-5 700
without page faults the mark is not read | 10/600/0 |
too few page faults move the moment on | 300/300/500 10/300/1 10/300/100 10/500/200 | 4-5 500
"""
"""By case: MiB, mark and page faults of each sample; from when to when which mark rose."""


@pytest.mark.parametrize("samples, rises", cases(RISES))
def test_rises(watched: Watched, samples: str, rises: str) -> None:
    """A mark above both samples (MiB, mark, page faults) rose between them; 10 MiB come first."""
    watched.sample(1.0)
    for second, sample in enumerate(samples.split(), start=2):
        mib, mark, faults = map(int, sample.split("/"))
        watched.set(1, mib, mark, faults=faults)
        watched.sample(float(second))

    assert ", ".join(f"{from_s:g}-{to_s:g} {mib:g}" for _, from_s, to_s, mib in watched.rises) == rises


@pytest.mark.parametrize("for_mark, at_once", [(False, 2), (True, 6)])
def test_marks_read_at_one_sample(watched: Watched, *, for_mark: bool, at_once: int) -> None:
    """Of many processes, the largest and the longest waiting are read; all when an operation begins or ends."""
    watched.rise_together(range(5, 11))
    watched.sample(1.2, for_mark=for_mark)
    first = len(watched.rises)
    watched.sample(1.3, 1.4, 1.5, 1.6)

    assert (first, len({rise[0] for rise in watched.rises})) == (at_once, 6)


class TestOthers:
    """What the other processes held meanwhile is part of the proof."""

    @pytest.mark.parametrize("faults, others", [(0, 100), (10, 100 - 10 * PAGE * PAGE / 8 / MIB)])
    def test_others(self, watched: Watched, proc: FakeProc, faults: int, others: float) -> None:
        """A process may have gained a huge page with each fault: only the rest is certain."""
        watched.set(5, 50)
        proc.add(1, pages=100 * PAGES, threads={1: [5]}, faults=(1, 0, 0, 0))
        watched.sample(1.0, 2.0)
        watched.set(5, 50, 600, faults=500)
        proc.add(1, pages=100 * PAGES, threads={1: [5]}, faults=(1 + faults, 0, 0, 0))
        watched.sample(3.0)

        assert (watched.rises, watched.others) == ([(1, 2.0, 3, 600)], [others])

    def test_not_at_the_sample_before(self, watched: Watched) -> None:
        """What a process held that was not there before is unknown, and counts as nothing."""
        watched.sample(1.0, 2.0)
        watched.set(1, 10, 600, faults=500, threads={1: [5]})
        watched.set(5, 50)
        watched.sample(3.0)

        assert watched.others == [0]


class Clock:
    """A monotonic clock that moves only when a test moves it."""

    def __init__(self) -> None:
        self.now_ns = 10**9

    def monotonic_ns(self) -> int:
        """Return the time."""
        return self.now_ns


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_many_marks_cost_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a sample has just cost time, marks wait for the next one until ten times that time has gone by."""
    log = tmp_path / "log"
    log.touch()
    clock = Clock()
    monkeypatch.setattr(link, "time", clock)
    samples: list[int] = []

    def slow() -> None:
        clock.now_ns += 1_000
        samples.append(clock.now_ns)

    watch = MarkWatch(str(log), slow)
    due = []
    for pause_ns in (0, 0, 9_999, 1):
        clock.now_ns += pause_ns
        with log.open("a") as file:
            file.write("mark\n")
        watch.take()
        due.append(watch.is_due)

    assert len(samples) == 2
    assert due == [False, True, True, False]
