"""Steps of a sweep that load a model: compress and evaluate a language model, or quantize and score any other model.

Language models are in OpenVINO's format, and stateful (the model itself keeps the past tokens). NNCF compresses the
weights; the evaluation uses texts and prompts, and measures latency. For any other model, the user writes a Python file
(``--kind``): NNCF quantizes the model with calibration data from this file, and the file's function ``score`` measures
the quality.
"""

from __future__ import annotations

import itertools
import json
import math
import shutil
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import evaluation, load_user_module, seconds

MODEL = "model.xml"
_OFF = -1.0
_USUAL_ALPHA = 0.95


def quantize(job: dict[str, Any]) -> dict[str, Any]:
    """Quantize the model in the file ``job["model"]``, and save the result in the folder ``job["output"]``.

    Return ``{"compression_s": duration in seconds}``. The baseline is saved without quantization; the duration is then
    None.
    """
    import nncf
    import openvino

    model = openvino.Core().read_model(job["model"])
    settings: dict[str, Any] = dict(job["settings"])
    preset = settings.pop("preset")
    compression_s = None
    if preset != "fp32":
        data = nncf.Dataset(_load_calibration(load_user_module(job)))
        begun_s = time.perf_counter()
        model = nncf.quantize(model, data, **_quantization_arguments(preset, settings))
        compression_s = seconds(begun_s)
    return save(model, Path(job["output"], MODEL), compression_s)


def save(model: Any, file: Path, compression_s: float | None) -> dict[str, Any]:  # noqa: ANN401 — of OpenVINO
    """Save a model; return the result of the step: ``{"compression_s": compression_s}``.

    ``compression_s`` is the duration of the compression in seconds; None for the uncompressed baseline.
    """
    import openvino

    file.parent.mkdir(parents=True, exist_ok=True)
    openvino.save_model(model, file, compress_to_fp16=False)
    return {"compression_s": compression_s}


def _load_calibration(user: Any) -> Any:  # noqa: ANN401 — the user's module and data
    """Return the user's calibration data as an iterable that NNCF can read several times, even if it is a generator."""
    data = user.calibration()
    return _Repeatable(user) if iter(data) is data else data


class _Repeatable:
    """An iterable that calls the user's function ``calibration`` each time a loop over the iterable begins."""

    def __init__(self, user: Any) -> None:  # noqa: ANN401 — the user's module
        self._user = user

    def __iter__(self) -> Iterator[Any]:
        return iter(self._user.calibration())


def _quantization_arguments(preset: str, settings: dict[str, Any]) -> dict[str, Any]:
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
            arguments["model_type"] = nncf.ModelType.TRANSFORMER  # NNCF smooths no other type
        arguments["advanced_parameters"] = nncf.AdvancedQuantizationParameters(smooth_quant_alphas=alphas)
    return arguments


_WIDTHS = {
    "boolean": "boolean",
    "nf4": "nf4",
    "u1": "u1",
    "u3": "u3",
    "u6": "u6",
    "bf16": "bf16",
    "i2": "int2",
    "u2": "int2",
    "i4": "int4",
    "u4": "int4",
    "i8": "int8",
    "u8": "int8",
    "f4e2m1": "mxfp4",
    "f8e4m3": "fp8",
    "f8e5m2": "fp8",
    "f16": "fp16",
    "f32": "fp32",
    "f64": "fp64",
}
"""Names of bit widths in the results: ``{OpenVINO's name of the element type: name}``."""
_HELPERS = ("zero_point", "scale", "shift")
"""Parts of the names of constants that are not weights."""
_DIMENSIONS = 2


class Constant(NamedTuple):
    """A constant in a model."""

    name: str
    kind: str
    """OpenVINO's name of the element type: ``i4``."""
    shape: tuple[int, ...]


def list_constants(model: Any) -> Iterator[Constant]:  # noqa: ANN401 — a model of OpenVINO
    """Yield the constants of a model."""
    for node in model.get_ops():
        if node.get_type_name() == "Constant":
            kind = node.get_element_type().get_type_name()
            yield Constant(node.get_friendly_name(), kind, tuple(node.get_output_shape(0)))


def count_weights(constants: Iterable[Constant]) -> dict[str, int]:
    """Return the number of weights by bit width: ``{"int4": 1000, "int8": 200}``.

    Only arrays with at least two dimensions longer than 1 count. Scales and zero points do not count.
    """
    counts: dict[str, int] = {}
    for constant in constants:
        width = _WIDTHS.get(constant.kind)
        last_name = constant.name.rpartition("/")[2]
        is_helper = any(part in last_name for part in _HELPERS)
        is_matrix = sum(size > 1 for size in constant.shape) >= _DIMENSIONS
        if width is not None and is_matrix and not is_helper:
            counts[width] = counts.get(width, 0) + math.prod(constant.shape)
    return counts


