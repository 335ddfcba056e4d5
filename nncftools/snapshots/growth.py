"""How the RSS of one process changes: what it has gained since its stacks were read, and a short list of points."""

from __future__ import annotations

from nncftools.sampler.tree import PAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    Point = tuple[int, int]
    """A moment on CLOCK_MONOTONIC in nanoseconds, and RSS in bytes."""

_SMALLEST_STEP = 64 * 1024
_SMALLEST_DEVIATION = 256 * 1024
_MOST_POINTS = 16
_FULL = 512


class Growth:
    """The points of one process since they were written last."""

    def __init__(self, t_ns: int) -> None:
        """Begin at nothing: the first reading is a rise, too."""
        self.points: list[Point] = [(t_ns, 0)]
        self.rss = 0
        self.first = 0
        """The first reading."""
        self._lowest = 0
        self._polled_ns = t_ns
        self.rose_ns = t_ns
        """When RSS last rose."""

    def add(self, t_ns: int, pages: int) -> int:
        """Take a reading of RSS; return by how many bytes it rose."""
        rss = pages * PAGE
        last_t_ns, last_rss = self.points[-1]
        step = rss - last_rss
        before_ns, before, self._polled_ns = self._polled_ns, self.rss, t_ns
        if rss == before:
            return 0
        self.rss = rss
        self.first = self.first or rss
        self._lowest = min(self._lowest, rss)
        if not -_SMALLEST_STEP < step < _SMALLEST_STEP:
            if before_ns > last_t_ns:
                self.points.append((before_ns, before))  # until then it was level
            self.points.append((t_ns, rss))
            if len(self.points) > _FULL:
                self.points = thinned(self.points, _FULL // 2)
        if rss > before:
            self.rose_ns = t_ns
        return rss - before

    @property
    def gained(self) -> int:
        """How far RSS is above its lowest point since the last look, in bytes."""
        return self.rss - self._lowest

    def looked(self) -> None:
        """Count gains from now on."""
        self._lowest = self.rss

    def take_points(self, t_ns: int) -> list[Point]:
        """Return the points since the last call, as few as possible; the last one is now."""
        points = self.points
        if points[-1][0] != t_ns:
            points.append((t_ns, self.rss))
        self.points = [points[-1]]
        return thinned(points, _MOST_POINTS)


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """Return at most ``most`` points: those that lie farthest from the lines between the others."""
    kept = {0, len(points) - 1}
    pending = [_farthest(points, 0, len(points) - 1)]
    while pending and len(kept) < most:
        pending.sort()
        deviation, place, first, last = pending.pop()
        if deviation < _SMALLEST_DEVIATION:
            break
        kept.add(place)
        pending += [_farthest(points, first, place), _farthest(points, place, last)]
    return [points[place] for place in sorted(kept)]


def _farthest(points: Sequence[Point], first: int, last: int) -> tuple[float, int, int, int]:
    """Return deviation and place of the point farthest from the line between two others, and these."""
    (t0, rss0), (t1, rss1) = points[first], points[last]
    slope = (rss1 - rss0) / (t1 - t0) if t1 > t0 else 0.0
    deviation, place = 0.0, first
    for number in range(first + 1, last):
        t, rss = points[number]
        distance = abs(rss - rss0 - slope * (t - t0))
        if distance > deviation:
            deviation, place = distance, number
    return deviation, place, first, last
