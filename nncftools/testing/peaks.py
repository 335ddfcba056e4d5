"""The peak of one test, from what the kernel and the sampler know."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nncftools.testing.kernel import Memory
    from nncftools.testing.tap import Row

KERNEL = "kernel"
"""The kernel's own maximum of one process, the test's or a child's: nothing between two samples is missing in it."""
SAMPLED = "sampled"
"""The largest sum of the processes that was sampled; the peak was at least this."""
UNSAMPLED = "unsampled"
"""Of the test's process alone: there was no sampler, and what it held together with others is unknown."""
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Peak:
    """What one test held at most; bytes, None for unknown."""

    size: int | None = None
    above_start: int | None = None
    """The peak less what was held when the test began."""
    known: str = UNKNOWN
    """How the peak is known."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What is known of the time from the begin of a test."""

    before: Memory
    """The kernel's figures at its begin."""
    after: Memory
    """The same at its end."""
    was_reset: bool
    """Whether the kernel's mark began anew with the test."""
    held: Row | None
    """The last sample before the test."""
    largest: Row | None
    """The largest sample in it."""
    is_sampled: bool
    """Whether there were samples up to its end."""


def peak_of(measurement: Measurement) -> Peak:
    """Return the peak of a test."""
    before, largest, held = measurement.before, measurement.largest, measurement.held
    own = _own_mark(measurement)
    found = [(own, KERNEL), (_mark_of_child(measurement), KERNEL)]
    if own is None:
        found += [(before.rss, SAMPLED), (measurement.after.rss, SAMPLED)]
    if largest is not None and (own is None or largest.processes > 1):
        found.append((largest.rss, SAMPLED))
    size, known = max(((size, known) for size, known in found if size), default=(None, UNKNOWN), key=itemgetter(0))
    if size is None:
        return Peak()
    start = held.rss if held is not None and before.has_children else before.rss
    above_start = None if start is None else max(0, size - start)
    return Peak(size, above_start, known if measurement.is_sampled else UNSAMPLED)


def _own_mark(measurement: Measurement) -> int | None:
    """Return the largest RSS of this process in between; without a reset it is only known when it was a new maximum."""
    before, after = measurement.before, measurement.after
    if before.mark is None or after.mark is None:
        return None
    return after.mark if measurement.was_reset or after.mark > before.mark else None


def _mark_of_child(measurement: Measurement) -> int | None:
    """Return the largest RSS of a child that was born and waited for in between, None when that is not certain.

    A child's ``ru_maxrss`` also holds what its parent had when it forked (getrusage(2) keeps it over exec): only what
    exceeds that is the child's own. A child that was there before may have had its peak before.
    """
    before, after = measurement.before, measurement.after
    if before.has_children or before.children_mark is None or after.children_mark is None or after.mark is None:
        return None
    return after.children_mark if after.children_mark > max(before.children_mark, after.mark) else None
