"""Memory, CPU and disk I/O of a network's compression, quantization or export: record, report, compare.

Public names are resolved on first use (PEP 562), so that importing the package costs nothing.
"""

_NAMES_OF = {
    "api.memory_monitor": ("MemoryMonitor", "MemoryType", "memory_monitor_context"),
    "api.notebook": ("Profiler", "load_ipython_extension"),
    "api.qeff": ("MetricsCollector", "ProfileSample", "ProfilerConfig", "QEffMemoryProfiler", "QEffMemoryVisualizer"),
    "api.session": ("Session",),
    "errors": ("__version__",),
    "marks.operations": ("mark_operation", "operation"),
    "units": ("MemoryUnit",),
}
_HOME_OF = {name: module for module, names in _NAMES_OF.items() for name in names}

__all__ = ["MemoryMonitor", "MemoryType", "MemoryUnit", "MetricsCollector", "ProfileSample", "Profiler"]
__all__ += ["ProfilerConfig", "QEffMemoryProfiler", "QEffMemoryVisualizer", "Session", "mark_operation"]
__all__ += ["memory_monitor_context", "operation"]

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
    from nncftools.errors import __version__ as __version__
    from nncftools.marks.operations import mark_operation, operation
    from nncftools.units import MemoryUnit


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    """Return the public names, for completion; the submodules behind them are no part of the interface."""
    return sorted([*__all__, "__version__"])
