"""The processes of a run as rows: which they are, CPU, memory, and a bar of their share of it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from nncftools.live.screen.look import Order
from nncftools.live.screen.telling_apart import told_apart, without_interpreter
from nncftools.render.canvas import CURVES, text
from nncftools.units import cores_text, printable, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from nncftools.live.screen.figures import Seen
    from nncftools.live.screen.look import Look
    from nncftools.render.canvas import Medium, Row

_PID, _CPU, _RSS = 7, 12, 12
_CPU_FROM = 44
"""With fewer columns, there is no room for CPU."""
_BAR_FROM, _LONGEST_BAR = 56, 24
_MOST = 200
"""The most commands that those on the screen are compared with."""


def chosen(seen: Sequence[Seen], look: Look) -> list[Seen]:
    """Return the processes that pass the filter, in the order of the look."""
    wanted = look.filter.casefold()
    passed = [one for one in seen if not wanted or wanted in _whole(one).casefold()]
    keys: dict[Order, Callable[[Seen], tuple[object, ...]]] = {
        Order.MEMORY: lambda one: (-one.rss, one.number),
        Order.CPU: lambda one: (-(one.cpu or 0.0), -one.rss, one.number),
        Order.AGE: lambda one: (one.number,),
        Order.NAME: lambda one: (_whole(one).casefold(), one.number),
    }
    return sorted(passed, key=keys[look.order])


def _whole(one: Seen) -> str:
    """Return what the filter looks at: not the folders and the interpreter, which are not shown either."""
    command = " ".join(without_interpreter(one.process.command))
    return f"{command} {one.process.name} {one.process.pid or ''}"


def process_rows(shown: Sequence[Seen], seen: Sequence[Seen], medium: Medium, width: int) -> Iterator[Row]:
    """Yield a row of ``width`` columns for each process that is ``shown``; ``seen`` are all of them."""
    compared = sorted({one.number: one for one in [*shown, *seen[:_MOST]]}.items())
    labels = _labels(tuple((number, tuple(one.process.command)) for number, one in compared))
    whole = sum(one.rss for one in seen)
    has_cpu = width >= _CPU_FROM and any(one.cpu is not None for one in seen)
    bar = min(width // 5, _LONGEST_BAR) if width >= _BAR_FROM else 0
    room = width - _PID - 1 - _CPU * has_cpu - _RSS - (bar + 1 if bar else 0)
    for one in shown:
        name = shortened(labels.get(one.number) or printable(one.process.name or "?"), max(1, room)).replace("……", "…")
        row = [
            text(f"{one.process.pid or '':>{_PID}} ", medium.style("axis")),
            text(set_cell_size(name, max(cell_len(name), room))),
        ]
        if has_cpu:
            row.append(text(f"{'' if one.cpu is None else cores_text(one.cpu):>{_CPU}}", medium.style("cpu")))
        row.append(text(f"{medium.unit.label(one.rss):>{_RSS}}", medium.style("title")))
        yield [*row, text(" "), *gauge(one.rss / whole if whole else 0.0, bar, CURVES[0], medium)] if bar else row


@lru_cache(maxsize=4)
def _labels(commands: tuple[tuple[int, tuple[str, ...]], ...]) -> dict[int, str]:
    return told_apart(dict(commands))


def gauge(share: float, width: int, role: str, medium: Medium) -> Row:
    """Return a bar of ``width`` columns of which a share is filled."""
    filled = round(min(max(share, 0.0), 1.0) * width)
    return [text("━" * filled, medium.style(role)), text("─" * (width - filled), medium.style("axis"))]
