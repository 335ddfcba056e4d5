"""The kinds of operations, which give them names and colours."""

from __future__ import annotations

KINDS = (
    "Model Loading",
    "Export",
    "Quantization",
    "Weight Compression",
    "Training",
    "Compilation",
    "Generation",
    "Saving",
    "Cleanup",
)
"""Plain names, in the order of a workflow."""


def kind_of(name: str) -> str | None:
    """Return the kind with this name in any case, or None."""
    plain = " ".join(name.replace("_", " ").split()).casefold()
    return next((kind for kind in KINDS if kind.casefold() == plain), None)
