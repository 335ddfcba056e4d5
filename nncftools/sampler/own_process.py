"""What the sampler does to its own process, and knows of it."""

from __future__ import annotations

import contextlib
import os

from nncftools.sampler.tree import NAME_BESIDE

_STANDARD_ERROR = 2
_URGENT = -10


def detach() -> None:
    """Become nobody's child, in a session of our own.

    The starter is what is measured: a child would be in its tree, and its CPU time folded into the starter's. The name
    tells other recordings that this process is no part of what they measure.
    """
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write(NAME_BESIDE)
    if os.fork():
        os._exit(0)
    os.setsid()


def occupy_standard_descriptors() -> None:
    """Keep 0, 1 and 2 from becoming the journal where they were closed; the command still gets them closed."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        pass
    os.close(descriptor)


def raise_descriptor_limit() -> None:
    """Allow as many kept files as the system does; after the command was started, which inherits limits."""
    import resource

    set_descriptor_limit(resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def set_descriptor_limit(soft: int) -> None:
    """Allow so many open files, as far as the system does."""
    import resource

    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def raise_priority() -> None:
    """Come before the command where that is allowed: a late sampler says nothing of a busy machine."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _URGENT)


def high_water_mark() -> int:
    """Return this process's own VmHWM in bytes, or 0 where there is no /proc.

    Not ``ru_maxrss``, which holds what the starter had when it forked (getrusage(2) keeps it over exec).
    """
    try:
        with open("/proc/self/status", "rb") as file:
            return int(file.read().partition(b"\nVmHWM:")[2].split(None, 1)[0]) * 1024
    except OSError:
        return 0
