"""The marks of a session: their kinds, when they end, and how they nest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from nncftools.session.model import Mark, ProcessTable, SessionData

KINDS = (
    "Model Loading",
    "Export",
    "Quantization",
    "Weight Compression",
    "Training",
    "Compilation",
    "Generation",
    "Saving",
    "Cleanup",
)
"""Plain names, in the order of a workflow."""


def kind_of(name: str) -> str | None:
    """Return the kind with this name in any case, or None."""
    plain = " ".join(name.replace("_", " ").split()).casefold()
    return next((kind for kind in KINDS if kind.casefold() == plain), None)


def renumbered(marks: Iterable[Mark], beside: Iterable[Mark]) -> list[Mark]:
    """Return marks whose numbers are none of those of the marks ``beside`` them."""
    most = max((mark.op or 0 for mark in beside), default=0)

    def later(number: int | None) -> int | None:
        return None if number is None else number + most

    return [replace(mark, op=later(mark.op), inside=later(mark.inside)) for mark in marks]


def in_order(marks: Iterable[Mark]) -> list[Mark]:
    """Return marks in the order of their starts, outer ones before inner ones with the same start."""
    return sorted(marks, key=lambda mark: (mark.start_s, mark.depth))


def with_ends(marks: Iterable[Mark], session: SessionData) -> list[tuple[Mark, float]]:
    """Return marks in order, each with the end of its operation.

    The end is the mark's own, or else the next mark of the same process on the same level or above, the end of the
    process, or the end of the session.
    """
    table = ProcessTable(session.processes)
    following: dict[int | None, list[Mark]] = {}
    """By process: the next mark of each level, the outermost first; each begins before those of the levels above it."""
    ends = []
    for mark in reversed(in_order(marks)):
        after = following.setdefault(mark.pid, [])
        last_s = latest_end_s(mark, table, session.duration_s)
        while after and after[-1].depth > mark.depth:
            after.pop()
        next_s = min(after[-1].start_s, last_s) if after else last_s
        ends.append((mark, max(mark.start_s, next_s) if mark.end_s is None else mark.end_s))
        if after and after[-1].depth == mark.depth:
            after.pop()
        after.append(mark)
    return ends[::-1]


def latest_end_s(mark: Mark, table: ProcessTable, duration_s: float) -> float:
    """Return when the process that performed an operation ended, or else the session."""
    process = table.at(mark.pid, mark.start_s + TICK_S)
    return duration_s if process is None or process.end_s is None else min(process.end_s, duration_s)


TICK_S = 0.01
"""The kernel gives the start of a process in ticks (proc(5))."""


_MOST_PARALLEL = 64


def parents(ended: Sequence[tuple[Mark, float]]) -> list[int | None]:
    """Return the index of the mark around each mark; they have their ends, and are in the order of their starts.

    It is the mark that is named as ``inside``, or else the latest one of the level above that still runs, preferably of
    the same process.
    """
    numbered: dict[int | None, int] = {mark.op: place for place, (mark, _) in enumerate(ended) if mark.op is not None}
    levels: dict[int, list[int]] = {}
    found = []
    for place, (mark, _) in enumerate(ended):
        parent = numbered.get(mark.inside)
        if parent is None or parent >= place:
            parent = None
            for outer in reversed(levels.get(mark.depth - 1, [])[-_MOST_PARALLEL:]):
                if ended[outer][1] >= mark.start_s:
                    parent = outer if parent is None else parent
                    if ended[outer][0].pid == mark.pid:
                        parent = outer
                        break
        levels.setdefault(mark.depth, []).append(place)
        found.append(parent)
    return found
