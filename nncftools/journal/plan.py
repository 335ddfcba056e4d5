"""What a sampler records, of what, and how often; the journal's first line keeps it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.journal.lines import MemoryLimit, PlanFields


class Plan:
    """A recording as it was asked for. Plain, because the sampler does without ``dataclasses`` (1.5 MiB)."""

    def __init__(  # noqa: PLR0913 — one parameter per key
        self,
        columns: Sequence[str],
        *,
        pid: int | None = None,
        interval_s: float = 0.1,
        duration_s: float | None = None,
        children: bool = True,
        wait_all: bool = False,
        per_process: bool = False,
        max_samples: int = 1_000_000,
        source: str = "proc",
        limit: MemoryLimit | None = None,
        redact: Sequence[str] | None = (),
    ) -> None:
        self.columns = list(columns)
        """The metrics to record, in the order of the values of a sample."""
        self.pid = pid
        """The process to attach to; None when a command is started."""
        self.interval_s = interval_s
        """Seconds from one sample to the next, on absolute deadlines."""
        self.duration_s = duration_s
        """Stop sampling after this many seconds; the command goes on."""
        self.children = children
        """Whether the descendants belong to the run."""
        self.wait_all = wait_all
        """Whether the recording goes on until the command's last descendant has ended."""
        self.per_process = per_process
        """Whether the RSS of every process is kept for every sample."""
        self.max_samples = max_samples
        """Beyond this number, neighbouring samples are merged."""
        self.source = source
        """Where figures come from: ``proc`` or ``psutil``."""
        self.limit = limit
        """Compared with the column ``rss`` at each sample."""
        self.redact = None if redact is None else list(redact)
        """Regular expressions of what is hidden besides what looks like a secret; None to hide nothing."""

    def fields(self) -> PlanFields:
        """Return the plan as JSON has it."""
        return {
            "columns": self.columns,
            "pid": self.pid,
            "interval_s": self.interval_s,
            "duration_s": self.duration_s,
            "children": self.children,
            "wait_all": self.wait_all,
            "per_process": self.per_process,
            "max_samples": self.max_samples,
            "source": self.source,
            "limit": self.limit,
            "redact": self.redact,
        }