_CALLS = 20


def score(job: dict[str, Any]) -> dict[str, Any]:
    """Measure the quality of the model in the folder ``job["model"]`` with the user's function ``score``.

    Return ``figures`` (the score), ``inference_s`` (the median duration of a call in seconds; None if there are no
    calibration items), and ``widths`` (the number of weights by bit width).
    """
    import openvino

    core = openvino.Core()
    model = core.read_model(Path(job["model"], MODEL))
    compiled = core.compile_model(model, "CPU")
    user = load_user_module(job)
    score = float(user.score(compiled))
    times: list[float] = []
    for item in itertools.islice(user.calibration(), _CALLS):
        begun_s = time.perf_counter()
        compiled(item)
        times.append(seconds(begun_s))
    return {
        "figures": {"score": [score, None]},
        "inference_s": statistics.median(times) if times else None,
        "widths": count_weights(list_constants(model)),
    }


LANGUAGE_MODEL = "openvino_model.xml"
_STEP = 128
"""Number of tokens per call of the model. More tokens at once would need much memory for logits."""
_LONGEST = 2048
_LENGTHS = ("max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx", "seq_length")


def load_tokenizer(folder: str) -> evaluation.Encode:
    """Return a function that encodes a text without special tokens."""
    file = Path(folder, "tokenizer.json")
    if file.exists():
        from tokenizers import Tokenizer

        fast = Tokenizer.from_file(str(file))
        return lambda text: list(fast.encode(text, add_special_tokens=False).ids)
    from transformers import AutoTokenizer

    slow = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)  # otherwise, transformers may ask a question
    return lambda text: list(slow.encode(text, add_special_tokens=False))


def find_prefix(folder: str) -> int:
    """Return the token to place before a text: the token for the beginning of texts, or else for the end, or else 0."""
    config = _read_config(folder)
    for name in ("bos_token_id", "eos_token_id"):
        value = config.get(name)
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, int):
            return value
    return 0


def find_window(folder: str) -> int:
    """Return the largest number of tokens that the model can read at once, but at most 2,048."""
    config = _read_config(folder)
    sizes = [config.get(name) for name in _LENGTHS]
    return min([_LONGEST, *(size for size in sizes if isinstance(size, int))])


def _read_config(folder: str) -> dict[str, Any]:
    file = Path(folder, "config.json")
    if not file.exists():
        return {}
    config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return config


def make_batch(names: set[str], tokens: Sequence[int], past: int = 0) -> dict[str, NDArray[np.int64 | np.int32]]:
    """Return the inputs of a model for tokens that follow ``past`` earlier tokens; ``names`` are the model's inputs."""
    size = len(tokens)
    inputs: dict[str, NDArray[np.int64 | np.int32]] = {
        "input_ids": np.array([tokens], dtype=np.int64),
        "attention_mask": np.ones((1, past + size), dtype=np.int64),
        "position_ids": np.arange(past, past + size, dtype=np.int64)[None],
        "beam_idx": np.zeros(1, dtype=np.int32),
    }
    return {name: value for name, value in inputs.items() if name in names}


def list_inputs(model: Any) -> set[str]:  # noqa: ANN401 — a model of OpenVINO
    """Return the names of a model's inputs. Raises ValueError if the model is not stateful."""
    names = set[str]()
    for port in model.inputs:
        names |= port.get_names()
    if any(name.startswith("past_key_values") for name in names):
        raise ValueError("the model takes its state as inputs; export it with a state of its own (stateful)")
    return names


