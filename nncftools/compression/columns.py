"""The columns of the input file, and which of them measure quality."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nncftools.backports import StrEnum
from nncftools.errors import UsageError
from nncftools.units import MemoryUnit

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

PEAK_OWNER = "peak owner"
"""The process that held most at the peak, as text."""
BITS_PER_WEIGHT = "bits per weight"
BIT_WIDTHS = "bit widths"
"""How many weights have which width, as text."""


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


@dataclass(frozen=True)
class Figure:
    """What compressing a model takes, or using it; less is better. A file may lack its column, and a row its figure."""

    name: str
    """What users call it."""
    label: str
    column: str
    factor: float
    """The bytes or seconds in one of the column."""
    is_size: bool
    """Whether it is in bytes; otherwise in seconds."""
    decimals: int
    """Digits behind the point in a table."""
    high_column: str = ""
    """The column with the upper end of a bracket, in the same unit; that end counts."""


MODEL_SIZE = Figure("size", "Model size", SIZE, MemoryUnit.GiB.factor, is_size=True, decimals=3)
"""Published tables write Gb and count GiB."""
_MIB = MemoryUnit.MiB.factor
PEAK = Figure(
    "peak",
    "Peak memory of compression",
    "peak memory, MiB",
    _MIB,
    is_size=True,
    decimals=0,
    high_column="peak memory high, MiB",
)
INFERENCE_PEAK = Figure(
    "inference peak", "Peak memory of inference", "inference peak memory, MiB", _MIB, is_size=True, decimals=0
)
TIME = Figure("time", "Compression time", "compression time, s", 1, is_size=False, decimals=2)
LATENCY = Figure("latency", "Latency per token", "per token, s", 1, is_size=False, decimals=5)
FIRST_TOKEN = Figure("first token", "Latency of the first token", "first token, s", 1, is_size=False, decimals=4)
FIGURES = (PEAK, INFERENCE_PEAK, TIME, LATENCY, FIRST_TOKEN)
"""Those in columns of their own, which a file may lack."""
DECIMALS = {**{figure.column: figure.decimals for figure in FIGURES}, PEAK.high_column: 0, BITS_PER_WEIGHT: 2}
"""Digits behind the point of known further columns in a table."""


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
