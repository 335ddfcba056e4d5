"""All metrics. Each metric is declared once: name, unit, kind, scope, texts for users, and the probe.

A probe reads a metric. A column of a session is ``metric``, or ``metric@device`` for a metric of a single device, such
as ``device_memory@npu0``. The sampler imports this module, so the module imports nothing.
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
_MERGING = {TREE: SUM, GROUP: NEVER, MACHINE: ONCE_PER_MACHINE, DEVICE: ONCE_PER_MACHINE}
"""Maps each scope to the default way of merging the values of several ranks (processes of a distributed job)."""

CPU_TIME = ("CPU", "CPU")
STORAGE = ("Storage", "Storage")
SYSTEM_CALLS = ("System calls", "Calls")


class Metric:
    """A quantity that a recording can contain, such as RSS."""

    def __init__(  # noqa: PLR0913 — one parameter per property
        self,
        name: str,
        unit: str,
        label: str,
        meaning: str,
        *,
        kind: str = GAUGE,
        probe: str = "",
        scope: str = TREE,
        merging: str = "",
        family: tuple[str, str] | None = None,
        action: str = "",
        part_of: str = "",
        per_operation: bool | None = None,
        is_virtual: bool = False,
        is_room: bool = False,
        device: str = "",
    ) -> None:
        self.name = name
        self.unit = unit
        """``"B"`` (bytes), ``"s"`` (seconds), ``"%"``, or ``""`` for a count."""
        self.kind = kind
        """``gauge`` for a level at the time of the sample; ``counter`` for a total since the start. A total never
        falls."""
        self.label = label
        self.meaning = meaning
        self.probe = probe
        """The probe as ``module:Class`` in ``nncftools.sampler.probes``. Empty if only logs of other tools contain the
        metric."""
        self.scope = scope
        """The part of the system that is measured: process tree, control group, machine or device."""
        self.merging = merging or _MERGING[scope]
        """How values of several ranks (processes of a distributed job) are merged: ``sum``, ``once per machine`` or
        ``never``."""
        self.family = family
        """(name, short name for narrow columns) of a group of counters that tables show side by side; None for no
        group.
        """
        self.action = action
        """What a counter counts within its ``family``: ``read``, ``written``, ``user`` or ``system``; otherwise
        empty."""
        self.part_of = part_of
        """The metric that includes this metric: ``rss`` for ``anon``."""
        self.per_operation = bool(family) if per_operation is None else per_operation
        """Whether tables of operations show the metric. By default true only if the metric has a ``family``."""
        self.is_virtual = is_virtual
        """Whether the metric is address space, and so occupies no memory."""
        self.is_room = is_room
        """Whether the metric is free disk space instead of memory."""
        self.device = device
        """The device if this is the column of a single device; otherwise empty."""

    @property
    def is_memory(self) -> bool:
        """Whether the metric is an amount of memory. Only such metrics can be chosen with ``--type``."""
        return self.kind == GAUGE and self.unit == "B" and not self.is_room

    @property
    def is_counter(self) -> bool:
        """Whether the metric is a total that never falls."""
        return self.kind == COUNTER

    @property
    def group(self) -> str:
        """Heading above the columns of a family: the family's short name and the device.

        For a metric without family, the label.
        """
        return self.label if self.family is None else f"{self.family[1]} {self.device}".rstrip()

    @property
    def short_label(self) -> str:
        """Label for narrow places: ``Storage read``."""
        return f"{self.group} {self.action}".rstrip() if self.family is not None else self.label

    def on(self, device: str) -> Metric:
        """Return this metric for a single device."""
        return Metric(**{**vars(self), "label": f"{self.label} {device}", "device": device})


METRICS = {
    metric.name: metric
    for metric in (
        Metric("rss", "B", "RSS", "resident memory; a page that several processes share counts for each of them",
               probe="process:Stat", per_operation=True),
        Metric("vms", "B", "VMS", "virtual size: all mapped memory, resident or not",
               probe="process:Stat", is_virtual=True),
        Metric("anon", "B", "Anon", "the part of RSS that is not backed by files: heap, stacks, arrays",
               probe="process:Status", part_of="rss"),
        Metric("file", "B", "File", "the part of RSS that is backed by files: code and mapped weights",
               probe="process:Status", part_of="rss"),
        Metric("shmem", "B", "Shmem", "the part of RSS in shared memory and tmpfs",
               probe="process:Status", part_of="rss"),
        Metric("swap", "B", "Swap", "anonymous memory that was swapped out",
               probe="process:Status"),
        Metric("pss", "B", "PSS", "resident memory; a shared page is divided among its processes",
               probe="smaps:Smaps"),
        Metric("uss", "B", "USS", "resident memory that no other process shares: the end of the process would free it",
               probe="smaps:Smaps"),
        Metric("pss_age", "s", "Age of PSS", "time since PSS and USS were last counted",
               probe="smaps:Smaps", merging=NEVER),
        Metric("system", "B", "System", "memory in use on the whole machine: MemTotal - MemAvailable",
               probe="machine:Meminfo", scope=MACHINE),
        Metric("cgroup", "B", "Cgroup", "memory charged to the command's control group, page cache included",
               probe="machine:Cgroup", scope=GROUP),
        Metric("device_memory", "B", "Device memory", "GPU or NPU memory that the run's processes use",
               probe="machine:Devices", scope=DEVICE, merging=SUM, per_operation=True),
        Metric("device_allocated", "B", "Torch memory", "device memory that torch's allocator has in use",
               probe="machine:Devices", scope=DEVICE, merging=SUM, per_operation=True),
        Metric("device_used", "B", "Device in use", "GPU or NPU memory that all programs together use",
               probe="machine:Devices", scope=DEVICE),
        Metric("device_busy", "%", "Device busy", "share of the time in which a GPU or NPU worked, for all programs",
               probe="machine:Devices", scope=DEVICE, merging=NEVER),
        Metric("cpu_user", "s", "CPU user", "CPU time in user mode: in the programs, without the kernel",
               kind=COUNTER, probe="process:Stat", family=CPU_TIME, action="user"),
        Metric("cpu_system", "s", "CPU system", "CPU time in the kernel for the programs",
               kind=COUNTER, probe="process:Stat", family=CPU_TIME, action="system"),
        Metric("cpu", "s", "CPU", "total CPU time, in logs that do not split user and system time",
               kind=COUNTER, family=CPU_TIME),
        Metric("read_bytes", "B", "Read from storage", "bytes that storage delivered",
               kind=COUNTER, probe="process:Io", family=STORAGE, action="read"),
        Metric("write_bytes", "B", "Written to storage", "bytes that were sent to storage",
               kind=COUNTER, probe="process:Io", family=STORAGE, action="written"),
        Metric("read_chars", "B", "Read by system calls",
               "bytes read by system calls, page cache and pipes included",
               kind=COUNTER, probe="process:Io", family=SYSTEM_CALLS, action="read"),
        Metric("write_chars", "B", "Written by system calls",
               "bytes written by system calls, page cache and pipes included",
               kind=COUNTER, probe="process:Io", family=SYSTEM_CALLS, action="written"),
        Metric("minor_faults", "", "Minor faults", "pages that were mapped without reading storage",
               kind=COUNTER, probe="process:Stat"),
        Metric("major_faults", "", "Major faults", "pages that had to be read from storage",
               kind=COUNTER, probe="process:Stat"),
        Metric("memory_stall", "s", "Memory stall",
               "time in which a task waited for memory, on the machine or in a v2 control group (PSI)",
               kind=COUNTER, probe="machine:Pressure", scope=MACHINE),
        Metric("refaults", "B", "Refaults", "bytes that were dropped from the machine's memory and soon read again",
               kind=COUNTER, probe="machine:Pressure", scope=MACHINE),
        Metric("swap_in", "B", "Swapped in", "memory of the machine that was read from swap",
               kind=COUNTER, probe="machine:Pressure", scope=MACHINE),
        Metric("swap_out", "B", "Swapped out", "memory of the machine that was written to swap",
               kind=COUNTER, probe="machine:Pressure", scope=MACHINE),
        Metric("oom_kills", "", "OOM kills",
               "processes of the machine that the kernel killed because memory ran out",
               kind=COUNTER, probe="machine:Pressure", scope=MACHINE),
        Metric("group_oom_kills", "", "OOM kills in group",
               "processes that the kernel killed in the control group where the command was started",
               kind=COUNTER, probe="machine:Pressure", scope=GROUP),
        Metric("disk_free", "B", "Disk free",
               "free space where the command probably writes: working folder, TMPDIR, output or an argument",
               probe="machine:FreeSpace", scope=DEVICE, merging=NEVER, is_room=True),
        Metric("threads", "", "Threads", "threads of all processes", probe="process:Stat"),
        Metric("processes", "", "Processes", "processes alive", probe="process:Stat"),
    )
}  # fmt: skip

_PLACES = {name: number for number, name in enumerate(METRICS)}


def name_of(column: str) -> str:
    """Return the name of a column's metric: ``device_memory`` for ``device_memory@npu0``."""
    return column.partition("@")[0]


