"""The kinds of memory that a process holds, as its status file says (``/proc/PID/status``, proc(5))."""

from __future__ import annotations

from nncftools.sampler.kernel_file import PAGE, value_of


class MemoryKinds:
    """What was read last; bytes."""

    __slots__ = ("anon", "file", "inherited", "is_new", "rss", "shmem", "tables")

    def __init__(self) -> None:
        self.rss = 0
        """RSS in pages when the rest was read."""
        self.anon = self.shmem = self.file = 0
        self.tables = 0
        """Its page tables, which a control group charges, too."""
        self.inherited: int | None = None
        """The anonymous memory that it had from its parent at its fork; None before the first reading."""
        self.is_new = False
        """Whether ``own`` was not asked for since the last reading."""

    def take(self, status: bytes, rss: int, parents: int) -> None:
        """Read a status file, when RSS is ``rss`` pages.

        ``parents`` is the anonymous memory of the process that it is a forked copy of, 0 for any other. A zombie's file
        says nothing, and neither does that of a kernel before 4.5.
        """
        anon = value_of(status, b"\nRssAnon:")
        if anon is None:
            return
        self.rss, self.anon, self.is_new = rss, anon, True
        self.file = value_of(status, b"\nRssFile:") or 0
        self.shmem = value_of(status, b"\nRssShmem:") or 0
        self.tables = value_of(status, b"\nVmPTE:") or 0
        if self.inherited is None:
            self.inherited = min(anon, parents)

    def own(self, rss: int, faults: int) -> int:
        """Return the anonymous memory that is not its parent's, for a process of ``rss`` pages and so many page faults.

        A forked copy has what it took since, and the pages that it copied because it wrote to them: these are page
        faults without a growth of RSS.
        """
        self.is_new = False
        if not self.inherited:
            return self.anon + self.tables
        grown = max(0, rss * PAGE - self.inherited)
        copied = min(self.inherited, max(0, faults * PAGE - grown))
        return max(0, self.anon - self.inherited) + copied + self.tables
