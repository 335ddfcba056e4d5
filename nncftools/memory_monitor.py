"""NNCF's ``memory_monitor.py`` with the sampler of nncf-tools: the same names and the same command line.

To switch, replace ``from memory_monitor import MemoryMonitor`` by ``from nncftools.memory_monitor import
MemoryMonitor``, or ``python memory_monitor.py`` by ``python -m nncftools.memory_monitor``. docs/migrating.md lists the
differences.
"""

from nncftools.api.memory_monitor import MemoryMonitor, MemoryType, memory_monitor_context
from nncftools.units import MemoryUnit

__all__ = ["MemoryMonitor", "MemoryType", "MemoryUnit", "memory_monitor_context"]

if __name__ == "__main__":
    import sys

    from nncftools.cli.record import memory_monitor

    sys.exit(memory_monitor(sys.argv[1:]))
