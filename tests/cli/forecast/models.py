"""Models for tests of forecasts: folders of Hugging Face with small weights."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def write_weights(path: Path, tensors: Mapping[str, Sequence[int]]) -> None:
    """Write tensors of shapes in float32; each holds its own number."""
    head: dict[str, Any] = {}
    at, data = 0, b""
    for number, (name, shape) in enumerate(tensors.items()):
        size = 4 * math.prod(shape)
        head[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + size]}
        data += struct.pack("<f", number) * math.prod(shape)
        at += size
    encoded = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + data)


def write(  # noqa: PLR0913 — a model
    folder: Path,
    layers: int = 20,
    *,
    shards: int = 1,
    experts_every: int = 0,
    extra: int = 0,
    tensors: Mapping[str, Sequence[int]] = {},
    **config: Any,  # noqa: ANN401
) -> Path:
    """Write a model of a few kilobytes; a value None removes a key of the config.

    ``extra`` is the number of layers after the last one, ``tensors`` has shapes of further weights.
    """
    folder.mkdir(parents=True)
    full = {"model_type": "llama", "num_hidden_layers": layers, **config}
    (folder / "config.json").write_text(json.dumps({key: value for key, value in full.items() if value is not None}))
    (folder / "tokenizer.json").write_text("{}")
    tensors = {"model.embed_tokens.weight": (16, 8), **tensors}
    for number in range(layers + extra):
        has_experts = experts_every and number % experts_every == experts_every - 1
        names = ["mlp.experts.0.w", "mlp.experts.1.w"] if has_experts else ["mlp.w"]
        tensors |= {f"model.layers.{number}.{name}": (8, 8) for name in ["attn.q", *names]}
    if shards == 1:
        write_weights(folder / "model.safetensors", tensors)
        return folder
    names = list(tensors)
    parts = {f"model-{number}.safetensors": names[number::shards] for number in range(shards)}
    for file, inside in parts.items():
        write_weights(folder / file, {name: tensors[name] for name in inside})
    places = {name: file for file, inside in parts.items() for name in inside}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder
