"""What a sampler records, and how often; stored in the journal's first line."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.journal.lines import MemoryLimit, PlanFields


class Plan:
    """A requested recording. A plain class, because ``dataclasses`` would cost the sampler 1.5 MiB."""

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
        slow_share: float = 0.01,
        file_systems: Sequence[Sequence[str]] = (),
    ) -> None:
        self.columns = list(columns)
        """The metrics to record, in the order of a sample's values."""
        self.pid = pid
        """The process to attach to; None when a command is started."""
        self.interval_s = interval_s
        """Seconds between samples, on absolute deadlines."""
        self.duration_s = duration_s
        """Stop sampling after this many seconds; the command continues."""
        self.children = children
        """Whether descendants belong to the run."""
        self.wait_all = wait_all
        """Whether to record until the command's last descendant has ended."""
        self.per_process = per_process
        """Whether to keep the RSS of every process at every sample."""
        self.max_samples = max_samples
        """Beyond this number, neighbouring samples are merged."""
        self.source = source
        """The source of the figures: ``proc`` or ``psutil``."""
        self.limit = limit
        """Compared with the column ``rss`` at each sample."""
        self.redact = None if redact is None else list(redact)
        """Regular expressions of further text to hide, besides what looks like a secret; None hides nothing."""
        self.slow_share = slow_share
        """The share of the time that reading PSS and USS may take."""
        self.file_systems = [list(pair) for pair in file_systems]
        """Whose free bytes to watch: for each its role, such as ``TMPDIR``, and one of its folders."""

    def fields(self) -> PlanFields:
        """Return the plan as JSON fields."""
        fields: PlanFields = {**vars(self)}  # type: ignore[typeddict-item] # the same keys
        return fields
