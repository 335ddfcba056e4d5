"""The text log of the NNCF memory monitor: one row per sample, then total time and maximum."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import isnan
from typing import TYPE_CHECKING

from nncftools.files import replacing

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Sequence

    from nncftools.render.view import View
    from nncftools.session.session import Session
    from nncftools.units import MemoryUnit


def stem(metric: str, *, from_zero: bool) -> str:
    """Return the file name of a metric's log without its suffix."""
    return f"{metric.replace('/', '_')}_memory_usage{'_from-zero' if from_zero else ''}"


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
    """Write the log of one metric without its unknown samples. Raises OSError."""
    pairs = zip(session.samples.time_s, session.samples[metric], strict=True)
    known = [(time, value) for time, value in pairs if not isnan(value)]
    zero = known[0][1] if view.from_zero and known else 0.0
    write_rows([time for time, _ in known], [view.unit.of(value - zero) for _, value in known], view.unit, path)


def write_rows(time_s: Sequence[float], values: Sequence[float], unit: MemoryUnit, path: pathlib.Path) -> None:
    """Write a log of seconds and values in ``unit``. Raises OSError, and ValueError for unequal lengths."""
    rows = [f"{time:.3f} {value:.3f}" for time, value in zip(time_s, values, strict=True)]
    total, maximum = (f"{time_s[-1]:.3f}", f"{max(values):.3f} ({unit})") if rows else ["no samples were recorded"] * 2
    with replacing(path) as beside:
        beside.write_text("\n".join([*rows, f"Total time: {total}", f"Max memory: {maximum}", ""]), encoding="utf-8")
