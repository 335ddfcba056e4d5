"""Makes slices of a model in a folder of Hugging Face. A slice is the model with only some of its layers.

A slice has the first layers, with their weights. Layers at the beginning may differ from the others (the head). The
other layers may be of several kinds that repeat in a fixed order (a period). A slice has the whole head, and only whole
periods. Nothing is loaded into memory: the headers of safetensors files say which parts to copy.
"""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from nncftools import intake
from nncftools.backports import SAFE_PATH
from nncftools.cli.forecast import random_weights
from nncftools.cli.model_folder import CONFIG, LARGEST_HEADER, Entry, Tensor, naming_file, read_config, read_tensors
from nncftools.errors import NncfToolsError
from nncftools.files import replacing, write_file
from nncftools.units import printable

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_NEEDED = re.compile(
    r"(?!config\.json$|.*\.index\.json$).+\.(json|txt|model|jinja|tiktoken|spm|bpe|codes|vocab|tokenizer|py)"
)
"""Names of the files that a slice of the model needs besides ``config.json`` and weights: other configs, templates,
files of tokenizers (``VOCAB_FILES_NAMES`` of transformers), and code, which any of these configs can name.
"""
_COUNTS = (
    "num_hidden_layers",
    "n_layer",
    "num_layers",
    "n_layers",
    "num_decoder_layers",
    "decoder_layers",
    "encoder_layers",
    "num_blocks",
)
"""Config keys that hold the number of layers. If a config has several, the first in this order counts that agrees with
the weights. The other keys with the same number are changed with it.
"""
_EXTRA_LAYERS = ("num_nextn_predict_layers", "num_mtp_layers")
"""Config keys that hold the number of extra layers (layers that predict further tokens). Names of weights contain the
number of the layer. If the model has 48 normal layers (0 to 47), the first extra layer has the number 48.
"""
_IN_TURNS = {"gemma2": 2, "gemma3_text": 6}
"""``{model type: number of layers after which the kinds of attention repeat}``. This table is needed because layers
with different attention have weights of equal shapes, and the config may not name the kinds.
"""
_PARTS = re.compile(r"(text|vision|audio|thinker|talker|vit|llm|language|qformer)_config|encoder|decoder|img_processor")
_LAYER = re.compile(r"(?:^|\.)(?:layers|layer|h|blocks)\.(\d+)\.")
_BY_NUMBER = re.compile(r"per_layer|mid_position_embeddings|contact_head|^layer_weights$")
"""Matches names of weights that belong to no layer, and whose shapes depend on the number of layers."""
_STAGES = ("out_features", "out_indices")
"""Config keys that name layers with further outputs (DINOv2). A slice may not have these layers. Without the keys, only
the last layer has an output.
"""
_LETTERS = "hybrid_override_pattern"
"""A config key. The value is a text with one letter for each layer: the kind of the layer."""
_BY_LAYER = ("layers_block_type", "layer_types", "block_types", _LETTERS)
"""Config keys whose value has an entry per layer. If the config has no layer count, the length of the value is the
count.
"""
_NAMES_CODE = re.compile(r"/|--.*\.|\.py\b")
"""Matches a text that may name a repository, a path, a class in a repository, or a file of code."""
_LOADS_NOTHING = {"_name_or_path", "name_or_path", "id2label", "label2id"}
"""Config keys whose values make transformers load nothing: the values are only shown."""
_PYTHON = r"python(?:\d(?:\.\d+t?)?)?"
"""Matches the name of a Python. Other programs with such a beginning (``python-export.sh``) may be anything."""
_SCRIPT_OF_PYTHON = re.compile(rf"#!\s*(?:\S*/env\s+)?((?:\S*/)?{_PYTHON})(?!\S)")
_PIECE = 16 << 20
_LENGTH = struct.Struct("<Q")
_CACHE_LINE = 64
"""Alignment in bytes. If weights in a file are not aligned to it, libraries use other code for them, which needs a
different amount of memory.
"""


