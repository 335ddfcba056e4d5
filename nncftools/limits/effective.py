"""The memory limit that a run would have met first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nncftools.journal.limit_kinds import GROUP, THROTTLE

if TYPE_CHECKING:
    from nncftools.session.model import SessionData

MAX_MEMORY, MACHINE = "--max-memory", "machine"
_ABOVE = 1.1
"""RSS may exceed the limit of a control group a little: pages of shared libraries may be charged to another group."""


class Effective(NamedTuple):
    """A limit on resident memory."""

    kind: str
    """``control group``, ``control group, memory.high``, ``--max-memory`` or ``machine``: all of its memory."""
    size: int
    """In bytes."""
    set_by: str = ""
    """The file that sets it."""

    def share_text(self, size: float) -> str:
        """Return a part of the limit as text: ``95 %``."""
        percent = size / self.size * 100
        return f"{percent:.0f} %" if percent >= 0.5 or not size else "less than 1 %"  # noqa: PLR2004 — rounds to 1


def effective_limit(session: SessionData) -> Effective | None:
    """Return the smallest limit on resident memory; None when none is known.

    The limit of a control group counts unless the whole run held more: then only a part of its processes was in it.
    """
    peak = session.peaks.get("rss")
    held = 0 if peak is None else peak.sampled or 0
    found = [
        Effective(limit.kind, limit.size, limit.set_by)
        for limit in session.memory_limits
        if limit.kind in {GROUP, THROTTLE} and held <= limit.size * _ABOVE
    ]
    if session.limit_reached is not None:
        found.append(Effective(MAX_MEMORY, session.limit_reached.limit))
    if session.host.memory:
        found.append(Effective(MACHINE, session.host.memory))
    return min(found, key=lambda limit: limit.size, default=None)
