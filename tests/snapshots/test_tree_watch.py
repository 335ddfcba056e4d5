"""How the memory of one process changes, from readings of its RSS.

Which threads touched memory.
"""

from __future__ import annotations

import mmap
import threading
from pathlib import Path

from nncftools.sampler.tree import PAGE
from nncftools.snapshots.tree_watch import Growth, Threads, thin_points
from tests.waiting import until

MIB = 1 << 20
PAGES = MIB // PAGE


def of(*mib: float, shared: float = 0) -> Growth:
    """Return the growth with these readings, 10 apart; ``shared`` MiB of each are pages of files."""
    growth = Growth(0)
    for number, size in enumerate(mib):
        growth.add(10 * number, round(size * PAGES), round(shared * PAGES))
    return growth


def test_rise_in_bytes() -> None:
    """A reading returns by how much RSS rose; 0 or less otherwise."""
    growth = of(100)

    assert growth.add(10, 130 * PAGES, 0) == 30 * MIB
    assert growth.add(20, 130 * PAGES, 0) == 0
    assert growth.add(30, 120 * PAGES, 0) < 0
    assert growth.rose_ns == 10


def test_level_before_a_step_is_kept() -> None:
    """A step after a level time is a step in the points, too, and no slope."""
    growth = of(10, 10, 10, 10, 50, shared=5)

    assert growth.points[-2:] == [(30, 10 * MIB, 5 * MIB, 0), (40, 50 * MIB, 5 * MIB, 10)]


def test_longest_time_between_readings() -> None:
    """A point says how far apart two readings before it were at most, also those whose points were left out."""
    growth = of(10)
    for t_ns, mib in ((10, 11), (50, 15), (60, 16)):
        growth.add(t_ns, mib * PAGES, 0)
    *_, last = growth.take_points(60)

    assert last == (60, 16 * MIB, 0, 40)


def test_points_are_few() -> None:
    """An even rise is two points, and the next list begins where it ended."""
    growth = of(*range(10, 400))

    points = growth.take_points(4_000)

    assert points[0] == (0, 0, 0, 0)
    assert points[-1][:2] == (4_000, 399 * MIB)
    assert len(points) <= 6
    assert [point[:2] for point in growth.take_points(5_000)] == [(4_000, 399 * MIB), (5_000, 399 * MIB)]


def test_most_important_points_stay() -> None:
    """If there are too many, the extremes stay."""
    points = [(number, (number % 2) * MIB * (50 if number == 501 else 1), 0, 1) for number in range(1_000)]

    kept = thin_points(points, 8)

    assert len(kept) <= 8
    assert (501, 50 * MIB) in [point[:2] for point in kept]


def test_file_then_memory() -> None:
    """Where a process maps a file and then allocates at the same speed, RSS is one line; the change stays a point."""
    growth = Growth(0)
    for mib in range(0, 301, 4):
        growth.add(mib, mib * PAGES, min(mib, 200) * PAGES)
    points = growth.take_points(300)

    assert len(points) <= 6
    assert (200, 200 * MIB, 200 * MIB) in [point[:3] for point in points]


def test_copied_pages() -> None:
    """Pages of a file that became copies while RSS rested are known at the end of the rest."""
    growth = of(100, shared=80)
    growth.add(10, 100 * PAGES, 30 * PAGES)
    growth.add(20, 140 * PAGES, 30 * PAGES)

    assert [point[1:3] for point in growth.points[-2:]] == [(100 * MIB, 30 * MIB), (140 * MIB, 30 * MIB)]


def test_memory_stays_bounded() -> None:
    """Without a look, points are thinned before there are many."""
    growth = of(*(100 + 50 * (number % 2) for number in range(1_100)))

    assert len(growth.points) <= 1024


def touch(mib: int) -> mmap.mmap:
    """Return new memory with every page touched."""
    memory = mmap.mmap(-1, mib * MIB)
    for place in range(0, mib * MIB, mmap.PAGESIZE):
        memory[place] = 1
    return memory


def test_faults_by_thread() -> None:
    """The faults since the last reading are those of the thread that touched the memory."""
    begin, done, end = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begin.wait()
        touch(8)
        done.set()
        end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    threads = Threads("/proc/self")
    threads.read()

    begin.set()
    done.wait()
    faults, lost = threads.read()
    end.set()
    thread.join()

    assert thread.native_id is not None
    assert faults[thread.native_id] >= 8 * MIB // mmap.PAGESIZE
    assert faults.get(threading.get_native_id(), 0) < 1_000
    assert lost < 1_000


def test_faults_of_an_ended_thread() -> None:
    """The faults of a thread that ended since the last reading are lost, but counted; its end is known."""
    threads = Threads("/proc/self")
    threads.read()

    thread = threading.Thread(target=touch, args=(8,))
    thread.start()
    thread.join()
    until(lambda: not Path(f"/proc/self/task/{thread.native_id}").exists(), "the kernel to end the thread")
    faults, lost = threads.read()

    assert thread.native_id not in faults
    assert lost >= 8 * MIB // mmap.PAGESIZE
