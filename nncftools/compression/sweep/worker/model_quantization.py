"""Quantizes a model of any kind with NNCF, by the data of the user's file, and saves it."""

from __future__ import annotations

import pathlib
import time
from typing import TYPE_CHECKING, Any

from .steps import seconds, user_module

if TYPE_CHECKING:
    from collections.abc import Iterator

MODEL = "model.xml"
_OFF = -1.0
_USUAL_ALPHA = 0.95


def run(job: dict[str, Any]) -> dict[str, Any]:
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
    output = pathlib.Path(job["output"])
    output.mkdir(parents=True, exist_ok=True)
    openvino.save_model(model, output / MODEL, compress_to_fp16=False)
    return {
        "compression_s": compression_s,
        "versions": {"nncf": nncf.__version__, "openvino": openvino.__version__},
    }


def _calibration(user: Any) -> Any:  # noqa: ANN401 — the user's module and data
    """Return the user's data, which NNCF reads several times; a generator could be read once."""
    found = user.calibration()
    return _Anew(user) if iter(found) is found else found


class _Anew:
    """Calls ``calibration`` each time that it is read."""

    def __init__(self, user: Any) -> None:  # noqa: ANN401 — the user's module
        self._user = user

    def __iter__(self) -> Iterator[Any]:
        return iter(self._user.calibration())


def _arguments(preset: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``nncf.quantize`` for the settings of a configuration."""
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