@dataclass(frozen=True)
class Model:
    """A model to slice, as described by its config and the headers of its weights."""

    folder: pathlib.Path
    config: Mapping[str, Any]
    layers: int
    tensors: Mapping[str, Tensor]
    keys: Sequence[str]
    """The config keys that hold the number of layers."""
    head: int
    """The number of layers at the beginning that differ from the other layers. Every slice of the model has them."""
    period: int
    """Number of layers after which the kinds of layers repeat; 1 if all layers after the first ``head`` layers are
    alike.
    """
    python: str | None
    """Path of the Python that runs the command. It makes random weights. None if the real weights are copied."""
    notes: Sequence[str]

    @property
    def parameters(self) -> int:
        """The number of parameters of the model."""
        return sum(math.prod(tensor.shape) for tensor in self.tensors.values())

    @property
    def layer_parameters(self) -> int:
        """The average number of parameters of a layer."""
        inner = [tensor for name, tensor in self.tensors.items() if layer_of(name) >= 0]
        return sum(math.prod(tensor.shape) for tensor in inner) // self.layers

    def counts(self) -> list[int]:
        """Return the numbers of layers that a slice can have.

        These are the first ``head`` layers plus a multiple of ``period`` layers.
        """
        return list(range(self.head + self.period, self.layers, self.period))

    def select_tensors(self, layers: int) -> dict[str, Tensor]:
        """Return the tensors of a slice, a model with only the first ``layers`` layers: ``{name: tensor}``.

        If the model also has layers that predict further tokens, every slice has them. Their numbers follow the numbers
        of the slice's layers.
        """
        selected = {}
        for name, tensor in self.tensors.items():
            stack, number, rest = _split(name)
            if number < layers:
                selected[name] = tensor
            elif number >= self.layers:
                selected[f"{stack}{number - self.layers + layers}{rest}"] = tensor
        return selected

    def size(self, layers: int) -> int:
        """Return the size of the weights of a slice with this number of layers, in bytes."""
        return sum(tensor.size for tensor in self.select_tensors(layers).values())

    def files(self) -> list[pathlib.Path]:
        """Return the files that loading the model needs, besides ``config.json`` and the weights."""
        files = filter(pathlib.Path.is_file, self.folder.iterdir())
        return [file for file in files if _NEEDED.fullmatch(file.name)]

    def disk_size(self, layers: int) -> int:
        """Return the size of all files of a slice with this number of layers, in bytes. Raises OSError."""
        files = sum(file.stat().st_size for file in self.files())
        return self.size(layers) + files

    def config_of(self, layers: int) -> dict[str, Any]:
        """Return the config of a slice with this number of layers.

        The layer count is smaller, lists with an entry per layer are shorter, and no layer has a further output.
        """
        config = {}
        for key, value in self.config.items():
            if key not in _STAGES:
                config[key] = _cut(key, value, self.layers, layers)
        return config | dict.fromkeys(self.keys, layers)


def _split(name: str) -> tuple[str, int, str]:
    """Split the name of a tensor into the text before the layer's number, this number, and the text after it.

    If the name has no layer's number, return ``("", -1, name)``.
    """
    found = _LAYER.search(name)
    if found is None:
        return "", -1, name
    begin, end = found.span(1)
    return name[:begin], int(found[1]), name[end:]


def layer_of(name: str) -> int:
    """Return the number of the layer that a tensor belongs to; -1 if it belongs to no layer."""
    return _split(name)[1]


def _per_layer(key: str, value: Any, layers: int) -> Sequence[object]:  # noqa: ANN401 — any JSON
    """Return a value of a config as a sequence with an entry per layer; empty if the value has no such entries."""
    if key == "attention_types" and isinstance(value, list):  # GPT-Neo: [[[kind, …], times], …]
        value = [kind for kinds, times in value for kind in kinds * times]
    kind = str if key == _LETTERS else list
    if not isinstance(value, kind) or "token" in key or key == "architectures":
        return ()
    return value if len(value) == layers else ()


def _cut(key: str, value: Any, layers: int, fewer: int) -> Any:  # noqa: ANN401 — any JSON
    """Return the value of a config key for a model with ``fewer`` layers instead of ``layers``."""
    entries = _per_layer(key, value, layers)
    if not entries:
        return value
    if key == "attention_types":
        return [[entries[:fewer], 1]]
    return entries[:fewer]


