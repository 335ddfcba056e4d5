"""Workloads of one process without operations, and of a process that others come and go beside."""

from __future__ import annotations

import mmap
import os
import pathlib
import shutil
import sys
import time

from benchmarks.workloads.known.witness import MIB, SPIKE_S, Witness, held

_AT_ONCE = 4
_SMALL = 4 * MIB
"""More than a process takes that does nothing."""


def spike(witness: Witness) -> None:
    """60 MiB for 40 ms."""
    time.sleep(0.5)
    witness.spike(60)
    time.sleep(0.4)


def holds_the_gil(witness: Witness) -> None:
    """200 MiB made and read in calls that hold the GIL."""
    time.sleep(0.4)
    before, size = witness.resident(), 200 * MIB
    text = b"x" * size
    with witness.peak(before + size, pid=os.getpid()):
        hash(text)
        del text
    time.sleep(0.4)


def before_exec(witness: Witness) -> None:
    """300 MiB for 40 ms, then exec of a small program."""
    time.sleep(0.3)
    witness.spike(300)
    time.sleep(0.3)
    os.execv("/bin/sleep", ["sleep", "0.5"])  # noqa: S606 — no shell is wanted


def after_exec(witness: Witness) -> None:
    """200 MiB for 0.3 s, then exec of a program that takes 300 MiB for 40 ms."""
    with held(200):
        time.sleep(0.3)
    _exec("later_spike", witness)


def later_spike(witness: Witness) -> None:
    """300 MiB for 40 ms."""
    time.sleep(0.4)
    witness.spike(300)
    time.sleep(0.3)


def mapped_weights(witness: Witness) -> None:
    """300 MiB of a mapped file, read and dropped."""
    size = 300 * MIB
    weights = pathlib.Path(witness.file).with_suffix(".weights")
    with weights.open("w+b") as file:
        file.truncate(size)
        time.sleep(0.3)
        area = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    before = witness.resident()
    _ = area[:: mmap.PAGESIZE]
    with witness.peak(before + size, pid=os.getpid()):
        time.sleep(SPIKE_S)
        area.madvise(mmap.MADV_DONTNEED)
    time.sleep(0.3)
    area.close()
    weights.unlink()
    time.sleep(0.2)


def storm(witness: Witness) -> None:
    """150 MiB for 40 ms amid a storm of short processes."""
    _spawn_for(0.4)
    before = witness.resident()
    with held(150) as area:
        _spawn_for(SPIKE_S)
    witness.tell(before + area.size, area.begin_ns, spread=_AT_ONCE * _SMALL)
    _spawn_for(0.4)


def attached(witness: Witness) -> None:
    """200 MiB for 40 ms, recorded with --pid."""
    _wait_for_recorder()
    witness.spike(200)
    time.sleep(0.4)


def attached_late(witness: Witness) -> None:
    """200 MiB for 0.3 s, recorded with --pid after a larger peak."""
    with held(300):
        pass
    _wait_for_recorder()
    witness.spike(200, seconds=0.3)
    time.sleep(0.4)


def _wait_for_recorder() -> None:
    """Write a line, and leave some time to attach."""
    os.write(1, b"ready\n")
    time.sleep(1.5)


def _exec(name: str, witness: Witness) -> None:
    package = __package__ or ""
    os.execv(sys.executable, [sys.executable, "-m", package, name, witness.file])  # noqa: S606 — no shell is wanted


def _spawn_for(seconds: float) -> None:
    """Start and reap programs that do nothing, four at a time, and leave none."""
    program, end = shutil.which("true") or "true", time.monotonic() + seconds
    alive = 0
    while alive or time.monotonic() < end:
        if time.monotonic() < end:
            os.posix_spawn(program, [program], {})
            alive += 1
        if alive == _AT_ONCE or time.monotonic() >= end:
            os.wait()
            alive -= 1
