"""Slices of a model in a folder of Hugging Face: the same model with its first layers only, with their real weights.

A slice keeps the layers at the beginning that differ, and whole periods of layers that take turns. Nothing is loaded:
the parts of safetensors files are copied by their headers.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import re
import shutil
import struct
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import msgspec

from nncftools import intake
from nncftools.backports import SAFE_PATH
from nncftools.cli.forecast import random_weights
from nncftools.cli.model_folder import CONFIG, LARGEST_HEADER, Entry, Tensor, config_of, naming, tensors_of
from nncftools.errors import NncfToolsError
from nncftools.files import replacing, write_file
from nncftools.units import printable

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_NEEDED = re.compile(
    r"(?!config\.json$|.*\.index\.json$).+\.(json|txt|model|jinja|tiktoken|spm|bpe|codes|vocab|tokenizer)"
)
"""Other configs, templates and files of tokenizers (``VOCAB_FILES_NAMES`` of transformers)."""
_COUNTS = "num_hidden_layers", "n_layer"
_IN_TURNS = {"gemma2": 2, "gemma3_text": 6}
"""After how many layers kinds of attention repeat, whose weights are alike, where the config may leave that out."""
_OTHER_MODELS = ("text_config", "vision_config", "audio_config", "encoder", "decoder")
_LAYER = re.compile(r"(?:^|\.)(?:layers|layer|h|blocks)\.(\d+)\.")
_NAMES_CODE = re.compile(r"/|--.*\.|\.py\b")
"""A repository, a path, a class of a repository, or a file of code."""
_LOADS_NOTHING = {"_name_or_path", "name_or_path", "id2label", "label2id"}
"""Keys of a config whose values are only shown."""
_SCRIPT_OF_PYTHON = re.compile(rb"#!\s*(?:\S*/env\s+)?((?:\S*/)?python[^/\s]*)")
_PIECE = 16 << 20


@dataclass(frozen=True)
class Model:
    """What is known of a model before any of it runs."""

    folder: pathlib.Path
    config: Mapping[str, Any]
    layers: int
    tensors: Mapping[str, Tensor]
    head: int
    """The layers at the beginning that every slice has."""
    period: int
    """After so many layers, kinds of layers repeat."""
    python: str | None
    """The command's own Python, which makes random weights; None for a model with weights."""

    @property
    def parameters(self) -> int:
        """Return how many numbers its weights have."""
        return sum(math.prod(one.shape) for one in self.tensors.values())

    def counts(self) -> list[int]:
        """Return the numbers of layers that a slice can have."""
        return [count for count in range(max(1, self.head), self.layers) if (count - self.head) % self.period == 0]

    def kept(self, layers: int) -> dict[str, Tensor]:
        """Return the tensors of a slice, by name."""
        return {name: one for name, one in self.tensors.items() if layer_of(name) < layers}

    def size(self, layers: int) -> int:
        """Return how many bytes the weights of a slice have."""
        return sum(one.size for one in self.kept(layers).values())

    def files(self) -> list[pathlib.Path]:
        """Return the files that loading needs beside config and weights."""
        return [file for file in self.folder.iterdir() if _NEEDED.fullmatch(file.name) and file.is_file()]

    def disk_size(self, layers: int) -> int:
        """Return how many bytes a slice takes on a disk. Raises OSError."""
        return self.size(layers) + sum(file.stat().st_size for file in self.files())

    def config_of(self, layers: int) -> dict[str, Any]:
        """Return the config of a slice: its number of layers, and lists with an entry per layer cut to it."""
        lists = {key: all_[:layers] for key, all_ in self.config.items() if _is_per_layer(key, all_, self.layers)}
        return {**self.config, **lists, **dict.fromkeys(set(_COUNTS) & set(self.config), layers)}


def layer_of(name: str) -> int:
    """Return the number of the layer that a tensor belongs to; -1 for none."""
    found = _LAYER.search(name)
    return int(found[1]) if found else -1