def read(folder: pathlib.Path, words: Sequence[str], *, from_config: bool = False) -> Model:
    """Read a model from the files of its weights. Raises NncfToolsError with the reason if the model cannot be sliced.

    If ``from_config`` is true, no weights are read. The command's Python finds their names and shapes from the config.
    """
    config = read_config(folder)
    names = filter(_PARTS.fullmatch, config)
    parts = [name for name in names if isinstance(config[name], dict)]
    if config.get("is_encoder_decoder") or parts:
        reason = f"it consists of several models ({parts[0]})" if parts else "it is an encoder and a decoder"
        raise _refused(folder, f"{reason}; only models with one stack of layers can be sliced")
    python = find_python(config, words) if from_config else None
    tensors = _tensors(folder) if python is None else _random_tensors(folder, config, python)
    per_layer = _kinds_of_layers(folder, tensors)
    keys, layers, notes = _count_layers(folder, config, words, len(per_layer))
    for name in filter(_BY_NUMBER.search, tensors):
        if layer_of(name) < 0:
            raise _refused(
                folder, f"the weight {name!r} belongs to no layer, but its shape depends on the number of layers"
            )
    head, period = _turns(config, per_layer[:layers])
    model = Model(
        folder=folder,
        config=config,
        layers=layers,
        tensors=tensors,
        keys=keys,
        head=head,
        period=period,
        python=python,
        notes=notes,
    )
    _check_smallest(model, words)
    return model


def _check_smallest(model: Model, words: Sequence[str]) -> None:
    """Ask the transformers of the command's Python for the weights of a model with the config of the smallest slice.

    Raises NncfToolsError if the model has one of these weights, and the slice does not: transformers would make the
    weight at random. Other names are not compared, because weights may have other names in memory than in the files.
    """
    layers = min(model.counts(), default=model.layers)
    config = model.config_of(layers)
    expected: dict[str, Tensor] = {}
    with contextlib.suppress(NncfToolsError, OSError), tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        write_file(folder / CONFIG, msgspec.json.encode(config))
        expected = _random_tensors(folder, config, find_python(config, words))
    selected = model.select_tensors(layers)
    missing = expected.keys() & model.tensors.keys() - selected.keys()
    if missing:
        raise _refused(model.folder, f"transformers expects the weight {min(missing)!r} in every slice")


def _ask_for_names(config: Mapping[str, Any], words: Sequence[str]) -> list[str]:
    """Return the config keys that hold the number of layers, from the transformers library of the command's Python.

    Empty if the library cannot be asked or gives no answer.
    """
    with contextlib.suppress(NncfToolsError, msgspec.MsgspecError):
        names = _run(find_python(config, words), "names", str(config.get("model_type")))
        return msgspec.json.decode(names, type=list[str])
    return []


_Layers = dict[int, list[object]]


def _kinds_of_layers(folder: pathlib.Path, tensors: Mapping[str, Tensor]) -> list[list[object]]:
    """Return the names, types and shapes of the weights of each layer, in a list. Raises NncfToolsError."""
    stacks: dict[str, _Layers] = defaultdict(lambda: defaultdict(list))
    for name, tensor in sorted(tensors.items()):
        stack, number, rest = _split(name)
        if number >= 0:
            stacks[stack][number].append((rest, tensor.kind, tuple(tensor.shape)))
    if not stacks:
        shared = "layers that share the same weights cannot be left out"
        unnamed = "the names of its weights do not show the layers (layers.0, layer.0, h.0 or blocks.0 expected)"
        names = " ".join(tensors)
        is_shared = ".0." in names and ".1." not in names
        raise _refused(folder, shared if is_shared else unnamed)
    first, *others = [name for name in stacks if not name.startswith("mtp.")]  # these layers predict further tokens
    if others:
        raise _refused(folder, f"its weights have several stacks of layers ({first} and {others[0]})")
    layers = stacks[first]
    missing = set(range(len(layers))) - layers.keys()
    if missing:
        raise _refused(folder, f"the weights of layer {min(missing)} are missing; is the download complete?")
    return [layers[number] for number in sorted(layers)]


