"""Scripts that load a model and do something with its weights: ``python scripts.py KIND MODEL_DIR [OUT_DIR]``.

They need torch, transformers and, for some kinds, NNCF. ``python -m benchmarks.forecast`` forecasts them.
"""

from __future__ import annotations

import multiprocessing
import pathlib
import sys
import time

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM


def compress(model: str, out: str) -> None:
    """Load the model as it is, compress its weights with NNCF, and save them."""
    import nncf

    network = AutoModelForCausalLM.from_pretrained(model, dtype="auto", use_cache=False).eval()
    tokens = torch.ones((1, 16), dtype=torch.int64)
    with torch.no_grad():
        compressed = nncf.compress_weights(network, dataset=nncf.Dataset([{"input_ids": tokens}]))
    pathlib.Path(out).mkdir(parents=True, exist_ok=True)
    torch.save(compressed.state_dict(), pathlib.Path(out, "weights.pt"))


def keep_copies(model: str) -> None:
    """Make copies of all weights in float64, in time that no operation covers."""
    network = AutoModelForCausalLM.from_pretrained(model, dtype="auto")
    copies = [weight.detach().to(torch.float64) for weight in network.parameters()]
    time.sleep(0.3)
    del copies
    time.sleep(0.3)


class _Holder:
    """Holds a weight in a circle of references: only the garbage collector frees it."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight
        self.circle = self


def leave_garbage(model: str) -> None:
    """Leave copies of weights to the garbage collector, which runs when it likes."""
    import nncf

    network = AutoModelForCausalLM.from_pretrained(model, dtype="auto", use_cache=False).eval()
    for weight in network.parameters():
        _Holder(weight.detach().to(torch.float32))
        _objects = [[number] for number in range(100)]
    with torch.no_grad():
        tokens = torch.ones((1, 16), dtype=torch.int64)
        nncf.compress_weights(network, dataset=nncf.Dataset([{"input_ids": tokens}]))


def _sum_weights(model: str) -> float:
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    total = sum(float(weight.sum()) for weight in network.parameters())
    time.sleep(0.3)
    return total


def start_children(model: str) -> None:
    """Load the model in two processes at the same time."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(_sum_weights, [model, model], chunksize=1)


def generate(model: str) -> None:
    """Generate a few tokens."""
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    tokens = torch.ones((1, 64), dtype=torch.int64)
    network.generate(tokens, max_new_tokens=16, do_sample=False)


def quantize(model: str, out: str) -> None:
    """Make 8-bit integers of the weights without any operation that is marked."""
    weights = load_file(pathlib.Path(model, "model.safetensors"))
    result = {}
    for name, weight in weights.items():
        scale = weight.float().abs().max() / 127
        result[name] = (weight.float() / scale).round().to(torch.int8)
    pathlib.Path(out).mkdir(parents=True, exist_ok=True)
    save_file(result, pathlib.Path(out, "model.safetensors"))


KINDS = {
    "compress": compress,
    "keep_copies": keep_copies,
    "leave_garbage": leave_garbage,
    "start_children": start_children,
    "generate": generate,
    "quantize": quantize,
}

if __name__ == "__main__":
    KINDS[sys.argv[1]](*sys.argv[2:])
