"""The kinds of memory that can be recorded, by the names of their metrics."""

from __future__ import annotations

from enum import StrEnum


class MemoryType(StrEnum):
    """A kind of memory; its value is the metric's name, its meaning stands in ``nncf-tools metrics``."""

    RSS = "rss"
    """Resident memory, summed over the processes: a page that several of them share counts once for each."""
    SYSTEM = "system"
    """Memory in use on the whole machine, MemTotal - MemAvailable; look at it from zero."""
    VMS = "vms"
    ANON = "anon"
    """The part of RSS that no file backs: without mapped weights."""
    FILE = "file"
    SHMEM = "shmem"
    SWAP = "swap"
    PSS = "pss"
    """Resident memory, each shared page divided among those that share it; known only in some samples."""
    USS = "uss"
    CGROUP = "cgroup"
