from __future__ import annotations

import pathlib

import pytest

from nncftools.compression.reading import SIMILARITY, STANDARD, Direction, Metric, ResultsError, chosen_metrics, read
from nncftools.errors import UsageError


def test_none_is_the_standard_four() -> None:
    """By default, the standard four are averaged."""
    assert chosen_metrics(()) == STANDARD


def test_own_and_standard() -> None:
    """'standard' adds the four; a standard column keeps its meaning; a name may hold colons."""
    metrics = chosen_metrics(("bench: mmlu:Higher", "standard", "WWB, similarity:higher"))

    assert metrics == (Metric("bench: mmlu", Direction.HIGHER), *STANDARD)
    assert chosen_metrics(("WWB, similarity:higher",)) == (SIMILARITY,)


@pytest.mark.parametrize("text", ["", "mmlu", "mmlu:", ":higher", "mmlu:better", "mmlu:similarity", "%int4:lower"])
def test_wrong_choice(text: str) -> None:
    """Anything but a column with a direction is refused."""
    with pytest.raises(UsageError, match=r"expected, found|describes the compression"):
        chosen_metrics((text,))


def test_both_directions() -> None:
    """A column cannot be better in both directions."""
    with pytest.raises(UsageError, match="both directions"):
        chosen_metrics(("a:higher", "a:lower"))


@pytest.mark.parametrize(
    ("direction", "value", "expected"),
    [(Direction.HIGHER, 0.4, 0.2), (Direction.LOWER, 0.6, 0.2), (Direction.LOWER, 0.4, -0.2), ("similarity", 0.9, 0.1)],
)
def test_relative_error(direction: Direction, value: float, expected: float) -> None:
    """A drop, an increase or a dissimilarity counts as error; an improvement as negative error."""
    assert Metric("m", Direction(direction)).relative_error(value, 0.5) == pytest.approx(expected)


def test_many_columns(tmp_path: pathlib.Path) -> None:
    """A header of very many columns is checked in time that grows with their number."""
    path = tmp_path / "results.csv"
    path.write_text(",".join(map(str, range(200_000))) + ",0\n" + ",".join("1" * 200_001) + "\n")

    with pytest.raises(ResultsError, match="named twice: '0'"):
        read(path)
