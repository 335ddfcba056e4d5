"""Every metric, declared once: its name in a session, its unit, its kind, what a reader sees and what it means.

The sampler imports this module, so it uses nothing but the language.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

GAUGE = "gauge"
COUNTER = "counter"


class Metric:
    """One figure that a session can hold as a column.

    ``unit`` is ``"B"`` (bytes), ``"s"`` (seconds) or ``""`` (a number of things). A gauge is a level at the time of the
    sample, a counter a total since the session's start that never falls.
    """

    __slots__ = ("kind", "label", "meaning", "name", "unit")

    def __init__(self, name: str, unit: str, kind: str, label: str, meaning: str) -> None:
        self.name = name
        self.unit = unit
        self.kind = kind
        self.label = label
        self.meaning = meaning

    @property
    def is_memory(self) -> bool:
        """Whether the metric is a level of memory, and so can be asked for with ``--type``."""
        return self.kind == GAUGE and self.unit == "B"


METRICS = {
    metric.name: metric
    for metric in (
        Metric("rss", "B", GAUGE, "RSS", "resident memory; a page that several processes share counts once for each"),
        Metric("vms", "B", GAUGE, "VMS", "virtual size: all that is mapped, resident or not"),
        Metric("anon", "B", GAUGE, "Anon", "the part of RSS that no file backs: heap, stacks, arrays"),
        Metric("file", "B", GAUGE, "File", "the part of RSS that files back: code and mapped weights"),
        Metric("shmem", "B", GAUGE, "Shmem", "the part of RSS in shared memory and tmpfs"),
        Metric("swap", "B", GAUGE, "Swap", "anonymous memory that was swapped out"),
        Metric("pss", "B", GAUGE, "PSS", "resident memory, each shared page divided among those that share it"),
        Metric("uss", "B", GAUGE, "USS", "resident memory that no other process shares: what its end would free"),
        Metric("system", "B", GAUGE, "System", "memory in use on the whole machine: MemTotal - MemAvailable"),
        Metric("cgroup", "B", GAUGE, "Cgroup", "memory charged to the command's control group, page cache included"),
        Metric("cpu_user", "s", COUNTER, "CPU user", "CPU time in the programs"),
        Metric("cpu_system", "s", COUNTER, "CPU system", "CPU time in the kernel for them"),
        Metric("cpu", "s", COUNTER, "CPU", "CPU time; of other tools' logs that do not tell programs from kernel"),
        Metric("read_bytes", "B", COUNTER, "Read from storage", "bytes that storage delivered"),
        Metric("write_bytes", "B", COUNTER, "Written to storage", "bytes that were sent to storage"),
        Metric("read_chars", "B", COUNTER, "Read by system calls", "bytes read by system calls, pipes and cache too"),
        Metric("write_chars", "B", COUNTER, "Written by system calls", "bytes written by system calls, the same"),
        Metric("minor_faults", "", COUNTER, "Minor faults", "pages that were mapped without reading storage"),
        Metric("major_faults", "", COUNTER, "Major faults", "pages that had to be read from storage"),
        Metric("threads", "", GAUGE, "Threads", "threads of all processes"),
        Metric("processes", "", GAUGE, "Processes", "processes alive"),
    )
}

MEMORY_METRICS = tuple(name for name, metric in METRICS.items() if metric.is_memory)
COUNTERS = tuple(name for name, metric in METRICS.items() if metric.kind == COUNTER)
ONLY_IMPORTED = ("cpu",)
RECORDED = {name: metric for name, metric in METRICS.items() if name not in ONLY_IMPORTED}
ALWAYS = tuple(name for name, metric in RECORDED.items() if not metric.is_memory)
"""What every recording holds besides the memory that was asked for: it comes from files that are read anyway."""


def cpu_counters(held: Container[str]) -> tuple[str, ...]:
    """Return those of the metrics ``held`` whose sum is CPU time; none when it is unknown."""
    ways = (("cpu_user", "cpu_system"), ("cpu",))
    return next((names for names in ways if all(name in held for name in names)), ())
