"""Texts, and measures of quality from a model's logits on them: NumPy only, and nothing of the model's library.

Word perplexity and last words follow the definitions of lm-evaluation-harness.
"""

from __future__ import annotations

import difflib
import json
import math
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Encode = Callable[[str], list[int]]
"""Returns the tokens of a text, without special ones."""
Logits = Callable[[Sequence[int]], Iterator[NDArray[np.float32]]]
"""Yields the logits after each token of a new sequence, in arrays of (some positions, vocabulary)."""

BLOCK = 64
"""Tokens whose log-likelihoods are summed to one observation of the standard error: neighbours depend on each other."""
_FEWEST = 2


class Score(NamedTuple):
    """A measured figure."""

    value: float
    stderr: float | None
    """Standard error; None when there are too few observations."""


class Likelihood(NamedTuple):
    """How a model predicts a continuation."""

    of_tokens: NDArray[np.float64]
    """The natural logarithm of each token's probability."""
    is_greedy: bool
    """Whether each token is the most probable one."""


def likelihood(logits_of: Logits, context: Sequence[int], continuation: Sequence[int]) -> Likelihood:
    """Return how probable a continuation is after a context, which holds at least one token."""
    tokens = [*context, *continuation[:-1]]
    wanted = np.asarray(continuation)
    skipped = len(context) - 1
    of_tokens = np.empty(len(wanted))
    is_greedy, at = True, 0
    for logits in logits_of(tokens):
        first, last = max(skipped - at, 0), len(logits)
        at += last
        if first >= last:
            continue
        start = at - last + first - skipped
        targets = wanted[start : start + last - first]
        rows = logits[first:last].astype(np.float64)
        top = rows.max(axis=1)
        logsumexp = top + np.log(np.exp(rows - top[:, None]).sum(axis=1))
        of_tokens[start : start + len(rows)] = rows[np.arange(len(rows)), targets] - logsumexp
        is_greedy = is_greedy and bool(np.all(rows.argmax(axis=1) == targets))
    return Likelihood(of_tokens, is_greedy)


def windows(tokens: Sequence[int], prefix: int, length: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield context and continuation of a rolling log-likelihood: each token is predicted once.

    The first window begins with the token ``prefix``. A window holds at most ``length`` tokens to read; the last one
    ends with the text and has as much context as fits.
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
    """Return exp(−(sum of log-likelihoods) ÷ (number of words)); words are what whitespace separates."""
    words = sum(len(re.split(r"\s+", document)) for document in documents)
    blocks: list[tuple[float, int]] = []
    for document in documents:
        parts = [likelihood(logits_of, *window).of_tokens for window in windows(encode(document), prefix, length)]
        of_tokens = np.concatenate(parts) if parts else np.empty(0)
        cut = (of_tokens[start : start + BLOCK] for start in range(0, len(of_tokens), BLOCK))
        blocks += [(float(part.sum()), len(part)) for part in cut]
    value = _exp(-math.fsum(total for total, _ in blocks) / words)
    error = _error_of_sum(blocks)
    return Score(value, None if error is None else value * error / words)


def last_words(logits_of: Logits, passages: Sequence[str], encode: Encode) -> tuple[Score, Score]:
    """Return accuracy and perplexity of the last word of passages: what follows the last blank, after all before it.

    A word counts as right when each of its tokens is the most probable one. Perplexity is exp(−(mean log-likelihood)).
    """
    likelihoods = []
    for passage in passages:
        before, whole = encode(passage.rpartition(" ")[0]), encode(passage)
        likelihoods.append(likelihood(logits_of, whole[: len(before)], whole[len(before) :]))
    right = np.array([each.is_greedy for each in likelihoods], dtype=float)
    logs = np.array([each.of_tokens.sum() for each in likelihoods])
    perplexity, error = _exp(-logs.mean()), _error_of_mean(logs)
    accuracy = Score(float(right.mean()), _error_of_mean(right))
    return accuracy, Score(perplexity, None if error is None else perplexity * error)


def similarity(continuations: Sequence[Sequence[int]], reference: Sequence[Sequence[int]]) -> Score:
    """Return how alike continuations are: per pair, twice the number of matching tokens ÷ the number of both.

    Matching runs of tokens are found as by ``difflib.SequenceMatcher``; 1 is the same text, 0 has no token in common.
    """
    pairs = zip(continuations, reference, strict=True)
    ratios = np.array([difflib.SequenceMatcher(None, a, b, autojunk=False).ratio() for a, b in pairs])
    return Score(float(ratios.mean()), _error_of_mean(ratios))


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _error_of_mean(values: NDArray[np.float64]) -> float | None:
    return None if len(values) < _FEWEST else float(values.std(ddof=1) / math.sqrt(len(values)))


def _error_of_sum(blocks: Sequence[tuple[float, int]]) -> float | None:
    """Return the standard error of the sum of blocks, which are taken as independent; the last one may be shorter."""
    if len(blocks) < _FEWEST:
        return None
    sums, sizes = np.array(blocks).T
    rest = sums - sums.sum() / sizes.sum() * sizes
    return float(math.sqrt(len(blocks) / (len(blocks) - 1) * float((rest**2).sum())))


LEAST_WORDS = 40
"""A passage whose last word is guessed has at least so many words."""
_SENTENCE = re.compile(r"(?<=[.!?])[\"'”’)]*\s+")
_AROUND = "\"'“”‘’()[].,;:!?*_—-"


def documents(path: str) -> list[str]:
    """Return the documents of a file that are not empty: ``text`` of each line of a ``.jsonl``, or the whole file."""
    file = pathlib.Path(path)
    text = file.read_text(encoding="utf-8-sig")
    if file.suffix != ".jsonl":
        return [text.strip()]
    # other ends of lines than \n, such as U+2028, may be inside of a text
    texts: list[str] = [json.loads(line)["text"].strip() for line in text.split("\n") if line.strip()]
    return [document for document in texts if document]


def lines(path: str) -> list[str]:
    """Return the lines of a file that hold something; of a ``.jsonl`` the field ``text``."""
    if path.endswith(".jsonl"):
        return documents(path)
    return [line.strip() for line in pathlib.Path(path).read_text(encoding="utf-8-sig").splitlines() if line.strip()]


def passages(document: str) -> list[str]:
    """Return passages of whole sentences, without a full stop at their end, on one line each.

    A passage ends with the first sentence after 40 words.
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
