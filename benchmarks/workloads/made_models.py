"""Write a model with random weights, as a folder of Hugging Face: ``python made_models.py KIND TOKENIZER_DIR OUT_DIR``.

It needs torch and transformers. The tokenizer is that of another folder.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

_VOCABULARY = 49152
_KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": (
        "llama",
        {
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "tie_word_embeddings": True,
        },
    ),
    "gpt2": ("gpt2", {"n_embd": 1024, "n_layer": 24, "n_head": 16}),
    "experts": (
        "qwen3_moe",
        {
            "hidden_size": 1024,
            "intermediate_size": 2048,
            "moe_intermediate_size": 2048,
            "num_hidden_layers": 16,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "head_dim": 64,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "decoder_sparse_step": 2,
        },
    ),
    "qwen": (
        "qwen2",
        {
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "use_sliding_window": True,
            "sliding_window": 512,
            "layer_types": ["full_attention", "sliding_attention"] * 12,
        },
    ),
    "gemma": (
        "gemma2",
        {
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 24,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 96,
        },
    ),
    "mistral": (
        "mistral",
        {
            "hidden_size": 1024,
            "intermediate_size": 3584,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "head_dim": 64,
        },
    ),
    "phi": (
        "phi",
        {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
    ),
    "opt": (
        "opt",
        {
            "hidden_size": 1024,
            "word_embed_proj_dim": 1024,
            "ffn_dim": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
        },
    ),
    "bert": (
        "bert",
        {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
    ),
}
_SHARD = {"qwen": "200MB"}


def main(kind: str, tokenizer: str, out: str) -> None:
    """Make the model of a kind."""
    torch.manual_seed(0)
    model_type, settings = _KINDS[kind]
    config = AutoConfig.for_model(model_type, vocab_size=_VOCABULARY, dtype="bfloat16", **settings)
    auto = AutoModelForMaskedLM if kind == "bert" else AutoModelForCausalLM
    model = auto.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(out, max_shard_size=_SHARD.get(kind, "50GB"))
    AutoTokenizer.from_pretrained(tokenizer).save_pretrained(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
