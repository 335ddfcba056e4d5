"""Quantize a model by torchao, in place and while transformers loads the model: with_torchao.py MODEL OUT."""

import sys

from results import print_result
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, quantize_
from transformers import AutoModelForCausalLM, TorchAoConfig


def main(source: str, out: str) -> None:
    """Quantize by two configurations, then load and save."""
    for config in Int8WeightOnlyConfig(), Int8DynamicActivationInt8WeightConfig():
        model = AutoModelForCausalLM.from_pretrained(source)
        quantize_(model, config)
        print_result(type(config).__name__, model)
    loading = TorchAoConfig(Int8WeightOnlyConfig())
    model = AutoModelForCausalLM.from_pretrained(source, quantization_config=loading)
    print_result("loaded", model)
    model.save_pretrained(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
