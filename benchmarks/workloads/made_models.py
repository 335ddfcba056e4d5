"""Write a model with random weights, as a folder of Hugging Face: ``python made_models.py KIND TOKENIZER_DIR OUT_DIR``.

It needs torch and transformers. The tokenizer is that of another folder.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import torch
from safetensors.torch import load_file, save_file
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
_SMALL = {
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 24,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 2048,
}
_HELD_OUT: dict[str, dict[str, Any]] = {
    "gemma3_text": {"num_hidden_layers": 30, "sliding_window": 512},
    "granitemoehybrid": {
        "num_local_experts": 0,
        "num_experts_per_tok": 0,
        "shared_intermediate_size": 2048,
        "mamba_n_heads": 16,
        "mamba_d_head": 64,
        "layer_types": ["mamba", "attention"] * 12,
    },
    "falcon": {"head_dim": None},
    "bloom": {"n_layer": 24, "n_head": 8},
    "cohere": {},
    "olmo2": {},
    "stablelm": {},
    "gpt_neox": {},
    "phi3": {"pad_token_id": 0},
    "deepseek_v3": {
        "moe_intermediate_size": 512,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "q_lora_rank": 128,
        "kv_lora_rank": 128,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32,
        "head_dim": 32,
        "v_head_dim": 64,
        "num_key_value_heads": 8,
        "num_nextn_predict_layers": 1,
    },
    "glm4_moe": {
        "moe_intermediate_size": 512,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
    },
    "gpt_neo": {
        "num_layers": 24,
        "num_heads": 8,
        "attention_types": [[["global", "local"], 12]],
    },
    "distilbert": {"n_layers": 24, "dim": 512, "hidden_dim": 2048, "n_heads": 8},
    "mixtral": {"intermediate_size": 512, "num_local_experts": 8, "num_experts_per_tok": 2},
    "mamba": {"state_size": 16},
    "falcon_mamba": {"state_size": 16},
    "qwen3": {},
    "xglm": {"num_layers": 24, "attention_heads": 8, "d_model": 512, "ffn_dim": 2048},
    "granite": {},
    "starcoder2": {},
    "gptj": {"n_layer": 24, "n_embd": 512, "n_head": 8, "rotary_dim": 32, "n_inner": 2048},
    "gpt_bigcode": {"n_layer": 24, "n_embd": 512, "n_head": 8, "n_inner": 2048},
}
"""Models that nothing was tuned for, by ``model_type``: 24 layers and about 100 MB."""
_MASKED = {"bert", "distilbert"}


def main(kind: str, tokenizer: str, out: str) -> None:
    """Make the model of a kind."""
    torch.manual_seed(0)
    words = AutoTokenizer.from_pretrained(tokenizer)
    if kind in _HELD_OUT:
        model_type, vocabulary = kind, 2048
        settings = {**_SMALL, **_HELD_OUT[kind]}
        settings = {key: value for key, value in settings.items() if value is not None}
    else:
        vocabulary = _VOCABULARY
        model_type, settings = _KINDS[kind]
    config = AutoConfig.for_model(model_type, vocab_size=vocabulary, dtype="bfloat16", **settings)
    auto = AutoModelForMaskedLM if kind in _MASKED else AutoModelForCausalLM
    model = auto.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(out, max_shard_size=_SHARD.get(kind, "50GB"))
    words.save_pretrained(out)
    if settings.get("num_nextn_predict_layers"):
        add_prediction_layer(pathlib.Path(out), settings["num_hidden_layers"])


def add_prediction_layer(folder: pathlib.Path, layers: int) -> None:
    """Add the layer that predicts further tokens, as a copy of the last layer: transformers does not write it."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    last = f"model.layers.{layers - 1}."
    copies = {
        name.replace(last, f"model.layers.{layers}."): one.clone() for name, one in tensors.items() if last in name
    }
    save_file({**tensors, **copies}, file, {"format": "pt"})


if __name__ == "__main__":
    main(*sys.argv[1:])
