"""Places labels so that none covers another label or a point: plain geometry, deterministic.

All is in pixels. A box is left, bottom, right and top; a segment is two points. Arrays hold one per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Truths = NDArray[np.bool_]
Point = tuple[float, float]
Segment = tuple[Point, Point]

_DISTANCES = (4, 9, 16, 26, 38, 52, 70, 92, 120, 150, 185, 225)
_DIRECTIONS = 16
_PREFERRED = (2, 3, 1, 4, 0, 5, 15, 6, 14, 7, 13, 8, 12, 9, 11, 10)
"""Directions in order of preference, counted anticlockwise from the right: up and right first, then its neighbours."""
_ON_LINE = 100.0
"""The cost of a label on a line, in pixels of distance."""
_BESIDE_LINE = 3.0
_LEADER = 6.0
_CROSSED = 45.0
_CROWD = 110.0
FAR = 14.0
"""From this distance on, a leader connects the point to its label."""


class LabelPosition(NamedTuple):
    """Where a label begins, and its distance from its point."""

    left: float
    bottom: float
    distance: float


class Labels:
    """Places labels one after another."""

    def __init__(
        self, points: Sequence[Point], inside: Sequence[float], radius: float, lines: Sequence[Segment] = ()
    ) -> None:
        """Place labels in the box ``inside``, around points of this radius, and not on ``lines`` if possible."""
        self._points = np.array(points, dtype=float).reshape(-1, 2)
        self._inside = np.array(inside)
        self._radius = radius
        self._lines = np.array(lines, dtype=float).reshape(-1, 2, 2)
        self._taken = np.empty((0, 4))
        self._leaders = np.empty((0, 2, 2))

    def place_all(self, sizes: Sequence[Point | None]) -> list[LabelPosition | None]:
        """Return the places of labels of these widths and heights, one per point; None means no room or no label.

        Labels in crowded areas are placed first.
        """
        positions: list[LabelPosition | None] = [None] * len(sizes)
        neighbours = (_lengths(self._points[:, None] - self._points) < _CROWD).sum(axis=1)
        for index in np.argsort(-neighbours, kind="stable"):
            size = sizes[index]
            positions[index] = None if size is None else self._place(index, np.array(size))
        return positions

    def _place(self, index: int, size: Numbers) -> LabelPosition | None:
        point = self._points[index]
        distances, boxes = _candidates(point, size, self._radius)
        free = self._are_free(boxes)
        if not free.any():
            return None
        distances, boxes = distances[free], boxes[free]
        leaders = np.stack([np.tile(point, (len(boxes), 1)), point.clip(boxes[:, :2], boxes[:, 2:])], axis=1)
        best = np.argmin(distances + self._disturbance(index, distances, boxes, leaders))
        self._taken = np.vstack([self._taken, boxes[best]])
        self._leaders = np.vstack([self._leaders, leaders[None, best]])
        return LabelPosition(float(boxes[best, 0]), float(boxes[best, 1]), float(distances[best]))

    def _are_free(self, boxes: Numbers) -> Truths:
        """Return which boxes lie inside and cover neither a label nor a point."""
        is_inside = np.all(np.hstack([boxes[:, :2] >= self._inside[:2], boxes[:, 2:] <= self._inside[2:]]), axis=1)
        marks = _grown(np.hstack([self._points, self._points]), self._radius + 1)
        others = np.hstack([_overlap(_grown(boxes, 1), self._taken), _overlap(boxes, marks)])
        free: Truths = is_inside & ~np.any(others, axis=1)
        return free

    def _disturbance(self, index: int, distances: Numbers, boxes: Numbers, leaders: Numbers) -> Numbers:
        """Return the cost of each place: lines under it, and a leader that crosses labels, points or leaders."""
        costs: Numbers = _ON_LINE * _cross(self._lines, _grown(boxes, _BESIDE_LINE)).sum(axis=0)
        costs += _CROSSED * _cross(self._leaders, boxes).sum(axis=0)
        meeting = _are_apart(leaders, self._leaders) & _are_apart(self._leaders, leaders).T
        crossed = _cross(leaders, self._taken).sum(axis=1) + meeting.sum(axis=1)
        crossed += self._points_on(leaders, index)
        costs += np.where(distances >= FAR, _LEADER + _CROSSED * crossed, 0)
        return costs

    def _points_on(self, leaders: Numbers, but: int) -> NDArray[np.int_]:
        start, along = leaders[:, :1], leaders[:, 1:] - leaders[:, :1]
        share = ((self._points - start) * along).sum(axis=2) / np.maximum((along**2).sum(axis=2), 1e-9)
        away = _lengths(self._points - (start + share.clip(0, 1)[:, :, None] * along))
        away[:, but] = np.inf
        crossed: NDArray[np.int_] = (away < self._radius).sum(axis=1)
        return crossed


def _candidates(point: Numbers, size: Numbers, radius: float) -> tuple[Numbers, Numbers]:
    """Return the distances of boxes around a point, and the boxes: by distance, then by preferred direction."""
    angles = 2 * np.pi * np.tile(_PREFERRED, len(_DISTANCES)) / _DIRECTIONS
    distances = np.repeat(np.array(_DISTANCES, dtype=float), _DIRECTIONS)
    reach = radius + distances[:, None] + size / 2
    middles = point + np.column_stack([np.cos(angles), np.sin(angles)]) * reach
    return distances, np.hstack([middles - size / 2, middles + size / 2])


def _lengths(vectors: Numbers) -> Numbers:
    lengths: Numbers = np.hypot(vectors[..., 0], vectors[..., 1])
    return lengths


def _grown(boxes: Numbers, by: float) -> Numbers:
    grown: Numbers = boxes + np.array([-by, -by, by, by])
    return grown


def _overlap(boxes: Numbers, others: Numbers) -> Truths:
    shared: Truths = np.all((boxes[:, None, :2] < others[:, 2:]) & (others[:, :2] < boxes[:, None, 2:]), axis=2)
    return shared


def _cross(segments: Numbers, boxes: Numbers) -> Truths:
    """Return whether part of each segment is inside each box (Liang–Barsky clipping)."""
    start, along = segments[:, None, :1], segments[:, None, 1:] - segments[:, None, :1]
    with np.errstate(divide="ignore", invalid="ignore"):  # a segment along an axis: infinite or, on an edge, unknown
        ends = (boxes.reshape(-1, 2, 2) - start) / along
    enter, leave = ends.min(axis=2).max(axis=2), ends.max(axis=2).min(axis=2)
    crossing: Truths = np.maximum(enter, 0) < np.minimum(leave, 1)
    return crossing


def _are_apart(segments: Numbers, others: Numbers) -> Truths:
    """Return whether the ends of each of the others are on different sides of each segment."""
    along = (segments[:, 1] - segments[:, 0])[:, None, None]
    ends = others - segments[:, None, :1]
    are_on_both_sides: Truths = (along[..., 0] * ends[..., 1] - along[..., 1] * ends[..., 0]).prod(axis=2) < 0
    return are_on_both_sides
