"""The marks (named operations) of a session: kinds, ends, nesting, and the memory of torch's allocator at each mark.

If a process uses torch, each mark contains the memory that torch's allocator has in use, and the largest amount so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from nncftools.metrics import DEVICE_ALLOCATED
from nncftools.session.model import Device, Mark, Peak, ProcessTable, SessionData
from nncftools.session.samples import columns_of

KINDS = (
    "Model Loading",
    "Export",
    "Quantization",
    "Weight Compression",
    "Training",
    "Compilation",
    "Generation",
    "Saving",
    "Cleanup",
)
"""The kinds of operations, in the usual order of a workflow."""


def kind_of(name: str) -> str | None:
    """Return the kind of operation (one of ``KINDS``) with this name; None if there is no such kind.

    Letter case does not matter, and ``_`` counts as a space.
    """
    plain = " ".join(name.replace("_", " ").split()).casefold()
    return next((kind for kind in KINDS if kind.casefold() == plain), None)


def renumber_marks(marks: Iterable[Mark], beside: Iterable[Mark]) -> list[Mark]:
    """Return marks with new numbers that are larger than the numbers of the marks in ``beside``."""
    highest = max((mark.op or 0 for mark in beside), default=0)

    def renumber(mark: Mark) -> Mark:
        op = None if mark.op is None else mark.op + highest
        inside = None if mark.inside is None else mark.inside + highest
        return replace(mark, op=op, inside=inside)

    return [renumber(mark) for mark in marks]


def in_order(marks: Iterable[Mark]) -> list[Mark]:
    """Return marks in the order of their starts. Among marks with the same start, outer marks come first."""
    return sorted(marks, key=lambda mark: (mark.start_s, mark.depth))


def add_ends(marks: Iterable[Mark], session: SessionData) -> list[tuple[Mark, float]]:
    """Return (mark, end of the operation) for each mark, in the order of the starts.

    If a mark has no end, the operation ends at the earliest of: the next mark of the same process with the same or a
    smaller ``depth``, the end of the process, the end of the session.
    """
    table = ProcessTable(session.processes)
    next_marks: dict[int | None, list[Mark]] = {}
    """Maps a PID to the marks that start after the current mark: the earliest mark of each ``depth``, smallest depth
    first."""
    ends = []
    for mark in reversed(in_order(marks)):
        levels = next_marks.setdefault(mark.pid, [])
        while levels and levels[-1].depth > mark.depth:
            levels.pop()
        end_s = mark.end_s
        if end_s is None:
            last_s = latest_end_s(mark, table, session.duration_s)
            next_s = levels[-1].start_s if levels else last_s
            end_s = max(mark.start_s, min(next_s, last_s))
        ends.append((mark, end_s))
        if levels and levels[-1].depth == mark.depth:
            levels.pop()
        levels.append(mark)
    return ends[::-1]


def latest_end_s(mark: Mark, table: ProcessTable, duration_s: float) -> float:
    """Return the end of the process that ran an operation. If this end is unknown, return the end of the session."""
    process = table.at(mark.pid, mark.start_s + TICK_S)
    if process is None or process.end_s is None:
        return duration_s
    return min(process.end_s, duration_s)


TICK_S = 0.01
"""A tick, in seconds. The kernel gives the start of a process in ticks (proc(5))."""
_MOST_PARALLEL = 64


def find_parents(ended: Sequence[tuple[Mark, float]]) -> list[int | None]:
    """Return the parent of each mark, as an index in ``ended``; None for a mark without a parent.

    ``ended`` has pairs (mark, end of the operation), in the order of the starts. If the mark's ``inside`` is the number
    (``op``) of another mark, the other mark is the parent. Otherwise, the parent is the last mark that was still
    running and whose ``depth`` is smaller by 1, preferably a mark of the same process.
    """
    numbers: dict[int | None, int] = {}
    levels: dict[int, list[int]] = {}
    indexes = []
    for index, (mark, _) in enumerate(ended):
        parent = numbers.get(mark.inside)
        if parent is None:
            for outer in reversed(levels.get(mark.depth - 1, [])[-_MOST_PARALLEL:]):
                if ended[outer][1] >= mark.start_s:
                    parent = outer if parent is None else parent
                    if ended[outer][0].pid == mark.pid:
                        parent = outer
                        break
        levels.setdefault(mark.depth, []).append(index)
        if mark.op is not None:
            numbers[mark.op] = index
        indexes.append(parent)
    return indexes


def find_device(name: str, uuid: str, devices: Sequence[Device]) -> str:
    """Return our name, such as ``nvidia1``, for the device that torch calls ``cuda0``.

    Torch may see only some of the devices, or see them in another order, so devices are compared by UUID if known.
    Without a clear match, return torch's name.
    """
    same = []
    if uuid:
        same = [device.device for device in devices if device.uuid in {f"GPU-{uuid}", f"MIG-{uuid}"}]
    elif name.startswith("cuda"):
        same = [device.device for device in devices if device.device.startswith("nvidia")]
    return same[0] if len(same) == 1 else name


def take_allocated(session: SessionData) -> None:
    """Add columns and peaks for the memory that torch's allocators had in use at each mark.

    If a mark does not list a device, the process uses no memory on that device. An ended process uses no memory either.
    If the recording was attached to a running process, a peak from before that moment does not count.
    """
    held: dict[str, dict[int, int]] = {}
    sums = []
    peaks: dict[str, Peak] = {}
    last_s: dict[int, float] = {}
    highest: dict[tuple[str, int], int] = {}
    for at_s, pid, devices in _readings_of_allocators(session):
        is_first_attached = pid == session.attached_to and pid not in last_s
        sizes = {name: (0, 0) for name in held if held[name].get(pid)}
        sizes.update(devices)
        for name, (allocated, most) in sizes.items():
            processes = held.setdefault(name, {})
            processes[pid] = allocated
            total = sum(processes.values())
            sums.append((at_s, {name: total}))
            is_rise = most > highest.get((name, pid), most if is_first_attached else 0)
            highest[name, pid] = most
            low = max(total, most) if is_rise else total
            peak = peaks.get(name)
            if peak is None or low > (peak.low or 0):
                peaks[name] = Peak(
                    sampled=total if peak is None else max(total, peak.sampled or 0),
                    at_s=at_s,
                    low=low,
                    low_from="sampled" if low == total else "high_water_mark",
                    rose_from_s=last_s.get(pid, 0.0),
                    rose_to_s=at_s,
                )
        last_s[pid] = at_s
    if sums:
        session.samples = session.samples.joined(columns_of(session.samples.time_s, sums))
        session.peaks |= peaks


_Reading = tuple[float, int, dict[str, tuple[int, int]]]
"""A reading of torch's allocators: (time in seconds, PID, ``{column: (bytes in use, most bytes in use so far)}``)."""


def _readings_of_allocators(session: SessionData) -> list[_Reading]:
    """Return readings of torch's allocators in time order.

    There is a reading at each start and end of a mark, and a reading without any memory at the end of each process.
    """
    readings = []
    for mark in session.marks:
        moments = (mark.start_s, mark.own_start), (mark.end_s, mark.own_end)
        for at_s, own in moments:
            if at_s is not None and own is not None and own.rss is not None:
                devices = own.devices or {}
                columns = {f"{DEVICE_ALLOCATED}@{device}": sizes for device, sizes in devices.items()}
                readings.append((at_s, mark.pid or 0, columns))
    ended = [process for process in session.processes if process.end_s is not None]
    readings += [(process.end_s or 0.0, process.pid or 0, {}) for process in ended]
    return sorted(readings, key=lambda reading: reading[:2])
