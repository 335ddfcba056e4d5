"""Record, report and compare memory, CPU and disk I/O while a network is compressed, quantized or exported.

Importing the package costs nothing, because public names are imported on first use (PEP 562).
"""

_NAMES_BY_MODULE = {
    "api.memory_monitor": ("MemoryMonitor", "MemoryType", "memory_monitor_context"),
    "api.qeff": ("MetricsCollector", "ProfileSample", "ProfilerConfig", "QEffMemoryProfiler", "QEffMemoryVisualizer"),
    "api.recorder": ("Profiler", "Session", "load_ipython_extension"),
    "errors": ("__version__",),
    "marks.operations": ("mark_operation", "operation"),
    "units": ("MemoryUnit",),
}
_MODULE_BY_NAME: dict[str, str] = {}
for _module, _names in _NAMES_BY_MODULE.items():
    _MODULE_BY_NAME.update(dict.fromkeys(_names, _module))

__all__ = ["MemoryMonitor", "MemoryType", "MemoryUnit", "MetricsCollector", "ProfileSample", "Profiler"]
__all__ += ["ProfilerConfig", "QEffMemoryProfiler", "QEffMemoryVisualizer", "Session", "mark_operation"]
__all__ += ["memory_monitor_context", "operation"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nncftools.api.memory_monitor import MemoryMonitor, MemoryType, memory_monitor_context
    from nncftools.api.qeff import (
        MetricsCollector,
        ProfilerConfig,
        ProfileSample,
        QEffMemoryProfiler,
        QEffMemoryVisualizer,
    )
    from nncftools.api.recorder import Profiler, Session
    from nncftools.errors import __version__ as __version__
    from nncftools.marks.operations import mark_operation, operation
    from nncftools.units import MemoryUnit


def __getattr__(name: str) -> object:
    if name not in _MODULE_BY_NAME:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_MODULE_BY_NAME[name]}"), name)


def __dir__() -> list[str]:
    """Return the public names, for completion. Submodules are not public."""
    return sorted([*__all__, "__version__"])