def _count_layers(
    folder: pathlib.Path, config: Mapping[str, Any], words: Sequence[str], weights: int
) -> tuple[list[str], int, list[str]]:
    """Return ``(config keys that hold the number of layers, this number, notes)``. Raises NncfToolsError.

    ``weights`` is the number of layers with weights, including layers that predict further tokens.
    """
    extra = sum(_numbers_in(config, _EXTRA_LAYERS).values())
    counts = _numbers_in(config, _COUNTS)
    if not counts and any(_per_layer(key, config.get(key), weights) for key in _BY_LAYER):
        return [], weights, []
    fitting = {weights, weights - extra}
    if fitting.isdisjoint(counts.values()):
        counts.update(_numbers_in(config, _ask_for_names(config, words)))
    if not counts:
        known = " or ".join(_COUNTS)
        raise _refused(folder, f"{CONFIG} does not say how many layers it has ({known} expected)")
    agreeing = filter(fitting.__contains__, counts.values())
    layers = next(agreeing, max(counts.values()))
    if layers > weights:
        raise _refused(folder, f"{CONFIG} says {layers} layers, but the weights have only {weights}")
    notes = []
    if layers + extra < weights:
        note = (
            f"{CONFIG} says {layers} layers, the weights have {weights}: the last {weights - layers} are in every slice"
        )
        notes = [note]
    return [key for key, count in counts.items() if count == layers], layers, notes


def _numbers_in(config: Mapping[str, Any], names: Sequence[str]) -> dict[str, int]:
    """Return ``{key: value}`` for the keys in ``names`` whose value in the config is a positive integer."""
    numbers = {}
    for name in names:
        value = config.get(name)
        if type(value) is int and value > 0:
            numbers[name] = value
    return numbers


def find_python(config: Mapping[str, Any], words: Sequence[str]) -> str:
    """Return the path of the Python that runs a command: the program itself, or the Python in a script's first line.

    Raises NncfToolsError if the Python is unknown, or if the config makes transformers load other code.
    """
    _refuse_code(config)
    python = shutil.which(words[0])
    if python is not None and not re.fullmatch(_PYTHON, pathlib.PurePath(python).name):
        with intake.open_file(pathlib.Path(python), may_wait=False) as file:
            found = _SCRIPT_OF_PYTHON.match(os.fsdecode(file.readline(512)))
        python = None if found is None else shutil.which(found[1])
    if python is None:
        raise NncfToolsError(
            f"option --from-config: it is not known which Python runs {words[0]!r}; begin COMMAND with python"
        )
    return python


def _refuse_code(config: Mapping[str, Any]) -> None:
    """Raise NncfToolsError if a value of a config, at any depth, makes transformers load other code."""
    pending: list[tuple[str, object]] = list(config.items())
    while pending:
        key, value = pending.pop()
        if key in _LOADS_NOTHING:
            continue
        if key in {"auto_map", "custom_pipelines"} or (isinstance(value, str) and _NAMES_CODE.search(value)):
            raise NncfToolsError(
                f"option --from-config: {CONFIG} names code or a repository in {key!r}; such code is not run"
            )
        if isinstance(value, list):
            pending += [(key, entry) for entry in value]
        elif isinstance(value, dict):
            pending += [(inner or key, entry) for inner, entry in value.items()]


def _random_tensors(folder: pathlib.Path, config: dict[str, Any], python: str) -> dict[str, Tensor]:
    """Return the names, types and shapes of a model's tensors computed from the model's config.

    The interpreter at the path ``python`` computes them with the transformers library. If the library also gives the
    kind of each layer, the kinds are added to ``config``.
    """
    with naming_file(pathlib.Path(python), "output with names and shapes of weights"):
        answer = _run(python, "look", str(folder.absolute()))
        seen = msgspec.json.decode(answer, type=_Seen)
    if seen.layer_types:
        config["layer_types"] = seen.layer_types
    tensors = {}
    for name, kind, shape, size in seen.tensors:
        tensors[name] = Tensor(kind, shape, begin=0, end=size, file=folder)
    return tensors


class _Seen(msgspec.Struct):
    """The answer of ``random_weights`` to the task ``look``."""

    tensors: list[tuple[str, str, list[int], int]]
    layer_types: list[str] | None


