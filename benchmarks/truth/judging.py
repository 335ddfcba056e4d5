"""Compares what a session says about its peak with the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.truth.rows import Row
    from benchmarks.truth.truth import Truth
    from nncftools import Session
    from nncftools.analysis.operation import Operation, PeakPlace
    from nncftools.session.model import Peak

_MIB = 2**20
_CLOSE, _CLOSE_BYTES = 0.02, 4 * _MIB
"""The lower end of a bracket is as close to the truth as this share of it, or this size."""
_NOISE = _MIB
"""What a process may take besides, without its workload knowing."""
_LATE_S = 0.01
"""The kernel's figures are read this much after a sample's time, at most."""
_INTERVALS = 2
_SLACK_S = 0.05
"""The moment is known as closely as this many intervals and this time."""


def faults(row: Row, truth: Truth, session: Session) -> list[str]:
    """Return what a session says wrongly, as sentences without a full stop; nothing if all is right."""
    peak, place = session.peaks["rss"], session.peak_place
    found = list(_size(peak, truth))
    if place is None:
        return [*found, "moment: unknown"]
    begin_s, end_s = window(truth, session)
    if place.from_s > end_s + _LATE_S or place.to_s < begin_s - _LATE_S:
        found.append(f"moment: {span(place.from_s, place.to_s)}, truth {span(begin_s, end_s)}")
    if place.to_s - place.from_s > _INTERVALS * row.interval_ms / 1000 + _SLACK_S:
        found.append(f"moment: only known as {span(place.from_s, place.to_s)}")
    if not _is_right_operation(place, truth, (begin_s, end_s)):
        found.append(f"operation: {where(place)}, truth {expected(truth)}")
    pid = _pid(session, peak)
    if None not in {pid, truth.pid} and pid != truth.pid:
        found.append(f"process: {pid}, truth {truth.pid}")
    return [*found, *_pss(truth, session), *_growth(truth, session)]


def _size(peak: Peak, truth: Truth) -> Iterator[str]:
    if peak.low is None:
        yield "size: unknown"
        return
    most = truth.peak + truth.spread
    if peak.low > most + _NOISE or (peak.high is not None and peak.high < truth.peak - _NOISE):
        yield f"size: {bracket(peak)}, truth {size(truth.peak)}"
    if peak.low < truth.peak - max(_CLOSE_BYTES, truth.peak * _CLOSE):
        yield f"size: at least {size(peak.low)}, truth {size(truth.peak)}"


def _is_right_operation(place: PeakPlace, truth: Truth, window_s: tuple[float, float]) -> bool:
    path, either = _names(place.path), _names(place.either)
    if any(not operation.overlaps(window_s[0] - _LATE_S, window_s[1] + _LATE_S) for operation in place.path):
        return False
    if either:
        return [*path, *either] == truth.spans
    if truth.nearest:
        return not path and place.nearest is not None and place.nearest.name == truth.nearest
    return path == truth.path or (len(path) == 1 and path[0] in truth.beside)


def _pss(truth: Truth, session: Session) -> Iterator[str]:
    if truth.pss is None:
        return
    peak = session.peaks.get("pss")
    if peak is None or peak.low is None:
        yield "PSS: unknown"
        return
    tolerance = max(_CLOSE_BYTES, truth.pss * _CLOSE)
    if peak.low > truth.pss + tolerance or (peak.high is not None and peak.high < truth.pss - tolerance):
        yield f"PSS: {bracket(peak)}, truth {size(truth.pss)}"


def _growth(truth: Truth, session: Session) -> Iterator[str]:
    for operation in session.operations:
        grown = truth.growth.get(operation.name)
        if grown is None or operation.of("rss").delta_is_estimate:
            continue
        if operation.delta is None or abs(operation.delta - grown) > _CLOSE_BYTES:
            text = "unknown" if operation.delta is None else size(operation.delta)
            yield f"growth in {operation.name}: {text}, truth {size(grown)}"


def window(truth: Truth, session: Session) -> tuple[float, float]:
    """Return the first and the last moment of the true peak, in seconds since the start of a session."""
    start_ns = session.start.monotonic_ns
    assert start_ns is not None
    return (truth.begin_ns - start_ns) / 1e9, (truth.end_ns - start_ns) / 1e9


def said(session: Session) -> str:
    """Return what a session says about its peak."""
    peak, place = session.peaks["rss"], session.peak_place
    when = "at an unknown moment" if place is None else f"{span(place.from_s, place.to_s)}, {where(place)}"
    pss = session.peaks.get("pss")
    shared = "" if pss is None or pss.low is None else f"; PSS {bracket(pss)}"
    return f"{bracket(peak)}, {when}{shared}"


def told(truth: Truth, session: Session) -> str:
    """Return the truth in the same words."""
    shared = "" if truth.pss is None else f"; PSS {size(truth.pss)}"
    return f"{size(truth.peak)}, {span(*window(truth, session))}, {expected(truth)}{shared}"


def where(place: PeakPlace) -> str:
    """Return the operation that a session names."""
    if place.either:
        return _path([*_names(place.path), " or ".join(_names(place.either))])
    if not place.path and place.nearest is not None:
        return f"near {place.nearest.name}"
    return _path(_names(place.path))


def expected(truth: Truth) -> str:
    """Return the operation that a session should name."""
    return f"near {truth.nearest}" if truth.nearest else _path(truth.path)


def bracket(peak: Peak) -> str:
    """Return the ends of a bracket."""
    high = "?" if peak.high is None else size(peak.high)
    return f"{size(peak.low or 0)} to {high}"


def size(number: float) -> str:
    """Return a size in mebibytes."""
    return f"{number / _MIB:,.1f} MiB"


def span(from_s: float, to_s: float) -> str:
    """Return the time between two moments."""
    return f"{from_s:.3f}–{to_s:.3f} s"


def _names(operations: Sequence[Operation]) -> list[str]:
    return [operation.name for operation in operations]


def _path(names: Sequence[str]) -> str:
    return " › ".join(names) or "no operation"


def _pid(session: Session, peak: Peak) -> int | None:
    """Return the PID of the process whose mark proves the peak; None when it was sampled."""
    return next((process.pid for process in session.processes if process.id == peak.process), None)
