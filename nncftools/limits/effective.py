"""The memory limit that a run would have met first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nncftools.journal.writing import ADDRESS_SPACE, DATA, GROUP, THROTTLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nncftools.session.model import MemoryLimit, SessionData

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

    @classmethod
    def of(cls, limit: MemoryLimit) -> Effective:
        """Return a limit that was read."""
        return cls(limit.kind, limit.size, limit.set_by)

    @property
    def name(self) -> str:
        """Its name where there is little room."""
        return "machine" if self.kind == MACHINE else "limit"

    @property
    def is_of_process(self) -> bool:
        """Whether it is a limit of each process, not of all together."""
        return self.kind in {ADDRESS_SPACE, DATA}

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
    reached = session.limit_reached
    return smallest(session.memory_limits, held, None if reached is None else reached.limit, session.host.memory)


def smallest(
    limits: Iterable[MemoryLimit], held: float, max_memory: int | None, machine: int | None
) -> Effective | None:
    """Return the smallest limit on a run that held so many bytes: of groups, of the recording, or all of a machine."""
    found = [
        Effective.of(limit) for limit in limits if limit.kind in {GROUP, THROTTLE} and 0 < limit.size >= held / _ABOVE
    ]
    if max_memory:
        found.append(Effective(MAX_MEMORY, max_memory))
    if machine:
        found.append(Effective(MACHINE, machine))
    return min(found, key=lambda limit: limit.size, default=None)


def smallest_of(session: SessionData, *kinds: str) -> Effective | None:
    """Return the smallest limit of these kinds, whatever the run held; None for none."""
    found = [Effective.of(limit) for limit in session.memory_limits if limit.kind in kinds and limit.size > 0]
    return min(found, key=lambda limit: limit.size, default=None)
