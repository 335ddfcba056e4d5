"""Makes a slice with random weights: started by the command's own Python, outside of the model's folder.

``look`` prints what each layer consists of; ``make`` writes the weights beside the config of a slice. Only classes of
transformers are used: no code of a model's folder runs. The standard library, torch and transformers are needed.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from typing import Any

_LAYER = re.compile(r"(?:^|\.)(?:layers|layer|h|blocks)\.(\d+)\.")


def main(what: str, folder: str) -> None:
    """Look at a config, or make the weights of one."""
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    names = [name for name in config.architectures or () if hasattr(transformers, name)]
    kind: Any = getattr(transformers, names[0]) if names else transformers.AutoModelForCausalLM
    make = getattr(kind, "_from_config", None) or kind.from_config
    dtype = getattr(config, "dtype", None) or torch.float32
    if what == "make":
        make(config, dtype=dtype).save_pretrained(folder)
        return
    with torch.device("meta"):
        model = make(config, dtype=dtype)
    layers = defaultdict(list)
    parameters = weights = 0
    for name, one in sorted(model.named_parameters()):
        parameters += one.numel()
        weights += one.numel() * one.element_size()
        found = _LAYER.search(name)
        if found:
            layers[int(found[1])].append([_LAYER.sub(".#.", name, count=1), str(one.dtype), list(one.shape)])
    kinds = [json.dumps(layers[number]) for number in sorted(layers)]
    types = getattr(config, "layer_types", None)
    print(json.dumps({"parameters": parameters, "weights": weights, "kinds": kinds, "layer_types": types}))


if __name__ == "__main__":
    main(*sys.argv[1:])
