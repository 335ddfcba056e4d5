"""Measure quality from texts and the logits of a model; needs only NumPy.

Word perplexity and last words are defined as in lm-evaluation-harness.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Encode = Callable[[str], list[int]]
"""A function that returns the tokens of a text, without special tokens."""
Logits = Callable[[Sequence[int]], Iterator[NDArray[np.float32]]]
"""A function that yields the logits after each token of a new sequence. The logits come in several arrays, each of the
shape (number of tokens, size of the vocabulary)."""

BLOCK = 64
"""Number of tokens in a block. Each block counts as an observation for standard errors, because neighbouring tokens are
not independent."""
_FEWEST = 2


class Score(NamedTuple):
    """A measured quality of a model, such as accuracy or perplexity."""

    value: float
    stderr: float | None
    """Standard error; None if there are too few observations."""


class Likelihood(NamedTuple):
    """How probable a continuation is."""

    of_tokens: NDArray[np.float64]
    """Natural logarithm of the probability of each token of the continuation."""
    is_greedy: bool
    """Whether each token of the continuation is the most probable token, so that the model would choose it."""


def likelihood(logits_of: Logits, context: Sequence[int], continuation: Sequence[int]) -> Likelihood:
    """Return the probability of a continuation after a context of at least one token."""
    tokens = [*context, *continuation]
    skipped = len(context) - 1
    end = 0
    parts: list[NDArray[np.float64]] = []
    is_greedy = True
    for logits in logits_of(tokens[:-1]):
        rows = logits[max(skipped - end, 0) :].astype(np.float64)
        end += len(logits)
        start = end - len(rows)
        targets = np.asarray(tokens[start + 1 : end + 1], dtype=np.intp)
        largest = rows.max(axis=1)
        sums = np.exp(rows - largest[:, None]).sum(axis=1)
        chosen = rows[np.arange(len(rows)), targets]
        parts.append(chosen - (largest + np.log(sums)))
        is_greedy = is_greedy and bool(np.all(rows.argmax(axis=1) == targets))
    return Likelihood(np.concatenate(parts), is_greedy)


def windows(tokens: Sequence[int], prefix: int, length: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield pairs of context and continuation for a rolling log-likelihood. Each token is in one continuation.

    The first context is only the token ``prefix``. In later pairs, context and continuation have ``length`` + 1
    tokens together. The model reads all tokens of a pair except the last token.
    """
    if not tokens:
        return
    first = min(length, len(tokens))
    yield [prefix], list(tokens[:first])
    for start in range(first, len(tokens), length):
        end = min(start + length, len(tokens))
        begin = end - length - 1
        yield list(tokens[begin:start]), list(tokens[start:end])


def word_perplexity(logits_of: Logits, documents: Sequence[str], encode: Encode, prefix: int, length: int) -> Score:
    """Return exp(−(sum of log-likelihoods) ÷ (number of words)); whitespace separates words.

    ``prefix`` is the token before the first token of each document. The model reads at most ``length`` tokens at once.
    """
    words = sum(len(re.split(r"\s+", document)) for document in documents)
    blocks: list[tuple[float, int]] = []
    for document in documents:
        parts = [np.empty(0)]
        for context, continuation in windows(encode(document), prefix, length):
            parts.append(likelihood(logits_of, context, continuation).of_tokens)
        of_tokens = np.concatenate(parts)
        for start in range(0, len(of_tokens), BLOCK):
            block = of_tokens[start : start + BLOCK]
            blocks.append((float(block.sum()), len(block)))
    value = _exp(-math.fsum(total for total, _ in blocks) / words)
    error = _error_of_sum(blocks)
    return Score(value, None if error is None else value * error / words)


def last_words(logits_of: Logits, passages: Sequence[str], encode: Encode) -> tuple[Score, Score]:
    """Return accuracy and perplexity of the last word of each passage, given all words before.

    The last word begins after the last blank. A guess is right if each token is the most probable token. Perplexity is
    exp(−(mean log-likelihood)).
    """
    likelihoods = []
    for passage in passages:
        tokens = encode(passage)
        start = len(encode(passage.rpartition(" ")[0]))
        likelihoods.append(likelihood(logits_of, tokens[:start], tokens[start:]))
    right = np.array([each.is_greedy for each in likelihoods], dtype=float)
    logs = np.array([each.of_tokens.sum() for each in likelihoods])
    perplexity = _exp(-logs.mean())
    error = _error_of_mean(logs)
    accuracy = Score(float(right.mean()), _error_of_mean(right))
    return accuracy, Score(perplexity, None if error is None else perplexity * error)


def similarity(continuations: Sequence[Sequence[int]], reference: Sequence[Sequence[int]]) -> Score:
    """Return the mean similarity of pairs: twice the number of matching tokens ÷ the number of tokens of both.

    ``difflib.SequenceMatcher`` finds the matching tokens. 1 means equal texts, 0 means no common token.
    """
    matchers = map(partial(difflib.SequenceMatcher, None, autojunk=False), continuations, reference)
    ratios = np.array([matcher.ratio() for matcher in matchers])
    return Score(float(ratios.mean()), _error_of_mean(ratios))


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _error_of_mean(values: NDArray[np.float64]) -> float | None:
    if len(values) < _FEWEST:
        return None
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def _error_of_sum(blocks: Sequence[tuple[float, int]]) -> float | None:
    """Return the standard error of the sum over all blocks; None if there are fewer than two blocks.

    A block is ``(sum of log-likelihoods, number of tokens)``. The blocks are assumed to be independent. The last block
    of a document may have fewer tokens.
    """
    if len(blocks) < _FEWEST:
        return None
    sums, sizes = np.array(blocks).T
    rest = sums - sums.sum() / sizes.sum() * sizes
    factor = len(blocks) / (len(blocks) - 1)
    return math.sqrt(factor * float((rest**2).sum()))


LEAST_WORDS = 40
"""Least number of words in a passage."""
_SENTENCE = re.compile(r"(?<=[.!?])[\"'”’)]*\s+")
_AROUND = "\"'“”‘’()[].,;:!?*_—-"


def read_documents(path: str) -> list[str]:
    """Return the texts in a file, without empty texts.

    In a ``.jsonl``, each line has a document as ``text``; any other file is a single document.
    """
    file = Path(path)
    text = file.read_text(encoding="utf-8-sig")
    if file.suffix != ".jsonl":
        return [text.strip()]
    lines = filter(str.strip, text.split("\n"))  # a text may contain other ends of lines, such as U+2028
    texts: list[str] = [json.loads(line)["text"] for line in lines]
    return [text.strip() for text in texts if text.strip()]


def read_lines(path: str) -> list[str]:
    """Return the lines of a file, without empty lines; in a ``.jsonl``, the field ``text`` of each line."""
    if path.endswith(".jsonl"):
        return read_documents(path)
    text = Path(path).read_text(encoding="utf-8-sig")
    return [line.strip() for line in text.splitlines() if line.strip()]


def split_passages(document: str) -> list[str]:
    """Return passages of whole sentences, without line breaks, and without a full stop at the end.

    A passage ends with the first sentence that makes it at least 40 words long.
    """
    texts: list[str] = []
    words: list[str] = []
    for sentence in _SENTENCE.split(" ".join(document.split())):
        words += sentence.split()
        if len(words) >= LEAST_WORDS:
            words[-1] = words[-1].rstrip(_AROUND)
            if words[-1]:
                texts.append(" ".join(words))
            words = []
    return texts
