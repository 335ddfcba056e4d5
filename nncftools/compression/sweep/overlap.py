"""Whether a text for calibration holds a part of the text for evaluation."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

RUN = 12
"""So many words in the same order, in both texts, are no accident."""


def shared(one: str, other: str) -> str:
    """Return the first run of 12 words that is in both texts; empty if there is none."""
    known = set(_runs(other))
    return next((" ".join(run) for run in _runs(one) if run in known), "")


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    return zip(*(itertools.islice(words, start, None) for start in range(RUN)), strict=False)