def read(folder: pathlib.Path, words: Sequence[str] | None = None) -> Model:
    """Return a model: with its weights or, without any, by its config, as the Python of a command (``words``) sees it.

    Raises NncfToolsError for one that cannot be sliced, with the reason.
    """
    config = config_of(folder)
    others = [key for key in _OTHER_MODELS if isinstance(config.get(key), dict)]
    if config.get("is_encoder_decoder") or others:
        why = f"it consists of several models ({others[0]})" if others else "it is an encoder and a decoder"
        raise _refused(folder, f"{why}; only models with one stack of layers can be sliced")
    counts = [config[key] for key in _COUNTS if isinstance(config.get(key), int)]
    if len(counts) != 1 or not 1 <= counts[0] <= 10_000:  # noqa: PLR2004 — no model has more
        raise _refused(folder, f"{CONFIG} does not say how many layers it has ({' or '.join(_COUNTS)} expected)")
    (layers,) = counts
    python = None if words is None else _python(config, words)
    tensors = _tensors(folder) if python is None else _random_tensors(folder, config, python)
    per_layer: dict[int, list[object]] = defaultdict(list)
    for name, one in sorted(tensors.items()):
        per_layer[layer_of(name)].append((_LAYER.sub(".#.", name, count=1), one.kind, tuple(one.shape)))
    per_layer.pop(-1, None)
    if sorted(per_layer) != list(range(layers)):
        has = f"the weights have {len(per_layer)} (up to number {max(per_layer, default=-1)})"
        raise _refused(folder, f"{CONFIG} says {layers} layers, {has}; put the right number there")
    kinds = [per_layer[number] for number in range(layers)]
    return Model(folder, config, layers, tensors, *_turns(config, kinds), python)


def _python(config: Mapping[str, Any], words: Sequence[str]) -> str:
    """Return the Python of a command, which can make a model of this config. Raises NncfToolsError."""
    _refuse_code(config)
    python = interpreter(words)
    if python is None or shutil.which(python) is None:
        raise NncfToolsError(f"option --from-config: which Python runs {words[0]!r} is not known; name it first")
    return python


def _refuse_code(config: Mapping[str, Any]) -> None:
    """Raise NncfToolsError for a config with a value, however deep, by which transformers would load other code."""
    pending: list[tuple[str, object]] = list(config.items())
    while pending:
        key, value = pending.pop()
        if key in _LOADS_NOTHING:
            continue
        if key in {"auto_map", "custom_pipelines"} or (isinstance(value, str) and _NAMES_CODE.search(value)):
            raise NncfToolsError(f"option --from-config: {CONFIG} names code or a repository in {key!r}; it is not run")
        if isinstance(value, list):
            pending += [(key, one) for one in value]
        elif isinstance(value, dict):
            pending += [(inner or key, one) for inner, one in value.items()]


def _random_tensors(folder: pathlib.Path, config: dict[str, Any], python: str) -> dict[str, Tensor]:
    """Return the tensors of a model without weights; its config gets the kinds of layers that classes work out."""
    with naming(pathlib.Path(python), "names and shapes of weights from this program"):
        seen = json.loads(_run(python, "look", folder))
    if seen["layer_types"]:
        config["layer_types"] = seen["layer_types"]
    return {name: Tensor(kind, shape, 0, size, folder) for name, kind, shape, size in seen["tensors"]}


