"""Do what users of NNCF do, and print what came of it: workflow.py LLAMA_IR OUT

Quantizes a small PyTorch model, trains it a step, saves and restores it, strips it, exports it to ONNX and OpenVINO,
reads and compiles that; quantizes the ONNX and the OpenVINO model, too; compresses a causal language model's weights.
It knows nothing of nncf-tools. Runs in the environment of requirements.txt.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

import nncf
import numpy as np
import onnx
import openvino
import torch
from nncf.torch import get_config, load_from_config


class Network(torch.nn.Module):
    """A small classifier of images."""

    def __init__(self) -> None:
        """Make its layers."""
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.AvgPool2d(7),
            torch.nn.Flatten(),
            torch.nn.Linear(32, 10),
        )

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Classify a batch."""
        return self.layers(batch)


def images(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches of images with their labels."""
    return [(torch.randn(2, 3, 16, 16), torch.randint(10, (2,))) for _ in range(count)]


def train(model: torch.nn.Module, data: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Train with the quantizers in place."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for batch, label in data:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch), label).backward()
        optimizer.step()


def agreement(compiled: openvino.CompiledModel, data: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Return how often the model finds the label."""
    return float(np.mean([(compiled(batch.numpy())[0].argmax(1) == label.numpy()).mean() for batch, label in data]))


def main(llama: Path, out: Path) -> None:
    """Run all steps, and write into ``out``."""
    torch.manual_seed(7)
    data = images(4)
    model = Network().eval()
    quantized = nncf.quantize(model, nncf.Dataset(data, lambda item: item[0]), subset_size=4)
    train(quantized, data[:1])
    torch.save({"state": quantized.state_dict(), "config": get_config(quantized)}, out / "checkpoint.pth")
    checkpoint = torch.load(out / "checkpoint.pth", weights_only=False)
    restored = load_from_config(Network(), checkpoint["config"])
    restored.load_state_dict(checkpoint["state"])
    stripped = nncf.strip(restored.eval(), example_input=data[0][0])
    example = data[0][0]

    torch.onnx.export(stripped, (example,), str(out / "classifier.onnx"), dynamo=False)
    torch.onnx.export(model, (example,), str(out / "plain.onnx"), dynamo=True, verbose=False)
    converted = openvino.convert_model(stripped, example_input=example)
    openvino.save_model(converted, out / "classifier.xml")
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(out / "classifier.xml"), "CPU")
    print("classes", compiled(example.numpy())[0].shape)

    plain = onnx.load(str(out / "plain.onnx"))
    (name,) = (value.name for value in plain.graph.input)
    calibration = nncf.Dataset(data, lambda item: {name: item[0].numpy()})
    onnx.save(nncf.quantize(plain, calibration, subset_size=4), str(out / "quantized.onnx"))
    of_openvino = openvino.convert_model(model, example_input=example)
    calibration = nncf.Dataset(data, lambda item: item[0].numpy())
    validation = nncf.Dataset(data)
    controlled = nncf.quantize_with_accuracy_control(of_openvino, calibration, validation, agreement, subset_size=4)
    openvino.serialize(controlled, out / "controlled.xml")
    pruned = nncf.prune(Network(), nncf.PruneMode.UNSTRUCTURED_MAGNITUDE_LOCAL, ratio=0.5, examples_inputs=example)
    print("pruned", type(pruned).__name__)

    for mode in nncf.CompressWeightsMode.INT8_ASYM, nncf.CompressWeightsMode.INT4_SYM:
        language = core.read_model(llama / "openvino_model.xml")
        options = {"group_size": 64} if mode is nncf.CompressWeightsMode.INT4_SYM else {}
        openvino.save_model(nncf.compress_weights(language, mode=mode, **options), out / f"{mode.value}.xml")
        print(mode.value, (out / f"{mode.value}.bin").stat().st_size)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
