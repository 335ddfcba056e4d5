"""What the tables of the text report share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from nncftools.units import MemoryUnit

FIRST_COLUMN = 12


def table() -> Table:
    """Return an empty table without lines."""
    return Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")


def signed(size: float | None, unit: MemoryUnit) -> str:
    """Return bytes as text with its sign, also when that is a plus."""
    text = unit.text(size)
    return f"+{text}" if size is not None and size > 0 else text
