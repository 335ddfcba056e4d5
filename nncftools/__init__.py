"""Memory, CPU and disk I/O of a network's compression, quantization or export: record, report, compare.

Public names are resolved on first use (PEP 562), so that importing the package costs nothing.
"""

from nncftools.version import __version__ as __version__

_HOME_OF = {
    "MemoryMonitor": "nncftools.api.memory_monitor",
    "MemoryType": "nncftools.api.memory_monitor",
    "MemoryUnit": "nncftools.units",
    "MetricsCollector": "nncftools.api.qeff",
    "ProfileSample": "nncftools.api.qeff",
    "Profiler": "nncftools.api.notebook",
    "ProfilerConfig": "nncftools.api.qeff",
    "QEffMemoryProfiler": "nncftools.api.qeff",
    "QEffMemoryVisualizer": "nncftools.api.qeff",
    "Session": "nncftools.api.session",
    "load_ipython_extension": "nncftools.api.notebook",
    "mark_operation": "nncftools.marks.operations",
    "memory_monitor_context": "nncftools.api.memory_monitor",
    "operation": "nncftools.marks.operations",
}

__all__ = [
    "MemoryMonitor",
    "MemoryType",
    "MemoryUnit",
    "MetricsCollector",
    "ProfileSample",
    "Profiler",
    "ProfilerConfig",
    "QEffMemoryProfiler",
    "QEffMemoryVisualizer",
    "Session",
    "mark_operation",
    "memory_monitor_context",
    "operation",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nncftools.api.memory_monitor import MemoryMonitor, MemoryType, memory_monitor_context
    from nncftools.api.notebook import Profiler
    from nncftools.api.qeff import (
        MetricsCollector,
        ProfilerConfig,
        ProfileSample,
        QEffMemoryProfiler,
        QEffMemoryVisualizer,
    )
    from nncftools.api.session import Session
    from nncftools.marks.operations import mark_operation, operation
    from nncftools.units import MemoryUnit


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    import importlib

    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    """Return the public names, for completion; the submodules behind them are no part of the interface."""
    return sorted([*__all__, "__version__"])
