"""Quantize a model by llm-compressor, with and without calibration, and save: with_llmcompressor.py MODEL OUT."""

import sys

from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.gptq import GPTQModifier
from llmcompressor.modifiers.quantization import QuantizationModifier
from results import print_result, sample_tokens
from transformers import AutoModelForCausalLM


def main(source: str, out: str) -> None:
    """Quantize weights by GPTQ, and by rounding to the nearest."""
    tokens = sample_tokens()
    masks = [[1] * len(row) for row in tokens]
    rows = Dataset.from_dict({"input_ids": tokens, "attention_mask": masks})
    modifiers = {
        "GPTQ": (GPTQModifier(targets="Linear", scheme="W4A16", ignore=["lm_head"]), rows),
        "rounded": (QuantizationModifier(targets="Linear", scheme="W8A16", ignore=["lm_head"]), None),
    }
    options = {"max_seq_length": 32, "num_calibration_samples": 8, "shuffle_calibration_samples": False}
    for name, (modifier, data) in modifiers.items():
        model = AutoModelForCausalLM.from_pretrained(source)
        oneshot(model=model, dataset=data, recipe=modifier, **options)
        print_result(name, model)
        model.save_pretrained(f"{out}/{name}", save_compressed=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
