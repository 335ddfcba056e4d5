from __future__ import annotations

import numpy as np
import pytest
from rich.color import Color, ColorSystem

from nncftools.render.canvas import _STYLES, CURVES, Canvas, Levels, TerminalStyle, levels
from nncftools.render.listing import luminance


def drawn(canvas: Canvas) -> list[str]:
    """Return a canvas as text."""
    return ["".join(text for text, _ in row) for row in canvas.rows()]


def flat(canvas: Canvas, level: float) -> Levels:
    """Return the same level for all of a canvas."""
    return Levels(np.full(canvas.dots, level), np.full(canvas.dots, level))


class TestLevels:
    def test_least_and_largest(self) -> None:
        """No spike is lost, however many values a cell holds."""
        low, high = levels(np.arange(100.0), np.r_[np.zeros(55), 9.0, np.zeros(44)], 100, 10)

        assert high.tolist() == [0, 0, 0, 0, 0, 9, 0, 0, 0, 0]
        assert not low.any()

    def test_line_between_values(self) -> None:
        """Where there are fewer values than cells, a line joins them; it ends with the last one."""
        _, high = levels(np.array([0.0, 4.0]), np.array([0.0, 8.0]), 8, 8)

        assert high.tolist()[:5] == [1, 3, 5, 7, 8]
        assert np.isnan(high[5:]).all()

    def test_nothing_known(self) -> None:
        """Without values nothing is drawn."""
        assert np.isnan(levels(np.empty(0), np.empty(0), 1, 3)).all()

    def test_part_of_the_time(self) -> None:
        """Values after the visible time only lead the line to its edge."""
        _, high = levels(np.array([0.0, 10.0]), np.array([0.0, 10.0]), 2, 2)

        assert high.tolist() == [0.5, 1.5]


class TestCanvas:
    def test_area(self) -> None:
        """An area is tinted by every second dot, and its edge is a line; above it nothing is."""
        canvas = Canvas(4, 2, unicode=True)
        canvas.area(flat(canvas, 0.5), "area")
        canvas.curve(flat(canvas, 0.5), "curve")

        assert drawn(canvas) == ["    ", "⡫⡫⡫⡫"]
        assert canvas.rows()[1] == [("⡫⡫⡫⡫", "curve")]

    def test_steep_edge_has_no_holes(self) -> None:
        """A jump is drawn as a vertical line."""
        canvas = Canvas(2, 2, unicode=True)
        parts = np.array([0.1, 0.1, 1.0, 1.0])
        canvas.curve(Levels(parts, parts), "curve")

        assert drawn(canvas) == [" ⡏", "⣀⠇"]

    def test_ascii(self) -> None:
        """Without Braille, a cell has one character."""
        canvas = Canvas(3, 3, unicode=False)
        canvas.area(flat(canvas, 1), "area")
        canvas.curve(flat(canvas, 1), "curve", "*")

        assert drawn(canvas) == ["***", ":::", ":::"]

    def test_zero_is_seen(self) -> None:
        """A level of 0 is the lowest row of dots; an unknown one is nothing."""
        canvas = Canvas(2, 1, unicode=True)
        parts = np.array([0, 0, np.nan, np.nan])
        canvas.curve(Levels(parts, parts), "curve")

        assert drawn(canvas) == ["⣀ "]

    def test_line_and_text(self) -> None:
        """A line leaves what is there; text is above everything, and is cut at the end of the row."""
        canvas = Canvas(6, 1, unicode=True)
        canvas.write(0, 1, "a", "text")
        canvas.line(0.75, "limit")
        canvas.write(0, 4, "limit", "limit")

        assert drawn(canvas) == ["⠒a⠒⠒li"]

    @pytest.mark.parametrize(
        ("part", "expected"), [(1.0, ["⠉", " "]), (0.51, ["⣀", " "]), (0.5, [" ", "⠉"]), (0.0, [" ", "⣀"])]
    )
    def test_height_of_a_line(self, part: float, expected: list[str]) -> None:
        """A line is as exact as dots are."""
        canvas = Canvas(1, 2, unicode=True)
        canvas.line(part, "limit")

        assert drawn(canvas) == expected

    def test_line_in_ascii(self) -> None:
        """A line of ASCII is a row of dashes."""
        canvas = Canvas(3, 1, unicode=False)
        canvas.line(0.5, "limit")

        assert drawn(canvas) == ["---"]

    @pytest.mark.parametrize(("part", "row"), [(0, 3), (0.2, 3), (0.25, 3), (0.26, 2), (1, 0), (2, 0)])
    def test_row(self, part: float, row: int) -> None:
        """The row of a height is the one that an area of this height ends in."""
        assert Canvas(1, 4, unicode=True).row_of(part) == row


def contrast(one: Color, other: Color) -> float:
    """Return the contrast of two colours as WCAG defines it."""
    light, dark = sorted((luminance(of.get_truecolor().hex) for of in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


BLACK, WHITE = Color.parse("#000000"), Color.parse("#ffffff")


class TestColours:
    @pytest.mark.parametrize("role", _STYLES)
    @pytest.mark.parametrize("colours", [ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT])
    def test_contrast(self, role: str, colours: ColorSystem) -> None:
        """Every colour has a contrast of at least 3 to white and to black."""
        ink = TerminalStyle(colours=colours).style(role).color
        if ink is not None:
            assert min(contrast(ink, BLACK), contrast(ink, WHITE)) >= 3

    def test_few_colours(self) -> None:
        """With 16 colours, curves are told apart, and nothing is black or white."""
        few = TerminalStyle(colours=ColorSystem.STANDARD)
        curves = [few.style(role).color for role in CURVES]
        inks = [few.style(role).color for role in _STYLES]

        assert len(set(curves)) == len(CURVES)
        assert not {0, 7, 15} & {ink.number for ink in inks if ink is not None}

    @pytest.mark.parametrize("colour", ["#56B4E9", "#E69F00", "#009E73", "#0072B2", "#CC79A7", "#D55E00", "#332288"])
    def test_names_on_few_colours(self, colour: str) -> None:
        """Names of operations can be read on each of 16 colours."""
        style = TerminalStyle(colours=ColorSystem.STANDARD).filled("white", colour)
        assert style.color is not None
        assert style.bgcolor is not None

        assert contrast(style.color, style.bgcolor) >= 3

    def test_without_colours(self) -> None:
        """Without colours, important words are bold."""
        plain = TerminalStyle(colours=None)

        assert [str(plain.style(role)) for role in ("danger", "axis")] == ["bold", "none"]
