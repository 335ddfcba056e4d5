"""Results of weight compression: checks a CSV file, and makes a table and a picture of error against size."""

from __future__ import annotations

__all__ = ["visualize"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nncftools.compression.outputs import visualize


def __getattr__(name: str) -> object:
    if name != "visualize":
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from nncftools.compression.outputs import visualize

    return visualize
