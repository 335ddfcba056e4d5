"""Write small models of many architectures, with headers of weights only: ``python configs.py write DIR``.

Each model is made by transformers' own classes on torch's meta device, so the files of weights are sparse. It needs
torch and transformers. ``check DIR`` compares the classes with the weights of slices, and prints the differences.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import transformers

SETTINGS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
KINDS: dict[str, dict[str, Any]] = SETTINGS["kinds"]
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


def write(kind: str, folder: Path) -> None:
    """Write config and header of a model."""
    settings = {**SETTINGS["all"], **KINDS[kind]}
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


def check(folder: Path) -> list[str]:
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
    task, root = words[0], Path(words[1])
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
