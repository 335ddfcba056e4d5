"""Takes memory of one kind, in MiB, for a moment: ``needs.py KIND FILE``.

``anonymous``: 300. ``two``: two processes of 150. ``copied``: a file of 300, mapped privately and written. ``read``:
200 anonymous, and a file of 300 that is mapped and read five times. ``spike``: 400 anonymous that are freed, then
``read``. ``dirty``: a file of 300, mapped shared and written. ``reread``: the file is read ten times, not mapped.
"""

from __future__ import annotations

import mmap
import pathlib
import subprocess
import sys
import time

MIB = 1 << 20
_STEP = 16 * MIB
_HOLD_S = 0.25


def take(size: int) -> mmap.mmap:
    """Return anonymous memory that was written."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    write(memory)
    return memory


def write(memory: mmap.mmap) -> None:
    """Write to every page."""
    for start in range(0, len(memory), _STEP):
        for place in range(start, min(start + _STEP, len(memory)), mmap.PAGESIZE):
            memory[place] = 1
        time.sleep(0.005)


def read(memory: mmap.mmap) -> None:
    """Read every page."""
    for place in range(0, len(memory), mmap.PAGESIZE):
        memory[place]


def mapped(path: str, flags: int) -> mmap.mmap:
    """Return a mapping of a whole file, which can be written."""
    with pathlib.Path(path).open("r+b") as file:
        return mmap.mmap(file.fileno(), 0, flags=flags)


def reread(path: str) -> None:
    """Read a whole file ten times, one MiB at a time."""
    with pathlib.Path(path).open("rb", buffering=0) as file:
        for _ in range(10):
            file.seek(0)
            while file.read(MIB):
                pass


def run(kind: str, path: str) -> None:
    """Take memory, and hold it for a moment."""
    held: list[mmap.mmap] = []
    if kind == "anonymous":
        held.append(take(300 * MIB))
    elif kind == "half":
        held.append(take(150 * MIB))
    elif kind == "two":
        command = [sys.executable, __file__, "half", path]
        children = [subprocess.Popen(command) for _ in range(2)]
        sys.exit(any([child.wait() for child in children]))  # noqa: C419 — wait for both
    elif kind == "copied":
        held.append(mapped(path, mmap.MAP_PRIVATE))
        write(held[0])
    elif kind == "dirty":
        held.append(mapped(path, mmap.MAP_SHARED))
        write(held[0])
    elif kind == "reread":
        reread(path)
    else:
        if kind == "spike":
            spike = take(400 * MIB)
            time.sleep(_HOLD_S)
            spike.close()
        held += [take(200 * MIB), mapped(path, mmap.MAP_SHARED)]
        for _ in range(5):
            read(held[1])
    time.sleep(_HOLD_S)


if __name__ == "__main__":
    run(*sys.argv[1:3])
