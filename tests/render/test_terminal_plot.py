from __future__ import annotations

import numpy as np
import pytest

from nncftools.render.canvas import TerminalStyle
from nncftools.render.terminal_plot import Rate, axis_for, clock, rate_rows

CPU = Rate("Cores", ("cpu_user", "cpu_system"), "cores", "cpu")
READ = Rate("Read", ("read_bytes",), "B", "read")
MIB = 2**20


def shown(rate: Rate, values: list[float], figure: float, height: int = 1, gutter: int = 12) -> list[str]:
    """Return rates as text."""
    rows = rate_rows(rate, np.array(values), figure, TerminalStyle(gutter=gutter), height)
    return ["".join(part.text for part in row) for row in rows]


def test_one_row() -> None:
    """Bars are parts of the highest rate; 0 and unknown are blank."""
    assert shown(READ, [0, MIB, 2 * MIB, np.nan], MIB, gutter=16) == ["Read   1.0 MiB/s  ▄█ "]


def test_a_core_is_the_least_full_height() -> None:
    """Less than one busy core is not drawn as if it were much."""
    assert shown(CPU, [0.25, 0.5], 0.5) == ["Cores   0.50 ▂▄"]


def test_several_rows() -> None:
    """With more height, rates are an area; name and figure stand at its foot."""
    assert shown(CPU, [2, 2, 1, 1], 1.0, 2) == ["             ⡫⣻  ", "Cores   1.00 ⡪⡪⡫⡫"]


@pytest.mark.parametrize(
    ("gutter", "expected"), [(16, "Write  160 MiB/s"), (12, "Write 160M/s"), (10, "Write 160M")], ids=str
)
def test_little_room(gutter: int, expected: str) -> None:
    """A rate keeps its unit in the little room that there is."""
    rate = Rate("Write", ("write_bytes",), "B", "write")
    found = shown(rate, [160.0 * MIB], 160.0 * MIB, gutter=gutter)[0]

    assert " ".join(found.split()[:-1]) == " ".join(expected.split())


def test_nothing() -> None:
    """A rate of 0 has its unit, too."""
    assert shown(READ, [0.0], 0.0) == ["Read   0 B/s  "]


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 9, 23, 47])
@pytest.mark.parametrize("largest", [0.001, 1, 7, 99.9, 100, 1311, 1e15])
def test_axis(largest: float, rows: int) -> None:
    """The largest value fits with at most a half of the height left, and ticks are whole numbers of rows apart."""
    found = axis_for(largest, rows, min(3, rows))

    assert largest <= found.top * 1.0001
    assert found.top <= max(2 * largest, found.step)
    assert found.top * found.rows == pytest.approx(found.step * rows)
    assert min(3, rows) <= found.rows <= rows


def test_round_steps() -> None:
    """Steps are round numbers."""
    assert [axis_for(largest, 9, 3).step for largest in (100, 300, 700, 1000)] == [50, 100, 250, 500]


def test_little_is_left_where_there_is_room() -> None:
    """Of several round steps, the one whose axis ends soonest above the largest value is taken."""
    assert axis_for(1024, 40, 3).top < 1.1 * 1024


def test_axis_of_nothing() -> None:
    """There is an axis when all values are 0."""
    assert axis_for(0, 5, 3).top == 1


@pytest.mark.parametrize(("seconds", "expected"), [(0.5, "0.5 s"), (7, "0:07"), (750, "12:30"), (3723, "1:02:03")])
def test_clock(seconds: float, expected: str) -> None:
    """Parts of a second have their unit; hours are shown when there are some."""
    assert clock(seconds) == expected
