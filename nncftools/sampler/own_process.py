"""What the sampler changes and reads of its own process: parents, descriptors, priority, memory."""

from __future__ import annotations

import contextlib
import os
import sys

from nncftools.sampler.tree import DETACHED_NAME

_STANDARD_ERROR = 2
_URGENT = -10
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> bool:
    """Make orphaned descendants children of this process (prctl(2), Linux only); return whether that worked."""
    if sys.platform != "linux":
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def detach() -> None:
    """Stop being a child of the starter, and begin a session of our own.

    The starter is the measured process: a child would be in its tree, and its CPU time would be added to the starter's.
    The name tells other recordings that this process is not part of what they measure.
    """
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write(DETACHED_NAME)
    if os.fork():
        os._exit(0)
    os.setsid()


def occupy_standard_descriptors() -> None:
    """Open closed descriptors 0, 1 and 2, so that no file of ours gets their numbers; the command gets them closed."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        pass
    os.close(descriptor)


def raise_descriptor_limit() -> None:
    """Allow as many open files as the system does. Call it after the start of the command, which inherits limits."""
    import resource

    set_descriptor_limit(resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def set_descriptor_limit(soft: int) -> None:
    """Set the soft limit of open files, if the system allows it."""
    import resource

    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def raise_priority() -> None:
    """Run before the command where that is allowed: a sampler that is late cannot measure a busy machine."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _URGENT)


def high_water_mark() -> int:
    """Return this process's own VmHWM in bytes, or 0 where there is no /proc.

    ``ru_maxrss`` would not do: it includes the starter's size at its fork (getrusage(2) keeps it over exec).
    """
    try:
        with open("/proc/self/status", "rb") as file:
            return int(file.read().partition(b"\nVmHWM:")[2].split(None, 1)[0]) * 1024
    except OSError:
        return 0


def warn(text: str) -> None:
    """Write a line to standard error, if that works."""
    with contextlib.suppress(OSError):
        os.write(_STANDARD_ERROR, f"nncf-tools: {text}\n".encode())
