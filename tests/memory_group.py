"""A control group of our own with a memory limit, of v1; only root can make one."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

V1 = Path("/sys/fs/cgroup/memory")
IS_POSSIBLE = os.geteuid() == 0 and os.access(V1 / "cgroup.procs", os.W_OK)


class MemoryGroup:
    """A group that exists within a ``with`` block; its processes must have ended at the block's end."""

    def __init__(self, name: str, limit: int) -> None:
        """Limit memory, and memory with swap, to ``limit`` bytes."""
        self.folder = V1 / f"nncf-tools-test-{name}-{os.getpid()}"
        self._limit = limit

    def __enter__(self) -> Self:
        self.folder.mkdir()
        self.write("memory.limit_in_bytes", self._limit)
        if (self.folder / "memory.memsw.limit_in_bytes").exists():
            self.write("memory.memsw.limit_in_bytes", self._limit)
        return self

    def __exit__(self, *_: object) -> None:
        until_s = time.monotonic() + 10
        while self.pids() and time.monotonic() < until_s:
            time.sleep(0.02)
        self.write("memory.force_empty", 0)  # otherwise the parent group inherits its page cache
        self.folder.rmdir()

    def write(self, file: str, value: int) -> None:
        """Write a number to one of its files. Raises OSError, which an unclosed Python file would swallow."""
        descriptor = os.open(self.folder / file, os.O_WRONLY)
        try:
            os.write(descriptor, str(value).encode())
        finally:
            os.close(descriptor)

    def pids(self) -> list[int]:
        """Return its processes."""
        return [int(line) for line in (self.folder / "cgroup.procs").read_text().split()]

    def used(self) -> int:
        """Return the bytes that are charged to it."""
        return int((self.folder / "memory.usage_in_bytes").read_text())

    def oom_kills(self) -> int:
        """Return how many of its processes the kernel killed."""
        words = (self.folder / "memory.oom_control").read_text().split()
        return int(words[words.index("oom_kill") + 1])

    @property
    def enter(self) -> str:
        """The shell command that puts the shell, and what it executes, into the group."""
        return f"echo $$ > {self.folder}/cgroup.procs"
