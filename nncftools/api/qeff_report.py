"""The report of a ``QEffMemoryProfiler`` as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.render.table import bounds_text
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Sequence

    from nncftools.api.qeff_recorded import ProfileSample, Recorded
    from nncftools.session.operation import Operation

_MANY_MB = 2048
_MB_IN_GB = 1024


def report(recorded: Recorded, interval_s: float) -> str:
    """Return peaks, statistics and the operations as text; ``interval_s`` is the one that was asked for.

    Sizes are in GB (2^30 bytes) if RSS exceeds 2048 MB (2^20 bytes).
    """
    return "\n".join(_lines(recorded, interval_s))


def _lines(recorded: Recorded, interval_s: float) -> Iterator[str]:
    samples = recorded.samples
    rss = [sample.rss_mb for sample in samples]
    unit = _Unit(max(rss))
    first, last = samples[0], samples[-1]
    yield "QEFFICIENT PERFORMANCE MONITORING REPORT"
    yield "=" * 60
    yield "Peak Memory Usage:"
    yield f"   • RSS (Physical): {_peak(unit, *recorded.peak('rss'))}"
    yield f"   • VMS (Virtual):  {_peak(unit, *recorded.peak('vms'))}"
    yield f"   • Peak during:    {recorded.peak_operation}"
    yield ""
    yield "Memory Statistics:"
    yield f"   • Current RSS:    {unit.text(last.rss_mb)} (Delta: {unit.text(last.rss_mb - first.rss_mb, '+')})"
    yield f"   • Current VMS:    {unit.text(last.vms_mb)} (Delta: {unit.text(last.vms_mb - first.vms_mb, '+')})"
    yield f"   • Average RSS:    {unit.text(sum(rss) / len(rss))}"
    yield f"   • Min/Max RSS:    {unit.number(min(rss))} / {unit.text(max(rss))}"
    yield f"   • Memory Range:   {unit.text(max(rss) - min(rss))}"
    yield f"   • Duration:       {recorded.seconds[-1]:.1f} seconds"
    yield f"   • Data Points:    {len(samples)}"
    yield f"   • Operations:     {len(recorded.session.marks)}"
    yield f"   • Sampling Rate:  {interval_s:g}s"
    yield ""
    yield "Disk I/O Statistics (system calls, page cache and pipes included):"
    yield from _disk(samples, recorded.seconds[-1])
    yield ""
    yield "QEfficient Operations Timeline:"
    for place, operation in enumerate(recorded.session.operations, start=1):
        yield _row(place, operation, unit, is_peak=operation is recorded.at_peak)


def _disk(samples: Sequence[ProfileSample], length_s: float) -> Iterator[str]:
    first, last = samples[0], samples[-1]
    read, written = last.disk_read_mb - first.disk_read_mb, last.disk_write_mb - first.disk_write_mb
    delivered, sent = last.storage_read_mb - first.storage_read_mb, last.storage_write_mb - first.storage_write_mb
    yield f"   • Total Read:     {read:.2f} MB ({delivered:.2f} MB from storage)"
    yield f"   • Total Write:    {written:.2f} MB ({sent:.2f} MB to storage)"
    yield f"   • Peak Read Rate: {max(sample.disk_read_rate for sample in samples):.2f} MB/s"
    yield f"   • Peak Write Rate: {max(sample.disk_write_rate for sample in samples):.2f} MB/s"
    if length_s:
        yield f"   • Avg Read Rate:  {read / length_s:.2f} MB/s"
        yield f"   • Avg Write Rate: {written / length_s:.2f} MB/s"


def _row(place: int, operation: Operation, unit: _Unit, *, is_peak: bool) -> str:
    row = f"   {place:2}. {operation.start_s:6.1f}s - {operation.name}"
    if operation.duration_s:
        row += f" ({operation.duration_s:.1f}s)"
        bounds = operation.of("rss").delta_bounds
        if bounds is not None:
            text = bounds_text(bounds, lambda size: unit.number(MemoryUnit.MiB.of(size), "+", decimals=1), " to ")
            row += f" [{text} {unit.name}]"
        elif operation.delta is not None:
            row += f" [{unit.text(MemoryUnit.MiB.of(operation.delta), '+', decimals=1)}]"
    return f"{row} <- Peak" if is_peak else row


def _peak(unit: _Unit, megabytes: float, at: dt.datetime | None) -> str:
    return unit.text(megabytes) if at is None else f"{unit.text(megabytes)} at {at:%H:%M:%S}"


class _Unit:
    """MB, or GB for a large program."""

    def __init__(self, largest_mb: float) -> None:
        self._factor, self.name = (_MB_IN_GB, "GB") if largest_mb > _MANY_MB else (1, "MB")

    def number(self, megabytes: float, sign: str = "", decimals: int = 2) -> str:
        return f"{megabytes / self._factor:{sign}.{decimals}f}"

    def text(self, megabytes: float, sign: str = "", decimals: int = 2) -> str:
        return f"{self.number(megabytes, sign, decimals)} {self.name}"
