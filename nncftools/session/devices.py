"""Readings of GPUs and NPUs as columns of a session: each is in the sample before it, others do not know it.

A helper process reads devices at distances of its own, and torch's allocator is read at marks. A mark triggers a
sample: so a reading after a mark is not in a sample before that.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from math import nan

from nncftools.metrics import DEVICE_ALLOCATED, DEVICE_MEMORY, is_memory, name_of
from nncftools.session.model import Device, Peak, SessionData

Readings = Iterable[tuple[float, Mapping[str, float | None]]]
"""Seconds since the start, and values by column; None for unknown."""


def columns(time_s: Sequence[float], readings: Readings) -> dict[str, array[float]]:
    """Return the columns of readings: of several in one sample the largest, of memory, or the last."""
    placed: dict[str, array[float]] = {}
    for at_s, values in readings:
        row = max(0, bisect_right(time_s, at_s) - 1)
        for name, value in values.items():
            column = placed.setdefault(name, array("d", [nan]) * len(time_s))
            if value is not None and row < len(time_s):
                column[row] = max(value, column[row]) if is_memory(name) and column[row] >= 0 else value
    return placed


def used_columns(
    time_s: Sequence[float], readings: Sequence[tuple[float, Mapping[str, float | None]]]
) -> tuple[dict[str, array[float]], dict[str, Peak]]:
    """Return the columns of devices that the run may have used, and the peaks of the others, which are 0.

    What everyone does with a device is kept if the run may have held anything of it, also in the system's memory.
    """
    placed = columns(time_s, readings)
    of_run = [name for name in placed if name_of(name) == DEVICE_MEMORY]
    is_used = {name: any(values.get(name, 0) != 0 for _, values in readings) for name in of_run}
    devices = {name.partition("@")[2].removesuffix(".system") for name in of_run if is_used[name]}
    kept = {name: column for name, column in placed.items() if is_used.get(name, name.partition("@")[2] in devices)}
    return kept, {name: Peak(sampled=0, at_s=None, low=0) for name in of_run if not is_used[name]}


def named(name: str, uuid: str, devices: Sequence[Device]) -> str:
    """Return the device that torch calls ``cuda0``: torch sees those that are visible, perhaps in another order."""
    same = [device.device for device in devices if uuid and device.uuid.partition("-")[2] == uuid]  # GPU-… or MIG-…
    if not same and not uuid and name.startswith("cuda"):
        same = [device.device for device in devices if device.device.startswith("nvidia")]
    return same[0] if len(same) == 1 else name


def take_allocated(session: SessionData) -> None:
    """Add what torch's allocator had given out as columns, by what processes read of it at their marks.

    What a mark does not say is 0: torch has not begun there, or has nothing left. So is what has ended. What torch
    reached before the recording was attached to its process is no peak of it: only a larger mark is.
    """
    readings: list[tuple[float, int, dict[str, tuple[int, int]]]] = [
        (at_s, mark.pid or 0, own.devices or {})
        for mark in session.marks
        for at_s, own in ((mark.start_s, mark.own_start), (mark.end_s, mark.own_end))
        if at_s is not None and own is not None and own.rss is not None
    ]
    readings += [(process.end_s, process.pid or 0, {}) for process in session.processes if process.end_s is not None]
    held: dict[str, dict[int, int]] = {}
    sums: list[tuple[float, dict[str, float | None]]] = []
    peaks: dict[str, Peak] = {}
    last_s: dict[int, float] = {}
    marks: dict[tuple[int, str], int] = {}
    for at_s, pid, of_devices in sorted(readings, key=lambda reading: reading[:2]):
        gone = {name.partition("@")[2]: (0, 0) for name, of_name in held.items() if of_name.get(pid)}
        for device, (allocated, most) in {**gone, **of_devices}.items():
            name = f"{DEVICE_ALLOCATED}@{device}"
            held.setdefault(name, {})[pid] = allocated
            whole = sum(held[name].values())
            sums.append((at_s, {name: whole}))
            is_earlier = pid == session.attached_to and pid not in last_s
            reached = max(whole, most if most > marks.get((pid, name), most if is_earlier else 0) else 0)
            before, marks[pid, name] = peaks.get(name), most
            if before is None or reached > (before.low or 0):
                sampled = max(whole, 0 if before is None else before.sampled or 0)
                peaks[name] = Peak(
                    sampled=sampled,
                    at_s=at_s,
                    low=reached,
                    low_from="sampled" if reached == whole else "high_water_mark",
                    rose_from_s=last_s.get(pid, 0.0),
                    rose_to_s=at_s,
                )
        last_s[pid] = at_s
    if sums:
        session.samples = session.samples.joined(columns(session.samples.time_s, sums))
        session.peaks |= peaks
