"""What each operation of a session cost."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.session.model import Mark, Session


@dataclass(frozen=True)
class Phase:
    """One operation from its mark to its end; bytes and seconds, None for unknown.

    Two operations of one name are two phases; an operation inside another one has a greater depth.
    """

    name: str
    start_s: float
    end_s: float
    depth: int = 0
    rss_start: float | None = None
    """RSS in the sample nearest to the start."""
    rss_end: float | None = None
    """RSS in the sample nearest to the end."""
    rss_peak: float | None = None
    """The largest RSS that was sampled meanwhile; None when there was no sample."""
    cpu_s: float | None = None
    read_bytes: float | None = None
    write_bytes: float | None = None

    @property
    def duration_s(self) -> float:
        """Seconds from start to end."""
        return self.end_s - self.start_s

    @property
    def delta(self) -> float | None:
        """What RSS grew by, in bytes."""
        return None if self.rss_start is None or self.rss_end is None else self.rss_end - self.rss_start


def phases(session: Session) -> list[Phase]:
    """Return the operations of a session in the order of their starts."""
    marks = sorted(session.marks, key=lambda mark: (mark.start_s, mark.depth))
    columns = {name: _Column(session, name) for name in ("rss", "cpu_user", "cpu_system", "read_bytes", "write_bytes")}
    return [_phase(columns, mark, _end_of(mark, marks[place + 1 :], session)) for place, mark in enumerate(marks)]


def _end_of(mark: Mark, later: Sequence[Mark], session: Session) -> float:
    """Return the end of an operation: its own, the next mark of its process on its level or above, or the session's."""
    if mark.end_s is not None:
        return mark.end_s
    followers = (other.start_s for other in later if other.depth <= mark.depth and other.pid == mark.pid)
    return next(followers, max(session.duration_s, mark.start_s))


def _phase(columns: dict[str, _Column], mark: Mark, end_s: float) -> Phase:
    span = mark.start_s, end_s
    user, system = columns["cpu_user"].risen(*span), columns["cpu_system"].risen(*span)
    return Phase(
        name=mark.name,
        start_s=mark.start_s,
        end_s=end_s,
        depth=mark.depth,
        rss_start=columns["rss"].nearest(mark.start_s),
        rss_end=columns["rss"].nearest(end_s),
        rss_peak=columns["rss"].largest(*span),
        cpu_s=None if user is None or system is None else user + system,
        read_bytes=columns["read_bytes"].risen(*span),
        write_bytes=columns["write_bytes"].risen(*span),
    )


class _Column:
    """The samples in which a metric is known."""

    def __init__(self, session: Session, name: str) -> None:
        values = session.samples[name] if name in session.samples else array("d")
        known = [(time, value) for time, value in zip(session.samples.time_s, values, strict=False) if not isnan(value)]
        self._times = [time for time, _ in known]
        self._values = [value for _, value in known]

    def nearest(self, at_s: float) -> float | None:
        """Return the value of the sample that is nearest in time."""
        after = bisect_left(self._times, at_s)
        around = [place for place in (after - 1, after) if 0 <= place < len(self._times)]
        return self._values[min(around, key=lambda place: abs(self._times[place] - at_s))] if around else None

    def largest(self, start_s: float, end_s: float) -> float | None:
        """Return the largest value between two moments."""
        return max(self._values[bisect_left(self._times, start_s) : bisect_right(self._times, end_s)], default=None)

    def risen(self, start_s: float, end_s: float) -> float | None:
        """Return by how much a counter rose, on straight lines between its samples."""
        return self._at(end_s) - self._at(start_s) if self._times else None

    def _at(self, at_s: float) -> float:
        times, values = self._times, self._values
        after = bisect_left(times, at_s)
        if after in {0, len(times)}:
            return values[min(after, len(times) - 1)]
        share = (at_s - times[after - 1]) / (times[after] - times[after - 1])
        return values[after - 1] + share * (values[after] - values[after - 1])
