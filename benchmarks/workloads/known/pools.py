"""Workloads that share memory with forked workers of multiprocessing."""

from __future__ import annotations

import multiprocessing
import time

from benchmarks.workloads.known.processes import Meeting
from benchmarks.workloads.known.witness import MIB, Witness, held
from nncftools import operation

_FORK = multiprocessing.get_context("fork")
_POOL = 4
_LOADERS = 3
_BATCH = 80


def forked_pool(witness: Witness) -> None:
    """300 MiB shared with a forked pool of 4 processes, in Calibration."""
    with operation("Calibration"), held(300):
        time.sleep(0.4)
        with _FORK.Pool(_POOL) as pool:
            begin_ns = time.monotonic_ns()
            naps = pool.map_async(time.sleep, [0.6] * _POOL, chunksize=1)
            time.sleep(0.2)
            size, pss = witness.resident(), witness.pss()
            naps.get()
            witness.tell(size, begin_ns, "Calibration", pss=pss)
    with operation("Saving"):
        time.sleep(0.3)


def data_loader(witness: Witness) -> None:
    """200 MiB and 3 forked data loaders that hold a batch of 80 MiB each, at the same time, in Training."""
    with operation("Training"), held(200):
        for share in (0.25, 1.0, 0.5):
            _load(witness, round(_BATCH * share))
    with operation("Saving"):
        time.sleep(0.2)


def _load(witness: Witness, batch: int) -> None:
    """Have workers load one batch each."""
    meeting = Meeting(_LOADERS + 1)
    workers = [_FORK.Process(target=_worker, args=(meeting, number + 1, batch)) for number in range(_LOADERS)]
    for worker in workers:
        worker.start()
    meeting.join(0)
    size = witness.resident() + _LOADERS * batch * MIB
    meeting.join(0)
    meeting.join(0)
    begin_ns, pss = time.monotonic_ns(), witness.pss()
    time.sleep(0.2)
    if batch == _BATCH:
        witness.tell(size, begin_ns, "Training", pss=pss)
    meeting.join(0)
    for worker in workers:
        worker.join()


def _worker(meeting: Meeting, number: int, batch: int) -> None:
    meeting.join(number)
    meeting.join(number)
    with held(batch):
        meeting.join(number)
        meeting.join(number)
