"""What the measurements were made on."""

from __future__ import annotations

import os
import pathlib
import platform


def description() -> str:
    """Return processor, cores, memory, kernel and Python in one line."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    system = f"{platform.system()} {platform.release()}"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{_processor()}, {os.cpu_count()} cores, {memory:.1f} GiB; {system}; {python}"


def processes() -> int:
    """Return how many processes can be seen."""
    return sum(each.name.isdigit() for each in pathlib.Path("/proc").iterdir())


def available_memory() -> int:
    """Return the bytes that programs can have without swapping."""
    lines = pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def drop_from_cache(file: pathlib.Path) -> None:
    """Write a file to storage and drop its pages: what is cached is free for whoever reads it next."""
    descriptor = os.open(file, os.O_RDWR)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _processor() -> str:
    lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
