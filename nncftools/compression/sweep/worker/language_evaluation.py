"""Evaluates a saved language model: quality on texts, continuations of prompts, and latency."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from . import evaluation, language_model, texts
from .steps import seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

_NEW_TOKENS = 32
_OWN_PROMPTS, _OWN_PROMPT_TOKENS = 4, 32
"""Without prompts, latency is measured on beginnings of parts of the text."""
TEXT, PASSAGES, PROMPTS = "held-out text", "passages", "prompts"
"""How the columns begin: the source of their figures."""


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Evaluate the model in the folder ``model``; return figures by column, latency and continuations."""
    folder = job["model"]
    encode = language_model.tokenizer(folder)
    model = language_model.LanguageModel(folder)
    documents = texts.documents(job["text"])
    figures: dict[str, evaluation.Figure] = {
        f"{TEXT}, word perplexity": evaluation.word_perplexity(
            model, documents, encode, language_model.prefix(folder), language_model.window(folder)
        )
    }
    source = TEXT if job["lambada"] is None else PASSAGES
    if job["lambada"] is None:
        passages = [passage for document in documents for passage in texts.passages(document)]
    else:
        passages = [line for line in texts.lines(job["lambada"]) if " " in line]
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
        return [encode(line) for line in texts.lines(job["prompts"])]
    tokens = [token for document in documents for token in encode(document)]
    stride = max(1, len(tokens) // _OWN_PROMPTS)
    return [tokens[start : start + _OWN_PROMPT_TOKENS] for start in range(0, len(tokens), stride)]


def _generate(
    model: language_model.LanguageModel, prompts: Sequence[Sequence[int]]
) -> tuple[list[list[int]], dict[str, float]]:
    """Continue each prompt greedily; return the new tokens, and the median times of first and further tokens."""
    found: list[list[int]] = []
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
            found.append(tokens)
            firsts.append(first_s)
            others.append(seconds(begun_s) / (_NEW_TOKENS - 1))
    return found, {"first_token_s": statistics.median(firsts), "per_token_s": statistics.median(others)}
