"""Selects the rows to keep of merged neighbours, in the sampler as in a session.

A recording that grows too long is cut into buckets of neighbouring rows. Each bucket keeps the rows with the smallest
and the largest value of each gauge, and its last row. So every row is a real sample with its time, and no peak is lost.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence


def kept_of_bucket(gauges: Sequence[array[float] | list[float]], begin: int, end: int) -> list[int]:
    """Return the rows to keep of ``begin`` to before ``end``, in time order; of equal values the first row.

    A gauge is a column of values, NaN where unknown.
    """
    kept = {end - 1}
    for gauge in gauges:
        values = gauge[begin:end]
        total = sum(values)  # only NaN is unequal to itself; importing math would cost the sampler 44 KiB
        known = values if total == total else [value for value in values if value == value]  # noqa: PLR0124 — see above
        if known:
            kept |= {begin + values.index(min(known)), begin + values.index(max(known))}
    return sorted(kept)