def _tensors(folder: pathlib.Path) -> dict[str, Tensor]:
    names = [_WEIGHTS]
    if (folder / _INDEX).exists():
        with naming(folder / _INDEX):
            content = intake.whole(folder / _INDEX, most=LARGEST_HEADER, may_wait=False)
            names = sorted(set(msgspec.json.decode(content, type=_Index).weight_map.values()))
    elif not (folder / _WEIGHTS).exists():
        more = "--from-config makes random ones of the right shapes"
        raise _refused(folder, f"it has no weights in safetensors ({_WEIGHTS} or {_INDEX}); {more}")
    if any(pathlib.PurePath(name).name != name for name in names):
        raise _refused(folder, f"{_INDEX} names files outside of the folder")
    return {name: one for file in names for name, one in tensors_of(folder / file).items()}


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def _turns(config: Mapping[str, Any], kinds: Sequence[object]) -> tuple[int, int]:
    """Return how many layers at the beginning differ, and after how many the others repeat.

    ``kinds`` says what each layer consists of: layers are alike where these are equal.
    """
    per_layer = [kinds, *(value for key, value in config.items() if _is_per_layer(key, value, len(kinds)))]
    full = config.get("max_window_layers")
    if config.get("use_sliding_window") and isinstance(full, int) and "layer_types" not in config:
        per_layer.append([number < full for number in range(len(kinds))])  # the first ones look at all tokens
    seen = list(zip(*per_layer, strict=True))
    stated = config.get("sliding_window_pattern") or _IN_TURNS.get(str(config.get("model_type")))
    least = stated if isinstance(stated, int) and stated > 0 else 1
    for both in range(least, len(kinds) + 1):
        for period in range(both - both % least, 0, -least):
            if seen[both - period : -period] == seen[both:]:
                return both - period, period
    return 0, len(kinds)


def _is_per_layer(key: str, value: object, layers: int) -> bool:
    is_other = "token" in key or key == "architectures"
    return layers > 1 and isinstance(value, list) and len(value) == layers and not is_other


def _refused(folder: pathlib.Path, why: str) -> NncfToolsError:
    return NncfToolsError(f"no slices of the model in {str(folder)!r} can be made: {why}")


def write(model: Model, layers: int, target: pathlib.Path) -> None:
    """Write a slice to a new folder: config, files of the tokenizer, and weights. Raises OSError, NncfToolsError."""
    target.mkdir()
    for file in model.files():
        shutil.copy(file, target / file.name)
    write_file(target / CONFIG, msgspec.json.encode(model.config_of(layers)))
    if model.python is None:
        _copy(model.kept(layers), target / _WEIGHTS)
    else:
        _run(model.python, "make", target)


def _copy(tensors: Mapping[str, Tensor], target: pathlib.Path) -> None:
    """Copy tensors from files of weights to a new one. Raises OSError."""
    head: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for (name, one), end in zip(tensors.items(), accumulate(one.size for one in tensors.values()), strict=True):
        head[name] = Entry(one.kind, list(one.shape), (end - one.size, end))
    encoded = msgspec.json.encode(head)
    encoded += b" " * (-len(encoded) % 8)
    with replacing(target) as slice_file:
        slice_file.write(struct.pack("<Q", len(encoded)) + encoded)
        for one in tensors.values():
            with intake.open_file(one.file) as file:
                file.seek(one.begin)
                for begin in range(one.begin, one.end, _PIECE):
                    slice_file.write(file.read(min(_PIECE, one.end - begin)))


def _run(python: str, what: str, folder: pathlib.Path) -> str:
    """Run our program for random weights in the command's own Python; return what it prints. Raises NncfToolsError."""
    source = pathlib.Path(random_weights.__file__).read_text(encoding="utf-8")
    argv = [python, "-c", f"{SAFE_PATH}\n{source}", what, str(folder.absolute())]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, errors="replace", check=False)
    except OSError as error:
        raise NncfToolsError(f"option --from-config: {python} cannot be started: {error.strerror}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise NncfToolsError(f"option --from-config: {python} cannot make the model: {printable(last)}")
    return done.stdout.strip().rpartition("\n")[2]


def interpreter(words: Sequence[str]) -> str | None:
    """Return the path of the Python that runs a command, by name or by the first line of a script; None if unknown."""
    program = shutil.which(words[0])
    if program is None or pathlib.PurePath(program).name.startswith("python"):
        return program
    with intake.open_file(pathlib.Path(program), may_wait=False) as file:
        found = _SCRIPT_OF_PYTHON.match(file.readline(512))
    return None if found is None else os.fsdecode(found[1])
