"""Results of weight compression: checks a CSV file, and makes a table and a picture of error against size.

Its names are those of NNCF's visualizer; they are loaded on use.
"""

# ruff: noqa: F405 — all names but one are the visualizer's
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nncftools.compression.outputs import visualize
    from nncftools.compression.visualizer import *  # noqa: F403 — every name but its imports

__all__ = ["AVG_REL_ERROR", "COMPRESSION_RATE", "EXPECTED_COLUMNS", "EXPECTED_IN_MODE_COLUMN", "FP32", "GPTQ", "INT4"]
__all__ += ["INT4_RATIO", "INT8", "INT8_RATIO", "LAMBADA_ACC", "LAMBADA_PPL", "LORA_RANK", "MODE", "MODEL_SIZE"]
__all__ += ["PLOT_NAME", "WIKI_PPL", "WWB_SIM", "add_relative_metrics", "check_format", "to_markdown", "to_plot"]
__all__ += ["visualize"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    import importlib

    home = "outputs" if name == "visualize" else "visualizer"
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
