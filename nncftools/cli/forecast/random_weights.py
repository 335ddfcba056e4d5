"""Makes a slice with random weights: a script for ``python -c`` with the command's own Python.

``look`` prints names, types, shapes and sizes of the weights; ``make`` writes weights beside a slice's config. Only
classes of transformers are used: no code of a model's folder runs. The standard library, torch and transformers are
needed.
"""

import json
import sys
from typing import Any


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
    tensors = [(name, str(one.dtype), list(one.shape), one.nbytes) for name, one in model.named_parameters()]
    print(json.dumps({"tensors": tensors, "layer_types": getattr(config, "layer_types", None)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
