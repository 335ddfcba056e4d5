"""NNCF's ``memory_monitor.py`` with our sampler: the same names to import, and the same command line.

``from nncftools.memory_monitor import MemoryMonitor`` replaces ``from memory_monitor import MemoryMonitor``, and
``python -m nncftools.memory_monitor`` replaces ``python memory_monitor.py``. docs/migrating.md lists the differences.
"""

from nncftools.api.memory_monitor import MemoryMonitor, MemoryType, memory_monitor_context
from nncftools.units import MemoryUnit

__all__ = ["MemoryMonitor", "MemoryType", "MemoryUnit", "memory_monitor_context"]

if __name__ == "__main__":
    import sys

    from nncftools.cli.record import memory_monitor

    sys.exit(memory_monitor(sys.argv[1:]))
