"""The process that asks the drivers of GPUs and NPUs what a run holds; the sampler writes its lines to the journal.

A driver may take seconds to begin, wait, or crash. Each kind of driver is read in a thread of its own, and nobody waits
for this process: when the sampler closes the pipe, it ends, whatever its threads do. Its lines are JSON, each with one
key: ``devices`` (``t_ns`` on CLOCK_MONOTONIC, and ``values`` by column), ``device`` (what is known of a device),
``warning``, and ``done`` when there is nothing more to read.
"""

from __future__ import annotations

import _thread
import gc
import os
import select
import time

from nncftools.sampler.devices.drm import Drm
from nncftools.sampler.devices.nvml import Nvml
from nncftools.sampler.devices.run import OUTPUT, Run
from nncftools.sampler.tree import Tree, detach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    class Source(Protocol):
        """Reads the devices of one kind of driver."""

        every_s: float
        """The shortest time between two readings."""
        clock: Callable[[], float]
        """Seconds by which the cost of a reading is counted."""

        def begin(self, run: Run) -> bool:
            """Return whether there is anything to read; that may take seconds."""

        def read(self, run: Run) -> Mapping[str, float | None]:
            """Return a value by column, None for unknown."""


_SHARE = 0.01
"""Of the time, that readings may take."""
_REPEAT_NS = 500_000_000


def follow(source: Source, run: Run, sleep: Callable[[float], None] = time.sleep) -> None:
    """Read a source again and again: less often the longer a reading takes. The same values are seldom written.

    On a busy machine, a reading may take long by chance: the shortest of three counts.
    """
    if not source.begin(run):
        return
    before: Mapping[str, float | None] | None = None
    written_ns = 0
    costs_s = [0.0, 0.0]
    while True:
        begun_s = source.clock()
        values = source.read(run)
        now_ns = time.monotonic_ns()
        if values != before or now_ns - written_ns >= _REPEAT_NS:  # also no value: the sampler knows that we live
            before, written_ns = values, now_ns
            run.write("devices", {"t_ns": now_ns, "values": values})
        costs_s = [*costs_s[-2:], source.clock() - begun_s]
        sleep(max(source.every_s, min(costs_s) / _SHARE))


def main(sampler: int, pid: int, children: int, *, is_detached: bool) -> None:
    """Read until the sampler is gone.

    ``sampler`` is the parent of the command and of orphans, or 0 for a recording that is attached to the process
    ``pid``; ``children`` says whether descendants belong to the run. With ``is_detached`` this process was started by
    the measured program, and stops being its child.
    """
    if is_detached:
        detach()
    gc.disable()
    tree = Tree("/proc", ["statm"], reaper=sampler or None, children=bool(children or sampler))
    if pid:
        tree.add(pid)
    run = Run(tree, children=bool(children))
    left: list[Source] = [Nvml(), Drm()]

    def read(source: Source) -> None:
        follow(source, run)
        left.remove(source)
        if not left:
            run.write("done", value=True)
            os._exit(0)

    for source in (*left,):
        _thread.start_new_thread(read, (source,))
    poller = select.poll()
    poller.register(OUTPUT, 0)  # POLLERR: the other end is closed (poll(2))
    poller.poll()
    os._exit(0)
