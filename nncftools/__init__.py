"""Memory, CPU and disk I/O of a network's compression, quantization or export: record, report, compare.

Public names are resolved on first use (PEP 562), so that importing the package costs nothing.
"""

__version__ = "0.1.0"

__all__ = ["Session"]

_HOME_OF = {"Session": "nncftools.session.model"}

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nncftools.session.model import Session


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    import importlib

    return getattr(importlib.import_module(_HOME_OF[name]), name)
