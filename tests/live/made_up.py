"""Runs made up for the live view."""

from __future__ import annotations

import numpy as np

from nncftools.live.run import LiveProcess, Run
from nncftools.session.model import Host, MemoryLimit

MIB = 2**20


def run(seconds: float = 100.0, step_s: float = 0.1, memory: int | None = 8 << 30, limit: int | None = None) -> Run:
    """Return a run whose RSS rises by 1 MiB a second up to 200 MiB, with one core busy; ``limit`` is its group's."""
    columns = ["rss", "anon", "system", "cpu_user", "cpu_system", "read_bytes", "write_bytes", "processes"]
    made = Run("work --fast", columns, step_s, Host(name="box", memory=memory))
    if limit is not None:
        made.limits = [MemoryLimit(kind="control group", size=limit)]
    time_s = np.arange(0.0, seconds, step_s)
    rss = (100 + time_s) * MIB
    zero = np.zeros(len(time_s))
    rows = [time_s, rss, rss / 2, rss + (2 << 30), time_s * 0.75, time_s * 0.25, zero, time_s * MIB, zero + 2]
    made.take_samples(np.stack(rows, axis=1))
    for number in reversed(range(8)):
        made.processes[number] = LiveProcess(1000 + number, f"worker-{number}", (8 - number) * MIB)
    return made
