"""Places labels so that none covers another label or a point: plain geometry, deterministic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Point = tuple[float, float]
    Segment = tuple[Point, Point]

_DISTANCES = (4, 9, 16, 26, 38, 52, 70, 92, 120, 150, 185, 225)
_DIRECTIONS = 16
_PREFERRED = (2, 3, 1, 4, 0, 5, 15, 6, 14, 7, 13, 8, 12, 9, 11, 10)
"""Directions in order of preference, counted anticlockwise from the right: up and right first, then its neighbours."""
_ON_LINE = 24.0
"""The cost of a label on a line, in pixels of distance."""
_BESIDE_LINE = 3.0
_LEADER = 6.0
_CROSSED = 45.0
_CROWD = 110.0
FAR = 14.0
"""From this distance on, a leader connects the point to its label."""


@dataclass(frozen=True)
class Box:
    """A rectangle, in pixels."""

    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other: Box) -> bool:
        """Return whether the two rectangles share an area."""
        across = self.left < other.right and other.left < self.right
        return across and self.bottom < other.top and other.bottom < self.top

    def within(self, other: Box) -> bool:
        """Return whether this rectangle lies completely inside the other."""
        across = other.left <= self.left and self.right <= other.right
        return across and other.bottom <= self.bottom and self.top <= other.top

    def grown(self, by: float) -> Box:
        """Return the rectangle extended by a margin."""
        return Box(self.left - by, self.bottom - by, self.right + by, self.top + by)

    def nearest(self, point: Point) -> Point:
        """Return the point of the rectangle that is nearest to ``point``."""
        return min(max(point[0], self.left), self.right), min(max(point[1], self.bottom), self.top)


@dataclass(frozen=True)
class Place:
    """A label's rectangle, and its distance from its point."""

    box: Box
    distance: float


class Labels:
    """Places labels one after another."""

    def __init__(self, points: Sequence[Point], inside: Box, radius: float, lines: Sequence[Segment] = ()) -> None:
        self._points = np.array(points, dtype=float).reshape(-1, 2)
        self._inside = inside
        self._radius = radius
        self._lines = list(lines)
        self._taken: list[Box] = []
        self._leaders: list[Segment] = []

    def place_all(self, sizes: Sequence[Point | None]) -> list[Place | None]:
        """Return the places of labels of these widths and heights, one per point; None means no room or no label.

        Labels in crowded areas are placed first.
        """
        places: list[Place | None] = [None] * len(sizes)
        for index in sorted(range(len(sizes)), key=lambda index: (-self._neighbours(index), index)):
            size = sizes[index]
            places[index] = None if size is None else self._place(index, size)
        return places

    def _neighbours(self, index: int) -> int:
        away = np.hypot(*(self._points - self._points[index]).T)
        return int((away < _CROWD).sum())

    def _place(self, index: int, size: Point) -> Place | None:
        point = (float(self._points[index, 0]), float(self._points[index, 1]))
        best: Place | None = None
        lowest = math.inf
        for distance, box in _candidates(point, size, self._radius):
            if distance >= lowest:
                break
            if not self._is_free(box):
                continue
            cost = distance + self._disturbance(index, point, box, distance)
            if cost < lowest:
                best, lowest = Place(box, distance), cost
        if best is not None:
            self._taken.append(best.box)
            self._leaders.append((point, best.box.nearest(point)))
        return best

    def _is_free(self, box: Box) -> bool:
        wide = box.grown(1)
        return (
            box.within(self._inside)
            and not any(wide.overlaps(other) for other in self._taken)
            and not self._covered(box, self._radius + 1).any()
        )

    def _covered(self, box: Box, margin: float) -> NDArray[np.bool_]:
        wide = box.grown(margin)
        across, up = self._points[:, 0], self._points[:, 1]
        return (across > wide.left) & (across < wide.right) & (up > wide.bottom) & (up < wide.top)

    def _disturbance(self, index: int, point: Point, box: Box, distance: float) -> float:
        """Return the cost of a place: lines under it, and a leader that crosses labels, points or leaders."""
        wide = box.grown(_BESIDE_LINE)
        cost = _ON_LINE * sum(_crosses(line, wide) for line in self._lines)
        cost += _CROSSED * sum(_crosses(leader, box) for leader in self._leaders)
        if distance >= FAR:
            leader = (point, box.nearest(point))
            cost += _LEADER + _CROSSED * sum(_crosses(leader, other) for other in self._taken)
            cost += _CROSSED * sum(_meet(leader, other) for other in self._leaders)
            cost += _CROSSED * self._points_on(leader, index)
        return cost

    def _points_on(self, leader: Segment, but: int) -> int:
        start, end = np.array(leader[0]), np.array(leader[1])
        along = end - start
        length = float(along @ along) or 1.0
        share = np.clip((self._points - start) @ along / length, 0, 1)
        away = np.hypot(*(self._points - (start + share[:, None] * along)).T)
        away[but] = math.inf
        return int((away < self._radius).sum())


def _candidates(point: Point, size: Point, radius: float) -> Iterator[tuple[float, Box]]:
    """Yield boxes around a point, by distance, then by preferred direction."""
    width, height = size
    for distance in _DISTANCES:
        for step in _PREFERRED:
            angle = 2 * math.pi * step / _DIRECTIONS
            across, up = math.cos(angle), math.sin(angle)
            reach = radius + distance
            middle = point[0] + across * (reach + width / 2), point[1] + up * (reach + height / 2)
            yield (
                distance,
                Box(middle[0] - width / 2, middle[1] - height / 2, middle[0] + width / 2, middle[1] + height / 2),
            )


def _crosses(segment: Segment, box: Box) -> bool:
    """Return whether part of the segment is inside the box (Liang–Barsky clipping)."""
    (x0, y0), (x1, y1) = segment
    enter, leave = 0.0, 1.0
    for start, change, low, high in ((x0, x1 - x0, box.left, box.right), (y0, y1 - y0, box.bottom, box.top)):
        if change == 0:
            if not low < start < high:
                return False
            continue
        ends = sorted(((low - start) / change, (high - start) / change))
        enter, leave = max(enter, ends[0]), min(leave, ends[1])
    return enter < leave


def _meet(one: Segment, other: Segment) -> bool:
    """Return whether two segments cross."""

    def side(segment: Segment, point: Point) -> float:
        (x0, y0), (x1, y1) = segment
        return (x1 - x0) * (point[1] - y0) - (y1 - y0) * (point[0] - x0)

    apart = side(one, other[0]) * side(one, other[1])
    return apart < 0 and side(other, one[0]) * side(other, one[1]) < 0
