"""The columns of the input file, and which of them measure quality."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nncftools.backports import StrEnum
from nncftools.errors import UsageError

MODE = "mode"
INT4 = "%int4"
INT8 = "%int8"
LORA_RANK = "lora rank"
PLOT_NAME = "plot name"
SIZE = "model size, Gb"
ERROR = "average relative error"
RATE = "compression rate"
DESCRIBING = (MODE, INT4, INT8, LORA_RANK, PLOT_NAME, SIZE)
COMPUTED = (ERROR, RATE)
"""Published files hold them, too; they are computed here, never read."""
STDERR = " stderr"
"""The suffix of the column with a metric's standard error."""


class Direction(StrEnum):
    """Which values of a metric are better; defines its relative error."""

    HIGHER = "higher"
    """Error: the drop relative to the baseline."""
    LOWER = "lower"
    """Error: the increase relative to the baseline."""
    SIMILARITY = "similarity"
    """Already relative to the baseline; error: 1 − similarity."""


@dataclass(frozen=True)
class Metric:
    """A measure of quality: its column, direction and valid range."""

    column: str
    direction: Direction
    least: float = 0.0
    most: float = math.inf

    @property
    def stderr_column(self) -> str:
        """The column of the standard error; optional in a file."""
        return self.column + STDERR

    def relative_error(self, value: float, baseline: float) -> float:
        """Return how much worse ``value`` is than ``baseline``, as a fraction of it; negative when better."""
        if self.direction is Direction.SIMILARITY:
            return 1 - value
        worse = baseline - value if self.direction is Direction.HIGHER else value - baseline
        return worse / baseline


WIKITEXT = Metric("wikitext, word perplexity", Direction.LOWER, least=1)
LAMBADA_ACCURACY = Metric("lambada-openai, acc", Direction.HIGHER, most=1)
LAMBADA_PERPLEXITY = Metric("lambada-openai, perplexity", Direction.LOWER, least=1)
SIMILARITY = Metric("WWB, similarity", Direction.SIMILARITY, least=-1, most=1)
"""who-what-benchmark's mean cosine of embeddings: a collapsed model can be a little below 0."""
STANDARD = (WIKITEXT, LAMBADA_ACCURACY, LAMBADA_PERPLEXITY, SIMILARITY)


def chosen_metrics(texts: tuple[str, ...]) -> tuple[Metric, ...]:
    """Parse ``NAME:higher``, ``NAME:lower`` or ``standard`` to metrics; without any, return the standard four.

    A standard column keeps its own direction. Raises UsageError.
    """
    found: dict[str, Metric] = {}
    for text in texts or ("standard",):
        for metric in STANDARD if text.strip() == "standard" else (_metric(text),):
            if found.setdefault(metric.column, metric) != metric:
                raise UsageError(f"{metric.column!r} is asked for in both directions")
    return tuple(found.values())


def _metric(text: str) -> Metric:
    column, colon, word = (part.strip() for part in text.rpartition(":"))
    if not colon or not column or word.lower() not in {Direction.HIGHER, Direction.LOWER}:
        raise UsageError(f"'COLUMN:higher', 'COLUMN:lower' or 'standard' expected, found {text!r}")
    if column in (*DESCRIBING, *COMPUTED):
        raise UsageError(f"{column!r} describes the compression; name a column of quality")
    return next((metric for metric in STANDARD if metric.column == column), Metric(column, Direction(word.lower())))
