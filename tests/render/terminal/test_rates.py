from __future__ import annotations

import numpy as np
import pytest

from nncftools.render.canvas import Medium
from nncftools.render.terminal_plot import Rate, rate_rows

CPU = Rate("Cores", ("cpu_user", "cpu_system"), "cores", "cpu")
READ = Rate("Read", ("read_bytes",), "B", "read")
MIB = 2**20


def shown(rate: Rate, values: list[float], figure: float, height: int = 1, gutter: int = 12) -> list[str]:
    """Return rates as text."""
    rows = rate_rows(rate, np.array(values), figure, Medium(gutter=gutter), height)
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
