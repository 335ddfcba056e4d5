"""A small classifier of images, data for its calibration, and its score: classifier.py OUT.xml writes it.

Runs in the environment of requirements.txt.
"""

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

RANDOM = np.random.default_rng(1)
IMAGES = [RANDOM.normal(size=(1, 3, 16, 16)).astype(np.float32) for _ in range(400)]


def calibration() -> Iterable[Any]:
    """Return images to calibrate with."""
    return IMAGES[:300]


def score(compiled: Any) -> float:  # noqa: ANN401 — a compiled model of OpenVINO
    """Return how often the largest output is the same class as of the whole network: the tenth."""
    return float(np.mean([compiled(image)[0].argmax() == 9 for image in IMAGES[300:]]))


def write(out: str) -> None:
    """Write the network: one convolution and one matrix, whose last class wins."""
    import openvino
    from openvino import opset13

    random = np.random.default_rng(7)
    image = opset13.parameter([1, 3, 16, 16], np.float32, name="image")
    kernel = opset13.constant(random.normal(size=(16, 3, 3, 3)).astype(np.float32))
    found = opset13.relu(opset13.convolution(image, kernel, [1, 1], [0, 0], [0, 0], [1, 1]))
    pooled = opset13.reduce_mean(found, opset13.constant([2, 3]), keep_dims=False)
    flat = opset13.reshape(pooled, opset13.constant([1, 16]), special_zero=False)
    matrix = opset13.constant(np.linspace(0.1, 1.0, 160).reshape(16, 10).astype(np.float32))
    classes = opset13.matmul(flat, matrix, transpose_a=False, transpose_b=False)
    openvino.save_model(openvino.Model([classes], [image]), out, compress_to_fp16=False)


if __name__ == "__main__":
    write(sys.argv[1])
