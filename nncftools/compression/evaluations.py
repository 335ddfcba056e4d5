"""Reads figures from the output of evaluation tools: lm-evaluation-harness, who-what-benchmark, a model's folder."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from nncftools import intake
from nncftools.compression.checking import number, shown
from nncftools.compression.columns import LAMBADA_ACCURACY, LAMBADA_PERPLEXITY, STDERR, WIKITEXT
from nncftools.compression.reading import read
from nncftools.errors import NncfToolsError, UsageError
from nncftools.units import printable, shortened

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Mapping, Sequence

GIB = 2**30
"""The unit of "Gb" in the published tables, where Phi-3-mini's 3.82e9 weights of 4 bytes are 14.235."""
_SHOWN = 60
_STANDARD = {
    ("wikitext", "word_perplexity"): WIKITEXT.column,
    ("lambada_openai", "acc"): LAMBADA_ACCURACY.column,
    ("lambada_openai", "perplexity"): LAMBADA_PERPLEXITY.column,
}


def tasks_of(texts: Sequence[str]) -> dict[tuple[str, str], str]:
    """Return the column for every (task, metric): the standard three and each ``TASK:METRIC`` in ``texts``.

    Raises UsageError.
    """
    wanted = dict(_STANDARD)
    for text in texts:
        task, _, metric = text.strip().rpartition(":")
        if not task or not metric:
            raise UsageError(f"'TASK:METRIC' expected, found {text!r}")
        wanted.setdefault((task, metric), f"{task}, {metric}")
    return wanted


def from_lm_eval(path: pathlib.Path, wanted: Mapping[tuple[str, str], str]) -> dict[str, float]:
    """Return the figures of a results file of lm-evaluation-harness by column, with their standard errors.

    Metrics are found by name, or by ``name,filter`` with the filter ``none``. Raises NncfToolsError.
    """
    results = _results(path)
    found: dict[str, float] = {}
    for (task, metric), column in wanted.items():
        of_task = results.get(task)
        if not isinstance(of_task, dict):
            continue
        value = _figure(path, of_task, task, metric)
        if value is not None:
            found[column] = value
            stderr = _figure(path, of_task, task, f"{metric}_stderr")
            if stderr is not None:
                found[column + STDERR] = stderr
    if not found:
        tasks = ", ".join(map(shown, results)) or "none"
        raise NncfToolsError(f"{str(path)!r}: none of the wanted metrics found; its tasks: {tasks}", mended_by="task")
    return found


def _results(path: pathlib.Path) -> Mapping[str, object]:
    try:
        document = json.loads(intake.whole(path))
    except (ValueError, RecursionError) as error:
        raise NncfToolsError(f"{str(path)!r}: not JSON: {error}") from error
    results = document.get("results") if isinstance(document, dict) else None
    if not isinstance(results, dict):
        raise NncfToolsError(f"{str(path)!r}: not a result of lm-evaluation-harness: no 'results' by task")
    return results


def _figure(path: pathlib.Path, of_task: Mapping[str, object], task: str, metric: str) -> float | None:
    """Return a metric's value; None when it is missing or "N/A"."""
    key = next((key for key in (f"{metric},none", metric) if key in of_task), None)
    value = None if key is None else of_task[key]
    if value is None or value == "N/A":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not intake.are_within([value]):
        found = shortened(printable(repr(value)), _SHOWN)
        raise NncfToolsError(f"{str(path)!r}: results.{task}.{key}: a finite number expected, found {found}")
    return float(value)


def similarity(path: pathlib.Path) -> float:
    """Return the mean of the ``similarity`` column of who-what-benchmark's metrics. Raises NncfToolsError."""
    table = read(path)
    if "similarity" not in table.header:
        raise NncfToolsError(f"{str(path)!r}: no column 'similarity'; who-what-benchmark's metrics.csv expected")
    values = []
    for record in table.records:
        value = number(record.cells["similarity"])
        if value is None or not intake.are_within([value]):
            found = shown(record.cells["similarity"])
            raise NncfToolsError(
                f"{str(path)!r}: row {record.number}, column 'similarity': a finite number expected, found {found}"
            )
        values.append(value)
    if not values:
        raise NncfToolsError(f"{str(path)!r}: no rows")
    return math.fsum(values) / len(values)


def size_gib(path: pathlib.Path) -> float:
    """Return the size in GiB of a file, or of all files in a folder; links are followed. Raises NncfToolsError."""
    try:
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        size = sum(file.stat().st_size for file in files)
    except OSError as error:
        raise NncfToolsError(f"cannot read {str(path)!r}: {error.strerror or error}") from error
    if not size:
        raise NncfToolsError(f"{str(path)!r}: no files with content; a model's folder expected")
    return size / GIB
