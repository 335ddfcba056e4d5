"""Quantize a small network of torch with NNCF.

The first run on a machine compiles an extension of NNCF for torch, which later ones find in TORCH_EXTENSIONS_DIR.
"""

import nncf
import torch

network = torch.nn.Sequential(
    torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3, padding=1), torch.nn.ReLU()
).eval()
images = [torch.rand(1, 3, 32, 32) for _ in range(64)]
quantized = nncf.quantize(network, nncf.Dataset(images), subset_size=64)
print("quantized:", sum(parameter.numel() for parameter in quantized.parameters()), "parameters")
