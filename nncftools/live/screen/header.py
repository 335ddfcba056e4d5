"""The rows above and below the chart: what is known of the run, of what is left for it, and the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.live.screen import figures
from nncftools.live.screen.processes import gauge
from nncftools.render.canvas import length, text
from nncftools.render.terminal_plot import key
from nncftools.render.view import label
from nncftools.units import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.live.screen.look import Look
    from nncftools.live.state.run import Run
    from nncftools.render.canvas import Medium, Row

_GAP = 3
_LONGEST_GAUGE, _SHORTEST_GAUGE = 40, 8
_HIGH, _VERY_HIGH = 0.75, 0.9
KEYS = (
    ("q", "quit"),
    ("space", "pause"),
    ("s", "sort"),
    ("/", "filter"),
    ("l", "list"),
    ("m", "metric"),
    ("+ -", "zoom"),
)
"""In the order in which they are named where there is little room."""
_KEYS_OF_FILTER = (("enter", "keep"), ("esc", "clear"))


def state(run: Run, look: Look, medium: Medium) -> Row:
    """Return what goes on, and the time of the run."""
    words = figures.ending(run) if run.ended else "paused" if look.paused else look.state
    role = "warning" if look.paused else "good" if run.ended or words != "recording" else "danger"
    sign = [] if run.ended else [text("● " if medium.unicode else "* ", medium.style(role))]
    return [*sign, text(f"{words}  {figures.at(run.latest_s)}", medium.style("title"))]


def summary(run: Run, look: Look, medium: Medium, width: int) -> Row:
    """Return memory with its peak, the other metrics of the chart, and CPU, as far as there is room."""
    names = figures.charted(run, look)
    if not names:
        return [text("no memory metric")]
    first = _metric(run, names, 0, medium)
    peak = run.peaks.get(names[0])
    parts: list[Row] = [first]
    right: list[Row] = []
    room = width - length(first)

    def add(part: Row, to: list[Row]) -> None:
        nonlocal room
        if part and length(part) + _GAP <= room:
            to.append(part)
            room -= length(part) + _GAP

    if peak is not None:
        value = text(f" peak {medium.unit.label(peak.value)}")
        short = [text("◆" if medium.unicode else "^", medium.style("peak")), value]
        with_time = [*short, text(f" at {figures.at(peak.at_s)}")]
        during = figures.during(run, peak)
        whole = [*with_time, text(f" in {during}")] if during else with_time
        add(next((part for part in (whole, with_time) if length(part) + _GAP <= room), short), parts)
    for words in figures.activity(run):
        add([text(words)], right)
    left, end = _joined(parts), _joined(right)
    return [*left, text(" " * (width - length(left) - length(end))), *end]


def _metric(run: Run, names: Sequence[str], place: int, medium: Medium) -> Row:
    name = names[place]
    value = medium.unit.label(run.latest.get(name))
    return [*key(place, medium), text(f"{label(name)} "), text(value, medium.style("title"))]


def _joined(parts: Sequence[Row]) -> Row:
    return [piece for place, part in enumerate(parts) for piece in ([text(" " * _GAP)] if place else []) + part]


def current(run: Run, look: Look, medium: Medium, width: int) -> Iterator[Row]:
    """Yield the current operation and which code made memory grow; at the right, the other metrics of the chart."""
    names = figures.charted(run, look)
    others = [_metric(run, names, place, medium) for place in range(1, len(names))]
    now = figures.operation(run)
    row = [text("Now ", medium.style("axis")), text(now, medium.style("title"))] if now else []
    while others and length(row) + length(_joined(others)) + _GAP > width:
        others.pop()
    end = _joined(others)
    between = " " * _GAP if now else ""
    grown = figures.growth(run, width - length(row) - len(between) - length(end) - _GAP)
    if grown:
        row.append(text(f"{between}{grown if now else grown[0].upper() + grown[1:]}"))
    if row or end:
        yield [*row, text(" " * (width - length(row) - length(end))), *end]


def memory_left(run: Run, available: float | None, medium: Medium, width: int) -> Row:
    """Return which memory is limited, how much of it is left and for how long, and a bar of what is used."""
    name, words = figures.memory_left(run, available)
    near = figures.time_left(run, available) is not None
    row = [text(f"{name.capitalize()}  ")]
    words = next((short for short in _shorter(words) if len(short) <= width - length(row)), words)
    row.append(text(words, medium.style("danger") if near else None))
    used = figures.used(run, available)
    room = min(width - length(row) - _GAP, _LONGEST_GAUGE)
    if used is None or room < _SHORTEST_GAUGE:
        return row
    role = "danger" if near or used >= _VERY_HIGH else "warning" if used >= _HIGH else "good"
    return [*row, text(" " * (width - length(row) - room)), *gauge(used, room, role, medium)]


def _shorter(words: str) -> Iterator[str]:
    """Yield what is said about memory, then with less; how long it lasts is said last of all."""
    yield words
    yield words.removesuffix(" at this rate")
    available, comma, exhausted = words.removesuffix(" at this rate").partition(", exhausted")
    yield f"exhausted{exhausted}" if comma else available.partition(" of ")[0]


def keys(look: Look, medium: Medium, width: int) -> Row:
    """Return the keys and what they do; while a filter is typed, the filter."""
    row: Row = []
    if look.typing:
        row = [text("filter: ", medium.style("key")), text(f"{printable(look.filter)}▏   ")]
    for name, meaning in _KEYS_OF_FILTER if look.typing else KEYS:
        part = [text(name, medium.style("key")), text(f" {meaning}   ", medium.style("axis"))]
        if length(row) + length(part) - _GAP <= width:
            row += part
    return [*row[:-1], text(row[-1].text.rstrip(), row[-1].style)] if row else row
