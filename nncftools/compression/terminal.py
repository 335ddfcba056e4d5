"""The trade-off picture in characters, by plotext: error over compression rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.compression.results import Comparison, Result

_NAME = 28
_AXIS, _AROUND = 8, 4
"""About how many columns and lines plotext takes for axes and their labels."""
_ROOM = 1.12
_ROOM_FOR_LABELS = 70
"""So many columns hold the labels of both axes in one line."""
_PLAIN = str.maketrans({"─": "-", "│": "|", **dict.fromkeys("┌┐└┘├┤┬┴┼", "+")})
_BEST, _OTHER = "●○", "@o"


def chart(comparison: Comparison, max_error: float | None, width: int, height: int, *, unicode: bool) -> str:
    """Return a chart of ``height`` lines and ``width`` columns: filled points are on the Pareto front.

    Names that would cover others are left out: the table has them.
    """
    import plotext

    shown = [one for one in comparison.results if max_error is None or one.error <= max_error]
    marker = {is_best: (_BEST if unicode else _OTHER)[not is_best] for is_best in (True, False)}
    plotext.terminal.limit(False, False)  # noqa: FBT003 — width and height
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, height)
    figure.theme("colorless")
    figure.title(printable(comparison.title))
    figure.label("compression rate", "x")
    figure.label("average relative error, %" if width >= _ROOM_FOR_LABELS else "error, %", "y")
    most = max(one.rate for one in shown) * _ROOM
    figure.ruler("x").lim(0, most)
    for is_best in (False, True):
        points = [one for one in shown if one.is_pareto is is_best]
        rates, errors = [one.rate for one in points], [one.error * 100 for one in points]
        figure.draw(figure.signal(rates, errors, marker=plotext.marker(marker[is_best], plotext.pixel())))
    column = most / max(1, width - _AXIS)
    for one, name, side in _named(shown, column, height):
        alignment = "left" if side > 0 else "right"
        figure.draw(figure.text(one.rate + 2 * side * column, one.error * 100, name, alignment=alignment))
    built: str = figure.build().string(colorless=True)
    drawn = built if unicode else built.translate(_PLAIN)
    return "".join(f"{line.rstrip()}\n" for line in drawn.rstrip("\n").split("\n"))


def _named(shown: Sequence[Result], column: float, height: int) -> Iterator[tuple[Result, str, int]]:
    """Yield the results whose names have room right (1) or left (-1) of their points, those of the front first."""
    errors = [one.error for one in shown]
    line = (max(errors) - min(errors)) / max(1, height - _AROUND) or 1.0
    taken = [(one.error / line, one.rate / column, one.rate / column) for one in shown]
    most = max(one.rate for one in shown) * _ROOM / column
    for one in sorted(shown, key=lambda one: not one.is_pareto):
        name = shortened(printable(one.label), _NAME)
        row, at = one.error / line, one.rate / column
        for side in (1, -1):
            begin, end = sorted((at + side, at + side * (len(name) + 3)))
            near = [place for place in taken if abs(place[0] - row) < 1 and place[1] < end and begin < place[2]]
            if begin >= 0 and end <= most and not near:
                taken.append((row, begin, end))
                yield one, name, side
                break
