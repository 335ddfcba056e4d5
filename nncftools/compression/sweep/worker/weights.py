"""How many bits the weights of a saved model take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_BITS = {"boolean": 1, "i4": 4, "u4": 4, "nf4": 4, "f4e2m1": 4, "u2": 2, "i2": 2, "u3": 3, "u6": 6, "u1": 1}
_NAMES = {"i4": "int4", "u4": "int4", "i8": "int8", "u8": "int8", "i2": "int2", "u2": "int2", "f4e2m1": "mxfp4"}
_FLOATS = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "f8e4m3": "fp8", "f8e5m2": "fp8"}
_BESIDE = ("zero_point", "scale", "shift")
_DIMENSIONS = 2


class Constant(NamedTuple):
    """A constant of the model."""

    name: str
    kind: str
    """Its element type, as OpenVINO names it: ``i4``."""
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of its elements."""
        size = 1
        for one in self.shape:
            size *= one
        return size


def constants(model: Any) -> list[Constant]:  # noqa: ANN401 — a model of OpenVINO
    """Return the constants of a model."""
    return [
        Constant(node.get_friendly_name(), node.get_element_type().get_type_name(), tuple(node.get_output_shape(0)))
        for node in model.get_ops()
        if node.get_type_name() == "Constant"
    ]


def by_width(found: Iterable[Constant]) -> dict[str, int]:
    """Return the number of weights by their width: matrices and larger arrays, without scales and zero points."""
    counts: dict[str, int] = {}
    for one in found:
        name = _NAMES.get(one.kind) or _FLOATS.get(one.kind) or (one.kind if one.kind in _BITS else None)
        is_matrix = sum(size > 1 for size in one.shape) >= _DIMENSIONS
        if name is not None and is_matrix and not any(part in one.name.rpartition("/")[2] for part in _BESIDE):
            counts[name] = counts.get(name, 0) + one.size
    return counts
