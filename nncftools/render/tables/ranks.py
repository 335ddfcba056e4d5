"""The table of a job's ranks: what each of them did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.analysis.summary import largest_rank
from nncftools.render.tables.facts import exit_text
from nncftools.render.tables.table import Column, Row, Seconds, Size, Table, Words
from nncftools.text import printable, shortened
from nncftools.units import UNKNOWN

if TYPE_CHECKING:
    from nncftools.session.model import RankRun
    from nncftools.session.session import Session
    from nncftools.units import MemoryUnit

_NAME, _MACHINE = 24, 20


def ranks(session: Session, unit: MemoryUnit) -> Table:
    """Return the ranks of a job; no rows for a session that was not put together."""
    texts = [Column("Rank", is_text=True), Column("Machine", is_text=True)]
    largest = largest_rank(session.ranks)
    return Table(
        columns=[*texts, *map(Column, (f"Peak, {unit}", "at", "Lasted", "CPU", "Exit"))],
        rows=[_row(run, unit, is_largest=run is largest) for run in session.ranks],
    )


def _row(run: RankRun, unit: MemoryUnit, *, is_largest: bool) -> Row:
    peak = run.peaks.get("rss")
    number = run.name if run.rank is None else f"{run.rank.number}"
    end = UNKNOWN if run.exit is None else exit_text(run.exit).removeprefix("exit status ").removeprefix("killed by ")
    cells = (
        Words(shortened(printable(number), _NAME)),
        Words(shortened(printable(run.host.name), _MACHINE) or UNKNOWN),
        Size(None if peak is None else peak.low, unit),
        Seconds(None if peak is None else peak.at_s),
        Seconds(run.duration_s),
        Seconds(run.cpu_s),
        Words(end),
    )
    return Row(cells=cells, is_strong=is_largest, note="<- largest" if is_largest else "")
