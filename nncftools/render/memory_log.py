"""The text log of the NNCF memory monitor: one row per sample, then total time and maximum."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from nncftools.files import replacing

if TYPE_CHECKING:
    import pathlib

    from nncftools.render.view import View
    from nncftools.session.model import Session


def stem(metric: str, *, from_zero: bool) -> str:
    """Return the file name of a metric's log without its ending."""
    return f"{metric}_memory_usage{'_from-zero' if from_zero else ''}"


def write(session: Session, view: View, metric: str, path: pathlib.Path) -> None:
    """Write the log of one metric; samples whose figure is unknown are left out. Raises OSError."""
    from nncftools.session.samples import known

    values = known(session.samples[metric])
    zero = values[0] if view.from_zero and values else 0.0
    rows = [
        f"{time:.3f} {view.unit.of(value - zero):.3f}\n"
        for time, value in zip(session.samples.time_s, session.samples[metric], strict=True)
        if not isnan(value)
    ]
    if rows:
        rows.append(f"Total time: {session.samples.time_s[-1]:.3f}\n")
        rows.append(f"Max memory: {view.unit.of(max(values) - zero):.3f} ({view.unit})\n")
    else:
        rows = ["Total time: no samples were recorded\n", "Max memory: no samples were recorded\n"]
    with replacing(path) as beside:
        beside.write_text("".join(rows), encoding="utf-8")
