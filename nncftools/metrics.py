"""Every metric, declared once: name, unit, kind, scope, texts for users, and the probe that reads it.

A column of a session is ``metric``, or ``metric@device`` for one of several devices (``device_memory@npu0``).
The sampler imports this module, so it uses nothing but the language.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

GAUGE = "gauge"
COUNTER = "counter"

TREE = "process tree"
GROUP = "control group"
MACHINE = "machine"
DEVICE = "device"

SUM = "sum"
ONCE_PER_MACHINE = "once per machine"
NEVER = "never"

CPU_TIME = ("CPU", "CPU")
STORAGE = ("Storage", "Storage")
SYSTEM_CALLS = ("System calls", "Calls")


class Metric:
    """One figure that a session can hold."""

    def __init__(  # noqa: PLR0913 — one parameter per property
        self,
        name: str,
        unit: str,
        kind: str,
        label: str,
        meaning: str,
        *,
        probe: str = "",
        scope: str = TREE,
        merging: str = "",
        family: tuple[str, str] | None = None,
        action: str = "",
        part_of: str = "",
        per_operation: bool = True,
        is_virtual: bool = False,
        is_room: bool = False,
        device: str = "",
    ) -> None:
        self.name = name
        self.unit = unit
        """``"B"`` (bytes), ``"s"`` (seconds), ``"%"`` or ``""`` (a count)."""
        self.kind = kind
        """A gauge is a level at the time of the sample; a counter is a total since the start that never falls."""
        self.label = label
        self.meaning = meaning
        self.probe = probe
        """``module:Class`` below ``nncftools.sampler.probes``; empty for a metric of other tools' logs only."""
        self.scope = scope
        """What the metric measures: the process tree, its control group, the machine or a device."""
        self.merging = merging or (ONCE_PER_MACHINE if scope == DEVICE else SUM)
        """How recordings of several ranks are merged: into their sum, one figure per machine, or not at all."""
        self.family = family
        """Counters that are shown side by side: the family's name, and a short name for narrow columns."""
        self.action = action
        """What a counter of a family counts: ``read``, ``written``."""
        self.part_of = part_of
        """The metric that this one is a part of."""
        self.per_operation = per_operation
        """Whether tables of operations show it."""
        self.is_virtual = is_virtual
        """Whether it is address space, which takes no memory."""
        self.is_room = is_room
        """Whether it is free space on a disk, not memory."""
        self.device = device
        """The device of a column of one device; otherwise empty."""

    @property
    def is_memory(self) -> bool:
        """Whether the metric is a level of memory, and so can be asked for with ``--type``."""
        return self.kind == GAUGE and self.unit == "B" and not self.is_room

    @property
    def is_counter(self) -> bool:
        """Whether the metric is a total that never falls."""
        return self.kind == COUNTER

    @property
    def group(self) -> str:
        """What stands above the columns of its family: the family's short name, or the label; with the device."""
        return self.label if self.family is None else f"{self.family[1]} {self.device}".rstrip()

    @property
    def short_label(self) -> str:
        """The label for narrow places: ``Storage read``."""
        return f"{self.group} {self.action}".rstrip() if self.family is not None else self.label

    def on(self, device: str) -> Metric:
        """Return the metric of one device."""
        return Metric(**{**vars(self), "label": f"{self.label} {device}", "device": device})


