"""The memory limit of a run and what of it the run held: as a line of text, and to draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nncftools.limits.needs import MACHINE, Effective, effective_limit
from nncftools.units import brief_size, printable, shortened

if TYPE_CHECKING:
    from nncftools.render.view import View
    from nncftools.session.session import Session

_HALF = 0.5
"""A larger part of a limit is near it."""
_FILE = 80


class DrawnLimit(NamedTuple):
    """A limit as a line in a picture."""

    size: float
    """In the view's unit."""
    name: str
    size_text: str

    @property
    def label(self) -> str:
        """Name and size in two lines."""
        return f"{self.name}\n{self.size_text}"


def limit_text(session: Session) -> str | None:
    """Return which part of its limit a run held at its peak: ``95 % of 8 GiB (control group, set by FILE)``.

    All memory of the machine is a limit only for a run that held more than half of it. None when there is no limit.
    """
    limit, peak = effective_limit(session), _peak(session)
    if limit is None or peak is None or (limit.kind == MACHINE and not _is_near(peak, limit)):
        return None
    by = f", set by {shortened(printable(limit.set_by), _FILE)}" if limit.set_by else ""
    of = "all of the machine" if limit.kind == MACHINE else limit.kind
    return f"{limit.share_text(peak)} of {brief_size(limit.size)} ({of}{by})"


def drawn_limit(session: Session, view: View) -> DrawnLimit | None:
    """Return the limit, if the view shows RSS and it came near: an axis with any other limit would hide the data."""
    limit, peak = effective_limit(session), _peak(session)
    if limit is None or peak is None or not _is_near(peak, limit) or view.from_zero or "rss" not in view.metrics:
        return None
    return DrawnLimit(view.unit.of(limit.size), limit.name, brief_size(limit.size))


def _peak(session: Session) -> int | None:
    found = session.peaks.get("rss")
    return None if found is None or session.from_zero else found.low


def _is_near(peak: int, limit: Effective) -> bool:
    return peak > limit.size * _HALF