def of(column: str) -> Metric | None:
    """Return the metric of a column; None if this version does not know the metric."""
    name, at, device = column.partition("@")
    metric = METRICS.get(name)
    if metric is None or not at:
        return metric
    return metric.on(device) if device and metric.scope == DEVICE else None


def is_memory(column: str) -> bool:
    """Return whether a column is an amount of memory, in bytes."""
    metric = of(column)
    return metric is not None and metric.is_memory


def is_room(column: str) -> bool:
    """Return whether a column is free disk space."""
    metric = of(column)
    return metric is not None and metric.is_room


def is_counter(column: str) -> bool:
    """Return whether a column is a counter, a total that never falls."""
    metric = of(column)
    return metric is not None and metric.is_counter


def unit_of(column: str) -> str | None:
    """Return the unit of a column; None if this version does not know the metric."""
    metric = of(column)
    return None if metric is None else metric.unit


def in_order(columns: Iterable[str]) -> list[str]:
    """Return columns in the order of ``METRICS``; unknown columns come last.

    The columns of a device that belong to the same family are side by side.
    """

    def position(column: str) -> tuple[int, str, int]:
        name, _, device = column.partition("@")
        place = _PLACES.get(name, len(_PLACES))
        family = METRICS[name].family if device and name in METRICS else None
        relatives = [_PLACES[other] for other in METRICS if family and METRICS[other].family == family]
        return min(relatives, default=place), device, place

    return sorted(columns, key=position)


