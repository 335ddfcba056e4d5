"""Workloads of several processes."""

from __future__ import annotations

import os
import time
from functools import partial

from benchmarks.workloads.known.processes import Meeting, asleep, fork, forked
from benchmarks.workloads.known.witness import MIB, SPIKE_S, Area, Witness, held
from nncftools import operation

_SLEEPERS = 50
_COPIES = 4
_SAMPLED_S = 0.02
"""A sample that a mark triggers is over after this time."""


def orphan(witness: Witness) -> None:
    """300 MiB for 40 ms in an orphaned grandchild."""
    meeting = Meeting(2)

    def daemon() -> None:
        time.sleep(0.4)
        witness.spike(300)
        time.sleep(0.2)
        meeting.join(1)

    def leave() -> None:
        os.setsid()
        fork(daemon)

    with forked(leave):
        pass
    meeting.join(0)
    time.sleep(0.1)


def many_sleepers(witness: Witness) -> None:
    """300 MiB for 40 ms in one of 51 children."""

    def large() -> None:
        time.sleep(0.6)
        witness.spike(300)
        time.sleep(0.4)

    with asleep(_SLEEPERS), forked(large):
        pass


def one_after_another(witness: Witness) -> None:
    """200 MiB in a process that ends, and just after it 300 MiB for 40 ms in its parent."""

    def first() -> None:
        with held(200):
            time.sleep(1.15)

    def second() -> None:
        with forked(first):
            pass
        witness.spike(300)
        time.sleep(0.6)

    with forked(second):
        pass


def child(witness: Witness) -> None:
    """300 MiB for 40 ms in Compilation, in a child of the process in Export; then 300 MiB in Saving."""

    def compile_model() -> None:
        time.sleep(0.2)
        with operation("Compilation"):
            time.sleep(0.1)
            witness.spike(300, "Export", "Compilation")
            time.sleep(0.1)

    with operation("Export"), forked(compile_model):
        pass
    with operation("Saving"), held(300):
        time.sleep(0.3)


def parallel(witness: Witness) -> None:
    """300 MiB in First, 304 MiB in Second, in two parallel processes at different times, each for 40 ms."""
    meeting = Meeting(2)

    def first() -> None:
        with operation("First"):
            time.sleep(0.4)
            with held(300):
                time.sleep(SPIKE_S)
            meeting.join(0)
            meeting.join(0)

    def second() -> None:
        with operation("Second"):
            meeting.join(1)
            time.sleep(0.4)
            witness.spike(304, "Second")
            time.sleep(0.3)
            meeting.join(1)

    with forked(first, second):
        pass
    time.sleep(0.1)


def fresh_forks(witness: Witness) -> None:
    """2 processes, forked 35 ms before from one of 200 MiB, that take 50 MiB each."""
    size, meeting, names = 50 * MIB, Meeting(3), ("Quantization 1", "Quantization 2")

    def quantize(number: int) -> None:
        time.sleep(0.035)
        with operation(names[number]):
            meeting.join(number)
            meeting.join(number)
            area = Area(size)
            meeting.join(number)
            meeting.join(number)
        meeting.join(number)
        time.sleep(_SAMPLED_S)
        area.close()

    with held(200), forked(partial(quantize, 0), partial(quantize, 1)):
        meeting.join(2)
        peak = witness.resident() + 2 * size
        meeting.join(2)
        meeting.join(2)
        with witness.peak(peak, names[0], beside=names, growth=dict.fromkeys(names, 2 * size)):
            time.sleep(0.3)
        meeting.join(2)
        meeting.join(2)


def copies(witness: Witness) -> None:
    """400 MiB shared by 5 processes."""
    with held(400), asleep(_COPIES):
        begin_ns = time.monotonic_ns()
        time.sleep(0.1)
        size, pss = witness.resident(), witness.pss()
        time.sleep(0.7)
        witness.tell(size, begin_ns, pss=pss)
