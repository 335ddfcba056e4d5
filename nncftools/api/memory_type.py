"""The kinds of memory that can be recorded: every memory metric."""

from __future__ import annotations

from enum import StrEnum

from nncftools.metrics import MEMORY


class MemoryType(StrEnum):
    """A kind of memory; its value is the metric's name, whose meaning ``nncf-tools metrics`` lists.

    Besides the two of NNCF's monitor there is a member for every other memory metric: ``MemoryType.PSS``.
    """

    RSS = "rss"
    SYSTEM = "system"
    _ignore_ = ["name"]  # noqa: RUF012 — how an enumeration leaves a name out
    for name in MEMORY:
        if name.upper() not in vars():
            vars()[name.upper()] = name
