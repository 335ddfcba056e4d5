"""NNCF's ``memory_monitor.py`` over our sampler: its names to import, and its command line.

``from nncftools.memory_monitor import MemoryMonitor`` takes the place of ``from memory_monitor import MemoryMonitor``,
``python -m nncftools.memory_monitor`` that of ``python memory_monitor.py``. docs/migrating.md says what differs.
"""

from nncftools.api.memory_monitor import MemoryMonitor, MemoryType, memory_monitor_context
from nncftools.units import MemoryUnit

__all__ = ["MemoryMonitor", "MemoryType", "MemoryUnit", "memory_monitor_context"]

if __name__ == "__main__":
    import sys

    from nncftools.cli.record import memory_monitor

    sys.exit(memory_monitor(sys.argv[1:]))
