"""Makes a slice (a model with only some layers) with random weights. The command's own Python runs this file's text.

The text is passed to ``python -c``, with a task: ``look`` prints names, types, shapes and sizes of the weights;
``make`` writes weights to the folder of a slice's config; ``names`` prints the config keys that hold a model type's
layer count. Only classes of transformers are used: no code of a model's folder runs. The standard library, torch and
transformers are needed.
"""

import json
import sys
from typing import Any


def print_names(model_type: str) -> None:
    """Print the config keys that hold a model type's layer count."""
    from transformers import CONFIG_MAPPING

    names = CONFIG_MAPPING[model_type].attribute_map
    counts = ("num_hidden_layers", "n_layer", "num_layers")
    print(json.dumps([names[name] for name in counts if name in names]))


def main(task: str, folder: str) -> None:
    """Print the names, types, shapes and sizes of a model's weights, or write random weights if the task is ``make``.

    ``folder`` contains the config of the model.
    """
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    names = [name for name in config.architectures or () if hasattr(transformers, name)]
    kind: Any = getattr(transformers, names[0]) if names else transformers.AutoModelForCausalLM
    make = getattr(kind, "_from_config", None) or kind.from_config
    dtype = getattr(config, "dtype", None) or torch.float32
    if task == "make":
        make(config, dtype=dtype).save_pretrained(folder)
        return
    with torch.device("meta"):
        model = make(config, dtype=dtype)
    tensors = []
    for name, weight in model.named_parameters():
        shape = list(weight.shape)
        tensors.append((name, str(weight.dtype), shape, weight.nbytes))
    print(json.dumps({"tensors": tensors, "layer_types": getattr(config, "layer_types", None)}))


if __name__ == "__main__":
    if sys.argv[1] == "names":
        print_names(sys.argv[2])
    else:
        main(*sys.argv[1:])