def columns_of(names: Iterable[str], columns: Iterable[str]) -> list[str]:
    """Return the recorded columns that ``names`` stand for. A name is a column, a metric or ``device``.

    A device metric has a column for each device. The name ``device`` stands for all memory of devices.
    """
    recorded = list(columns)
    chosen = []
    for name in names:
        chosen += [column for column in recorded if name in _names_of(column)]
    return list(dict.fromkeys(chosen))


def _names_of(column: str) -> set[str]:
    names = {column, name_of(column)}
    if name_of(column) in OF_DEVICES and is_memory(column):
        names.add(DEVICE)
    return names


def memory_of(columns: Iterable[str]) -> list[str]:
    """Return the columns that are amounts of memory, in the given order."""
    return [column for column in columns if is_memory(column)]


MEMORY = tuple(memory_of(METRICS))
OTHER_NAMES = {
    "ram": "rss",
    "mem": "rss",
    "memory": "rss",
    "res": "rss",
    "virtual": "vms",
    "virt": "vms",
    "heap": "anon",
    "anonymous": "anon",
    "gpu": DEVICE,
    "vram": DEVICE,
    "cuda": DEVICE,
    "npu": DEVICE,
}
"""Names that other programs use for our metrics."""
DEVICE_MEMORY = "device_memory"
DEVICE_ALLOCATED = "device_allocated"
OF_DEVICES = (DEVICE_MEMORY, DEVICE_ALLOCATED, "device_used", "device_busy")
"""Metrics of devices. A helper process reads GPUs and NPUs. The memory of torch's allocator is only read when the
program marks an operation.
"""
_BESIDE = {"pss_age": ("pss", "uss"), **dict.fromkeys(OF_DEVICES, OF_DEVICES)}
"""Each key is a metric that is recorded if any metric in the value is requested."""
ALWAYS_RECORDED = tuple(
    name
    for name, metric in METRICS.items()
    if metric.probe and not (metric.is_memory or metric.is_room) and name not in _BESIDE
)
"""Metrics that every recording contains, because they cost next to nothing."""


def recorded_with(memory: Collection[str]) -> list[str]:
    """Return the metrics to record in addition to ``memory``, the requested memory metrics."""
    beside = []
    for name, others in _BESIDE.items():
        if name not in memory and any(other in memory for other in others):
            beside.append(name)
    return [*beside, *ALWAYS_RECORDED]


def cpu_counters(columns: Collection[str]) -> tuple[str, ...]:
    """Return the columns whose sum is the CPU time; empty if the CPU time is unknown."""
    for names in (("cpu_user", "cpu_system"), ("cpu",)):
        if all(name in columns for name in names):
            return names
    return ()


def of_operations(columns: Iterable[str]) -> dict[str, Metric]:
    """Return the columns for tables of operations: ``{column: metric}``.

    RSS, storage and system calls are always included, even if not recorded. Other recorded columns are included if
    ``per_operation`` is true, except CPU time.
    """
    always = ["rss"]
    always += [name for name in METRICS if METRICS[name].family in {STORAGE, SYSTEM_CALLS}]
    listed = {}
    for column in in_order({*columns, *always}):
        metric = of(column)
        if metric is not None and metric.per_operation and metric.family != CPU_TIME:
            listed[column] = metric
    return listed
