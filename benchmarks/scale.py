"""How large the workloads are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Sizes and durations of all workloads; the defaults are those of the published table."""

    children: tuple[int, ...] = (1, 10, 50, 200)
    most_children: int = 200
    crowd: int = 300
    """Number of unrelated background processes."""
    crowd_children: tuple[int, ...] = (1, 10)
    short_s: float = 2
    long_s: float = 8
    spikes: int = 8
    storm: int = 2000
    samples: int = 2_000_000
    drawing_s: float = 300
    """Bound of a drawing."""


FULL = Scale()
README = Scale(children=(1, 50), crowd_children=(1,), short_s=1, long_s=5)
SMALL = Scale(
    children=(1, 10),
    most_children=10,
    crowd=50,
    crowd_children=(1,),
    short_s=0.5,
    long_s=2.5,
    spikes=2,
    storm=200,
    samples=20_000,
    drawing_s=60,
)
