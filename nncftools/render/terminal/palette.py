"""The colours of charts in a terminal: readable on light and on dark backgrounds, whatever the terminal can show."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from rich.color import Color, ColorSystem
from rich.style import Style

from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from rich.console import Console

GUTTER = 12
"""Columns to the left of a chart, for the labels of its axis."""
AREA = "area"
_SYSTEMS = {"256": ColorSystem.EIGHT_BIT, "truecolor": ColorSystem.TRUECOLOR}
_DEEP, _HIGH = (0x30, 0x70, 0xD8), (0x00, 0x9D, 0xC6)
"""The area at the bottom and at the top of a chart. All colours have a contrast (WCAG) of 3 to white and to black."""


class _Look(NamedTuple):
    few: str
    """With 16 colours, whose shades the user of the terminal chooses."""
    many: str
    """With 256 colours and more."""
    plain: str
    """Without colours."""


_LOOKS = {
    "axis": _Look("dim", "#808080", "dim"),
    "title": _Look("bold", "bold", "bold"),
    "curve 0": _Look("bright_blue", "#0098f0", "bold"),
    "curve 1": _Look("magenta", "#c868b0", ""),
    "curve 2": _Look("green", "#1fa060", ""),
    "curve 3": _Look("cyan", "#c07f20", ""),
    AREA: _Look("bright_blue", "", ""),
    "peak": _Look("red", "#e85040", "bold"),
    "limit": _Look("red", "#e85040", "dim"),
    "cpu": _Look("green", "#1fa060", "dim"),
    "read": _Look("bright_blue", "#4a90e0", "dim"),
    "write": _Look("yellow", "#c07f20", "dim"),
    "rate": _Look("magenta", "#c868b0", "dim"),
    "good": _Look("green", "#1fa060", ""),
    "warning": _Look("yellow", "#c07f20", ""),
    "danger": _Look("bold red", "bold #e85040", "bold"),
    "key": _Look("bold bright_blue", "bold #0098f0", "bold"),
}
CURVES = tuple(role for role in _LOOKS if role.startswith("curve"))
_FEW = {
    "#56B4E9": "black on cyan",
    "#E69F00": "black on yellow",
    "#009E73": "black on green",
    "#0072B2": "bright_white on blue",
    "#CC79A7": "black on magenta",
    "#D55E00": "bright_white on red",
    "#F0E442": "black on bright_yellow",
    "#332288": "bright_white on bright_blue",
    "#3B3B3B": "bright_white on bright_black",
}
"""The colours of operations where there are only 16."""


class Medium(NamedTuple):
    """What a chart is drawn on, and in which unit of memory."""

    unit: MemoryUnit = MemoryUnit.MiB
    unicode: bool = True
    """Whether it shows more than ASCII."""
    colours: ColorSystem | None = ColorSystem.EIGHT_BIT
    """None: no colours at all, but bold and dim characters."""
    gutter: int = GUTTER

    def style(self, role: str, height: float = 0.0) -> Style:
        """Return the style of a part of the chart; that of the area depends on the height, from 0 to 1."""
        if role == AREA and self.colours not in {None, ColorSystem.STANDARD}:
            return _shade(round(height * 16), self.colours)
        look = _LOOKS[role]
        text = look.plain if self.colours is None else look.few if self.colours == ColorSystem.STANDARD else look.many
        return _style(text, self.colours)

    def filled(self, ink: str, colour: str) -> Style:
        """Return the style of text on an operation's colour."""
        text = f"{ink} on {colour}"
        if self.colours == ColorSystem.STANDARD:
            text = _FEW.get(colour, "reverse")
        return _style(text, self.colours)


def colours_of(console: Console) -> ColorSystem | None:
    """Return the colours that a console shows; None for none."""
    if console.color_system is None or console.no_color:
        return None
    return _SYSTEMS.get(console.color_system, ColorSystem.STANDARD)


@lru_cache
def _shade(step: int, colours: ColorSystem | None) -> Style:
    share = step / 16
    mixed = (round(low + (high - low) * share) for low, high in zip(_DEEP, _HIGH, strict=True))
    return _style("#{:02x}{:02x}{:02x}".format(*mixed), colours)


@lru_cache(maxsize=256)
def _style(text: str, colours: ColorSystem | None) -> Style:
    """Return a style in the colours that there are: Rich keeps the sequences of a style from its first use on."""
    parsed = Style.parse(text)
    shown = colours or ColorSystem.STANDARD
    return Style(
        color=_near(parsed.color, shown),
        bgcolor=_near(parsed.bgcolor, shown),
        bold=parsed.bold,
        dim=parsed.dim,
        reverse=parsed.reverse,
    )


def _near(colour: Color | None, colours: ColorSystem) -> Color | None:
    return None if colour is None else colour.downgrade(colours)
