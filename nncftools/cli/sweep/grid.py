"""The configurations of a sweep: a grid in a TOML file, checked against the layers of the model.

The sizes of the layers are in the headers of the model's files, so the checks do not import any library for models.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from nncftools import intake
from nncftools.backports import toml_of
from nncftools.cli.model_folder import read_config, read_tensors
from nncftools.compression.checking import BASELINE
from nncftools.errors import NncfToolsError, SessionFileError, UsageError
from nncftools.files import other_writer

_MATRIX = 2
_EMBEDDINGS = ("embed", "lm_head", "wte", "wpe")
"""Parts of tensor names. Tensors with such names are compressed to int8, or not at all."""
_INPUTS = ("hidden_size", "intermediate_size")


class Layers(NamedTuple):
    """Sizes of a model's layers."""

    inputs: frozenset[int]
    """The numbers of inputs of the model's layers, each number once: ``{576, 1536}``; empty if unknown."""
    smallest: int | None
    """The smallest number of inputs or outputs of a layer; None if unknown."""

    def indivisible(self, size: int) -> int | None:
        """Return the smallest of ``inputs`` that the group size ``size`` does not divide; None if it divides all."""
        return next((inputs for inputs in sorted(self.inputs) if inputs % size), None)


def read_layers(model: Path) -> Layers:
    """Return the layers of a model from Hugging Face. Raises NncfToolsError if a file cannot be read."""
    shapes: list[Sequence[int]] = []
    for file in model.glob("*.safetensors"):
        for name, tensor in read_tensors(file).items():
            is_matrix = len(tensor.shape) == _MATRIX and min(tensor.shape) > 0
            if is_matrix and not any(part in name for part in _EMBEDDINGS):
                shapes.append(tensor.shape)
    if shapes:
        inputs = {shape[-1] for shape in shapes}
        return Layers(frozenset(inputs), min(map(min, shapes)))
    config = read_config(model)
    inputs = {config[name] for name in _INPUTS if isinstance(config.get(name), int)}
    return Layers(frozenset(inputs), min(inputs, default=None))


GRIDS = ("quick", "full")
GROUP_SIZES = (128, 64, 32, 16)
"""Group sizes (numbers of weights that share a scale). A configuration without a group size gets the first of these
sizes that fits all layers.
"""
_PER_CHANNEL = -1
_FOLDER = Path(__file__).with_name("grids")
_INT8 = "int8"
_WORDS = {"sym": "symmetric", "asym": "asymmetric"}
_MODES = {"int8_sym", "int8_asym", "int4_sym", "int4_asym", "int2_sym", "int3_sym"}
_MODES |= {"nf4", "mxfp4", "mxfp8_e4m3", "fp8_e4m3", "fp4", "cb4", "nvfp4"}
_FOUR_BITS = ("int4", "nf4", "cb4", "fp4", "mxfp4", "nvfp4")
_GROUPED = ("int4", "nf4", "int2", "int3", "cb4", "fp4")
_PRESETS = ("performance", "mixed")
_LONGEST_NAME = 60


_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Positive = Annotated[int, msgspec.Meta(ge=1)]


class _Grid(msgspec.Struct, forbid_unknown_fields=True):
    configuration: list[dict[str, Any]] = []


class _Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base class of both kinds of configurations. In the baseline, ``mode`` or ``preset`` is ``fp32``."""

    name: str

    @property
    def is_baseline(self) -> bool:
        """Whether this is the baseline (the configuration without compression)."""
        return bool(getattr(self, self.__struct_fields__[1]) == BASELINE)

    @property
    def rank(self) -> int | None:
        """Rank of the LoRA adapters; None without adapters."""
        return None

    @property
    def needs_data(self) -> bool:
        """Whether the configuration needs a text for calibration."""
        return False

    def settings(self) -> dict[str, Any]:
        """Return all settings that are not None, without the name."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in fields.items() if name != "name" and value is not None}


