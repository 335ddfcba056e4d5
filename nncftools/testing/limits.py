"""``@pytest.mark.limit_peak``: what a test may hold, and whether it did."""

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
    UNSAMPLED: "of the test's process alone",
}


@dataclass(frozen=True)
class Limit:
    """The most that a test may hold."""

    size: int
    """In bytes."""
    unit: MemoryUnit
    from_zero: bool
    """Whether what was held when the test began does not count."""


def limit_of(item: pytest.Item) -> Limit | None:
    """Return the limit of a test: its closest marker's; None when it has none. Raises ValueError."""
    marker = item.get_closest_marker(_MARKER)
    if marker is None:
        return None
    (text, *more), options = marker.args or (None,), dict(marker.kwargs)
    from_zero = options.pop("from_zero", False)
    if not isinstance(text, str) or more or options or not isinstance(from_zero, bool):
        given = [*map(repr, marker.args), *(f"{name}={value!r}" for name, value in marker.kwargs.items())]
        expected = 'one size, as limit_peak("200 MiB") or limit_peak("200 MiB", from_zero=True), expected'
        raise ValueError(f"{item.nodeid}: {expected}, found {_MARKER}({', '.join(given)})")
    try:
        return Limit(*size_from(text), from_zero)
    except ValueError as error:
        raise ValueError(f"{item.nodeid}: {_MARKER}: {error}") from error


def excess(limit: Limit, peak: Peak, largest_process: tuple[str, int] | None) -> str | None:
    """Return what to tell of a test that held more than it may, None when it did not or that is not known.

    ``largest_process`` is a command and its bytes at the moment of a sampled peak.
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
