"""The process that asks the drivers of GPUs and NPUs what a run holds; the sampler writes its lines to the journal.

A driver may take seconds to begin, wait, or crash. Each kind of driver is read in a thread of its own, and nobody waits
for this process: when the sampler closes the pipe, it ends, whatever its threads do. Its lines are JSON, each with one
key: ``sources`` (all that is read), ``devices`` (``t_ns`` on CLOCK_MONOTONIC, ``of`` which source, ``values`` by
column, and ``next_s``, how long it waits then), ``device`` (what is known of a device), ``warning``, and ``ended`` (the
source, and the error if it could not go on).
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

        what: str
        """The devices, for messages."""
        share: float
        """Of the time, that readings may take."""
        every_s: float
        """The shortest time between two readings."""
        clock: Callable[[], float]
        """Seconds by which the cost of a reading is counted."""

        def begin(self, run: Run) -> bool:
            """Return whether there is anything to read; that may take seconds."""

        def read(self, run: Run) -> Mapping[str, float | None]:
            """Return a value by column, None for unknown."""


_REPEAT_NS = 500_000_000


def follow(source: Source, run: Run, sleep: Callable[[float], None] = time.sleep) -> None:
    """Read a source again and again: less often the longer a reading takes. The same values are seldom written.

    On a busy machine, a reading may take long by chance: the shortest of three counts.
    """
    if not source.begin(run):
        return
    before: tuple[Mapping[str, float | None], int] | None = None
    written_ns = 0
    costs_s = [0.0, 0.0]
    while True:
        begun_s = source.clock()
        values = source.read(run)
        now_ns = time.monotonic_ns()
        costs_s = [*costs_s[-2:], source.clock() - begun_s]
        wait_s = max(source.every_s, min(costs_s) / source.share)
        said = (values, round(wait_s))
        if said != before or now_ns - written_ns >= _REPEAT_NS:  # also no value: the sampler knows that we live
            before, written_ns = said, now_ns
            run.write("devices", {"t_ns": now_ns, "of": source.what, "next_s": wait_s, "values": values})
        sleep(wait_s)


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
    output = os.dup(OUTPUT)
    os.dup2(2, OUTPUT)  # what a driver prints is not for the sampler
    run = Run(tree, output, children=bool(children))
    left: list[Source] = [Nvml(), Drm()]
    run.write("sources", [source.what for source in left])

    def read(source: Source) -> None:
        try:
            follow(source, run)
            run.write("ended", [source.what, ""])
        except Exception as error:  # noqa: BLE001 — of any kind: the others are read on
            run.write("ended", [source.what, f"{type(error).__name__}: {error}"])
        left.remove(source)
        if not left:
            os._exit(0)

    for source in (*left,):
        _thread.start_new_thread(read, (source,))
    poller = select.poll()
    poller.register(output, 0)  # POLLERR: the other end is closed (poll(2))
    poller.poll()
    os._exit(0)
