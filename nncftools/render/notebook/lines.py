"""A session in five lines, as Python prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.analysis.summary import cpu_s, taken
from nncftools.render.tables import facts
from nncftools.render.view import View, command_text, label
from nncftools.units import MemoryUnit, seconds_text, shortened, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.session.session import Session

_WIDE = 100
_MOST_METRICS = 3


def five_lines(session: Session, metrics: Sequence[str]) -> str:
    """Return the command, the run, the peak of the first of ``metrics``, the cost and the content; bytes in MiB."""
    lines = {
        "Session": command_text(session),
        "  run": facts.run(session),
        "  peak": _peak(session, metrics),
        "  used": ", ".join(_used(session)) or "unknown",
        "  holds": _content(session),
    }
    return "\n".join(f"{heading:<9}{shortened(text, _WIDE - 9)}" for heading, text in lines.items())


def _peak(session: Session, metrics: Sequence[str]) -> str:
    of_rss = facts.peak(session, View(metrics))
    if of_rss is not None:
        return " ".join(filter(None, of_rss))
    name = next(iter(metrics), "rss")
    peak = session.peaks.get(name)
    return f"{label(name)} {MemoryUnit.MiB.label(None if peak is None else peak.low)}"


def _used(session: Session) -> Iterator[str]:
    spent_s = cpu_s(session)
    if spent_s is not None:
        yield f"{seconds_text(spent_s)} of CPU"
    for column, action in (("read_bytes", "read from storage"), ("write_bytes", "written")):
        size = session.totals.get(column)
        if size is not None:
            yield f"{size_text(size)} {action}"


def _content(session: Session) -> str:
    names = session.samples.metrics
    more = f" and {len(names) - _MOST_METRICS} more" if len(names) > _MOST_METRICS else ""
    counts = (("process", "processes", session.processes), ("operation", "operations", session.marks))
    others = [f"{len(of):,} {one if len(of) == 1 else many}" for one, many, of in counts]
    stacks = ["stacks"] if session.snapshots is not None and session.snapshots.processes else []
    return ", ".join([f"{taken(session):,} samples of {', '.join(names[:_MOST_METRICS])}{more}", *others, *stacks])
