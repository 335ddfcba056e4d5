"""Compress and quantize small OpenVINO models, so that each runs through its steps: steps.py

It knows nothing of nncf-tools. Runs in the environment of requirements.txt, and writes into a temporary folder.
"""

import tempfile
from pathlib import Path

import nncf
import numpy as np
import openvino
from openvino import opset13 as op

ROWS = np.random.default_rng(7)


def language() -> openvino.Model:
    """Return four blocks like those of a language model."""
    tokens = op.parameter([-1, -1], np.int64, name="tokens")
    flow = op.gather(weights(100, 64), tokens, op.constant(0, np.int32))
    for _ in range(4):
        gate = op.matmul(flow, weights(64, 64), transpose_a=False, transpose_b=True)
        up = op.matmul(flow, weights(64, 64), transpose_a=False, transpose_b=True)
        hidden = op.multiply(op.swish(gate), up)
        flow = op.add(flow, op.matmul(hidden, weights(64, 64), transpose_a=False, transpose_b=True))
    head = op.matmul(flow, weights(100, 64), transpose_a=False, transpose_b=True)
    return openvino.Model([op.result(head)], [tokens])


def classifier() -> openvino.Model:
    """Return three convolutions with biases."""
    image = flow = op.parameter([1, 3, 16, 16], np.float32, name="image")
    for before, after in ((3, 8), (8, 8), (8, 8)):
        flow = op.convolution(flow, weights(after, before, 3, 3), [1, 1], [1, 1], [1, 1], [1, 1])
        flow = op.relu(op.add(flow, weights(1, after, 1, 1)))
    return openvino.Model([op.result(flow)], [image])


def weights(*shape: int) -> openvino.Node:
    """Return random weights."""
    return op.constant(ROWS.normal(size=shape).astype(np.float32))


def main(out: Path) -> None:
    """Run all steps, and write into ``out``."""
    texts = nncf.Dataset([{"tokens": ROWS.integers(0, 100, (1, 8))} for _ in range(4)])
    compressed = nncf.compress_weights(
        language(),
        mode=nncf.CompressWeightsMode.INT4_SYM,
        group_size=32,
        ratio=0.5,
        awq=True,
        scale_estimation=True,
        dataset=texts,
        subset_size=4,
    )
    openvino.save_model(compressed, out / "int4.xml")
    images = [ROWS.normal(size=(1, 3, 16, 16)).astype(np.float32) for _ in range(4)]
    preset = nncf.QuantizationPreset.MIXED
    quantized = nncf.quantize(classifier(), nncf.Dataset(images), preset=preset, subset_size=4)
    compiled = openvino.Core().compile_model(quantized, "CPU")
    for _ in range(50):
        compiled(images[0])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
