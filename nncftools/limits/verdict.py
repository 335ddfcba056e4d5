"""Why something died, as far as the evidence says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.limits.effective import Effective
    from nncftools.limits.last_state import LastState
    from nncftools.session.model import Process

CERTAIN, LIKELY, POSSIBLE = "certain", "likely", "possible"

OUT_OF_MEMORY = "out_of_memory"
"""The kernel killed it because its control group or the machine had no memory left."""
MAX_MEMORY = "max_memory"
"""Our own limit ended it."""
ALLOCATION = "allocation_failed"
"""The program itself could not get memory: MemoryError, std::bad_alloc."""
DISK_FULL = "disk_full"
KILLED = "killed"
"""By SIGKILL of another process."""
CRASHED = "crashed"
"""By a fault of the program: SIGSEGV, SIGABRT."""
TERMINATED = "terminated"
"""By another signal from outside."""
RANK_FAILED = "rank_failed"
"""Of a job of several ranks: the first one that failed."""
LOST = "recorder_lost"
"""The recording breaks off, and nobody knows how the command ended."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A conclusion with its evidence; bytes, and seconds since the start."""

    cause: str
    certainty: str
    """``certain``, ``likely`` or ``possible``."""
    text: str
    """The conclusion in one sentence, without a full stop."""
    at_s: float
    state: LastState
    process: Process | None = None
    """What died; None for the whole run, and for an unknown process."""
    signal: str | None = None
    evidence: Sequence[str] = ()
    is_not: Sequence[str] = ()
    """What the evidence excludes."""
    limit: Effective | None = None
    """The limit that was reached, or that would have been next; None for unknown."""
    is_for_memory: bool = False
    """Whether more memory would have helped."""
    hung_s: float | None = None
    """For how long the command did nothing afterwards; None if it went on or ended."""
