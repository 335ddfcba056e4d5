"""The few kinds of operation, by which operations are named and coloured."""

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
    """Return the kind that a name means, whatever its case, or None."""
    plain = " ".join(name.replace("_", " ").split()).casefold()
    return next((kind for kind in KINDS if kind.casefold() == plain), None)
