"""Convert a language model to OpenVINO without optimum, and compress it: ``python convert.py MODEL_DIR OUT_DIR``.

For models that optimum-intel does not export with this transformers, as Gemma 2.
"""

from __future__ import annotations

import pathlib
import sys

import nncf
import openvino
import torch
from transformers import AutoModelForCausalLM


def main(model: str, out: str) -> None:
    """Convert, compress, save."""
    network = AutoModelForCausalLM.from_pretrained(model, use_cache=False).eval()
    with torch.no_grad():
        exported = torch.export.export(network, (torch.ones((1, 16), dtype=torch.int64),))
    compressed = nncf.compress_weights(openvino.convert_model(exported))
    pathlib.Path(out).mkdir(parents=True, exist_ok=True)
    openvino.save_model(compressed, pathlib.Path(out, "openvino_model.xml"))


if __name__ == "__main__":
    main(*sys.argv[1:])
