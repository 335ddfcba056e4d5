"""Decides when to read the mappings of the largest processes: near each new maximum of the tree."""

from __future__ import annotations

import time

from nncftools.snapshots.budget import Budget
from nncftools.snapshots.mappings import groups

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from nncftools.journal.writing import Writer
    from nncftools.snapshots.watched import Watched

_STEP = 2.5
_STEP_AT_REST = 1.4
_MORE_WHEN_USED = 0.3
"""Steps grow with the used part of the budget: each reading takes longer than the one before."""
_SMALLEST = 128 << 20
_HELD = 0.9
"""If the tree still holds this part of its maximum, and much of it became anonymous, mapped files were copied."""
_AT_REST_NS = 30_000_000
_COVERED = 0.95
_MOST_PROCESSES = 8


class MappingWatch:
    """Reads mappings when the tree holds clearly more than at the last reading, or a little more and stays there."""

    def __init__(self, writer: Writer, share: float, least_s: float) -> None:
        self.spent_s = 0.0
        """CPU seconds so far."""
        self._writer = writer
        self._budget = Budget(share, least_s, own_cpu=lambda: self.spent_s)
        self._highest = _SMALLEST
        self._most_anonymous = 0
        self._expected_s = 0.005

    def look(self, watched: Collection[Watched], now_ns: int, rose_ns: int) -> None:
        """Read the mappings if it is time to; ``rose_ns`` is when the memory of the tree last rose."""
        total = sum([one.growth.rss for one in watched])
        at_rest = now_ns - rose_ns >= _AT_REST_NS
        step = _STEP_AT_REST if at_rest else _STEP + _MORE_WHEN_USED * self._budget.used
        anonymous = sum([one.anonymous for one in watched])
        is_copied = (
            at_rest and anonymous >= (self._most_anonymous + _SMALLEST) * step and total >= self._highest * _HELD
        )
        if total < self._highest * step and not is_copied:
            return
        if not self._budget.allows(self._expected_s):
            return
        self._budget.begin(self._expected_s)
        before_s = time.process_time()
        self._highest, self._most_anonymous = max(total, self._highest), anonymous
        self._write(watched, total)
        cost_s = time.process_time() - before_s
        self.spent_s += cost_s
        self._expected_s = (self._expected_s + cost_s) / 2

    def _write(self, watched: Collection[Watched], total: int) -> None:
        t_ns, covered, found = time.monotonic_ns(), 0, []
        for one in sorted(watched, key=lambda one: -one.growth.rss)[:_MOST_PROCESSES]:
            if covered >= total * _COVERED:
                break
            try:
                found.append((one.process.number, groups(one.process.read("smaps"))))
            except OSError:  # it has ended, or belongs to another user
                continue
            covered += one.growth.rss
        if found:
            self._writer.line("mappings", {"t_ns": t_ns, "total": total, "processes": found})
