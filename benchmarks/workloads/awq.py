"""Export a language model, compress it to 4 bits with AWQ and scale estimation: ``python awq.py MODEL_DIR OUT_DIR``."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import nncf
import numpy as np
import openvino
from optimum.intel import OVModelForCausalLM

_TOKENS, _SAMPLES = 64, 8


def sample(seed: int) -> dict[str, Any]:
    """Return the inputs of one random text."""
    numbers = np.random.default_rng(seed)
    return {
        "input_ids": numbers.integers(0, 40000, (1, _TOKENS)),
        "attention_mask": np.ones((1, _TOKENS), dtype=np.int64),
        "position_ids": np.arange(_TOKENS)[None],
        "beam_idx": np.zeros(1, dtype=np.int32),
    }


def main(model: str, out: str) -> None:
    """Export, compress, save."""
    exported = OVModelForCausalLM.from_pretrained(model, export=True, compile=False, load_in_8bit=False)
    compressed = nncf.compress_weights(
        exported.model,
        mode=nncf.CompressWeightsMode.INT4_SYM,
        group_size=64,
        awq=True,
        scale_estimation=True,
        dataset=nncf.Dataset([sample(seed) for seed in range(_SAMPLES)]),
    )
    pathlib.Path(out).mkdir(parents=True, exist_ok=True)
    openvino.save_model(compressed, pathlib.Path(out, "openvino_model.xml"))


if __name__ == "__main__":
    main(*sys.argv[1:])
