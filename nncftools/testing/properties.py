"""A test's peak as ``user_properties``, which pytest sends from worker to controller and writes to JUnit XML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nncftools.testing.peaks import Peak

if TYPE_CHECKING:
    from collections.abc import Iterable

    Properties = list[tuple[str, object]]

_SIZE, _ABOVE_START, _KNOWN = "memory_peak_bytes", "memory_above_start_bytes", "memory_known"
_OURS = (_SIZE, _ABOVE_START, _KNOWN)


def put(peak: Peak, properties: Properties) -> None:
    """Store a peak in a test's properties and replace that of an earlier run; unknown figures are left out."""
    figures = zip(_OURS, (peak.size, peak.above_start, peak.known), strict=True)
    others = [(name, value) for name, value in properties if name not in _OURS]
    properties[:] = [*others, *((name, figure) for name, figure in figures if figure is not None)]


def taken(properties: Iterable[tuple[str, object]]) -> Peak | None:
    """Return the peak in a test's properties; None if it was not measured."""
    found: dict[str, Any] = {name: value for name, value in properties if name in _OURS}
    return Peak(found.get(_SIZE), found.get(_ABOVE_START), found[_KNOWN]) if _KNOWN in found else None