class LanguageModel:
    """A compiled language model."""

    def __init__(self, folder: str) -> None:
        import openvino

        core = openvino.Core()
        model = core.read_model(Path(folder, LANGUAGE_MODEL))
        self.widths = count_weights(list_constants(model))
        compiled = core.compile_model(model, "CPU")
        self._names = list_inputs(compiled)
        self._request = compiled.create_infer_request()
        self._past = 0

    def begin(self) -> None:
        """Forget all earlier tokens."""
        self._request.reset_state()
        self._past = 0

    def read(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Read further tokens of the sequence; return the logits after each of them."""
        self._request.infer(make_batch(self._names, tokens, self._past))
        self._past += len(tokens)
        logits: NDArray[np.float32] = self._request.get_tensor("logits").data[0]
        return logits

    def logits(self, tokens: Sequence[int]) -> Iterator[NDArray[np.float32]]:
        """Yield the logits after each token of a new sequence; an array is only valid until the next is yielded."""
        self.begin()
        for start in range(0, len(tokens), _STEP):
            yield self.read(tokens[start : start + _STEP])


_TOKENS = 128
"""Number of tokens in a calibration sample."""
_SAMPLES = 32


def compress(job: dict[str, Any]) -> dict[str, Any]:
    """Compress the model in the folder ``job["model"]``, and save the result in the folder ``job["output"]``.

    Return ``{"compression_s": duration in seconds}``.
    """
    import nncf
    import openvino

    model = openvino.Core().read_model(Path(job["model"], LANGUAGE_MODEL))
    arguments = _compression_arguments(job, model)
    begun_s = time.perf_counter()
    compressed = nncf.compress_weights(model, **arguments)
    result = save(compressed, Path(job["output"], LANGUAGE_MODEL), seconds(begun_s))
    for file in Path(job["model"]).iterdir():
        if file.suffix == ".json":
            shutil.copy(file, job["output"])
    return result


def _compression_arguments(job: dict[str, Any], model: Any) -> dict[str, Any]:  # noqa: ANN401 — a model of OpenVINO
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
        arguments["dataset"] = nncf.Dataset(_make_samples(job, model, samples))
        arguments["subset_size"] = samples
    return {**arguments, **settings}


def _make_samples(job: dict[str, Any], model: Any, samples: int) -> list[dict[str, Any]]:  # noqa: ANN401 — of OpenVINO
    """Return calibration samples: parts of the text with 128 tokens each, at equal distances."""
    names = list_inputs(model)
    tokens = _encode_all(load_tokenizer(job["model"]), evaluation.read_documents(job["calibration"]))
    length = min(_TOKENS, len(tokens))
    count = max(1, min(samples, len(tokens) // length))
    stride = (len(tokens) - length) // max(1, count - 1)
    starts = [number * stride for number in range(count)]
    return [make_batch(names, tokens[start : start + length]) for start in starts]


def _encode_all(encode: evaluation.Encode, documents: Iterable[str]) -> list[int]:
    return [*itertools.chain.from_iterable(map(encode, documents))]


_NEW_TOKENS = 32
_OWN_PROMPTS = 4
_OWN_PROMPT_TOKENS = 32
"""Number of tokens in a prompt that is cut from the held-out text. Such prompts are used if the user gives no
prompts."""


def evaluate(job: dict[str, Any]) -> dict[str, Any]:
    """Evaluate the language model in the folder ``job["model"]``, and return results for the row.

    The keys are ``figures`` (``{column: (value, standard error)}``), ``widths`` (the number of weights by bit width),
    ``continuations``, ``first_token_s`` and ``per_token_s``. The first prompt runs twice to warm up.
    """
    folder = job["model"]
    encode = load_tokenizer(folder)
    model = LanguageModel(folder)
    documents = evaluation.read_documents(job["text"])
    perplexity = evaluation.word_perplexity(
        model.logits, documents, encode, prefix=find_prefix(folder), length=find_window(folder)
    )
    figures = {"held-out text, word perplexity": perplexity}
    if job["lambada"] is None:
        source = "held-out text"
        passages = [*itertools.chain.from_iterable(map(evaluation.split_passages, documents))]
    else:
        source = "passages"
        passages = [line for line in evaluation.read_lines(job["lambada"]) if " " in line]
    if passages:
        scores = evaluation.last_words(model.logits, passages, encode)
        figures[f"{source}, last-word acc"], figures[f"{source}, last-word perplexity"] = scores
    result = _generate(model, _make_prompts(job, documents, encode))
    if job["prompts"] is not None:
        continuations = result["continuations"]
        reference = continuations if job["reference"] is None else job["reference"]
        figures["prompts, similarity"] = evaluation.similarity(continuations, reference)
    return {"figures": figures, "widths": model.widths, **result}


def _make_prompts(job: dict[str, Any], documents: Sequence[str], encode: evaluation.Encode) -> list[list[int]]:
    if job["prompts"] is not None:
        return [encode(line) for line in evaluation.read_lines(job["prompts"])]
    tokens = _encode_all(encode, documents)
    stride = max(1, len(tokens) // _OWN_PROMPTS)
    return [tokens[start : start + _OWN_PROMPT_TOKENS] for start in range(0, len(tokens), stride)]


def _generate(model: LanguageModel, prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Continue each prompt greedily; return the new tokens, and the median durations of first and further tokens."""
    continuations: list[list[int]] = []
    firsts: list[float] = []
    others: list[float] = []
    for number, prompt in enumerate([prompts[0], *prompts]):
        model.begin()
        begun_s = time.perf_counter()
        logits = model.read(prompt)
        tokens = [int(logits[-1].argmax())]
        first_s = seconds(begun_s)
        begun_s = time.perf_counter()
        for _ in range(_NEW_TOKENS - 1):
            logits = model.read(tokens[-1:])
            tokens.append(int(logits[-1].argmax()))
        if number:  # the first prompt only warms up
            continuations.append(tokens)
            firsts.append(first_s)
            others.append(seconds(begun_s) / (_NEW_TOKENS - 1))
    return {
        "continuations": continuations,
        "first_token_s": statistics.median(firsts),
        "per_token_s": statistics.median(others),
    }
