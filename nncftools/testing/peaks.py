"""The peak of one test, from what the kernel and the sampler know.

It travels as ``user_properties``: pytest carries them from worker to controller and into JUnit XML.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nncftools.testing.kernel import Memory
    from nncftools.testing.tap import Row

KERNEL = "kernel"
"""The kernel's own maximum of one process, the test's or a child's: nothing between two samples is missing in it."""
SAMPLED = "sampled"
"""The largest sum of the processes that was sampled; the peak was at least this."""
UNSAMPLED = "unsampled"
"""Of the test's process alone: there was no sampler, and what it held together with others is unknown."""
UNKNOWN = "unknown"
_SIZE, _ABOVE_START, _KNOWN = _OURS = ("memory_peak_bytes", "memory_above_start_bytes", "memory_known")


@dataclass(frozen=True)
class Peak:
    """What one test held at most; bytes, None for unknown."""

    size: int | None = None
    above_start: int | None = None
    """The peak less what was held when the test began."""
    known: str = UNKNOWN
    """How the peak is known."""


@dataclass(kw_only=True)
class Course:
    """What is known of the time from the begin of a test."""

    before: Memory
    """The kernel's figures at its begin."""
    was_reset: bool
    """Whether the kernel's mark began anew with the test."""
    at_ns: int = 0
    """Its begin, on CLOCK_MONOTONIC."""
    operation: int | None = None
    """Its number in the marks log."""
    held: Row | None = None
    """The last sample before the test."""
    largest: Row | None = None
    """The largest sample in it."""


def peak_of(course: Course, after: Memory, *, is_sampled: bool) -> Peak:
    """Return the peak of a test; ``after`` is what the kernel says at its end, up to which it may be sampled."""
    before, largest, held = course.before, course.largest, course.held
    own = _own_mark(course, after)
    found = [(own, KERNEL), (_mark_of_child(before, after), KERNEL)]
    if own is None:
        found += [(before.rss, SAMPLED), (after.rss, SAMPLED)]
    if largest is not None and (own is None or largest.processes > 1):
        found.append((largest.rss, SAMPLED))
    size, known = max(((size, known) for size, known in found if size), default=(None, UNKNOWN), key=itemgetter(0))
    if size is None:
        return Peak()
    start = held.rss if held is not None and before.has_children else before.rss
    above_start = None if start is None else max(0, size - start)
    return Peak(size, above_start, known if is_sampled else UNSAMPLED)


def _own_mark(course: Course, after: Memory) -> int | None:
    """Return the largest RSS of this process in between; without a reset it is only known when it was a new maximum."""
    before = course.before.mark
    if before is None or after.mark is None:
        return None
    return after.mark if course.was_reset or after.mark > before else None


def _mark_of_child(before: Memory, after: Memory) -> int | None:
    """Return the largest RSS of a child that was born and waited for in between, None when that is not certain.

    A child's ``ru_maxrss`` also holds what its parent had when it forked (getrusage(2) keeps it over exec): only what
    exceeds that is the child's own. A child that was there before may have had its peak before.
    """
    if before.has_children or before.children_mark is None or after.children_mark is None or after.mark is None:
        return None
    return after.children_mark if after.children_mark > max(before.children_mark, after.mark) else None


def put(peak: Peak, properties: list[tuple[str, object]]) -> None:
    """Put a peak into a test's properties, in place of that of an earlier run of the test; unknown is left out."""
    figures = zip(_OURS, (peak.size, peak.above_start, peak.known), strict=True)
    others = [(name, value) for name, value in properties if name not in _OURS]
    properties[:] = [*others, *((name, figure) for name, figure in figures if figure is not None)]


def taken(properties: Iterable[tuple[str, object]]) -> Peak | None:
    """Return the peak that is among a test's properties, None when it was not measured."""
    found: dict[str, Any] = {name: value for name, value in properties if name in _OURS}
    return Peak(found.get(_SIZE), found.get(_ABOVE_START), found[_KNOWN]) if _KNOWN in found else None
