"""Derives a row's kind of compression from words in its mode, not from exact names."""

from __future__ import annotations

import re
from enum import StrEnum

_LOW_BITS = re.compile(r"int[234]|nf4|fp4|e2m1|cb4|codebook")
_DATA_AWARE = re.compile(r"scale|awq|data.?aware|calibrat")


class Group(StrEnum):
    """A kind of compression; each is one series in the picture."""

    BASELINE = "baseline"
    LORA = "LoRA correction"
    GPTQ = "GPTQ"
    MIXED = "mixed precision"
    DATA_AWARE = "data-aware"
    DATA_FREE = "data-free"
    INT8 = "int8"
    OTHER = "other"


def group_of(mode: str, int4: float) -> Group:
    """Return the kind of a row other than the baseline; ``int4`` is its share of 4-bit layers, 0 to 1."""
    text = mode.casefold()
    rules = (
        (Group.LORA, "lora" in text),
        (Group.GPTQ, "gptq" in text),
        (Group.MIXED, 0 < int4 < 1),
        (Group.INT8, "int8" in text and int4 == 0),
        (Group.DATA_AWARE, _DATA_AWARE.search(text) is not None),
        (Group.DATA_FREE, "data-free" in text or _LOW_BITS.search(text) is not None),
    )
    return next((group for group, applies in rules if applies), Group.OTHER)
