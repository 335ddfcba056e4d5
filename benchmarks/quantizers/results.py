"""What the programs beside this file share: made-up calibration data, and a line for each result."""

from __future__ import annotations

import hashlib
import sys

import torch

_WORDS = 2000
_TOKENS = 32
_SAMPLES = 8


def sample_tokens() -> list[list[int]]:
    """Return the same random token ids in each run."""
    generator = torch.Generator().manual_seed(7)
    return torch.randint(0, _WORDS, (_SAMPLES, _TOKENS), generator=generator).tolist()


def print_result(name: str, model: torch.nn.Module) -> None:
    """Print a digest of the model's output for fixed tokens; other lines of the program may contain times."""
    with torch.no_grad():
        output = model(torch.arange(16).reshape(1, 16))
    numbers = output.logits.float().numpy()
    digest = hashlib.sha256(numbers.tobytes()).hexdigest()
    sys.stdout.write(f"\nresult {name} {digest[:12]}\n")
