"""Entry of the helper: ``python -I -S …/devices/__main__.py SAMPLER PID CHILDREN [LABEL]``."""

from __future__ import annotations

import _thread
import gc
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nncftools.sampler.devices import WatchedRun
    from nncftools.sampler.devices.drm import Drm
    from nncftools.sampler.devices.nvml import Nvml

OUTPUT = 1
_REPEAT_NS = 500_000_000


def follow(source: Nvml | Drm, run: WatchedRun, sleep: Callable[[float], None] = time.sleep) -> None:
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


def _end() -> None:
    """End this process, and what a driver has forked in it."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def main(sampler: int, pid: int, children: int, *, is_detached: bool) -> None:
    """Read until the sampler is gone.

    ``sampler`` is the parent of the command and of orphans, or 0 for a recording that is attached to the process
    ``pid``; ``children`` says whether descendants belong to the run. With ``is_detached`` this process was started by
    the measured program, and stops being its child.
    """
    from nncftools.sampler.devices import WatchedRun
    from nncftools.sampler.devices.drm import Drm
    from nncftools.sampler.devices.nvml import Nvml
    from nncftools.sampler.tree import Tree, detach

    if is_detached:
        detach()
    gc.disable()
    tree = Tree("/proc", ["statm"], reaper=sampler or None, children=bool(children or sampler))
    if pid:
        tree.add(pid)
    output = os.dup(OUTPUT)
    os.dup2(2, OUTPUT)  # what a driver prints is not for the sampler
    run = WatchedRun(tree, output, children=bool(children))
    left: list[Nvml | Drm] = [Nvml(), Drm()]
    run.write("sources", [source.what for source in left])

    def read(source: Nvml | Drm) -> None:
        try:
            follow(source, run)
            run.write("ended", [source.what, ""])
        except Exception as error:  # noqa: BLE001 — of any kind: the others are read on
            run.write("ended", [source.what, f"{type(error).__name__}: {error}"])
        left.remove(source)
        if not left:
            _end()

    for source in (*left,):
        _thread.start_new_thread(read, (source,))
    poller = select.poll()
    poller.register(output, 0)  # POLLERR: the other end is closed (poll(2))
    poller.poll()
    _end()


if __name__ == "__main__":
    here = os.path.abspath(__file__)  # as in the sampler: pathlib would cost 16 ms of start
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(here)))))
    main(*map(int, sys.argv[1:4]), is_detached=len(sys.argv) > 4)  # noqa: PLR2004 — the label
