"""A causal language model in OpenVINO, which keeps its state between calls, and its tokenizer."""

from __future__ import annotations

import json
import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np

from . import weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

MODEL = "openvino_model.xml"
_STEP = 128
"""Tokens per call: logits of a whole window would be the largest part of the memory."""
_LONGEST = 2048
_LENGTHS = ("max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx", "seq_length")


def tokenizer(folder: str) -> Callable[[str], list[int]]:
    """Return a function that returns the tokens of a text, without special ones."""
    file = pathlib.Path(folder, "tokenizer.json")
    if file.exists():
        from tokenizers import Tokenizer

        fast = Tokenizer.from_file(str(file))
        return lambda text: list(fast.encode(text, add_special_tokens=False).ids)
    from transformers import AutoTokenizer

    slow = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)  # by default it may ask for it
    return lambda text: list(slow.encode(text, add_special_tokens=False))


def prefix(folder: str) -> int:
    """Return the token before a text: the one that begins texts, or else the one that ends them."""
    found = _of(pathlib.Path(folder, "config.json"))
    for name in ("bos_token_id", "eos_token_id"):
        value = found.get(name)
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, int):
            return value
    return 0


def window(folder: str) -> int:
    """Return how many tokens are read at once: what the model allows, at most 2,048."""
    found = _of(pathlib.Path(folder, "config.json"))
    sizes: list[int] = [found[name] for name in _LENGTHS if isinstance(found.get(name), int)]
    return min([_LONGEST, *sizes])


def _of(file: pathlib.Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found


def batch(names: set[str], tokens: Sequence[int], past: int = 0) -> dict[str, NDArray[np.int64 | np.int32]]:
    """Return the inputs, as far as the model has them, for tokens after ``past`` others."""
    size = len(tokens)
    every: dict[str, NDArray[np.int64 | np.int32]] = {
        "input_ids": np.array([tokens], dtype=np.int64),
        "attention_mask": np.ones((1, past + size), dtype=np.int64),
        "position_ids": np.arange(past, past + size, dtype=np.int64)[None],
        "beam_idx": np.zeros(1, dtype=np.int32),
    }
    return {name: value for name, value in every.items() if name in names}


def names_of(model: Any) -> set[str]:  # noqa: ANN401 — a model of OpenVINO
    """Return the names of a model's inputs. Raises ValueError for a model that does not keep its state."""
    names = {name for port in model.inputs for name in port.get_names()}
    if any(name.startswith("past_key_values") for name in names):
        raise ValueError("the model takes its state as inputs; export it with a state of its own (stateful)")
    return names


class LanguageModel:
    """A compiled model."""

    def __init__(self, folder: str) -> None:
        import openvino

        core = openvino.Core()
        model = core.read_model(pathlib.Path(folder, MODEL))
        self.widths = weights.by_width(weights.constants(model))
        compiled = core.compile_model(model, "CPU")
        self._names = names_of(compiled)
        self._request = compiled.create_infer_request()
        self._past = 0

    def begin(self) -> None:
        """Forget all tokens."""
        self._request.reset_state()
        self._past = 0

    def after(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Return the logits after each of these tokens, which follow those before."""
        self._request.infer(batch(self._names, tokens, self._past))
        self._past += len(tokens)
        found: NDArray[np.float32] = self._request.get_tensor("logits").data[0]
        return found

    def logits(self, tokens: Sequence[int]) -> Iterator[NDArray[np.float32]]:
        """Yield the logits after each token of a new sequence; an array is valid until the next one."""
        self.begin()
        for start in range(0, len(tokens), _STEP):
            yield self.after(tokens[start : start + _STEP])