class Weights(_Configuration, frozen=True):
    """A way to compress the weights of a language model. NNCF chooses the value of a setting that is None."""

    mode: str
    """A mode of ``nncf.compress_weights``, or ``fp32`` for the baseline."""
    ratio: _Share | None = None
    group_size: int | None = None
    awq: bool | None = None
    scale_estimation: bool | None = None
    gptq: bool | None = None
    lora_rank: _Positive | None = None
    all_layers: bool | None = None
    backup_mode: str | None = None
    subset_size: _Positive | None = None

    @property
    def title(self) -> str:
        """Mode and methods in words: ``int4 symmetric + awq``."""
        first, _, last = self.mode.partition("_")
        methods = {
            "awq": self.awq,
            "scale estimation": self.scale_estimation,
            "gptq": self.gptq,
            "lora correction": self.lora_rank,
        }
        mode = f"{first} {_WORDS.get(last, last)}".strip()
        return " + ".join([mode, *filter(methods.get, methods)])

    @property
    def shares(self) -> tuple[float, float]:
        """The requested shares of layers in 4 bits and in 8 bits."""
        if self.is_baseline:
            return 0.0, 0.0
        if self.mode.startswith(_FOUR_BITS):
            share = 1.0 if self.ratio is None else self.ratio
            return share, round(1 - share, 6)
        return 0.0, float("8" in self.mode)

    @property
    def rank(self) -> int | None:
        """Rank of the LoRA adapters; None without adapters."""
        return self.lora_rank

    @property
    def needs_data(self) -> bool:
        """Whether the configuration needs a text for calibration."""
        return bool(self.awq or self.scale_estimation or self.gptq or self.lora_rank)

    @property
    def effort(self) -> float:
        """The expected duration as a multiple of the baseline's duration, measured with SmolLM2-135M."""
        if self.is_baseline:
            return 1.0
        data_aware = 1.2 * bool(self.scale_estimation) + 1.2 * bool(self.awq)
        return 2.0 + data_aware + 5.0 * bool(self.gptq) + 6.0 * bool(self.lora_rank)


class Quantization(_Configuration, frozen=True):
    """A way to quantize a model that is not a language model. NNCF chooses the value of a setting that is None."""

    preset: str
    """``performance`` or ``mixed``, or ``fp32`` for the baseline."""
    fast_bias_correction: bool | None = None
    smooth_quant: bool | None = None
    subset_size: _Positive | None = None
    model_type: str | None = None

    @property
    def title(self) -> str:
        """The settings in words: ``int8 mixed + accurate bias correction``."""
        if self.is_baseline:
            return BASELINE
        parts = [f"{_INT8} {self.preset}"]
        if self.fast_bias_correction is False:
            parts.append("accurate bias correction")
        if self.smooth_quant is not None:
            parts.append("smooth quant" if self.smooth_quant else "no smooth quant")
        if self.subset_size:
            parts.append(f"{self.subset_size} samples")
        return " + ".join(parts)

    @property
    def shares(self) -> tuple[float, float]:
        """The shares of layers in 4 bits and in 8 bits."""
        return 0.0, float(not self.is_baseline)

    @property
    def effort(self) -> float:
        """The expected duration as a multiple of the baseline's duration."""
        if self.is_baseline:
            return 1.0
        return 4.0 if self.fast_bias_correction is False else 2.0


Configuration = Weights | Quantization
_Kind = TypeVar("_Kind", bound="_Configuration")


def weight_grid(grid: str, layers: Layers) -> tuple[list[Weights], list[str]]:
    """Return the configurations of a grid, the baseline first, and notes on omitted configurations.

    ``grid`` is the name of a built-in grid, or the path of a TOML file. Missing group sizes are filled in. Raises
    NncfToolsError if the file is not a grid, or does not fit the layers.
    """
    is_built_in = grid in GRIDS
    path = _FOLDER / f"{grid}.toml" if is_built_in else Path(grid)
    group_size = next((size for size in GROUP_SIZES if layers.indivisible(size) is None), _PER_CHANNEL)
    configurations: list[Weights] = []
    notes: list[str] = []
    for weights in _read(path, Weights):
        fault = next(_find_faults(weights, layers), "")
        if fault and not is_built_in:
            raise NncfToolsError(f"{str(path)!r}: configuration {weights.name!r}: {fault}")
        if fault:
            notes.append(f"{weights.name} is left out: {fault}")
            continue
        if weights.group_size is None and weights.mode.startswith(_GROUPED):
            weights = msgspec.structs.replace(weights, group_size=group_size)  # noqa: PLW2901 — the same, complete
        configurations.append(weights)
    return _with_baseline(path, configurations, Weights(BASELINE, BASELINE)), notes


def quantization_grid(grid: str) -> list[Quantization]:
    """Return the configurations of a built-in grid or a TOML file, the baseline first. Raises NncfToolsError."""
    path = _FOLDER / f"kind_{grid}.toml" if grid in GRIDS else Path(grid)
    configurations = _read(path, Quantization)
    for model in configurations:
        if not model.is_baseline and model.preset not in _PRESETS:
            expected = f"preset {BASELINE}, {' or '.join(_PRESETS)} expected"
            raise NncfToolsError(f"{str(path)!r}: configuration {model.name!r}: {expected}, found {model.preset!r}")
    return _with_baseline(path, configurations, Quantization(BASELINE, BASELINE))


