"""Which threads touched memory."""

from __future__ import annotations

import mmap
import pathlib
import threading

from nncftools.snapshots.tree_watch import Threads
from tests.waiting import until

MIB = 1 << 20


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
    assert faults[thread.native_id][0] >= 8 * MIB // mmap.PAGESIZE
    assert faults[threading.get_native_id()][0] < 1_000
    assert lost < 1_000


def test_faults_of_an_ended_thread() -> None:
    """The faults of a thread that ended since the last reading are lost, but counted."""
    threads = Threads("/proc/self")
    threads.read()

    thread = threading.Thread(target=touch, args=(8,))
    thread.start()
    thread.join()
    until(lambda: not pathlib.Path(f"/proc/self/task/{thread.native_id}").exists(), "the kernel to end the thread")
    faults, lost = threads.read()

    assert thread.native_id not in faults
    assert lost >= 8 * MIB // mmap.PAGESIZE
