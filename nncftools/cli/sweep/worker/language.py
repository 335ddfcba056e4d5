"""The steps of a language model: NNCF compresses its weights; it is evaluated on texts and prompts, with its latency.

The model is in OpenVINO and keeps its state between calls.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from . import evaluation
from . import model as models
from .steps import seconds

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
    config = _config(folder)
    for name in ("bos_token_id", "eos_token_id"):
        value = config.get(name)
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, int):
            return value
    return 0


def window(folder: str) -> int:
    """Return how many tokens are read at once: what the model allows, at most 2,048."""
    config = _config(folder)
    sizes: list[int] = [config[name] for name in _LENGTHS if isinstance(config.get(name), int)]
    return min([_LONGEST, *sizes])


def _config(folder: str) -> dict[str, Any]:
    file = pathlib.Path(folder, "config.json")
    config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return config


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
        self.widths = models.by_width(models.constants(model))
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
        logits: NDArray[np.float32] = self._request.get_tensor("logits").data[0]
        return logits

    def logits(self, tokens: Sequence[int]) -> Iterator[NDArray[np.float32]]:
        """Yield the logits after each token of a new sequence; an array is valid until the next one."""
        self.begin()
        for start in range(0, len(tokens), _STEP):
            yield self.after(tokens[start : start + _STEP])


_TOKENS = 128
"""Of each sample for calibration."""
_SAMPLES = 32


def compress(job: dict[str, Any]) -> dict[str, Any]:
    """Compress the model in the folder ``model`` into the folder ``output``; return the time and the versions."""
    import nncf
    import openvino

    model = openvino.Core().read_model(pathlib.Path(job["model"], MODEL))
    arguments = _arguments(job, model)
    begun_s = time.perf_counter()
    compressed = nncf.compress_weights(model, **arguments)
    result = models.saved(compressed, pathlib.Path(job["output"], MODEL), seconds(begun_s))
    for file in pathlib.Path(job["model"]).iterdir():
        if file.suffix == ".json":
            shutil.copy(file, job["output"])
    return result


def _arguments(job: dict[str, Any], model: Any) -> dict[str, Any]:  # noqa: ANN401 — a model of OpenVINO
    import nncf
    from nncf.quantization.advanced_parameters import AdvancedLoraCorrectionParameters

    settings: dict[str, Any] = dict(job["settings"])
    arguments: dict[str, Any] = {"mode": nncf.CompressWeightsMode(settings.pop("mode"))}
    backup = settings.pop("backup_mode", None)
    if backup is not None:
        arguments["backup_mode"] = nncf.BackupMode(backup)
    rank = settings.pop("lora_rank", None)
    if rank is not None:
        lora = AdvancedLoraCorrectionParameters(adapter_rank=rank)
        arguments["lora_correction"] = True
        arguments["advanced_parameters"] = nncf.AdvancedCompressionParameters(lora_correction_params=lora)
    samples = settings.pop("subset_size", _SAMPLES)
    if job["calibration"] is not None and job["needs_data"]:
        arguments["dataset"] = nncf.Dataset(_data(job, model, samples))
        arguments["subset_size"] = samples
    return {**arguments, **settings}


def _data(job: dict[str, Any], model: Any, samples: int) -> list[dict[str, Any]]:  # noqa: ANN401 — of OpenVINO
    """Return samples for calibration: runs of 128 tokens, evenly spread over the text."""
    names = names_of(model)
    encode = tokenizer(job["model"])
    tokens = [token for document in evaluation.documents(job["calibration"]) for token in encode(document)]
    length = min(_TOKENS, len(tokens))
    count = max(1, min(samples, len(tokens) // length))
    stride = (len(tokens) - length) // max(1, count - 1)
    return [batch(names, tokens[number * stride : number * stride + length]) for number in range(count)]


_NEW_TOKENS = 32
_OWN_PROMPTS, _OWN_PROMPT_TOKENS = 4, 32
"""Without prompts, latency is measured on beginnings of parts of the text."""
TEXT, PASSAGES, PROMPTS = "held-out text", "passages", "prompts"
"""How the columns begin: the source of their figures."""


def evaluate(job: dict[str, Any]) -> dict[str, Any]:
    """Evaluate the model in the folder ``model``; return figures by column, latency and continuations."""
    folder = job["model"]
    encode = tokenizer(folder)
    model = LanguageModel(folder)
    documents = evaluation.documents(job["text"])
    figures: dict[str, evaluation.Figure] = {
        f"{TEXT}, word perplexity": evaluation.word_perplexity(model, documents, encode, prefix(folder), window(folder))
    }
    if job["lambada"] is None:
        source, passages = TEXT, [passage for document in documents for passage in evaluation.passages(document)]
    else:
        source, passages = PASSAGES, [line for line in evaluation.lines(job["lambada"]) if " " in line]
    if passages:
        accuracy, perplexity = evaluation.last_words(model, passages, encode)
        figures |= {f"{source}, last-word acc": accuracy, f"{source}, last-word perplexity": perplexity}
    continuations, latency = _generate(model, _prompts(job, documents, encode))
    reference = continuations if job["reference"] is None else job["reference"]
    if job["prompts"] is not None:
        figures[f"{PROMPTS}, similarity"] = evaluation.similarity(continuations, reference)
    return {"figures": figures, "continuations": continuations, "widths": model.widths, **latency}


def _prompts(job: dict[str, Any], documents: Sequence[str], encode: evaluation.Encode) -> list[list[int]]:
    if job["prompts"] is not None:
        return [encode(line) for line in evaluation.lines(job["prompts"])]
    tokens = [token for document in documents for token in encode(document)]
    stride = max(1, len(tokens) // _OWN_PROMPTS)
    return [tokens[start : start + _OWN_PROMPT_TOKENS] for start in range(0, len(tokens), stride)]


def _generate(model: LanguageModel, prompts: Sequence[Sequence[int]]) -> tuple[list[list[int]], dict[str, float]]:
    """Continue each prompt greedily; return the new tokens, and the median times of first and further tokens."""
    continuations: list[list[int]] = []
    firsts: list[float] = []
    others: list[float] = []
    for number, prompt in enumerate([prompts[0], *prompts]):
        model.begin()
        begun_s = time.perf_counter()
        tokens = [int(model.after(prompt)[-1].argmax())]
        first_s = seconds(begun_s)
        begun_s = time.perf_counter()
        for _ in range(_NEW_TOKENS - 1):
            tokens.append(int(model.after(tokens[-1:])[-1].argmax()))
        if number:  # the first one was a warm-up
            continuations.append(tokens)
            firsts.append(first_s)
            others.append(seconds(begun_s) / (_NEW_TOKENS - 1))
    return continuations, {"first_token_s": statistics.median(firsts), "per_token_s": statistics.median(others)}
