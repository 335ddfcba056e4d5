"""Quantize a model by neural-compressor, save and load the result: with_neural_compressor.py MODEL OUT."""

import sys

import torch
from neural_compressor.torch.quantization import GPTQConfig, RTNConfig, convert, load, prepare, quantize, save
from results import print_result, sample_tokens
from transformers import AutoModelForCausalLM


def main(source: str, out: str) -> None:
    """Quantize weights by rounding to the nearest, in one call and in two, and by GPTQ with calibration."""
    model = quantize(AutoModelForCausalLM.from_pretrained(source), RTNConfig(group_size=32))
    print_result("one call", model)
    for configuration in RTNConfig(group_size=32), GPTQConfig(group_size=32):
        model = prepare(AutoModelForCausalLM.from_pretrained(source), configuration)
        if isinstance(configuration, GPTQConfig):
            for tokens in sample_tokens():
                model(torch.tensor([tokens]))
        model = convert(model)
        print_result(type(configuration).__name__, model)
    save(model, out)
    print_result("loaded", load(out, original_model=AutoModelForCausalLM.from_pretrained(source)))


if __name__ == "__main__":
    main(*sys.argv[1:])
