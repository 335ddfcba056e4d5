"""``@pytest.mark.limit_peak``: a limit on a test's peak, and whether the test exceeded it."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nncftools.testing.peaks import KERNEL, SAMPLED, UNSAMPLED
from nncftools.units import MemoryUnit, size_from, size_text

if TYPE_CHECKING:
    import pytest

    from nncftools.testing.peaks import Peak

_MARKER = "limit_peak"
_LONGEST_COMMAND = 60
_KNOWN_HOW = {
    KERNEL: "the kernel's maximum of one process",
    SAMPLED: "sampled",
    UNSAMPLED: "the test's process only",
}


@dataclass(frozen=True)
class Limit:
    """The limit on a test's memory peak."""

    size: int
    """In bytes."""
    unit: MemoryUnit
    from_zero: bool
    """Whether the memory held at the start of the test is subtracted."""


def limit_of(item: pytest.Item) -> Limit | None:
    """Return the limit of a test's closest marker, or None. Raises ValueError."""
    marker = item.get_closest_marker(_MARKER)
    if marker is None:
        return None
    (text, *more), options = marker.args or (None,), dict(marker.kwargs)
    from_zero = options.pop("from_zero", False)
    if not isinstance(text, str) or more or options or not isinstance(from_zero, bool):
        given = [*map(repr, marker.args), *(f"{name}={value!r}" for name, value in marker.kwargs.items())]
        expected = 'expected one size, as in limit_peak("200 MiB") or limit_peak("200 MiB", from_zero=True)'
        raise ValueError(f"{item.nodeid}: {expected}, found {_MARKER}({', '.join(given)})")
    try:
        return Limit(*size_from(text), from_zero)
    except ValueError as error:
        raise ValueError(f"{item.nodeid}: {_MARKER}: {error}") from error


def excess(limit: Limit, peak: Peak, largest_process: tuple[str, int] | None) -> str | None:
    """Return the message for a test that exceeded its limit; None if it did not, or if that is unknown.

    ``largest_process`` is the command and the bytes of the largest process at the moment of a sampled peak.
    """
    held = peak.above_start if limit.from_zero else peak.size
    if held is None or held <= limit.size:
        return None
    of = limit.unit if limit.unit.text(held) != limit.unit.text(limit.size) else MemoryUnit.B
    counted = " from zero" if limit.from_zero else ""
    how = _KNOWN_HOW[peak.known]
    if peak.known == SAMPLED and largest_process is not None:
        command, rss = largest_process
        shown = textwrap.shorten(command, _LONGEST_COMMAND, placeholder=" …")
        how += f"; the largest process held {size_text(rss)}: {shown}"
    return f"memory peak {of.label(held)}{counted} exceeds the limit of {of.label(limit.size)} ({how})"
