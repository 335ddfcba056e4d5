"""The sizes of a model's layers, from the headers of its files: no library of models is needed to check a grid."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from nncftools import intake
from nncftools.errors import NncfToolsError

if TYPE_CHECKING:
    import pathlib

_LONGEST_HEADER = 100_000_000
_MATRIX = 2
_EMBEDDINGS = ("embed", "lm_head", "wte", "wpe")
"""Parts of names of what is compressed to int8 or not at all."""
_INPUTS = ("hidden_size", "intermediate_size")


class Layers(NamedTuple):
    """What the sizes of the layers allow."""

    inputs: frozenset[int]
    """How many inputs the layers have; empty for unknown."""
    smallest: int | None
    """The smallest number of inputs or outputs; None for unknown."""

    def indivisible(self, size: int) -> int | None:
        """Return a number of inputs that groups of this size do not divide; None if they divide all."""
        return next((inputs for inputs in sorted(self.inputs) if inputs % size), None)


def layers_of(model: pathlib.Path) -> Layers:
    """Return the layers of a Hugging Face folder. Raises NncfToolsError if a file in it cannot be read."""
    shapes = [shape for file in sorted(model.glob("*.safetensors")) for shape in _shapes(file)]
    if not shapes:
        return _by_config(model / "config.json")
    return Layers(frozenset(shape[-1] for shape in shapes), min(min(shape) for shape in shapes))


def config_of(model: pathlib.Path) -> dict[str, Any]:
    """Return the configuration of a Hugging Face folder. Raises NncfToolsError."""
    file = model / "config.json"
    try:
        found = json.loads(intake.whole(file))
    except (OSError, ValueError, RecursionError) as error:
        raise NncfToolsError(f"{str(file)!r} cannot be read: {error}; the folder of a model expected") from error
    if not isinstance(found, dict):
        raise NncfToolsError(f"{str(file)!r}: an object expected")
    return found


def _by_config(file: pathlib.Path) -> Layers:
    config = config_of(file.parent)
    inputs = [config[name] for name in _INPUTS if isinstance(config.get(name), int)]
    return Layers(frozenset(inputs), min(inputs, default=None))


def _shapes(file: pathlib.Path) -> list[tuple[int, ...]]:
    """Return the shapes of the matrices in a file of weights, without embeddings."""
    try:
        with file.open("rb") as opened:
            size = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(min(size, _LONGEST_HEADER)))
        found: list[tuple[int, ...]] = [
            tuple(map(int, entry["shape"]))
            for name, entry in header.items()
            if name != "__metadata__" and not any(part in name for part in _EMBEDDINGS)
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise NncfToolsError(f"{str(file)!r} is not a file of weights (safetensors): {error}") from error
    return [shape for shape in found if len(shape) == _MATRIX and min(shape) > 0]
