"""A run under a memory limit, and all runs of a search."""

from __future__ import annotations

import msgspec

FORMAT = "nncf-tools-fit"
VERSION = 1
"""1: first version (2026-11)."""
WORKED = "worked"
"""How a run ended that did what it should."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One run; bytes and seconds, null for unknown."""

    limit: int
    worked: bool
    ended: str
    """How it ended, in words: ``worked``, ``out of memory``, ``exit status 1``, ``given up after 12 s``."""
    gave_up: bool = False
    """Whether it was ended because it took too long, and not for a process that the kernel had killed."""
    duration_s: float
    slower: float
    """How many times the duration of the free run."""
    refaults: int | None = None
    """What was dropped and read again."""
    stall_s: float | None = None
    """For how long a task waited for memory (PSI)."""
    peak_rss: int | None = None
    session: str = ""
    """The file of its recording."""
    is_warm: bool = False
    """Whether many of its files were in the page cache before: what is cached outside of a group is free inside."""


class Free(msgspec.Struct, frozen=True, kw_only=True):
    """The run without a limit; bytes and seconds."""

    duration_s: float
    floor: int
    comfortable: int
    peak_rss: int
    charged: int | None = None
    """The most that was charged to its group, with all of its page cache: a limit of so much changes nothing."""
    session: str = ""
    files: list[str] = []
    """What it read and mapped."""


class Fit(msgspec.Struct, kw_only=True):
    """A search, as far as it went: the file ``fit.json``."""

    format: str = FORMAT
    version: int = VERSION
    command: list[str]
    tolerance: float
    slower: float
    swap: int = 0
    give_up: float = 5.0
    """After how many times the free run's duration a run was ended."""
    success: str | None = None
    """The shell command that had to say 0 after each run."""
    free: Free | None = None
    free_runs: int = 0
    """2 where the first one found its files in the page cache."""
    trials: list[Trial] = []
    is_finished: bool = False
    works_from: int | None = None
    """The smallest limit with which the command worked."""
    fast_from: int | None = None
    """The smallest limit with which it took about as long as without one."""

    @property
    def runs(self) -> int:
        """How many runs have ended."""
        return self.free_runs + len(self.trials)
