"""Write small models of many architectures, with headers of weights only: ``python configs.py write DIR``.

Each model is made by transformers' own classes on torch's meta device, so the files of weights are sparse. It needs
torch and transformers. ``check DIR`` compares the classes with the weights of slices, and prints the differences.
"""

from __future__ import annotations

import json
import pathlib
import struct
import sys
from collections.abc import Iterable
from typing import Any

import torch
import transformers

SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "num_hidden_layers": 12,
}
EXPERTS = {"moe_intermediate_size": 32, "num_experts_per_tok": 2, "n_routed_experts": 4, "n_group": 2, "topk_group": 1}
KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "qwen2": {},
    "qwen3": {},
    "qwen2_moe": {"num_experts": 4, "decoder_sparse_step": 2},
    "qwen3_moe": {"num_experts": 4, "mlp_only_layers": [0, 1]},
    "qwen3_next": {"num_experts": 4},
    "gemma": {"head_dim": 16},
    "gemma2": {"head_dim": 16},
    "gemma3_text": {"num_hidden_layers": 24},
    "gemma3n_text": {"num_hidden_layers": 20, "num_kv_shared_layers": 4, "intermediate_size": 128},
    "granite": {},
    "granitemoe": {"num_local_experts": 4},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 6, "mamba_n_heads": 8, "mamba_d_head": 16},
    "falcon": {},
    "bloom": {"n_layer": 12, "n_head": 4},
    "cohere": {},
    "cohere2": {},
    "olmo2": {},
    "olmo3": {},
    "olmoe": {"num_experts": 4},
    "stablelm": {},
    "gpt_neox": {},
    "phi": {},
    "phi3": {"pad_token_id": 0},
    "deepseek_v2": {**EXPERTS, "first_k_dense_replace": 1},
    "deepseek_v3": {**EXPERTS, "first_k_dense_replace": 3},
    "glm4_moe": {**EXPERTS, "first_k_dense_replace": 1, "n_group": 1},
    "gpt_neo": {"num_layers": 12, "num_heads": 4, "attention_types": [[["global", "local"], 6]]},
    "xglm": {"num_layers": 12, "attention_heads": 4, "d_model": 64, "ffn_dim": 128},
    "distilbert": {"n_layers": 12, "dim": 64, "hidden_dim": 128, "n_heads": 4},
    "mixtral": {"num_local_experts": 4},
    "mamba": {},
    "falcon_mamba": {},
    "jamba": {"num_experts": 4, "num_hidden_layers": 16},
    "nemotron_h": {"layers_block_type": ["mamba", "attention"] * 6, "mamba_num_heads": 8, "mamba_head_dim": 16},
    "lfm2": {},
    "starcoder2": {},
    "gpt2": {"n_embd": 64, "n_layer": 12, "n_head": 4},
    "gptj": {"n_embd": 64, "n_layer": 12, "n_head": 4, "rotary_dim": 8},
    "opt": {"ffn_dim": 128, "word_embed_proj_dim": 64},
    "bert": {},
    "albert": {"embedding_size": 32},
    "mpt": {"n_layers": 12, "d_model": 64, "n_heads": 4},
    "bart": {"d_model": 64, "encoder_layers": 12, "decoder_layers": 12},
    "t5": {"d_model": 64, "num_layers": 12},
}
_MASKED = {"bert", "albert", "distilbert"}
_SEQUENCE = {"bart", "t5"}
_NAMES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16", "int64": "I64", "bool": "BOOL"}


def make(config: Any) -> Iterable[tuple[str, torch.Tensor]]:  # noqa: ANN401 — any config of transformers
    """Return the tensors that a model of a config has, without memory."""
    auto = transformers.AutoModelForCausalLM
    if config.model_type in _MASKED:
        auto = transformers.AutoModelForMaskedLM
    elif config.model_type in _SEQUENCE:
        auto = transformers.AutoModelForSeq2SeqLM
    with torch.device("meta"):
        model = auto.from_config(config)
    return model.named_parameters()


def write(kind: str, folder: pathlib.Path) -> None:
    """Write config and header of a model."""
    settings = {**SMALL, **KINDS[kind]}
    while True:
        try:
            config = transformers.AutoConfig.for_model(kind, **settings)
            break
        except AttributeError as error:  # a class may only compute a value
            settings.pop(str(error).split("'")[1])
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    head, end = {}, 0
    for name, tensor in make(config):
        begin, end = end, end + tensor.nbytes
        dtype = _NAMES[str(tensor.dtype).removeprefix("torch.")]
        head[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    encoded = json.dumps(head).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        file.truncate(8 + len(encoded) + end)


def check(folder: pathlib.Path) -> list[str]:
    """Return how the weights of a slice differ from those that the classes make of the slice's config."""
    data = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8 : 8 + length])
    head.pop("__metadata__", None)
    has = {name: entry["shape"] for name, entry in head.items()}
    config = transformers.AutoConfig.from_pretrained(folder)
    wanted = {name: list(tensor.shape) for name, tensor in make(config)}
    names = sorted({name for name in has.keys() | wanted.keys() if has.get(name) != wanted.get(name)})
    return [f"{name}: {has.get(name)}, expected {wanted.get(name)}" for name in names]


def main(words: list[str]) -> None:
    """Write all models, or check slices: a line of JSON says what went wrong, by name."""
    task, root = words[0], pathlib.Path(words[1])
    failed: dict[str, list[str]] = {}
    for kind in KINDS:
        try:
            if task == "write":
                write(kind, root / kind)
            elif (root / kind).exists():
                failed[kind] = check(root / kind)
        except Exception as error:  # noqa: BLE001 — shown
            failed[kind] = [f"{type(error).__name__}: {error}"]
    print(json.dumps({kind: texts for kind, texts in failed.items() if texts}))


if __name__ == "__main__":
    main(sys.argv[1:])
