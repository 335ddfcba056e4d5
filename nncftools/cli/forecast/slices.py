"""Slices of a model in a folder of Hugging Face: the same model with its first layers only, with their real weights.

A slice keeps the layers at the beginning that differ, and whole periods of layers that take turns. Nothing is loaded:
the parts of safetensors files are copied by their headers.
"""

from __future__ import annotations

import contextlib
import json
import math
import pathlib
import re
import shutil
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import msgspec

from nncftools import intake
from nncftools.errors import NncfToolsError, SessionFileError
from nncftools.files import replacing, write_file
from nncftools.units import printable

CONFIG = "config.json"
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_NO_COPY = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack", ".py", ".index.json")
_COUNTS = "num_hidden_layers", "n_layer"
_PERIOD = "sliding_window_pattern"
"""After how many layers the kinds of attention repeat, whose weights are alike."""
_IN_TURNS = {"gemma2": 2, "gemma3_text": 6}
"""Model types whose configs may leave the period out."""
_OTHER_MODELS = ("text_config", "vision_config", "audio_config", "encoder", "decoder")
_LAYER = re.compile(r"(?:^|\.)(?:layers|layer|h|blocks)\.(\d+)\.")
_LARGEST_CONFIG, _LARGEST_HEADER = 4 << 20, 128 << 20
_PIECE = 16 << 20


class Tensor(NamedTuple):
    """A tensor of a file of weights."""

    file: pathlib.Path
    kind: str
    shape: Sequence[int]
    begin: int
    """Where its bytes are in the file."""
    end: int


@dataclass(frozen=True)
class Model:
    """What is known of a model before any of it runs."""

    folder: pathlib.Path
    config: Mapping[str, Any]
    layers: int
    head: int = 0
    """The layers at the beginning that every slice has."""
    period: int = 1
    """After so many layers, kinds of layers repeat."""
    parameters: int = 0
    weights: int = 0
    """Bytes."""
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    """Empty for a model without weights."""

    def counts(self) -> list[int]:
        """Return the numbers of layers that a slice can have."""
        return [count for count in range(max(1, self.head), self.layers) if (count - self.head) % self.period == 0]

    def size(self, layers: int) -> int:
        """Return about how many bytes the weights of a slice have."""
        if not self.tensors:
            return math.ceil(self.weights * layers / self.layers)
        return sum(one.end - one.begin for name, one in self.tensors.items() if layer_of(name) < layers)

    def config_of(self, layers: int) -> dict[str, Any]:
        """Return the config of a slice: its number of layers, and lists with an entry per layer cut to it."""
        lists = {key: all_[:layers] for key, all_ in self.config.items() if _is_per_layer(key, all_, self.layers)}
        return {**self.config, **lists, **dict.fromkeys(set(_COUNTS) & set(self.config), layers)}


def layer_of(name: str) -> int:
    """Return the number of the layer that a tensor belongs to; -1 for none."""
    found = _LAYER.search(name)
    return int(found[1]) if found else -1


