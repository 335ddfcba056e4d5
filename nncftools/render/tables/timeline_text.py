"""Operations in the text report: a timeline that says which one grew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from nncftools.render.tables.operations import shown_operations
from nncftools.render.tables.paint import grid as table
from nncftools.render.tables.table import Size
from nncftools.session.operations import unmarked
from nncftools.text import printable, shortened
from nncftools.units import seconds_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from nncftools.render.view import View
    from nncftools.session.operations import Operation
    from nncftools.session.session import Session
    from nncftools.units import MemoryUnit

_NAME = 40
_LONG_GAP = 0.05
"""Of the run: from here on, a time in which nothing was marked is a row."""
_UNMARKED = "(nothing marked)"


def timeline(session: Session, view: View, most: int) -> Iterator[RenderableType]:
    """Yield what was marked, of more than ``most`` operations the longest, and longer times without a mark."""
    shown, more = shown_operations(session, view, most)
    gaps = unmarked(session, max(session.duration_s * _LONG_GAP, 1e-9))
    rows = [(one.number, one.operation) for one in shown] + [(None, gap) for gap in gaps]
    rows.sort(key=lambda row: (row[1].start_s, row[1].depth))
    yield _timeline(rows, view.unit)
    if more:
        yield Text(f"… {more}", style="dim")


def _timeline(rows: Sequence[tuple[int | None, Operation]], unit: MemoryUnit) -> Table:
    grid = table()
    grid.show_header = False
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    for _ in range(2):
        grid.add_column(justify="right", no_wrap=True)
    grid.add_column(no_wrap=True)
    for number, operation in rows:
        grid.add_row(
            "" if number is None else f"{number}.",
            seconds_text(operation.start_s),
            _named(operation),
            f"({seconds_text(operation.duration_s)})",
            f"[{Size(operation.delta, unit, is_signed=True).shown()} {unit}]",
            Text("<- peak" if operation.has_peak else "", style="bold"),
            style="dim" if number is None else "",
        )
    return grid


def _named(operation: Operation) -> Text:
    """Return name, number of calls, how it ended and which function it was."""
    if not operation.name:
        return Text(_UNMARKED)
    text = Text("  " * operation.depth + shortened(printable(operation.name), _NAME))
    if operation.count > 1:
        text.append(f" ×{operation.count:,}")
    if operation.error is not None:
        text.append(f" {printable(operation.error)}", style="red")
    if operation.call is not None:
        text.append(f" {shortened(_brief(operation.call), _NAME)}", style="dim")
    if operation.total_s is not None and operation.longest_s is not None:
        told = f" {seconds_text(operation.total_s)} in calls, the longest {seconds_text(operation.longest_s)}"
        text.append(told, style="dim")
    return text


def _brief(call: str) -> str:
    """Return a function with its library, a method by its own name."""
    return printable(", ".join(one if one.count(".") == 1 else one.rpartition(".")[2] for one in call.split(", ")))
