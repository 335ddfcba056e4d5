"""Made-up weight-compression results, and files of them."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Mapping
from pathlib import Path

from nncftools.compression.checking import load
from nncftools.compression.reading import FIGURES, PEAK, PEAK_OWNER, STANDARD, Metric
from nncftools.compression.results import Comparison, comparisons

DATA = Path(__file__).parents[1] / "data"
MADE_UP = DATA / "made_up_compression.csv"
EXPECTED = DATA / "made_up_compression.expected.csv"
HEADER = [
    "model, made up",
    "mode",
    "%int4",
    "%int8",
    "lora rank",
    "plot name",
    "model size, Gb",
    "wikitext, word perplexity",
    "lambada-openai, acc",
    "lambada-openai, perplexity",
    "WWB, similarity",
]
MODES = (
    "int8",
    "int4",
    "int4 + gptq",
    "int4 + lora correction",
    "int4 + scale estimation",
    "nf4",
    "mxfp4 + awq",
    "new",
)


def row(mode: str = "fp32", **changed: object) -> dict[str, str]:
    """Return the cells of a row; ``changed`` names columns with underscores for blanks, or by part of their name."""
    int4 = 0 if mode in {"fp32", "int8"} else 1
    size = {"fp32": 8, "int8": 2}.get(mode, 1)
    cells = ["Made-up-7b", mode, int4, int(mode == "int8"), "", mode, size, 10, 0.5, 4, 1]
    return {**dict(zip(HEADER, map(str, cells), strict=True)), **{name: str(cell) for name, cell in changed.items()}}


def four() -> list[dict[str, str]]:
    """Return the minimal rows of a valid file."""
    return [row("fp32"), row("int8"), row("int4"), row("int4 + gptq")]


def written(path: Path, rows: Iterable[Mapping[str, str]], header: Iterable[str] = HEADER) -> Path:
    """Write rows as a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(header), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


WITHOUT_INT8 = """\
fp32 | 0 | 0 | | | 25.1 | 11.57 | 0.711 | 3.26 | 1
int4 + awq + scale estimation | 0.4 | 0.6 | | 40% int4 | 5.18 | 11.63 | 0.71 | 3.27 | 0.91
int4 + awq + scale estimation | 0.6 | 0.4 | | 60% int4 | 4.62 | 11.73 | 0.71 | 3.25 | 0.9
int4 + awq + scale estimation | 0.8 | 0.2 | | 80% int4 | 4.06 | 11.8 | 0.712 | 3.26 | 0.87
int4 + awq + scale estimation | 1 | 0 | | 100% int4 | 3.5 | 11.87 | 0.704 | 3.32 | 0.84
int4 + awq + scale estimation + gptq | 1 | 0 | | gptq | 3.5 | 11.79 | 0.703 | 3.32 | 0.88
int4 + awq + scale estimation + lora correction | 1 | 0 | 8 | rank 8 | 3.6 | 11.86 | 0.705 | 3.3 | 0.89
int4 + awq + scale estimation + lora correction | 1 | 0 | 64 | rank 64 | 4.1 | 11.77 | 0.71 | 3.25 | 0.92
int4 | 1 | 0 | | data-free | 3.5 | 12.09 | 0.696 | 3.43 | 0.78
"""


def without_int8() -> list[dict[str, str]]:
    """Return rows as in the published Llama-2 results: mixed precision that ends at 100 % int4, and no int8."""
    rows = [["Made-up-7b", *map(str.strip, line.split("|"))] for line in WITHOUT_INT8.splitlines()]
    return [dict(zip(HEADER, row, strict=True)) for row in rows]


def changed(rows: list[dict[str, str]], place: int, column: str, cell: str) -> list[dict[str, str]]:
    """Return rows with one cell changed; the first row is 2, as in the file."""
    return [{**one, column: cell} if number == place else one for number, one in enumerate(rows, 2)]


def compared(*paths: Path, metrics: tuple[Metric, ...] = STANDARD) -> list[Comparison]:
    """Read, check and evaluate files."""
    return comparisons(load(paths, metrics), metrics)


def many(count: int) -> list[dict[str, str]]:
    """Return a baseline and ``count`` made-up rows of all kinds, some of them close together."""
    chance = random.Random(4)  # noqa: S311 — no secret
    rows = [row("fp32", **{"model size, Gb": 10})]
    for number in range(count):
        mode = MODES[number % len(MODES)]
        int4 = 0 if mode == "int8" else chance.choice((1, 1, 0.8, 0.6))
        size = 2.5 if mode == "int8" else chance.uniform(1.4, 2.3)
        error = 0.01 if mode == "int8" else max(0.01, (2.6 - size) * 0.12 + chance.gauss(0, 0.015))
        figures = [size, 10 * (1 + error), 0.5 * (1 - error / 2), 4 * (1 + error), 1 - error]
        cells = ["Made-up-7b", mode, int4, 1 - int4, "", f"{mode} no. {number}", *(f"{value:.4f}" for value in figures)]
        rows.append(dict(zip(HEADER, map(str, cells), strict=True)))
    return rows


def with_figures(path: Path, changes: Mapping[str, str] | None = None) -> Path:
    """Write the four rows with figures of memory and time; ``changes`` replaces cells of all rows."""
    header = [PEAK.column, PEAK.high_column, *(figure.column for figure in FIGURES[1:])]
    figures = [
        ("", "", 9000, "", 0.2, 0.6),
        (3000, 4000, 2500, 0.9, 0.05, 0.2),
        (4300, "", 1500, 12.345, 0.03, 0.15),
        (5000, 5500, 1400, 80, 0.0123456, 0.12),
    ]
    cells = [{**dict(zip(header, map(str, found), strict=True)), **(changes or {})} for found in figures]
    rows = [{**one, **more, PEAK_OWNER: "optimum-cli"} for one, more in zip(four(), cells, strict=True)]
    return written(path, rows, [*HEADER, *header, PEAK_OWNER])
