"""What each column of the results means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.compression.outputs import escaped
from nncftools.compression.reading import INT4, INT8, PLOT_NAME, SIZE, STDERR
from nncftools.compression.sweep import row

if TYPE_CHECKING:
    from collections.abc import Iterable

_LAST_WORD = "of the last word of passages: what follows the last blank, after all before it, as in the lambada task"
_RIGHT = "share of right guesses, each token the most probable one,"
_PASSAGES = "of the text: whole sentences, at least 40 words"
DEFINITIONS = {
    INT4: "share of the layers that are compressed to 4 bits, as asked for; embeddings are not among them",
    INT8: "share of these layers that are compressed to 8 bits",
    PLOT_NAME: "name of the configuration in the grid",
    SIZE: "weights on disk (.bin), in GiB",
    "held-out text, word perplexity": "exp(−sum of log-likelihoods ÷ number of words between whitespace), rolling "
    "log-likelihood as in lm-evaluation-harness; windows of at most 2,048 tokens",
    "held-out text, last-word acc": f"{_RIGHT} {_LAST_WORD}; {_PASSAGES}",
    "held-out text, last-word perplexity": f"exp(−mean log-likelihood) {_LAST_WORD}; {_PASSAGES}",
    "passages, last-word acc": f"{_RIGHT} {_LAST_WORD}; one per line",
    "passages, last-word perplexity": f"exp(−mean log-likelihood) {_LAST_WORD}; one passage per line",
    "prompts, similarity": "mean over prompts of 2 × matching tokens ÷ tokens of both, of greedy continuations of 32 "
    "tokens and the baseline's (difflib.SequenceMatcher); 1 is the same text",
    "score": "what the user's function `score` returned",
    row.COMPRESSION: "time of nncf.compress_weights or nncf.quantize",
    row.PEAK: "peak RSS of what reads, compresses and saves, children included; the real peak is at least this",
    row.PEAK_HIGH: "the real peak is at most this",
    row.OWNER: "the operation in which that peak was reached, or the place in the code",
    row.INFERENCE_PEAK: "peak RSS of the process that evaluates, at least; it reads logits in steps of 128 tokens",
    row.FIRST_TOKEN: "time to the first new token, median over prompts",
    row.PER_TOKEN: "time per further token of a greedy continuation of 32 tokens, median over prompts",
    row.INFERENCE: "time of a call, median over at most 20 items of calibration",
    row.BITS: "bits of the file per weight, with scales and zero points",
    row.WIDTHS: "share of the weights in matrices by their width",
    row.FAILED: "why the configuration failed",
}
_TASK = "by lm-evaluation-harness, with its own definition"
ERRORS = (
    f"Columns that end in {STDERR!r} hold standard errors: of means over passages and prompts; of word perplexity from "
    "sums over 64 tokens, taken as independent."
)


def markdown(columns: Iterable[str]) -> str:
    """Return the definitions as a part of a Markdown file."""
    lines = [f"- **{escaped(column)}**: {escaped(DEFINITIONS.get(column, _TASK))}" for column in columns]
    return "\n\n## Columns\n\n" + "\n".join([*lines, "", ERRORS]) + "\n"