def choose(grid: Sequence[_Kind], names: Sequence[str]) -> list[_Kind]:
    """Return the baseline and the named configurations; if there are no names, return all. Raises NncfToolsError."""
    in_grid = [configuration.name for configuration in grid]
    for name in names:
        if name not in in_grid:
            raise NncfToolsError(f"no configuration {name!r} in the grid, only {', '.join(in_grid)}")
    return [each for each in grid if not names or each.name in names or each.is_baseline]


def refuse_changeable(path: Path, status: os.stat_result) -> None:
    """Raise UsageError if another user may change the file, because the file decides which code runs."""
    why = other_writer(status)
    if why:
        raise UsageError(f"{str(path)!r} {why}, and decides which code runs here; make a copy that only you may change")


def check_tasks(path: Path) -> None:
    """Raise UsageError if another user may change the tasks in a folder, because tasks may name functions to run."""
    if not path.is_dir():
        raise UsageError(f"{str(path)!r} is not a folder")
    folder = path.resolve()
    try:
        for part in (*reversed(folder.parents), folder, *folder.rglob("*")):
            refuse_changeable(part, part.stat())
    except OSError as error:
        raise UsageError(f"{str(part)!r} cannot be read: {error.strerror}") from error


def read_own(path: Path, *, may_wait: bool) -> bytes:
    """Return the content of a file that no other user may change. Raises NncfToolsError.

    If ``may_wait`` is true, the file may be a FIFO, and a read waits for its writer.
    """
    with intake.open_file(path, may_wait=may_wait) as file:
        refuse_changeable(path, os.fstat(file.fileno()))
        return intake.content(file, path)


def _read(path: Path, kind: type[_Kind]) -> list[_Kind]:
    expected = f"a grid has tables [[configuration]] with `name` and `{kind.__struct_fields__[1]}`"
    try:
        text = intake.read_file(path) if path.parent == _FOLDER else read_own(path, may_wait=True)
        document = msgspec.convert(toml_of(text.decode("utf-8")), _Grid)
        configurations = [msgspec.convert(table, kind) for table in document.configuration]
    except (OSError, SessionFileError) as error:
        raise NncfToolsError(f"{error}; {' or '.join(GRIDS)}, or a TOML file expected") from error
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise NncfToolsError(f"{str(path)!r}: {error}; {expected}") from error
    if not configurations:
        raise NncfToolsError(f"{str(path)!r}: no configuration; {expected}")
    names: set[str] = set()
    for configuration in configurations:
        name = configuration.name
        if name in names:
            raise NncfToolsError(f"{str(path)!r}: two configurations are named {name!r}")
        if not name.strip() or not name.isprintable() or len(name) > _LONGEST_NAME:
            raise NncfToolsError(f"{str(path)!r}: a name of 1 to {_LONGEST_NAME} characters expected, found {name!r}")
        names.add(name)
    return configurations


def _find_faults(weights: Weights, layers: Layers) -> Iterator[str]:
    """Yield what is wrong with a configuration itself, then why the configuration does not fit the layers."""
    if not weights.is_baseline and weights.mode not in _MODES:
        yield f"mode {BASELINE} or {', '.join(sorted(_MODES))} expected, found {weights.mode!r}"
    others = [name for name in weights.settings() if name != "mode"]
    if weights.is_baseline and others:
        yield f"the baseline has no {others[0]}"
    if weights.mode.startswith(_INT8):
        yield from (f"{name} cannot be used with {weights.mode}" for name in others if name != "all_layers")
    rank = weights.lora_rank
    size = weights.group_size
    if weights.gptq and rank:
        yield "gptq and lora_rank cannot be combined"
    if size is not None and size < 1 and size != _PER_CHANNEL:
        yield f"a group_size of at least 1, or {_PER_CHANNEL} (per channel), expected, found {size}"
    if rank is not None and layers.smallest is not None and rank > layers.smallest:
        yield f"rank {rank} is larger than the smallest layer ({layers.smallest})"
    indivisible = None if size is None or size <= 0 else layers.indivisible(size)
    if indivisible is not None:
        yield f"group size {size} does not divide layers with {indivisible} inputs"


def _with_baseline(path: Path, configurations: Sequence[_Kind], baseline: _Kind) -> list[_Kind]:
    first = next((each for each in configurations if each.is_baseline), baseline)
    if first is baseline and any(each.name == BASELINE for each in configurations):
        raise NncfToolsError(f"{str(path)!r}: {BASELINE!r} is the name of the baseline; choose another name")
    return [first, *(each for each in configurations if not each.is_baseline)]
