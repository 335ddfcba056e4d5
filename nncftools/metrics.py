"""Every metric, declared once: its name in a session, its unit, its kind and what a reader sees.

The sampler imports this module, so it uses nothing but the language.
"""

from __future__ import annotations

GAUGE = "gauge"
COUNTER = "counter"


class Metric:
    """One figure that a session can hold as a column.

    ``unit`` is ``"B"`` (bytes) or ``"s"`` (seconds). A gauge is a level at the time of the sample, a counter a total
    since the session's start that never falls.
    """

    __slots__ = ("kind", "label", "name", "unit")

    def __init__(self, name: str, unit: str, kind: str, label: str) -> None:
        self.name = name
        self.unit = unit
        self.kind = kind
        self.label = label

    @property
    def is_memory(self) -> bool:
        """Whether the metric is a level of memory, and so can be asked for with ``--type``."""
        return self.kind == GAUGE and self.unit == "B"


METRICS = {
    metric.name: metric
    for metric in (
        Metric("rss", "B", GAUGE, "RSS"),
        Metric("vms", "B", GAUGE, "VMS"),
        Metric("system", "B", GAUGE, "System"),
        Metric("cpu_user", "s", COUNTER, "CPU user"),
        Metric("cpu_system", "s", COUNTER, "CPU system"),
        Metric("read_bytes", "B", COUNTER, "Read from storage"),
        Metric("write_bytes", "B", COUNTER, "Written to storage"),
        Metric("read_chars", "B", COUNTER, "Read by system calls"),
        Metric("write_chars", "B", COUNTER, "Written by system calls"),
    )
}

MEMORY_METRICS = tuple(name for name, metric in METRICS.items() if metric.is_memory)
COUNTERS = tuple(name for name, metric in METRICS.items() if metric.kind == COUNTER)
