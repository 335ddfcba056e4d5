"""Compresses the weights of a language model with NNCF, and saves it."""

from __future__ import annotations

import pathlib
import shutil
import time
from typing import Any

from . import language_model, texts
from .steps import seconds

_TOKENS = 128
"""Of each sample for calibration."""
_SAMPLES = 32


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Compress the model in the folder ``model`` into the folder ``output``; return the time and the versions."""
    import nncf
    import openvino

    model = openvino.Core().read_model(pathlib.Path(job["model"], language_model.MODEL))
    arguments = _arguments(job, model)
    begun_s = time.perf_counter()
    compressed = nncf.compress_weights(model, **arguments)
    compression_s = seconds(begun_s)
    output = pathlib.Path(job["output"])
    output.mkdir(parents=True, exist_ok=True)
    openvino.save_model(compressed, output / language_model.MODEL, compress_to_fp16=False)
    for file in pathlib.Path(job["model"]).iterdir():
        if file.suffix == ".json":
            shutil.copy(file, output)
    return {
        "compression_s": compression_s,
        "versions": {"nncf": nncf.__version__, "openvino": openvino.__version__},
    }


def _arguments(job: dict[str, Any], model: Any) -> dict[str, Any]:  # noqa: ANN401 — a model of OpenVINO
    """Return the arguments of ``nncf.compress_weights`` for the settings of a configuration."""
    import nncf
    from nncf.quantization.advanced_parameters import AdvancedLoraCorrectionParameters

    settings: dict[str, Any] = dict(job["settings"])
    arguments: dict[str, Any] = {"mode": nncf.CompressWeightsMode(settings.pop("mode"))}
    backup = settings.pop("backup_mode", None)
    if backup is not None:
        arguments["backup_mode"] = nncf.BackupMode(backup)
    rank = settings.pop("lora_rank", None)
    if rank is not None:
        lora = AdvancedLoraCorrectionParameters(adapter_rank=rank)
        arguments["lora_correction"] = True
        arguments["advanced_parameters"] = nncf.AdvancedCompressionParameters(lora_correction_params=lora)
    samples = settings.pop("subset_size", _SAMPLES)
    if job["calibration"] is not None and job["needs_data"]:
        arguments["dataset"] = nncf.Dataset(_data(job, model, samples))
        arguments["subset_size"] = samples
    return {**arguments, **settings}


def _data(job: dict[str, Any], model: Any, samples: int) -> list[dict[str, Any]]:  # noqa: ANN401 — of OpenVINO
    """Return samples for calibration: runs of 128 tokens, evenly spread over the text."""
    names = language_model.names_of(model)
    encode = language_model.tokenizer(job["model"])
    tokens = [token for document in texts.documents(job["calibration"]) for token in encode(document)]
    length = min(_TOKENS, len(tokens))
    count = max(1, min(samples, len(tokens) // length))
    stride = (len(tokens) - length) // max(1, count - 1) if count > 1 else 0
    starts = [number * stride for number in range(count)]
    return [language_model.batch(names, tokens[start : start + length]) for start in starts]
