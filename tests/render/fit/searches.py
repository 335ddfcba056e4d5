"""Results of searches with figures that are easy to follow."""

from __future__ import annotations

from typing import Any

from nncftools.cli.fit_search import WORKED, Fit, Free, Trial

GIB = 2**30
FREE = Free(duration_s=20.0, floor=round(5.2 * GIB), comfortable=7 * GIB, peak_rss=round(7.2 * GIB))


def trial(gib: float, slower: float = 1.0, ended: str = WORKED, **fields: Any) -> Trial:  # noqa: ANN401 — any field of a trial
    """Return a run under a limit."""
    return Trial(
        limit=round(gib * GIB),
        worked=ended == WORKED,
        ended=ended,
        duration_s=20 * slower,
        slower=slower,
        **{"refaults": 3 * GIB, "stall_s": 1.5, **fields},
    )


def search(*trials: Trial, works: float | None = 5.3, fast: float | None = 5.9, **fields: Any) -> Fit:  # noqa: ANN401 — any field of a search
    """Return a search whose runs are given, and what it found."""
    found = [None if limit is None else round(limit * GIB) for limit in (works, fast)]
    given = {"free": FREE, "free_runs": 1, "is_finished": True, **fields}
    return Fit(
        command=["python", "export $x.py"],
        trials=list(trials),
        works_from=found[0],
        fast_from=found[1],
        **given,
    )


FOUND = search(trial(7.07), trial(5.9, 1.02), trial(5.3, 2.1), trial(5.2, 0.4, "out of memory", refaults=None))
