"""Takes 100 MiB in `first`, 200 in `second` and 300 in `third`, at 200 MiB a second, and holds them.

Usage: stacked.py HOW PAUSE [LIBRARY]; HOW is one of the functions below, LIBRARY a compiled pool.c.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Callable
from multiprocessing.synchronize import Event, Semaphore

MIB = 1 << 20
RATE = 200
held: list[object] = []


def grow(mib: int) -> None:
    """Take memory, at the rate."""
    begun = time.monotonic()
    for done in range(1, mib + 1):
        held.append(bytearray(b"x") * MIB)
        time.sleep(max(0.0, begun + done / RATE - time.monotonic()))


Take = "Callable[[int], object]"


def first(take: Take = grow) -> None:
    """Take 100 MiB."""
    take(100)


def second(take: Take = grow) -> None:
    """Take 200 MiB."""
    take(200)


def third(take: Take = grow) -> None:
    """Take 300 MiB."""
    take(300)


def each(pause: float, take: Take = grow) -> None:
    """Call all three, with pauses."""
    for function in first, second, third:
        function(take)
        time.sleep(pause)


def main(pause: float) -> None:
    """In the main thread."""
    each(pause)


def spin(end: threading.Event) -> None:
    """Compute until the end, without new memory."""
    while not end.is_set():
        sum(range(1000))


def threads(pause: float) -> None:
    """In threads, one after the other, beside a thread that spins."""
    end = threading.Event()
    spinning = threading.Thread(target=spin, args=(end,))
    spinning.start()
    for function in first, second, third:
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()
        time.sleep(pause)
    end.set()
    spinning.join()


def at_once(pause: float) -> None:
    """In three threads at once."""
    every = [threading.Thread(target=function) for function in (first, second, third)]
    for thread in every:
        thread.start()
    for thread in every:
        thread.join()
    time.sleep(pause)


def in_child(function: Callable[[], object], done: Semaphore, end: Event) -> None:
    """Call a function, say so, and hold until the end."""
    function()
    done.release()
    end.wait()


def children(method: str, pause: float) -> None:
    """Take in this process, then in two children."""
    context = multiprocessing.get_context(method)
    done, end = context.Semaphore(0), context.Event()
    first()
    every = [context.Process(target=in_child, args=(function, done, end)) for function in (second, third)]
    for child in every:
        child.start()
        done.acquire()
        time.sleep(pause)
    time.sleep(0.3)
    end.set()
    for child in every:
        child.join()


def forked(pause: float) -> None:
    """In forked children."""
    children("fork", pause)


def spawned(pause: float) -> None:
    """In spawned children."""
    children("spawn", pause)


def native(pause: float) -> None:
    """In a native call that holds the lock of Python (GIL)."""

    def take(mib: int) -> None:
        held.append(array("d", itertools.repeat(1.0, mib * MIB // 8)))

    each(pause, take)


def pool(pause: float) -> None:
    """In native threads, while the main thread waits."""
    library = ctypes.CDLL(sys.argv[3])

    def take(mib: int) -> None:
        held.append(memory := mmap.mmap(-1, mib * MIB))
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        library.touch(ctypes.c_void_p(address), ctypes.c_size_t(mib * MIB), ctypes.c_double(RATE * MIB))

    each(pause, take)


def mapped(pause: float) -> None:
    """In mapped files: read, copied, and read."""
    with tempfile.TemporaryFile(dir=os.environ.get("TMPDIR", "/var/tmp")) as weights:  # noqa: S108 — a real disk
        for _ in range(300):
            weights.write(b"w" * MIB)
        weights.flush()

        def read(mib: int) -> None:
            held.append(memory := mmap.mmap(weights.fileno(), mib * MIB, access=mmap.ACCESS_READ))
            touch(mib, lambda place: memory[place])

        def copy(mib: int) -> None:
            held.append(memory := mmap.mmap(weights.fileno(), mib * MIB, access=mmap.ACCESS_COPY))
            touch(mib, lambda place: memory.__setitem__(place, 1))

        first(read)
        time.sleep(pause)
        second(copy)
        time.sleep(pause)
        third(read)
        time.sleep(pause)


def touch(mib: int, access: Callable[[int], object]) -> None:
    """Access every page of a mapping, at the rate."""
    begun = time.monotonic()
    for done in range(1, mib + 1):
        for place in range((done - 1) * MIB, done * MIB, mmap.PAGESIZE):
            access(place)
        time.sleep(max(0.0, begun + done / RATE - time.monotonic()))


def freed(pause: float) -> None:
    """Take 300 MiB and free them, then take 400."""
    grow_and_free()
    time.sleep(pause)
    second(lambda mib: grow(2 * mib))
    time.sleep(pause)


def grow_and_free() -> None:
    """Take 300 MiB, and free them."""
    grow(300)
    held.clear()


def takes(mib: int, seconds: float) -> None:
    """Take memory evenly in a time."""
    begun = time.monotonic()
    for done in range(1, mib + 1):
        held.append(bytearray(b"x") * MIB)
        time.sleep(max(0.0, begun + done / mib * seconds - time.monotonic()))


def computes(seconds: float) -> None:
    """Compute without new memory."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


def alternating(pause: float) -> None:
    """In functions of 20 ms, between others that take nothing."""
    for _ in range(75):
        takes(4, 0.02)
        computes(0.02)
    time.sleep(pause)


def bursts(pause: float) -> None:
    """In bursts, as fast as it can be, between other code."""
    for _ in range(10):
        takes(30, 0)
        computes(0.15)
    time.sleep(pause)


def short(pause: float) -> None:
    """In calls that are much shorter than others."""
    for _ in range(150):
        takes(2, 0)
        computes(0.01)
    time.sleep(pause)


class Turns:
    """The state of a loop without variables of its own."""

    done = 0


def stateless(pause: float) -> None:
    """Do the same in a loop that changes no variable of its function."""
    while Turns.done < 150:  # noqa: PLR2004 — as in the functions above
        takes(2, 0)
        computes(0.01)
        Turns.done += 1
    time.sleep(pause)


def mapped_calls(pause: float) -> None:
    """Do the same in a loop in C."""

    def turn(number: int) -> None:
        computes(0.01) if number % 2 else takes(2, 0)

    list(map(turn, range(300)))
    time.sleep(pause)


class Item:
    """Computes when it is compared."""

    def __lt__(self, other: object) -> bool:
        computes(0.002)
        return True


def sorting(pause: float) -> None:
    """In the keys of a sort, whose comparisons take longer."""

    def key(_: int) -> Item:
        takes(3, 0)
        return Item()

    sorted(range(100), key=key)  # type: ignore[arg-type] # a comparison is all that sorting needs
    time.sleep(pause)


def event_loop(pause: float) -> None:
    """In short callbacks of an event loop."""
    import asyncio

    async def work() -> None:
        for _ in range(100):
            takes(3, 0)
            await asyncio.sleep(0.015)

    asyncio.run(work())
    time.sleep(pause)


if __name__ == "__main__":
    globals()[sys.argv[1]](float(sys.argv[2]))