def _tensors(folder: pathlib.Path) -> dict[str, Tensor]:
    names = [_WEIGHTS]
    if (folder / _INDEX).exists():
        with naming_file(folder / _INDEX):
            content = intake.read_file(folder / _INDEX, most=LARGEST_HEADER, may_wait=False)
            index = msgspec.json.decode(content, type=_Index)
            names = sorted(set(index.weight_map.values()))
    elif not (folder / _WEIGHTS).exists():
        raise _refused(
            folder,
            f"it has no weights in safetensors ({_WEIGHTS} or {_INDEX}); "
            "--from-config makes random weights of the right shapes",
        )
    tensors = {}
    for name in names:
        if pathlib.PurePath(name).name != name:
            raise _refused(folder, f"{_INDEX} names files outside of the folder")
        tensors.update(read_tensors(folder / name))
    return tensors


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def _turns(config: Mapping[str, Any], kinds: Sequence[object]) -> tuple[int, int]:
    """Return ``(head, period)`` of a model; see the class ``Model``.

    The first ``head`` layers differ from the later layers. The kinds of the later layers repeat after ``period``
    layers. Layers are alike if their weights (``kinds``) and all their entries in the config are equal.
    """
    layers = len(kinds)
    traits = [kinds]
    for key, value in config.items():
        entries = _per_layer(key, value, layers)
        if entries and entries != list(range(layers)):  # Llama 4 has a list of the numbers of all layers
            traits.append(entries)
    full = config.get("max_window_layers")
    if config.get("use_sliding_window") and isinstance(full, int) and "layer_types" not in config:
        traits.append([number < full for number in range(layers)])  # the first layers look at all tokens
    seen = list(zip(*traits, strict=True))
    stated = config.get("sliding_window_pattern") or _IN_TURNS.get(str(config.get("model_type")))
    least = stated if isinstance(stated, int) and stated > 0 else 1
    for both in range(least, layers + 1):
        for period in range(both - both % least, 0, -least):
            if seen[both - period : -period] == seen[both:]:
                return both - period, period
    return 0, layers


def _refused(folder: pathlib.Path, why: str) -> NncfToolsError:
    return NncfToolsError(f"no slices of the model in {str(folder)!r} can be made: {why}")


def write(model: Model, layers: int, target: pathlib.Path) -> None:
    """Write a slice with this number of layers to the new folder ``target``. Raises OSError, NncfToolsError.

    The files are the config, the weights, and the other files that loading needs.
    """
    target.mkdir()
    for file in model.files():
        shutil.copy(file, target / file.name)
    write_file(target / CONFIG, msgspec.json.encode(model.config_of(layers)))
    if model.python is None:
        _copy(model.select_tensors(layers), target / _WEIGHTS)
    else:
        _run(model.python, "make", str(target.absolute()))


def _copy(tensors: Mapping[str, Tensor], target: pathlib.Path) -> None:
    """Copy tensors from files of weights to the new file ``target``. Raises OSError.

    The data begins at an offset with the same alignment as the first tensor in its old file.
    """
    head: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        begin = end
        end += tensor.size
        head[name] = Entry(tensor.kind, list(tensor.shape), (begin, end))
    encoded = msgspec.json.encode(head)
    first = next(iter(tensors.values()))
    encoded += b" " * ((first.begin - _LENGTH.size - len(encoded)) % _CACHE_LINE)
    with replacing(target) as slice_file:
        slice_file.write(_LENGTH.pack(len(encoded)) + encoded)
        for tensor in tensors.values():
            with intake.open_file(tensor.file) as file:
                file.seek(tensor.begin)
                for begin in range(tensor.begin, tensor.end, _PIECE):
                    slice_file.write(file.read(min(_PIECE, tensor.end - begin)))


def _run(python: str, task: str, subject: str) -> str:
    """Run the script ``random_weights`` with the Python of the command; return the last line of its output.

    The libraries in it must not use the network. Raises NncfToolsError.
    """
    source = pathlib.Path(random_weights.__file__).read_text(encoding="utf-8")
    argv = [python, "-c", f"{SAFE_PATH}\nimport os\nos.environ['HF_HUB_OFFLINE'] = '1'\n{source}", task, subject]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise NncfToolsError(f"option --from-config: {python} cannot be started: {error.strerror}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise NncfToolsError(f"option --from-config: {python} cannot make the model: {printable(last)}")
    return done.stdout.strip().rpartition("\n")[2]
