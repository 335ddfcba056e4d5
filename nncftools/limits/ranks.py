"""Which rank of a job failed first: a launcher ends the others, so their ends say nothing of the cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.analysis.summary import end_of, failed_in_order
from nncftools.limits.last_state import UNKNOWN
from nncftools.limits.verdict import CERTAIN, KILLED, LIKELY, RANK_FAILED, TERMINATED, Verdict
from nncftools.units import seconds_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.session.model import RankRun
    from nncftools.session.session import Session

_SOON_S = 0.02
"""Ranks that fail so soon after one another may do so for a common reason."""
_NAMED = 3


def judge_ranks(session: Session) -> Verdict | None:
    """Return the first rank that failed; None when none did."""
    failed = failed_in_order(session.ranks)
    if not failed:
        return None
    first, *others = failed
    is_alone = all(end_of(run) - end_of(first) > _SOON_S for run in others)
    one_clock = len({run.host.boot_id or run.host.name for run in session.ranks}) == 1
    return Verdict(
        cause=RANK_FAILED,
        certainty=CERTAIN if not others or (is_alone and one_clock) else LIKELY,
        text=f"the first rank that failed was {first.name}: {_ending(first)}",
        at_s=end_of(first),
        state=UNKNOWN,
        evidence=list(_what_followed(first, others)),
    )


def _ending(run: RankRun) -> str:
    return "" if run.exit is None else run.exit.text


def _what_followed(first: RankRun, others: Sequence[RankRun]) -> Iterator[str]:
    for run in others[:_NAMED]:
        yield f"{run.name}: {_ending(run)}, {seconds_text(end_of(run) - end_of(first))} later"
    if len(others) > _NAMED:
        yield f"{len(others) - _NAMED} more ranks failed after that"


def is_consequence(found: Verdict, name: str, job: Session) -> bool:
    """Return whether the verdict on the rank of this name only says that it was ended after another one had failed."""
    later = {run.name for run in failed_in_order(job.ranks)[1:]}
    return name in later and found.cause in {KILLED, TERMINATED}
