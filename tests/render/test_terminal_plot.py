from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from rich.color import Color, ColorSystem
from rich.style import Style
from rich.text import Text

from nncftools.render import terminal_plot
from nncftools.render.listing import luminance
from nncftools.render.terminal_chart import Rate, rate_rows
from nncftools.render.terminal_plot import (
    COLOURS,
    CURVES,
    DANGER,
    Line,
    Marked,
    TerminalStyle,
    Window,
    coloured,
    column_extremes,
    name_style,
    plot,
    render_rows,
    ticks,
    time_ticks,
    write_clock,
)

CPU = Rate("Cores", ("cpu_user", "cpu_system"), "cores", "#209850")
MIB = 2**20
NAN = np.nan


class TestExtremes:
    def test_no_spike_is_lost(self) -> None:
        """However many values a column holds, its least and its largest value stay."""
        low, high = column_extremes(np.arange(100.0), np.r_[np.zeros(55), 9.0, np.zeros(44)], 100, 10)

        assert high.tolist() == [0, 0, 0, 0, 0, 9, 0, 0, 0, 0]
        assert not low.any()

    def test_line_between_values(self) -> None:
        """Where there are fewer values than columns, a line joins them; it ends with the last one."""
        _, high = column_extremes(np.array([0.0, 4.0]), np.array([0.0, 8.0]), 8, 8)

        assert high.tolist()[:5] == [1, 3, 5, 7, 8]
        assert np.isnan(high[5:]).all()

    def test_gaps_stay(self) -> None:
        """Between values with NaN in between, nothing is known."""
        low, high = column_extremes(np.arange(8.0), np.array([1, 1, NAN, NAN, NAN, 5, 5, 5]), 8, 8)

        assert np.isnan(high).tolist() == [False, False, True, True, True, False, False, False]
        assert np.isnan(low).tolist() == np.isnan(high).tolist()

    @pytest.mark.parametrize("values", [[], [NAN, NAN]])
    def test_nothing_known(self, values: list[float]) -> None:
        """Without values nothing is drawn."""
        assert np.isnan(column_extremes(np.arange(float(len(values))), np.array(values), 1, 3)).all()

    def test_later_values(self) -> None:
        """Values after the visible time are left out."""
        _, high = column_extremes(np.array([0.0, 1.0, 10.0]), np.array([0.0, 2.0, 99.0]), 2, 2)

        assert np.nanmax(high) == 2


NOTHING = Marked()
SHOWN = Window(100.0, 60, 100.0)
TIME = np.arange(1000) / 10
STEADY = np.full(1000, 50.0 * MIB)


def drawn(*values: np.typing.NDArray[np.float64], marked: Marked = NOTHING, unicode: bool = True) -> list[str]:
    """Return a chart of these metrics with 10 rows as text."""
    lines = [Line(f"metric {number}", TIME, metric) for number, metric in enumerate(values)]
    return plot(lines, marked, SHOWN, 10, TerminalStyle(unicode=unicode)).plain.split("\n")


class TestPlot:
    def test_spike_of_one_sample(self) -> None:
        """One sample among a thousand reaches its height."""
        values = STEADY.copy()
        values[500] = 200 * MIB

        assert re_braille(drawn(values)[0][13:])
        assert not re_braille(drawn(values)[0][13:40])
        assert drawn(values)[0].startswith("    200 MiB ┤")

    def test_gap(self) -> None:
        """Where nothing is known, nothing is drawn, neither area nor curve."""
        values = STEADY.copy()
        values[400:600] = NAN
        rows = [row[13:] for row in drawn(values)[:-1]]

        assert not any(row[25:35].strip() for row in rows)
        assert re_braille(rows[-1][:20])
        assert re_braille(rows[-1][40:])

    def test_noise(self) -> None:
        """Noise fills the characters between its least and its largest value, and gaps stay gaps."""
        values = np.where(np.arange(20_000) % 2, 10.0, 100.0) * MIB
        values[8000:12_000] = NAN
        line = Line("", np.arange(20_000) / 200, values)
        rows = plot([line], Marked(), Window(100.0, 180, 100.0), 46, TerminalStyle()).plain.split("\n")[:-1]

        assert {row[13:80] for row in rows[:40]} == {"⣿" * 67}
        assert not any(row[90:115].strip() for row in rows)

    @pytest.mark.process
    def test_any_values(self) -> None:
        """No values end the process: plotext's compiled part aborts where it meets what it did not expect."""
        subprocess.run([sys.executable, "-c", _ANY_VALUES], check=True)


_ANY_VALUES = """
import numpy as np
from nncftools.render.terminal_plot import Line, Marked, TerminalStyle, Window, plot
random = np.random.default_rng(1)
for _ in range(100):
    end_s, columns = float(10 ** random.uniform(-3, 6)), int(random.integers(1, 60))
    lines = []
    for _ in range(random.integers(0, 6)):
        values = 10 ** random.uniform(-3, 16, size=30) * random.choice([0, 1, 1, -1], size=30)
        values[random.random(30) < random.choice([0, 0.3, 1])] = np.nan
        lines.append(Line("", np.sort(random.random(30)) * end_s * random.choice([0.5, 1, 2]), values))
    marked = Marked((float(10 ** random.uniform(-3, 16)), end_s * random.random() * 2), 10 ** random.uniform(0, 16))
    plot(lines, marked, Window(end_s, columns, end_s), int(random.integers(0, 30)), TerminalStyle())
"""


