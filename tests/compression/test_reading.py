from __future__ import annotations

from pathlib import Path

import pytest

from nncftools.compression.reading import (
    SIMILARITY,
    STANDARD,
    Direction,
    Metric,
    RawTable,
    ResultsError,
    found_metrics,
    parse_metrics,
    read,
)
from nncftools.errors import UsageError


def _table(*header: str) -> RawTable:
    return RawTable(Path("a.csv"), header, ())


class TestFoundMetrics:
    """Without --metric, the columns of the files decide."""

    @pytest.mark.parametrize(
        "header, expected",
        [
            (("mode", *(metric.column for metric in reversed(STANDARD))), STANDARD),
            (("mode", "text, word perplexity"), (Metric("text, word perplexity", Direction.LOWER),)),
            (("mode", "mmlu, acc", "mmlu, acc stderr"), (Metric("mmlu, acc", Direction.HIGHER),)),
            (("mode", "score", "score stderr", "time"), (Metric("score", Direction.HIGHER),)),
            (
                ("mode", "gsm8k, exact_match,strict-match"),
                (Metric("gsm8k, exact_match,strict-match", Direction.HIGHER),),
            ),
            (("mode", "a, word_perplexity,b"), (Metric("a, word_perplexity,b", Direction.LOWER),)),
            (("mode", "WWB, similarty"), (SIMILARITY,)),
            (("a", "b"), STANDARD),
        ],
    )
    def test_columns(self, header: tuple[str, ...], expected: tuple[Metric, ...]) -> None:
        """The last word of a name, or a standard error beside it, says what measures quality."""
        assert found_metrics([_table(*header)]) == expected

    def test_only_what_all_have(self) -> None:
        """Of several files, the columns of all of them count."""
        both = _table("mode", "a, acc", "b, acc"), _table("mode", "b, acc")

        assert found_metrics(both) == (Metric("b, acc", Direction.HIGHER),)

    def test_none(self) -> None:
        """Results without any column of quality are refused."""
        with pytest.raises(ResultsError, match=r"no column of quality") as refused:
            found_metrics([_table("mode", "model size, Gb")])

        assert refused.value.remedy == "metric"


def test_own_and_standard() -> None:
    """'standard' adds the four; a standard column keeps its meaning; a name may hold colons."""
    metrics = parse_metrics(("bench: mmlu:Higher", "standard", "WWB, similarity:higher"))

    assert metrics == (Metric("bench: mmlu", Direction.HIGHER), *STANDARD)
    assert parse_metrics(("WWB, similarity:higher",)) == (SIMILARITY,)


@pytest.mark.parametrize("text", ["", "mmlu", "mmlu:", ":higher", "mmlu:better", "mmlu:similarity", "%int4:lower"])
def test_wrong_choice(text: str) -> None:
    """Anything but a column with a direction is refused."""
    with pytest.raises(UsageError, match=r"expected, found|describes the compression"):
        parse_metrics((text,))


def test_both_directions() -> None:
    """A column cannot be better in both directions."""
    with pytest.raises(UsageError, match="both directions"):
        parse_metrics(("a:higher", "a:lower"))


@pytest.mark.parametrize(
    "direction, value, expected",
    [(Direction.HIGHER, 0.4, 0.2), (Direction.LOWER, 0.6, 0.2), (Direction.LOWER, 0.4, -0.2), ("similarity", 0.9, 0.1)],
)
def test_relative_error(direction: Direction, value: float, expected: float) -> None:
    """A drop, an increase or a dissimilarity counts as error; an improvement as negative error."""
    assert Metric("m", Direction(direction)).relative_error(value, 0.5) == pytest.approx(expected)


@pytest.mark.long
def test_many_columns(tmp_path: Path) -> None:
    """A header of very many columns is checked in time that grows with their number."""
    path = tmp_path / "results.csv"
    path.write_text(",".join(map(str, range(5_000))) + ",0\n" + ",".join("1" * 5_001) + "\n")

    with pytest.raises(ResultsError, match="named twice: '0'"):
        read(path)