METRICS = {
    metric.name: metric
    for metric in (
        Metric("rss", "B", GAUGE, "RSS", "resident memory; a page that several processes share counts once for each",
               probe="process:Stat"),
        Metric("vms", "B", GAUGE, "VMS", "virtual size: all that is mapped, resident or not",
               probe="process:Stat", is_virtual=True, per_operation=False),
        Metric("anon", "B", GAUGE, "Anon", "the part of RSS that no file backs: heap, stacks, arrays",
               probe="process:Status", part_of="rss", per_operation=False),
        Metric("file", "B", GAUGE, "File", "the part of RSS that files back: code and mapped weights",
               probe="process:Status", part_of="rss", per_operation=False),
        Metric("shmem", "B", GAUGE, "Shmem", "the part of RSS in shared memory and tmpfs",
               probe="process:Status", part_of="rss", per_operation=False),
        Metric("swap", "B", GAUGE, "Swap", "anonymous memory that was swapped out",
               probe="process:Status", per_operation=False),
        Metric("pss", "B", GAUGE, "PSS", "resident memory, each shared page divided among those that share it",
               probe="smaps:Smaps", per_operation=False),
        Metric("uss", "B", GAUGE, "USS", "resident memory that no other process shares: what its end would free",
               probe="smaps:Smaps", per_operation=False),
        Metric("pss_age", "s", GAUGE, "Age of PSS", "how long before the sample PSS and USS were counted",
               probe="smaps:Smaps", merging=NEVER, per_operation=False),
        Metric("system", "B", GAUGE, "System", "memory in use on the whole machine: MemTotal - MemAvailable",
               probe="machine:Meminfo", scope=MACHINE, merging=ONCE_PER_MACHINE, per_operation=False),
        Metric("cgroup", "B", GAUGE, "Cgroup", "memory charged to the command's control group, page cache included",
               probe="machine:Cgroup", scope=GROUP, merging=NEVER, per_operation=False),
        Metric("device_memory", "B", GAUGE, "Device memory", "memory of a GPU or NPU that the run's processes hold",
               probe="machine:Devices", scope=DEVICE, merging=SUM),
        Metric("device_allocated", "B", GAUGE, "Torch memory", "the part of it that torch's allocator had given out",
               probe="machine:Devices", scope=DEVICE, merging=SUM),
        Metric("device_used", "B", GAUGE, "Device in use", "memory of a GPU or NPU that everyone together holds",
               probe="machine:Devices", scope=DEVICE, per_operation=False),
        Metric("device_busy", "%", GAUGE, "Device busy", "part of the time in which a GPU or NPU worked, for everyone",
               probe="machine:Devices", scope=DEVICE, merging=NEVER, per_operation=False),
        Metric("cpu_user", "s", COUNTER, "CPU user", "CPU time in the programs",
               probe="process:Stat", family=CPU_TIME, action="user"),
        Metric("cpu_system", "s", COUNTER, "CPU system", "CPU time in the kernel for them",
               probe="process:Stat", family=CPU_TIME, action="system"),
        Metric("cpu", "s", COUNTER, "CPU", "total CPU time, of logs that do not split user and system time",
               family=CPU_TIME),
        Metric("read_bytes", "B", COUNTER, "Read from storage", "bytes that storage delivered",
               probe="process:Io", family=STORAGE, action="read"),
        Metric("write_bytes", "B", COUNTER, "Written to storage", "bytes that were sent to storage",
               probe="process:Io", family=STORAGE, action="written"),
        Metric("read_chars", "B", COUNTER, "Read by system calls",
               "bytes read by system calls, page cache and pipes included",
               probe="process:Io", family=SYSTEM_CALLS, action="read"),
        Metric("write_chars", "B", COUNTER, "Written by system calls",
               "bytes written by system calls, page cache and pipes included",
               probe="process:Io", family=SYSTEM_CALLS, action="written"),
        Metric("minor_faults", "", COUNTER, "Minor faults", "pages that were mapped without reading storage",
               probe="process:Stat", per_operation=False),
        Metric("major_faults", "", COUNTER, "Major faults", "pages that had to be read from storage",
               probe="process:Stat", per_operation=False),
        Metric("memory_stall", "s", COUNTER, "Memory stall",
               "time in which a task waited for memory, of the machine or of a v2 control group (PSI)",
               probe="machine:Pressure", scope=MACHINE, merging=ONCE_PER_MACHINE, per_operation=False),
        Metric("refaults", "B", COUNTER, "Refaults", "memory of the machine that was dropped and soon read again",
               probe="machine:Pressure", scope=MACHINE, merging=ONCE_PER_MACHINE, per_operation=False),
        Metric("swap_in", "B", COUNTER, "Swapped in", "memory of the machine that was read from swap",
               probe="machine:Pressure", scope=MACHINE, merging=ONCE_PER_MACHINE, per_operation=False),
        Metric("swap_out", "B", COUNTER, "Swapped out", "memory of the machine that was written to swap",
               probe="machine:Pressure", scope=MACHINE, merging=ONCE_PER_MACHINE, per_operation=False),
        Metric("oom_kills", "", COUNTER, "OOM kills",
               "processes of the machine that the kernel killed because memory ran out",
               probe="machine:Pressure", scope=MACHINE, merging=ONCE_PER_MACHINE, per_operation=False),
        Metric("group_oom_kills", "", COUNTER, "OOM kills in group",
               "those of the control group that the command was started in",
               probe="machine:Pressure", scope=GROUP, merging=NEVER, per_operation=False),
        Metric("disk_free", "B", GAUGE, "Disk free",
               "bytes that can be written to the file system of working folder, TMPDIR, output or an argument",
               probe="machine:FreeSpace", scope=DEVICE, merging=NEVER, per_operation=False, is_room=True),
        Metric("threads", "", GAUGE, "Threads", "threads of all processes", probe="process:Stat", per_operation=False),
        Metric("processes", "", GAUGE, "Processes", "processes alive", probe="process:Stat", per_operation=False),
    )
}  # fmt: skip

