"""The steps of a model of any kind: NNCF quantizes it by the data of the user's file, whose function scores it.

Also counts the weights of a saved model by their width.
"""

from __future__ import annotations

import itertools
import math
import pathlib
import statistics
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from .steps import seconds, user_module

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


MODEL = "model.xml"
_OFF = -1.0
_USUAL_ALPHA = 0.95


def quantize(job: dict[str, Any]) -> dict[str, Any]:
    """Quantize the file ``model`` into the folder ``output``; the baseline is only converted. Return the time."""
    import nncf
    import openvino

    model = openvino.Core().read_model(job["model"])
    settings: dict[str, Any] = dict(job["settings"])
    preset = settings.pop("preset")
    compression_s = None
    if preset != "fp32":
        data = nncf.Dataset(_calibration(user_module(job)))
        begun_s = time.perf_counter()
        model = nncf.quantize(model, data, **_arguments(preset, settings))
        compression_s = seconds(begun_s)
    return saved(model, pathlib.Path(job["output"], MODEL), compression_s)


def saved(model: Any, file: pathlib.Path, compression_s: float | None) -> dict[str, Any]:  # noqa: ANN401 — of OpenVINO
    """Save a model; return the time of its compression, and the versions."""
    import nncf
    import openvino

    file.parent.mkdir(parents=True, exist_ok=True)
    openvino.save_model(model, file, compress_to_fp16=False)
    return {"compression_s": compression_s, "versions": {"nncf": nncf.__version__, "openvino": openvino.__version__}}


def _calibration(user: Any) -> Any:  # noqa: ANN401 — the user's module and data
    """Return the user's data, which NNCF reads several times; a generator could be read once."""
    data = user.calibration()
    return _Anew(user) if iter(data) is data else data


class _Anew:
    """Calls ``calibration`` each time that it is read."""

    def __init__(self, user: Any) -> None:  # noqa: ANN401 — the user's module
        self._user = user

    def __iter__(self) -> Iterator[Any]:
        return iter(self._user.calibration())


def _arguments(preset: str, settings: dict[str, Any]) -> dict[str, Any]:
    import nncf

    arguments: dict[str, Any] = {"preset": nncf.QuantizationPreset(preset), **settings}
    smooth = arguments.pop("smooth_quant", None)
    if "model_type" in arguments:
        arguments["model_type"] = nncf.ModelType(arguments["model_type"])
    if smooth is not None:
        from nncf.quantization.advanced_parameters import AdvancedSmoothQuantParameters

        alpha = _USUAL_ALPHA if smooth else _OFF
        alphas = AdvancedSmoothQuantParameters(convolution=alpha, matmul=alpha)
        if smooth:
            arguments["model_type"] = nncf.ModelType.TRANSFORMER  # NNCF smooths nothing else
        arguments["advanced_parameters"] = nncf.AdvancedQuantizationParameters(smooth_quant_alphas=alphas)
    return arguments


_KINDS = {"boolean", "i4", "u4", "nf4", "f4e2m1", "u2", "i2", "u3", "u6", "u1"}
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


def constants(model: Any) -> list[Constant]:  # noqa: ANN401 — a model of OpenVINO
    """Return the constants of a model."""
    return [
        Constant(node.get_friendly_name(), node.get_element_type().get_type_name(), tuple(node.get_output_shape(0)))
        for node in model.get_ops()
        if node.get_type_name() == "Constant"
    ]


def by_width(constants: Iterable[Constant]) -> dict[str, int]:
    """Return the number of weights by their width: matrices and larger arrays, without scales and zero points."""
    counts: dict[str, int] = {}
    for constant in constants:
        kind = constant.kind
        name = _NAMES.get(kind) or _FLOATS.get(kind) or (kind if kind in _KINDS else None)
        is_matrix = sum(size > 1 for size in constant.shape) >= _DIMENSIONS
        if name is not None and is_matrix and not any(part in constant.name.rpartition("/")[2] for part in _BESIDE):
            counts[name] = counts.get(name, 0) + math.prod(constant.shape)
    return counts


_CALLS = 20


def score(job: dict[str, Any]) -> dict[str, Any]:
    """Score the model in the folder ``model``; return the score, and the median time of a call."""
    import openvino

    core = openvino.Core()
    model = core.read_model(pathlib.Path(job["model"], MODEL))
    compiled = core.compile_model(model, "CPU")
    user = user_module(job)
    score = float(user.score(compiled))
    times: list[float] = []
    for item in itertools.islice(user.calibration(), _CALLS):
        begun_s = time.perf_counter()
        compiled(item)
        times.append(seconds(begun_s))
    return {
        "figures": {"score": [score, None]},
        "inference_s": statistics.median(times) if times else None,
        "widths": by_width(constants(model)),
    }
