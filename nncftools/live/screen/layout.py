"""The layout of the view, for any size of the screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nncftools.live.screen import box
from nncftools.live.screen.body import Body
from nncftools.live.screen.header import current, keys, memory_left, state, summary
from nncftools.live.screen.processes import chosen, process_rows
from nncftools.render.canvas import GUTTER, Medium, fitted, length, painted, text
from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.live.screen.figures import Machine, Seen
    from nncftools.live.screen.look import Look
    from nncftools.live.state.run import Run
    from nncftools.render.canvas import Row

_BOXED_FROM = 60, 12
_NARROW, _NARROW_GUTTER = 60, 10
_WIDE, _WIDE_GUTTER = 100, 16
_SMALLEST_BODY = 5
_MOST_PROCESSES = ((60, 12), (40, 8), (20, 4), (16, 2), (12, 1))
"""From which height on, how many processes are shown below the chart."""


@dataclass(frozen=True)
class _Screen:
    """A run and how it is to be shown."""

    run: Run
    look: Look
    medium: Medium
    width: int
    height: int
    seen: Sequence[Seen]
    shown: Sequence[Seen]
    """The processes that pass the filter, in order."""
    available: float | None

    @property
    def is_boxed(self) -> bool:
        columns, rows = _BOXED_FROM
        return self.width >= columns and self.height >= rows

    @property
    def inner(self) -> int:
        return self.width - box.SIDES if self.is_boxed else self.width


class Drawing:
    """Draws a run repeatedly."""

    def __init__(self, here: Machine) -> None:
        """Ask ``here`` for what the recording does not hold."""
        self._here = here
        self._body = Body()
        self._most: dict[tuple[int, int], int] = {}
        """The largest number of processes on a screen of this size: its rows stay, so that the chart does not jump."""

    def frame(self, run: Run, look: Look, width: int, height: int) -> list[str]:
        """Return ``height`` lines of ``width`` columns at most, with colours as escape sequences."""
        gutter = _NARROW_GUTTER if width < _NARROW else _WIDE_GUTTER if width >= _WIDE else GUTTER
        medium = Medium(look.unit, look.unicode, look.colours, gutter)
        seen = self._here.processes(run)
        shown = chosen(seen, look)
        screen = _Screen(run, look, medium, width, height, seen, shown, self._here.available(run))
        return [painted(row, medium) for row in self._rows(screen)[:height]]

    def _rows(self, screen: _Screen) -> list[Row]:
        """Return the rows from top to bottom."""
        run, medium, width = screen.run, screen.medium, screen.inner
        head = [summary(run, screen.look, medium, width), *current(run, screen.look, medium, width)]
        foot = [memory_left(run, screen.available, medium, width)]
        middle = screen.height - len(head) - len(foot) - 2
        if not screen.is_boxed and not screen.look.keys:
            middle += 1
        processes = self._processes(screen, max(0, middle))
        body = self._body.rows(run, screen.look, medium, width, max(0, middle - len(processes)))
        if not screen.is_boxed:
            below = [keys(screen.look, medium, width)] if screen.look.keys else []
            return [fitted(row, width) for row in (_title(screen), *head, *body, *processes, *foot, *below)]
        return _boxed(screen, [*head, *body], processes, foot)

    def _processes(self, screen: _Screen, room: int) -> list[Row]:
        """Return the processes and, above them, their number, order and filter; nothing where there is no room."""
        most = next((rows for height, rows in _MOST_PROCESSES if screen.height >= height), 0)
        size = screen.width, screen.height
        self._most[size] = max(self._most.get(size, 0), len(screen.seen))
        most = min(most, self._most[size], room - _SMALLEST_BODY - 1)
        if screen.look.listing:
            most = room - 1
        if most <= 0:
            return []
        rows = list(process_rows(screen.shown[:most], screen.seen, screen.medium, screen.inner))
        return [_heading(screen), *rows, *[[]] * (most - len(rows))]


def _title(screen: _Screen) -> Row:
    right = state(screen.run, screen.look, screen.medium)
    room = max(10, screen.width - length(right) - 2)
    command = shortened(printable(screen.run.command), room)
    left = [text(command, screen.medium.style("title"))]
    return [*left, text(" " * max(1, screen.width - length(left) - length(right))), *right]


def _boxed(screen: _Screen, above: Sequence[Row], processes: Sequence[Row], foot: Sequence[Row]) -> list[Row]:
    run, look, medium, width = screen.run, screen.look, screen.medium, screen.width
    right = state(run, look, medium)
    command = shortened(printable(run.command), max(10, width - length(right) - 10))
    bottom = [keys(look, medium, width - 6)] if look.keys else []
    inside = [box.sided(row, width, medium) for row in above]
    if processes:
        heading, *rows = processes
        inside.append(box.ruled(box.BETWEEN, [heading], [], width, medium))
        inside += [box.sided(row, width, medium) for row in rows]
    return [
        box.ruled(box.TOP, [[text(command, medium.style("title"))]], [right], width, medium),
        *inside,
        *[box.sided(row, width, medium) for row in foot],
        box.ruled(box.BOTTOM, bottom, [], width, medium),
    ]


def _heading(screen: _Screen) -> Row:
    """Return how many processes there are, and by what they are sorted and filtered."""
    look, medium = screen.look, screen.medium
    number = f"{len(screen.shown)} of {len(screen.seen)}" if look.filter else f"{len(screen.seen)}"
    row = [text("Processes", medium.style("title")), text(f" {number} by {look.order}", medium.style("axis"))]
    if look.filter and not look.typing:
        row.append(text(f" with {printable(look.filter)}", medium.style("warning")))
    return row