_PLACES = {name: number for number, name in enumerate(METRICS)}
_FAMILY_PLACES = {metric.family: _PLACES[name] for name, metric in reversed(METRICS.items()) if metric.family}
"""Where the first metric of each family is declared."""


def name_of(column: str) -> str:
    """Return the name of a column's metric: the column without its device."""
    return column.partition("@")[0]


def of(column: str) -> Metric | None:
    """Return the metric of a column; None when this version does not know it."""
    name, at, device = column.partition("@")
    metric = METRICS.get(name)
    if metric is None or not at:
        return metric
    return metric.on(device) if device and metric.scope == DEVICE else None


def is_memory(column: str) -> bool:
    """Return whether a column is a level of memory in bytes."""
    return (metric := of(column)) is not None and metric.is_memory


def is_room(column: str) -> bool:
    """Return whether a column is free space on a disk."""
    return (metric := of(column)) is not None and metric.is_room


def is_counter(column: str) -> bool:
    """Return whether a column is a counter."""
    return (metric := of(column)) is not None and metric.is_counter


def unit_of(column: str) -> str | None:
    """Return the unit of a column; None when this version does not know it."""
    return None if (metric := of(column)) is None else metric.unit


def in_order(columns: Iterable[str]) -> list[str]:
    """Return columns in the order of the declarations, unknown ones last; the metrics of a family by device."""

    def position(column: str) -> tuple[int, str, int]:
        name, _, device = column.partition("@")
        metric, own = METRICS.get(name), _PLACES.get(name, len(_PLACES))
        family = metric.family if metric is not None and device else None
        first = own if family is None else _FAMILY_PLACES[family]
        return first, device, own

    return sorted(columns, key=position)


def columns_of(names: Iterable[str], columns: Iterable[str]) -> list[str]:
    """Return the columns that names of columns or metrics mean: a metric of devices has one for each.

    ``device`` means all memory of devices.
    """
    recorded = list(columns)
    return list(dict.fromkeys(column for name in names for column in recorded if name in _names_of(column)))


def _names_of(column: str) -> set[str]:
    of_device = name_of(column) in OF_DEVICES and is_memory(column)
    return {column, name_of(column), *([DEVICE] if of_device else [])}


def memory_of(columns: Iterable[str]) -> list[str]:
    """Return those columns that are levels of memory, in their order."""
    return [column for column in columns if is_memory(column)]


MEMORY = tuple(memory_of(METRICS))
DEVICE_MEMORY, DEVICE_ALLOCATED = "device_memory", "device_allocated"
OF_DEVICES = (DEVICE_MEMORY, DEVICE_ALLOCATED, "device_used", "device_busy")
"""The metrics of GPUs and NPUs, which a helper process reads; and torch's allocator, which marks read."""
_BESIDE = {"pss_age": ("pss", "uss"), **dict.fromkeys(OF_DEVICES, OF_DEVICES)}
"""Metrics that are recorded with one of others."""
ALWAYS_RECORDED = tuple(
    name
    for name, metric in METRICS.items()
    if metric.probe and not (metric.is_memory or metric.is_room) and name not in _BESIDE
)
"""The metrics of every recording, besides the requested memory metrics: they cost next to nothing."""


def recorded_with(memory: Collection[str]) -> list[str]:
    """Return the metrics that are recorded besides these memory metrics: those of every recording, ages, devices."""
    beside = [name for name, of in _BESIDE.items() if name not in memory and any(other in memory for other in of)]
    return [*beside, *ALWAYS_RECORDED]


def cpu_counters(columns: Collection[str]) -> tuple[str, ...]:
    """Return those of ``columns`` whose sum is CPU time; empty when it is unknown."""
    ways = (("cpu_user", "cpu_system"), ("cpu",))
    return next((names for names in ways if all(name in columns for name in names)), ())


def of_operations(columns: Iterable[str]) -> dict[str, Metric]:
    """Return the columns of tables of operations next to CPU time with their metrics, in order.

    These are RSS, storage and system calls, recorded or not, and other recorded columns with ``per_operation``.
    """
    always = (name for name, metric in METRICS.items() if metric.family in {STORAGE, SYSTEM_CALLS} or name == "rss")
    listed = ((column, of(column)) for column in in_order(dict.fromkeys((*columns, *always))))
    known = {column: metric for column, metric in listed if metric is not None and metric.per_operation}
    return {column: metric for column, metric in known.items() if metric.family != CPU_TIME}
