"""The types of memory that can be recorded: all memory metrics."""

from __future__ import annotations

from nncftools.backports import StrEnum
from nncftools.metrics import MEMORY


class MemoryType(StrEnum):
    """A type of memory; its value is the metric's name. ``nncf-tools metrics`` explains each.

    NNCF's monitor knows RSS and SYSTEM; every other memory metric is a member, too, such as ``MemoryType.PSS``.
    """

    RSS = "rss"
    SYSTEM = "system"
    _ignore_ = ["name"]  # noqa: RUF012 — keeps the loop variable out of the members
    for name in MEMORY:
        if name.upper() not in vars():
            vars()[name.upper()] = name

    def __str__(self) -> str:
        """Return ``MemoryType.RSS``, as for NNCF's type; ``value`` is the metric's name."""
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, specification: str) -> str:
        """Format it as ``str`` shows it, in every version of Python."""
        return format(str(self), specification)
