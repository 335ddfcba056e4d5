"""Workloads of one process that names its operations."""

from __future__ import annotations

import contextlib
import os
import threading
import time

from benchmarks.workloads.known.witness import MIB, SPIKE_S, Area, Witness, held
from nncftools import mark_operation, operation

_STEPS, _LARGE_STEP = 400, 230
_COMPILATIONS, _LARGE_COMPILATION = 20, 12


def spike_then_plateau(witness: Witness) -> None:
    """600 MiB for 40 ms in Export, then 592 MiB held in Saving."""
    with operation("Export"):
        time.sleep(0.4)
        witness.spike(600, "Export")
        time.sleep(0.4)
    with operation("Saving"):
        time.sleep(0.2)
        with held(592):
            time.sleep(0.8)


def freed_before_mark(witness: Witness) -> None:
    """300 MiB freed just before the end of Quantization, then 296 MiB held in Saving."""
    with operation("Quantization"):
        time.sleep(0.4)
        witness.spike(300, "Quantization")
    with operation("Saving"), held(296):
        time.sleep(0.4)


def across_boundary(witness: Witness) -> None:
    """300 MiB from the last 20 ms of Export to the first 20 ms of Saving."""
    with operation("Export"):
        time.sleep(0.3)
        size = witness.resident() + 300 * MIB
        area = Area(300 * MIB)
        time.sleep(SPIKE_S / 2)
    with operation("Saving"):
        time.sleep(SPIKE_S / 2)
        area.close()
        witness.tell(size, area.begin_ns, "Export", pid=os.getpid(), spans=("Export", "Saving"))
        time.sleep(0.3)


def small_operations(witness: Witness) -> None:
    """Operations of 1 ms, one of which takes 48 MiB."""
    with operation("Generation"):
        for step in range(_STEPS):
            name = f"Step {step}"
            with operation(name):
                if step == _LARGE_STEP:
                    witness.spike(48, "Generation", name, seconds=0.001)
                else:
                    time.sleep(0.001)
    time.sleep(0.2)


def after_last_operation(witness: Witness) -> None:
    """16 MiB for 40 ms, 20 ms after the last operation."""
    with operation("Export"), held(4):
        time.sleep(0.4)
    time.sleep(0.02)
    witness.spike(16, nearest="Export")
    time.sleep(0.3)


def just_after_last_operation(witness: Witness) -> None:
    """16 MiB taken just after the last operation, and held to the end of the run."""
    with operation("Export"), held(4):
        time.sleep(0.4)
    witness.spike(16, nearest="Export", seconds=0.3)


def failed_operation(witness: Witness) -> None:
    """300 MiB taken in an operation that fails, and 0.2 MiB more after it."""
    with contextlib.suppress(ValueError), operation("Weight Compression"):
        time.sleep(0.2)
        size, more = witness.resident() + 300 * MIB, MIB // 5
        area = Area(300 * MIB)
        time.sleep(0.2)
        raise ValueError
    rest = Area(more)
    time.sleep(0.3)
    rest.close()
    area.close()
    witness.tell(size + more, area.begin_ns, "Weight Compression", pid=os.getpid())
    time.sleep(0.1)


def last_mark(witness: Witness) -> None:
    """200 MiB taken in Saving and held until Completion, the last mark of all."""
    with operation("Saving"):
        time.sleep(0.2)
        size = witness.resident() + 200 * MIB
        area = Area(200 * MIB)
        time.sleep(0.3)
    mark_operation("Completion")
    area.close()
    witness.tell(size, area.begin_ns, "Saving", pid=os.getpid())


def nested(witness: Witness) -> None:
    """300 MiB for 40 ms in one of 20 compilations, inside Weight Compression."""
    with operation("Weight Compression"):
        for number in range(_COMPILATIONS):
            with operation("Compilation"):
                time.sleep(0.02)
                if number == _LARGE_COMPILATION:
                    witness.spike(300, "Weight Compression", "Compilation")
    with operation("Saving"), held(296):
        time.sleep(0.3)


def lines_of_output(witness: Witness) -> None:
    """600 MiB for 40 ms in Export, then 592 MiB held in Saving; lines of output mark both."""
    print("Phase Export", flush=True)
    time.sleep(0.4)
    witness.spike(600, "Phase Export", spans=("Phase Export", "Phase Saving"))
    time.sleep(0.2)
    print("Phase Saving", flush=True)
    with held(592):
        time.sleep(0.5)


def threads(witness: Witness) -> None:
    """4 threads that hold 60 MiB each, for 40 ms at the same time, in Quantization."""
    count, size = 4, 60
    together = threading.Barrier(count + 1)

    def work(number: int) -> None:
        together.wait()
        time.sleep(number * 0.05)
        with held(size):
            together.wait()
            together.wait()
        together.wait()

    with operation("Quantization"):
        workers = [threading.Thread(target=work, args=(number,)) for number in range(count)]
        for worker in workers:
            worker.start()
        time.sleep(0.2)
        before = witness.resident()
        together.wait()
        together.wait()
        with witness.peak(before + count * size * MIB, "Quantization", pid=os.getpid()):
            time.sleep(SPIKE_S)
            together.wait()
            together.wait()
        for worker in workers:
            worker.join()
        time.sleep(0.2)
    with operation("Saving"), held(count * size - 4):
        time.sleep(0.3)
