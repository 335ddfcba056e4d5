"""Load a model in 4 and in 8 bits, save and load the result: with_bitsandbytes.py MODEL OUT."""

import sys

from results import print_result
from transformers import AutoModelForCausalLM, BitsAndBytesConfig


def main(source: str, out: str) -> None:
    """Load, save, and load again."""
    configurations = {
        "4 bits": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"),
        "8 bits": BitsAndBytesConfig(load_in_8bit=True),
    }
    for name, configuration in configurations.items():
        model = AutoModelForCausalLM.from_pretrained(source, quantization_config=configuration)
        print_result(name, model)
        model.save_pretrained(out)
        print_result(f"{name}, saved", AutoModelForCausalLM.from_pretrained(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
