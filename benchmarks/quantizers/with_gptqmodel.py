"""Quantize a model by GPTQModel, save and load the result: with_gptqmodel.py MODEL OUT."""

import sys

from gptqmodel import BACKEND, GPTQModel, QuantizeConfig
from results import print_result, sample_tokens


def main(source: str, out: str) -> None:
    """Quantize, save and load."""
    rows = [{"input_ids": tokens, "attention_mask": [1] * len(tokens)} for tokens in sample_tokens()]
    model = GPTQModel.load(source, QuantizeConfig(bits=4, group_size=32), device="cpu")
    model.quantize(rows, batch_size=4)
    model.save(out)
    print_result("loaded", GPTQModel.load(out, device="cpu", backend=BACKEND.GPTQ_TORCH))


if __name__ == "__main__":
    main(*sys.argv[1:])
