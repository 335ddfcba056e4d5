"""The memory of a process at this moment, for callers that want one figure and no recording."""

from __future__ import annotations

import contextlib

import psutil


def memory_now(process: psutil.Process, *, children: bool) -> tuple[int, int]:
    """Return RSS and VMS in bytes, with those of the descendants if ``children``; what has ended counts as 0."""
    family = [process]
    with contextlib.suppress(psutil.Error):
        family += process.children(recursive=True) if children else []
    rss = vms = 0
    for member in family:
        with contextlib.suppress(psutil.Error):
            memory = member.memory_info()
            rss += memory.rss
            vms += memory.vms
    return rss, vms
