"""What the sampler is asked to do: the ``plan`` in the first line of a journal."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NotRequired, TypedDict

    class MemoryLimit(TypedDict):
        """The most that the processes may hold together, and what is done when they hold more."""

        rss: int
        """In bytes."""
        action: str
        """``warn`` or ``kill``."""

    class Plan(TypedDict):
        """What to run or to attach to, and what to read of it how often."""

        argv: list[str]
        """The command and its arguments, each byte a character (latin-1): arguments need not be text. Empty: attach."""
        pid: int | None
        """The process to attach to, or None when a command is started."""
        interval_s: float
        """Seconds from one sample to the next, on absolute deadlines."""
        duration_s: float | None
        """Stop sampling after this many seconds; the command goes on."""
        children: bool
        """Whether the descendants belong to the run."""
        wait_all: bool
        """Whether the recording goes on until the command's last descendant has ended."""
        per_process: bool
        """Whether the RSS of every process is kept for every sample."""
        max_samples: int
        """Beyond this number, neighbouring samples are merged."""
        columns: list[str]
        """The metrics to record, in the order of the values of a sample line."""
        marks: str | None
        """The file that marks are appended to: each is answered by a sample."""
        channel: list[int] | None
        """For a recording of its own starter: a descriptor to be told to stop, and one to tell of the first sample."""
        limit: NotRequired[MemoryLimit | None]
        """Compared with the column ``rss`` at each sample."""
        source: str
        """Where figures come from: ``proc`` or ``psutil``."""
        signal_mask: list[int]
        """Signals that were blocked in the starter, to be restored for the command."""