def read_config(folder: pathlib.Path) -> tuple[dict[str, Any], int]:
    """Return the config of a model and its number of layers. Raises NncfToolsError for a model without slices."""
    file = folder / CONFIG
    try:
        config = msgspec.json.decode(intake.whole(file, most=_LARGEST_CONFIG, may_wait=False), type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise SessionFileError(f"{file}: the config of a model expected: {error}") from error
    others = [key for key in _OTHER_MODELS if isinstance(config.get(key), dict)]
    if config.get("is_encoder_decoder") or others:
        why = f"it consists of several models ({others[0]})" if others else "it is an encoder and a decoder"
        raise _refused(folder, f"{why}; only models with one stack of layers can be sliced")
    counts = [config[key] for key in _COUNTS if isinstance(config.get(key), int)]
    if len(counts) != 1 or not 1 <= counts[0] <= 10_000:  # noqa: PLR2004 — no model has more
        raise _refused(folder, f"{CONFIG} does not say how many layers it has ({' or '.join(_COUNTS)} expected)")
    return config, counts[0]


def read(folder: pathlib.Path) -> Model:
    """Return a model with its weights. Raises NncfToolsError for one that cannot be sliced, with the reason."""
    config, layers = read_config(folder)
    tensors = _tensors(folder)
    per_layer: dict[int, list[object]] = defaultdict(list)
    for name, one in sorted(tensors.items()):
        if layer_of(name) >= 0:
            per_layer[layer_of(name)].append((_LAYER.sub(".#.", name, count=1), one.kind, tuple(one.shape)))
    if sorted(per_layer) != list(range(layers)):
        has = f"the weights have {len(per_layer)} (up to number {max(per_layer, default=-1)})"
        raise _refused(folder, f"{CONFIG} says {layers} layers, {has}; put the right number there")
    kinds = [json.dumps(per_layer[number]) for number in range(layers)]
    parameters = sum(math.prod(one.shape) for one in tensors.values())
    size = sum(one.end - one.begin for one in tensors.values())
    return Model(folder, config, layers, *turns(config, layers, kinds), parameters, size, tensors)


def turns(config: Mapping[str, Any], layers: int, kinds: Sequence[str]) -> tuple[int, int]:
    """Return how many layers at the beginning differ, and after how many the others repeat.

    ``kinds`` has a text per layer that says what it consists of.
    """
    per_layer: list[Sequence[object]] = [value for key, value in config.items() if _is_per_layer(key, value, layers)]
    full = config.get("max_window_layers")
    if config.get("use_sliding_window") and isinstance(full, int) and "layer_types" not in config:
        per_layer.append([number < full for number in range(layers)])  # the first ones look at all tokens
    seen = [(kinds[number], *(str(value[number]) for value in per_layer)) for number in range(layers)]
    stated = config.get(_PERIOD) or _IN_TURNS.get(str(config.get("model_type")))
    least = stated if isinstance(stated, int) and stated > 0 else 1
    for both in range(least, layers + 1):
        for head in range(both - least + 1):
            period = both - head
            if period % least == 0 and all(seen[at] == seen[at + period] for at in range(head, layers - period)):
                return head, period
    return 0, layers


def _is_per_layer(key: str, value: object, layers: int) -> bool:
    is_other = "token" in key or key == "architectures"
    return layers > 1 and isinstance(value, list) and len(value) == layers and not is_other


def _refused(folder: pathlib.Path, why: str) -> NncfToolsError:
    return NncfToolsError(f"no slices of the model in {str(folder)!r} can be made: {why}")


def _tensors(folder: pathlib.Path) -> dict[str, Tensor]:
    names = [_WEIGHTS]
    if (folder / _INDEX).exists():
        content = intake.whole(folder / _INDEX, most=_LARGEST_HEADER, may_wait=False)
        with _naming(folder / _INDEX):
            names = sorted(set(msgspec.json.decode(content, type=_Index).weight_map.values()))
    elif not (folder / _WEIGHTS).exists():
        more = "--from-config makes random ones of the right shapes"
        raise _refused(folder, f"it has no weights in safetensors ({_WEIGHTS} or {_INDEX}); {more}")
    if any(pathlib.PurePath(name).name != name for name in names):
        raise _refused(folder, f"{_INDEX} names files outside of the folder")
    tensors: dict[str, Tensor] = {}
    for name in names:
        with _naming(folder / name):
            tensors |= _header(folder / name)
    return tensors


class _Entry(msgspec.Struct):
    dtype: str
    shape: Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=32)]
    data_offsets: tuple[int, int]


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


@contextlib.contextmanager
def _naming(file: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except (msgspec.MsgspecError, ValueError, struct.error, UnicodeDecodeError) as error:
        raise SessionFileError(f"{file}: weights in safetensors expected: {error}") from error


def _header(path: pathlib.Path) -> dict[str, Tensor]:
    """Return the tensors of a file by its header: 8 bytes of its length, then JSON (safetensors' README, Format)."""
    with intake.open_file(path, may_wait=False) as file:
        (length,) = struct.unpack("<Q", file.read(8))
        size = intake.size_of(file) or 0
        if length > min(size, _LARGEST_HEADER):
            raise ValueError(f"its header has {length:,} bytes, the file {size:,}")
        head = msgspec.json.decode(file.read(length), type=dict[str, msgspec.Raw])
    tensors = {}
    for name, raw in head.items():
        if name != "__metadata__":
            entry = msgspec.json.decode(raw, type=_Entry)
            begin, end = (8 + length + offset for offset in entry.data_offsets)
            if not 8 + length <= begin <= begin + math.prod(entry.shape) // 8 <= end <= size:
                raise ValueError(f"the tensor {printable(name)!r} is not within the file, which was cut short")
            tensors[name] = Tensor(path, entry.dtype, entry.shape, begin, end)
    return tensors


def write(model: Model, layers: int, target: pathlib.Path) -> None:
    """Write a slice to a new folder: config, files of the tokenizer, and weights, if there are any. Raises OSError."""
    target.mkdir()
    for file in model.folder.iterdir():
        if file.name != CONFIG and not file.name.endswith(_NO_COPY) and file.is_file():
            shutil.copy(file, target / file.name)
    write_file(target / CONFIG, msgspec.json.encode(model.config_of(layers)))
    if not model.tensors:
        return
    kept = {name: one for name, one in model.tensors.items() if layer_of(name) < layers}
    head: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, one in kept.items():
        head[name] = _Entry(one.kind, list(one.shape), (at, at + one.end - one.begin))
        at += one.end - one.begin
    encoded = msgspec.json.encode(head)
    encoded += b" " * (-len(encoded) % 8)
    with replacing(target / _WEIGHTS) as beside, contextlib.ExitStack() as stack:
        slice_file = stack.enter_context(beside.open("wb"))
        slice_file.write(struct.pack("<Q", len(encoded)) + encoded)
        files = {path: stack.enter_context(intake.open_file(path)) for path in {one.file for one in kept.values()}}
        for one in kept.values():
            files[one.file].seek(one.begin)
            for begin in range(one.begin, one.end, _PIECE):
                slice_file.write(files[one.file].read(min(_PIECE, one.end - begin)))