def re_braille(text: str) -> bool:
    """Return whether there is a dot in a text."""
    return any("⠀" < character <= "⣿" for character in text)


@pytest.mark.parametrize("error", [ImportError("no kernel\nat all"), OSError("libstdc++.so.6: not found")])
def test_plotext_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """One line says why there is no chart."""

    def load() -> None:
        raise error

    monkeypatch.setattr(terminal_plot, "load_plotext", load)
    reason = str(error).split("\n")[0]

    assert terminal_plot.chart_problem() == f"no chart: plotext cannot be loaded ({reason})"


def shown(rate: Rate, values: list[float], figure: float, height: int = 1, gutter: int = 12) -> list[str]:
    """Return rates as text."""
    return [row.plain for row in rate_rows(rate, np.array(values), figure, gutter, height)]


def test_a_core_is_the_least_full_height() -> None:
    """Less than one busy core is not drawn as if it were much."""
    assert shown(CPU, [0.25, 0.5], 0.5) == ["Cores   0.50 ▂▄"]


@pytest.mark.parametrize(
    "gutter, expected", [(16, "Write  160 MiB/s"), (12, "Write 160M/s"), (10, "Write 160M")], ids=str
)
def test_little_room(gutter: int, expected: str) -> None:
    """A rate keeps its unit in the little room that there is."""
    rate = Rate("Write", ("write_bytes",), "B", "#c07f20")
    found = shown(rate, [160.0 * MIB], 160.0 * MIB, gutter=gutter)[0]

    assert " ".join(found.split()[:-1]) == " ".join(expected.split())


@pytest.mark.parametrize(
    "end_s, expected",
    [(0.45, [0]), (0.4, [0, 0.2, 0.4]), (7, [0, 5]), (100, [0, 60]), (86400.0 * 4, [0, 172800, 345600])],
)
def test_moments(end_s: float, expected: list[float]) -> None:
    """The axis of time has round moments, no more than there is room for."""
    assert time_ticks(end_s, 2) == pytest.approx(expected)


@pytest.mark.parametrize("end", [0.001, 1, 7, 99.9, 100, 1311, 1e15])
def test_levels(end: float) -> None:
    """The axis of memory has round levels."""
    found = ticks(end, 4)

    assert 2 <= len(found) <= 5
    assert found[-1] <= end * 1.001


@pytest.mark.parametrize("seconds, expected", [(0.5, "0.5 s"), (7, "0:07"), (750, "12:30"), (3723, "1:02:03")])
def test_clock(seconds: float, expected: str) -> None:
    """Parts of a second have their unit; hours are shown when there are some."""
    assert write_clock(seconds) == expected


def contrast(one: Color, other: Color) -> float:
    """Return the contrast of two colours as WCAG defines it."""
    light, dark = sorted((luminance(of.get_truecolor().hex) for of in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


BLACK, WHITE = Color.parse("#000000"), Color.parse("#ffffff")
INKS = [style.color for style in map(Style.parse, COLOURS) if style.color is not None]


class TestColours:
    @pytest.mark.parametrize("ink", INKS, ids=lambda ink: ink.name)
    @pytest.mark.parametrize("colours", [ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT])
    def test_contrast(self, ink: Color, colours: ColorSystem) -> None:
        """Every colour has a contrast of at least 3 to white and to black."""
        seen = ink.downgrade(colours)

        assert min(contrast(seen, BLACK), contrast(seen, WHITE)) >= 3

    def test_few_colours(self) -> None:
        """With 16 colours, curves are told apart, and nothing is black or white."""
        few = [ink.downgrade(ColorSystem.STANDARD).number for ink in INKS]
        curves = {Color.parse(curve).downgrade(ColorSystem.STANDARD).number for curve in CURVES}

        assert len(curves) == len(CURVES)
        assert not {0, 7, 15} & set(few)

    @pytest.mark.parametrize("colour", ["#56B4E9", "#E69F00", "#009E73", "#0072B2", "#CC79A7", "#D55E00", "#332288"])
    def test_names_on_few_colours(self, colour: str) -> None:
        """Names of operations can be read on each of 16 colours."""
        style = name_style("white", colour, ColorSystem.STANDARD)
        assert style.color is not None
        assert style.bgcolor is not None

        assert contrast(style.color, style.bgcolor.downgrade(ColorSystem.STANDARD)) >= 3

    def test_without_colours(self) -> None:
        """Without colours, important words are bold."""
        (row,) = render_rows(Text("near", DANGER), 4, 1, TerminalStyle(colours=None))

        assert coloured(row) == "\x1b[1mnear\x1b[0m"
