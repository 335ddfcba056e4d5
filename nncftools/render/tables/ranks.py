"""What each rank of a job did, as the cells of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nncftools.analysis.summary import largest_rank
from nncftools.render.tables.facts import exit_text
from nncftools.text import printable, shortened
from nncftools.units import UNKNOWN, seconds_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.session.model import RankRun, Session
    from nncftools.units import MemoryUnit

_NAME, _MACHINE = 24, 20
_TEXTS = 2
"""So many columns are text, the others figures."""


@dataclass(frozen=True)
class Ranks:
    """A table; ``worst`` is the place of the row whose peak is the highest, None when none is known."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    worst: int | None
    texts: int = _TEXTS


def ranks(session: Session, unit: MemoryUnit) -> Ranks | None:
    """Return the table of a job's ranks; None for a session that was not put together."""
    if not session.ranks:
        return None
    headings = ["Rank", "Machine", f"Peak, {unit}", "at", "Lasted", "CPU", "Exit"]
    worst = largest_rank(session.ranks)
    place = None if worst is None else session.ranks.index(worst)
    return Ranks(headings, [_row(run, unit) for run in session.ranks], place)


def _row(run: RankRun, unit: MemoryUnit) -> list[str]:
    peak = run.peaks.get("rss")
    number = run.name if run.rank is None else f"{run.rank.number}"
    return [
        shortened(printable(number), _NAME),
        shortened(printable(run.host.name), _MACHINE) or UNKNOWN,
        unit.text(None if peak is None else peak.low),
        seconds_text(None if peak is None else peak.at_s),
        seconds_text(run.duration_s),
        seconds_text(run.cpu_s),
        UNKNOWN if run.exit is None else exit_text(run.exit).removeprefix("exit status ").removeprefix("killed by "),
    ]
