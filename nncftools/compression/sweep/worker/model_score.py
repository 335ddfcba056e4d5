"""Scores a saved model of any kind by the function of the user's file."""

from __future__ import annotations

import itertools
import pathlib
import statistics
import time
from typing import Any

from . import model_quantization, weights
from .steps import seconds, user_module

_CALLS = 20


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Score the model in the folder ``model``; return the score, and the median time of a call."""
    import openvino

    core = openvino.Core()
    model = core.read_model(pathlib.Path(job["model"], model_quantization.MODEL))
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
        "widths": weights.by_width(weights.constants(model)),
    }
