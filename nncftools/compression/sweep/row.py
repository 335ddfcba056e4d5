"""One row of the results: a configuration that ended, with its figures or with the verdict on its failure."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import msgspec

from nncftools.compression.filling import GIB
from nncftools.compression.reading import INT4, INT8, LORA_RANK, MODE, PLOT_NAME, SIZE, STDERR

if TYPE_CHECKING:
    from collections.abc import Sequence

COMPRESSION = "compression time, s"
PEAK, PEAK_HIGH, OWNER = "peak memory, MiB", "peak memory high, MiB", "peak owner"
INFERENCE_PEAK = "inference peak memory, MiB"
FIRST_TOKEN, PER_TOKEN, INFERENCE = "first token, s", "per token, s", "inference, s"
BITS, WIDTHS = "bits per weight", "bit widths"
FAILED = "failed"
_MIB = 2**20


class Row(msgspec.Struct):
    """What is known of a configuration that ended; bytes and seconds, None is unknown."""

    name: str
    settings: dict[str, Any]
    """Those of the grid: a configuration that was changed is run again."""
    mode: str
    int4: float
    int8: float
    rank: int | None = None
    size: int | None = None
    """Of the weights on disk."""
    figures: dict[str, tuple[float, float | None]] = {}
    """Value and standard error by column."""
    compression_s: float | None = None
    peak: int | None = None
    """Of compression, the low end of the bracket."""
    peak_high: int | None = None
    owner: str = ""
    inference_peak: int | None = None
    first_token_s: float | None = None
    per_token_s: float | None = None
    inference_s: float | None = None
    """One call, for a model that is no language model."""
    widths: dict[str, int] = {}
    """The number of weights by their width."""
    failed: str = ""
    measured_s: float = 0.0
    """The time of its processes."""
    wall_s: float = 0.0
    """From its start to its end, with what the sweep itself does."""
    continuations: list[list[int]] = []
    """The tokens that follow the prompts; of the baseline, the others are compared with them."""

    @property
    def is_complete(self) -> bool:
        """Whether it did not fail."""
        return not self.failed

    @property
    def bits(self) -> float | None:
        """How many bits of the file a weight takes, with scales and zero points."""
        weights = sum(self.widths.values())
        return None if self.size is None or not weights else self.size * 8 / weights


def table(model: str, setup: str, rows: Sequence[Row]) -> str:
    """Return the CSV file of the results. An empty cell is unknown; a row that failed has no size and no quality."""
    quality = list(dict.fromkeys(column for row in rows for column in row.figures))
    columns = [part for column in quality for part in (column, column + STDERR)]
    described = [MODE, INT4, INT8, LORA_RANK, PLOT_NAME, SIZE]
    text = io.StringIO()
    writer = csv.DictWriter(
        text, [setup, *described, *columns, *measured_columns(rows)], restval="", lineterminator="\n"
    )
    writer.writeheader()
    for row in rows:
        cells = {setup: model, **_cells(row)}
        writer.writerow({column: cells[column] for column in writer.fieldnames if column in cells})
    return text.getvalue()


def measured_columns(rows: Sequence[Row]) -> list[str]:
    """Return the columns after those of quality: a language model has times per token, another one that of a call."""
    times = [INFERENCE] if any(row.inference_s is not None for row in rows) else [FIRST_TOKEN, PER_TOKEN]
    return [COMPRESSION, PEAK, PEAK_HIGH, OWNER, INFERENCE_PEAK, *times, BITS, WIDTHS, FAILED]


def widths_text(widths: dict[str, int]) -> str:
    """Return the shares of weights by their width: ``int4 84%, int8 16%``; empty for unknown."""
    whole = sum(widths.values())
    shares = sorted(((size / whole, name) for name, size in widths.items()), reverse=True) if whole else []
    return ", ".join(f"{name} {share:.0%}" for share, name in shares if share >= 0.005)  # noqa: PLR2004 — rounds to 0


def _cells(row: Row) -> dict[str, str]:
    known = {
        MODE: row.mode,
        INT4: f"{row.int4:g}",
        INT8: f"{row.int8:g}",
        LORA_RANK: "" if row.rank is None else str(row.rank),
        PLOT_NAME: row.name if row.rank is not None or row.name != row.mode else "",
        COMPRESSION: _figure(row.compression_s),
        PEAK: _mib(row.peak),
        PEAK_HIGH: _mib(row.peak_high),
        OWNER: row.owner,
        INFERENCE_PEAK: _mib(row.inference_peak),
        FIRST_TOKEN: _figure(row.first_token_s),
        PER_TOKEN: _figure(row.per_token_s),
        INFERENCE: _figure(row.inference_s),
        FAILED: row.failed,
    }
    if row.is_complete:
        known |= {SIZE: _figure(None if row.size is None else row.size / GIB), BITS: _figure(row.bits)}
        known[WIDTHS] = widths_text(row.widths)
        for column, (value, stderr) in row.figures.items():
            known |= {column: _figure(value), column + STDERR: _figure(stderr)}
    return known


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"


def _mib(size: int | None) -> str:
    return "" if size is None else f"{size / _MIB:.0f}"
