"""Quantize a small network of torch with NNCF.

The first run on a machine compiles an extension of NNCF for torch, which later ones find in TORCH_EXTENSIONS_DIR.
"""

import nncf
import torch


class Network(torch.nn.Module):
    """Two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.Conv2d(32, 32, 3, padding=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the features of images."""
        return self.second(self.first(images).relu()).relu()


images = [torch.rand(1, 3, 32, 32) for _ in range(64)]
quantized = nncf.quantize(Network().eval(), nncf.Dataset(images), subset_size=64)
print("quantized:", sum(parameter.numel() for parameter in quantized.parameters()), "parameters")
