"""The text log of the NNCF memory monitor: one row per sample, then total time and maximum."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import isnan
from typing import TYPE_CHECKING

from nncftools.analysis.summary import level
from nncftools.files import replacing

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Sequence

    from nncftools.render.view import View
    from nncftools.session.session import Session
    from nncftools.units import MemoryUnit


FROM_ZERO = "_from-zero"
_NOTHING = "No measurements recorded.\nThe recording ended before the first sample that is known."


def stem(metric: str, *, from_zero: bool, rank: str = "") -> str:
    """Return the file name of a metric's log without its ending; ``rank`` is the suffix of a job's rank."""
    return f"{metric.replace('/', '_')}_memory_usage{rank}{FROM_ZERO if from_zero else ''}"


def report(session: Session, view: View) -> dict[str, Callable[[pathlib.Path], None]]:
    """Return functions that write the log and the picture of each metric, by the monitor's file names."""
    from nncftools.render.pictures import plot

    files: dict[str, Callable[[pathlib.Path], None]] = {}
    for metric in view.metrics:
        name = stem(metric, from_zero=view.from_zero)
        files[f"{name}.txt"] = partial(write, session, view, metric)
        files[f"{name}.png"] = partial(plot.draw, session, replace(view, metrics=[metric]))
    return files


def write(session: Session, view: View, metric: str, path: pathlib.Path) -> None:
    """Write the log of one metric without its unknown samples, with the session's peak as maximum. Raises OSError."""
    of = level(session.samples, metric, session.peaks)
    peak = (of.from_zero() if view.from_zero else of).peak
    rows = known_rows(session, metric, view.unit, from_zero=view.from_zero)
    write_rows(*rows, view.unit, path, most=None if peak is None else view.unit.of(peak))


def known_rows(session: Session, metric: str, unit: MemoryUnit, *, from_zero: bool) -> tuple[list[float], list[float]]:
    """Return the known samples of a metric as seconds since the session's first sample, and values in ``unit``."""
    pairs = zip(session.samples.time_s, session.samples[metric], strict=True)
    known = [(time_s, value) for time_s, value in pairs if not isnan(value)]
    zero = known[0][1] if from_zero and known else 0.0
    first_s = session.samples.time_s[0] if known else 0.0
    return [time_s - first_s for time_s, _ in known], [unit.of(value - zero) for _, value in known]


def write_rows(
    time_s: Sequence[float], values: Sequence[float], unit: MemoryUnit, path: pathlib.Path, *, most: float | None = None
) -> None:
    """Write a log of seconds and values in ``unit``; ``most`` is the maximum if it is not the largest value.

    Raises OSError, and ValueError for unequal lengths.
    """
    lines = [f"{at_s:.3f} {value:.3f}" for at_s, value in zip(time_s, values, strict=True)]
    if lines:
        largest = max(values) if most is None else most
        lines += [f"Total time: {time_s[-1] - time_s[0]:.3f}", f"Max memory: {largest:.3f} ({unit})"]
    else:
        lines = [_NOTHING]
    with replacing(path) as beside:
        beside.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
