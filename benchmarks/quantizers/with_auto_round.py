"""Quantize a model by auto-round, with and without tuning, and save: with_auto_round.py MODEL OUT."""

import sys

import torch
from auto_round import AutoRound
from results import print_result, sample_tokens
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(source: str, out: str) -> None:
    """Tune for two iterations, and round to the nearest (no iterations)."""
    tokenizer = AutoTokenizer.from_pretrained(source)
    samples = [torch.tensor([tokens]) for tokens in sample_tokens()]
    options = {
        "bits": 4,
        "group_size": 32,
        "nsamples": 8,
        "seqlen": 32,
        "batch_size": 4,
        "device_map": "cpu",
    }
    for iterations in 2, 0:
        model = AutoModelForCausalLM.from_pretrained(source)
        has_head = iterations == 0  # a layer outside the blocks
        rounding = AutoRound(model, tokenizer, iters=iterations, dataset=samples, quant_lm_head=has_head, **options)
        quantized, _ = rounding.quantize()
        print_result(f"{iterations} iterations", quantized)
        rounding.save_quantized(f"{out}/{iterations}", format="auto_round")


if __name__ == "__main__":
    main(*sys.argv[1:])
