from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from nncftools.cli.sweep.worker import evaluation

VOCABULARY = 11
PREFIX = 0


class MadeUpModel:
    """Logits that depend on all tokens before, in pieces of a few positions."""

    def __init__(self, piece: int = 3) -> None:
        self._piece = piece

    def logits(self, tokens: Sequence[int]) -> Iterator[NDArray[np.float32]]:
        """Yield logits; the array of a piece is overwritten by the next one."""
        buffer = np.empty((self._piece, VOCABULARY), dtype=np.float32)
        for start in range(0, len(tokens), self._piece):
            part = list(tokens[start : start + self._piece])
            for place in range(len(part)):
                buffer[place] = logits_after(tokens[: start + place + 1])
            yield buffer[: len(part)]


def logits_after(tokens: Sequence[int]) -> NDArray[np.float32]:
    """Return the logits after some tokens."""
    return np.array([math.sin(3 * token + sum(tokens) + len(tokens)) * 2 for token in range(VOCABULARY)], np.float32)


def log_probability(context: Sequence[int], token: int) -> float:
    """Return the natural logarithm of a token's probability, computed on its own."""
    weights = [math.exp(float(one)) for one in logits_after(context)]
    return math.log(weights[token] / sum(weights))


def log_likelihood(tokens: Sequence[int], first: int) -> float:
    """Return the sum of the logarithms from a token on, each computed on its own."""
    return sum(log_probability(tokens[:place], tokens[place]) for place in range(first, len(tokens)))


def encode(text: str) -> list[int]:
    """Return a token for each letter; a blank is a token of its own."""
    return [1 + ord(letter) % (VOCABULARY - 1) for letter in text]


@pytest.mark.parametrize("piece", [1, 3, 100])
def test_likelihood_is_that_of_each_token_after_all_before(piece: int) -> None:
    """The logarithms are those of a direct computation, whatever the pieces in which logits come."""
    context, continuation = [4, 2, 7, 1], [3, 9, 5, 5, 2]
    found = evaluation.likelihood(MadeUpModel(piece).logits, context, continuation)
    tokens = [*context, *continuation]
    direct = [log_probability(tokens[: 4 + place], token) for place, token in enumerate(continuation)]

    assert found.of_tokens.tolist() == pytest.approx(direct)
    assert not found.is_greedy


def test_greedy_continuation_is_known() -> None:
    """A continuation of the most probable tokens is greedy, and not with another token at its end."""
    tokens = [4, 2]
    for _ in range(4):
        tokens.append(int(logits_after(tokens).argmax()))

    assert evaluation.likelihood(MadeUpModel().logits, tokens[:2], tokens[2:]).is_greedy
    wrong = (tokens[-1] + 1) % VOCABULARY
    assert not evaluation.likelihood(MadeUpModel().logits, tokens[:2], [*tokens[2:-1], wrong]).is_greedy


@pytest.mark.parametrize("count", [1, 4, 5, 6, 10, 13])
def test_windows_predict_each_token_once(count: int) -> None:
    """Windows begin with the prefix, hold no more than their length, and the last one has as much context as fits."""
    tokens = list(range(1, count + 1))
    found = list(evaluation.windows(tokens, PREFIX, 5))

    assert list(itertools.chain.from_iterable(continuation for _, continuation in found)) == tokens
    assert found[0][0] == [PREFIX]
    assert all(len(context) + len(continuation) - 1 <= 5 for context, continuation in found)
    if count > 5:
        context, continuation = found[-1]
        assert len(context) + len(continuation) - 1 == 5
        assert [*context, *continuation] == tokens[-6:]


def test_word_perplexity_is_that_of_a_direct_computation() -> None:
    """It is exp(−log-likelihood ÷ words) over all documents, each in windows of its own."""
    documents = ["the quick brown fox", "jumps over\nthe lazy dog"]
    found = evaluation.word_perplexity(MadeUpModel().logits, documents, encode, PREFIX, 1000)
    total = sum(log_likelihood([PREFIX, *encode(document)], 1) for document in documents)

    assert found.value == pytest.approx(math.exp(-total / 9))


def test_word_perplexity_has_an_error_from_blocks() -> None:
    """The standard error grows with what differs between blocks; one block has none."""
    text = "a few words and some more of them, " * 12
    found = evaluation.word_perplexity(MadeUpModel().logits, [text], encode, PREFIX, 50)
    short = evaluation.word_perplexity(MadeUpModel().logits, ["one block"], encode, PREFIX, 50)

    assert found.stderr is not None
    assert 0 < found.stderr < found.value
    assert short.stderr is None


def test_last_words_are_those_of_a_direct_computation() -> None:
    """Perplexity is of the last word with its blank, after all before it; accuracy is the share of greedy ones."""
    passages = ["one two three", "four five six seven", "eight nine"]
    accuracy, perplexity = evaluation.last_words(MadeUpModel().logits, passages, encode)
    sums = [log_likelihood(encode(passage), len(passage.rpartition(" ")[0])) for passage in passages]
    mean = statistics.mean(sums)
    error = statistics.stdev(sums) / math.sqrt(3)

    assert perplexity.value == pytest.approx(math.exp(-mean))
    assert perplexity.stderr == pytest.approx(math.exp(-mean) * error)
    assert accuracy == (0.0, 0.0)


def test_similarity_counts_matching_tokens() -> None:
    """The same continuation is 1, one without a token in common 0."""
    found = evaluation.similarity([[1, 2, 3, 4], [5, 6, 7, 8]], [[1, 2, 9, 4], [1, 2, 3, 4]])

    assert evaluation.similarity([[1, 2]], [[1, 2]]) == (1.0, None)
    assert found.value == pytest.approx((0.75 + 0) / 2)
    assert found.stderr == pytest.approx(0.375)


def test_passages_are_whole_sentences_without_their_full_stop() -> None:
    """A passage ends with the first sentence after 40 words; what is left over is no passage."""
    sentence = "Ten words make up this sentence of a made-up text. "
    found = evaluation.split_passages(sentence * 9)

    assert [len(passage.split()) for passage in found] == [40, 40]
    assert all(passage.endswith(" text") for passage in found)


def test_perplexity_beyond_all_numbers_is_infinite() -> None:
    """A model that has collapsed is no error of the step: the row says what its figure is."""

    class Collapsed(MadeUpModel):
        """Takes what comes for impossible."""

        def logits(self, tokens: Sequence[int]) -> Iterator[NDArray[np.float32]]:
            found = np.zeros((len(tokens), 100), dtype=np.float32)
            found[:, 99] = 1e6
            yield found

    assert evaluation.word_perplexity(Collapsed().logits, ["ab"], encode, 0, 8).value == math.inf


def test_documents_are_lines_that_hold_something(tmp_path: Path) -> None:
    """Another end of a line than \\n, inside of a text, ends no document; blanks around a text are no words."""
    file = tmp_path / "a.jsonl"
    file.write_text('\ufeff{"text": "one\u2028two "}\n{"text": ""}\n', encoding="utf-8")

    assert evaluation.read_documents(str(file)) == ["one\u2028two"]
