"""Which operation the RSS peak was in and whose memory it was, as one line below the peak in pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.analysis.build_up import of_peak
from nncftools.analysis.frames import held_by, tree_of
from nncftools.analysis.peak_text import SEPARATOR, where_text
from nncftools.units import shortened

if TYPE_CHECKING:
    from nncftools.session.session import Session
    from nncftools.units import MemoryUnit

_OPERATION, _OWNER = 70, 60
"""Lengths of texts, in characters."""


def peak_label(session: Session, unit: MemoryUnit) -> str:
    """Return ``during Export · 404 MiB by convert.py:893 export``; empty when neither is known."""
    return " · ".join(filter(None, (shortened(where_text(session), _OPERATION), _owner(session, unit))))


def _owner(session: Session, unit: MemoryUnit) -> str:
    """Return the place in the code that held the most; empty when no stacks were taken."""
    build_up = of_peak(session)
    largest = [] if build_up is None else held_by(tree_of(build_up), 1)
    if not largest:
        return ""
    label = largest[0].label
    if len(label) > _OWNER:
        label = label.rpartition(SEPARATOR)[2]
    return f"{unit.brief(largest[0].size)} {unit} by {shortened(label, _OWNER)}"
