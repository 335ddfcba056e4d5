"""The peak of one test, from figures of the kernel and the sampler."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nncftools.testing.kernel import Memory
    from nncftools.testing.tap import Row

KERNEL = "kernel"
"""The kernel's maximum of one process, the test's or a child's; it includes peaks between samples."""
SAMPLED = "sampled"
"""The largest sampled sum over the processes; a lower bound of the peak."""
UNSAMPLED = "unsampled"
"""The test's process only: without a sampler, the sum over the processes is unknown."""
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Peak:
    """The memory peak of one test; in bytes, None for unknown."""

    size: int | None = None
    above_start: int | None = None
    """The peak minus the memory held at the start of the test."""
    known: str = UNKNOWN
    """How the peak is known: one of the constants above."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What is known about a test, from its start."""

    before: Memory
    """The kernel's figures at its start."""
    after: Memory
    """The kernel's figures at its end."""
    was_reset: bool
    """Whether the high-water mark was reset at its start."""
    held: Row | None
    """The last sample before it."""
    largest: Row | None
    """The largest sample during it."""
    is_sampled: bool
    """Whether the sampler ran until its end."""


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
    """Return this process's largest RSS during the test; without a reset it is known only if it is a new maximum."""
    before, after = measurement.before, measurement.after
    if before.mark is None or after.mark is None:
        return None
    return after.mark if measurement.was_reset or after.mark > before.mark else None


def _mark_of_child(measurement: Measurement) -> int | None:
    """Return the largest RSS of a child that started and was waited for during the test; None if uncertain.

    A child's ``ru_maxrss`` includes its parent's RSS at the fork, and exec keeps it (getrusage(2)): only a larger value
    is the child's own. A child from before the test may have had its peak before the test.
    """
    before, after = measurement.before, measurement.after
    if before.has_children or before.children_mark is None or after.children_mark is None or after.mark is None:
        return None
    return after.children_mark if after.children_mark > max(before.children_mark, after.mark) else None
