from __future__ import annotations

from nncftools.compression.outputs import chart
from tests.compression.made_up import MADE_UP, compared


def lines_of(*, unicode: bool = True, width: int = 80, max_error: float | None = None) -> list[str]:
    """Return the chart of made-up results, 24 lines high."""
    (comparison,) = compared(MADE_UP)
    return chart(comparison, max_error, width, 24, unicode=unicode).splitlines()


def test_points_and_names() -> None:
    """Every result is a point, filled on the front, with its name beside it; nothing is wider than asked for."""
    (comparison,) = compared(MADE_UP)
    lines = lines_of()
    text = "\n".join(lines)
    best = sum(result.is_pareto for result in comparison.results)

    assert (text.count("●"), text.count("○")) == (best, len(comparison.results) - best)
    assert all(result.label in text for result in comparison.results if result.is_pareto)
    assert len(lines) == 24
    assert max(map(len, lines)) <= 80
    assert "compression rate" in text


def test_ascii_points() -> None:
    """Where there is only ASCII, points are letters, and lines are drawn with signs."""
    lines = lines_of(unicode=False)

    assert any("@ " in line for line in lines)
    assert all(map(str.isascii, lines))


def test_largest_error() -> None:
    """Results with a larger error are left out."""
    assert sum(line.count("●") + line.count("○") for line in lines_of(max_error=0.051)) == 4


def test_narrow() -> None:
    """On a narrow screen, names that have no room are left out, and the labels of the axes do not meet."""
    lines = lines_of(width=40)

    assert max(map(len, lines)) <= 40
    assert lines[-1].split() == ["error,", "%", "compression", "rate"]
    assert sum(line.count("●") for line in lines) >= 2
