"""The steps of a sweep that work on a model: NNCF compresses or quantizes it, and it is evaluated.

A language model is in OpenVINO and keeps its state between calls; it is evaluated on texts and prompts, with its
latency. A model of any other kind is quantized by the data of the user's file, whose function scores it.
"""

from __future__ import annotations

import itertools
import json
import math
import pathlib
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import evaluation, seconds, user_module

MODEL = "model.xml"
_OFF = -1.0
_USUAL_ALPHA = 0.95


def quantize(job: dict[str, Any]) -> dict[str, Any]:
    """Quantize the file ``model`` into the folder ``output``; the baseline is only converted. Return the time."""
    import nncf
    import openvino

    model = openvino.Core().read_model(job["model"])
    settings: dict[str, Any] = dict(job["settings"])
    preset = settings.pop("preset")
    compression_s = None
    if preset != "fp32":
        data = nncf.Dataset(_calibration(user_module(job)))
        begun_s = time.perf_counter()
        model = nncf.quantize(model, data, **_arguments(preset, settings))
        compression_s = seconds(begun_s)
    return saved(model, pathlib.Path(job["output"], MODEL), compression_s)


def saved(model: Any, file: pathlib.Path, compression_s: float | None) -> dict[str, Any]:  # noqa: ANN401 — of OpenVINO
    """Save a model; return the time of its compression."""
    import openvino

    file.parent.mkdir(parents=True, exist_ok=True)
    openvino.save_model(model, file, compress_to_fp16=False)
    return {"compression_s": compression_s}


def _calibration(user: Any) -> Any:  # noqa: ANN401 — the user's module and data
    """Return the user's data, which NNCF reads several times; a generator could be read once."""
    data = user.calibration()
    return _Anew(user) if iter(data) is data else data


class _Anew:
    """Calls ``calibration`` each time that it is read."""

    def __init__(self, user: Any) -> None:  # noqa: ANN401 — the user's module
        self._user = user

    def __iter__(self) -> Iterator[Any]:
        return iter(self._user.calibration())


def _arguments(preset: str, settings: dict[str, Any]) -> dict[str, Any]:
    import nncf

    arguments: dict[str, Any] = {"preset": nncf.QuantizationPreset(preset), **settings}
    smooth = arguments.pop("smooth_quant", None)
    if "model_type" in arguments:
        arguments["model_type"] = nncf.ModelType(arguments["model_type"])
    if smooth is not None:
        from nncf.quantization.advanced_parameters import AdvancedSmoothQuantParameters

        alpha = _USUAL_ALPHA if smooth else _OFF
        alphas = AdvancedSmoothQuantParameters(convolution=alpha, matmul=alpha)
        if smooth:
            arguments["model_type"] = nncf.ModelType.TRANSFORMER  # NNCF smooths nothing else
        arguments["advanced_parameters"] = nncf.AdvancedQuantizationParameters(smooth_quant_alphas=alphas)
    return arguments


_WIDTHS = {kind: kind for kind in ("boolean", "nf4", "u3", "u6", "u1", "bf16")}
_WIDTHS |= {"i4": "int4", "u4": "int4", "i8": "int8", "u8": "int8", "i2": "int2", "u2": "int2", "f4e2m1": "mxfp4"}
_WIDTHS |= {"f16": "fp16", "f32": "fp32", "f64": "fp64", "f8e4m3": "fp8", "f8e5m2": "fp8"}
"""What results call the width of each element type that weights may have."""
_BESIDE = ("zero_point", "scale", "shift")
_DIMENSIONS = 2


class Constant(NamedTuple):
    """A constant of the model."""

    name: str
    kind: str
    """Its element type, as OpenVINO names it: ``i4``."""
    shape: tuple[int, ...]


def constants(model: Any) -> list[Constant]:  # noqa: ANN401 — a model of OpenVINO
    """Return the constants of a model."""
    return [
        Constant(node.get_friendly_name(), node.get_element_type().get_type_name(), tuple(node.get_output_shape(0)))
        for node in model.get_ops()
        if node.get_type_name() == "Constant"
    ]


def by_width(constants: Iterable[Constant]) -> dict[str, int]:
    """Return the number of weights by their width: matrices and larger arrays, without scales and zero points."""
    counts: dict[str, int] = {}
    for constant in constants:
        name = _WIDTHS.get(constant.kind)
        is_matrix = sum(size > 1 for size in constant.shape) >= _DIMENSIONS
        if name is not None and is_matrix and not any(part in constant.name.rpartition("/")[2] for part in _BESIDE):
            counts[name] = counts.get(name, 0) + math.prod(constant.shape)
    return counts


_CALLS = 20


def score(job: dict[str, Any]) -> dict[str, Any]:
    """Score the model in the folder ``model``; return the score, and the median time of a call."""
    import openvino

    core = openvino.Core()
    model = core.read_model(pathlib.Path(job["model"], MODEL))
    compiled = core.compile_model(model, "CPU")
    user = user_module(job)
    score = float(user.score(compiled))
    times: list[float] = []
    for item in itertools.islice(user.calibration(), _CALLS):
        begun_s = time.perf_counter()
        compiled(item)
        times.append(seconds(begun_s))
    return {
        "figures": {"score": [score, None]},
        "inference_s": statistics.median(times) if times else None,
        "widths": by_width(constants(model)),
    }


LANGUAGE_MODEL = "openvino_model.xml"
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
        model = core.read_model(pathlib.Path(folder, LANGUAGE_MODEL))
        self.widths = by_width(constants(model))
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
    """Compress the model in the folder ``model`` into the folder ``output``; return the time."""
    import nncf
    import openvino

    model = openvino.Core().read_model(pathlib.Path(job["model"], LANGUAGE_MODEL))
    arguments = _language_arguments(job, model)
    begun_s = time.perf_counter()
    compressed = nncf.compress_weights(model, **arguments)
    result = saved(compressed, pathlib.Path(job["output"], LANGUAGE_MODEL), seconds(begun_s))
    for file in pathlib.Path(job["model"]).iterdir():
        if file.suffix == ".json":
            shutil.copy(file, job["output"])
    return result


def _language_arguments(job: dict[str, Any], model: Any) -> dict[str, Any]:  # noqa: ANN401 — a model of OpenVINO
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
    figures: dict[str, evaluation.Score] = {
        f"{TEXT}, word perplexity": evaluation.word_perplexity(
            model.logits, documents, encode, prefix(folder), window(folder)
        )
    }
    if job["lambada"] is None:
        source, passages = TEXT, [passage for document in documents for passage in evaluation.passages(document)]
    else:
        source, passages = PASSAGES, [line for line in evaluation.lines(job["lambada"]) if " " in line]
    if passages:
        accuracy, perplexity = evaluation.last_words(model.logits, passages, encode)
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
