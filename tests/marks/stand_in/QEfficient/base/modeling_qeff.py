"""The base of all models: export and compilation."""

from __future__ import annotations

from abc import ABC, abstractmethod


class QEFFBaseModel(ABC):
    """Exports to ONNX and compiles for the card."""

    @abstractmethod
    def export(self) -> str:
        """Export the model and return where."""

    def _export(self, name: str) -> str:
        return f"{name}.onnx"

    def _compile(self, onnx_path: str) -> str:
        return onnx_path.replace(".onnx", ".qpc")
