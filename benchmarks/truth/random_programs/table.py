"""The table of random programs, and whether it is as good as it must be."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.truth.random_programs.judging import (
    DECIDED,
    ESTIMATES,
    FIGURES,
    HEADLINE,
    HOLDS,
    MISSING,
    RULES,
    RUN,
    SHARES,
    TIGHT,
    TOGETHER,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.truth.random_programs.judging import Answer

_STRICT_MS = 50
"""The interval at which few figures may be estimates."""
_ESTIMATES_SHARE = 0.08
_LEAST_SHARES = dict.fromkeys((*FIGURES, HOLDS), 0.98) | {HEADLINE: 0.99}
"""Of the answers to these rules, this share must be right; of all other rules, every answer."""
_COLUMNS = (
    "interval", "programs", "operations", "starts right", "ends right", "changes right", "≈ that are right",
    "≈, of starts and ends", "peaks held", "peaks tight", "peak fits start and end", "missing", "run peaks",
    "headlines", "of them undecided",
)  # fmt: skip


class Judged(NamedTuple):
    """The answers of one program."""

    seed: int
    interval_ms: int
    answers: Sequence[Answer]
    failure: str = ""
    """Why it could not be recorded."""


class _Counts:
    """How many answers there are, and how many of them are right, by rule."""

    def __init__(self, programs: Sequence[Judged]) -> None:
        every = [answer for program in programs for answer in program.answers]
        self.programs = len(programs)
        self.asked = Counter(answer.rule for answer in every)
        self.right = Counter(answer.rule for answer in every if answer.is_right)

    def of(self, *rules: str) -> tuple[int, int]:
        """Return how many are right, of how many."""
        return sum(self.right[rule] for rule in rules), sum(self.asked[rule] for rule in rules)

    def share_of_estimates(self) -> float:
        """Return how many of starts and ends are estimates."""
        estimates, figures = self.of(*ESTIMATES[:2])[1], self.of(*FIGURES[:2])[1]
        return estimates / max(estimates + figures, 1)

    def wrong(self, *rules: str) -> int:
        """Return how many are wrong."""
        right, asked = self.of(*rules)
        return asked - right


def markdown(programs: Sequence[Judged]) -> str:
    """Return the table, and below it each fault."""
    intervals = sorted({program.interval_ms for program in programs})
    groups = [(f"{length} ms", [one for one in programs if one.interval_ms == length]) for length in intervals]
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|---|" + "---:|" * (len(_COLUMNS) - 1)]
    lines += [_line(title, some) for title, some in [*groups, ("all", programs)]]
    faults = [text for program in programs for text in faults_of(program)]
    return "\n".join([*lines, *(["", *(f"- {text}" for text in faults)] if faults else [])]) + "\n"


def _line(title: str, programs: Sequence[Judged]) -> str:
    counts = _Counts(programs)
    rules = [(figure,) for figure in FIGURES]
    cells = [title, str(counts.programs), str(counts.of(MISSING)[1]), *(_often(counts, *rule) for rule in rules)]
    cells += [_often(counts, *ESTIMATES), f"{counts.share_of_estimates():.1%}"]
    cells += [_often(counts, HOLDS), _often(counts, TIGHT), _often(counts, TOGETHER), str(counts.wrong(MISSING))]
    cells += [_often(counts, RUN), _often(counts, HEADLINE), str(counts.wrong(DECIDED))]
    return "| " + " | ".join(cells) + " |"


def _often(counts: _Counts, *rules: str) -> str:
    right, asked = counts.of(*rules)
    return f"{right} of {asked}" if asked else "–"


def faults_of(program: Judged) -> list[str]:
    """Return what is wrong, as one line each; sizes are in MiB."""
    failure = [f"seed {program.seed}, {program.interval_ms} ms: failed: {program.failure}"] * bool(program.failure)
    return failure + _wrong(program, RULES)


def doubts_of(program: Judged) -> list[str]:
    """Return what is right and could be better, in the same way."""
    return _wrong(program, SHARES)


def _wrong(program: Judged, rules: Sequence[str]) -> list[str]:
    return [
        f"seed {program.seed}, {program.interval_ms} ms, {': '.join(filter(None, (answer.operation, answer.rule)))} "
        f"{answer.said}, truth {answer.truth}"
        for answer in program.answers
        if answer.rule in rules and not answer.is_right
    ]


def unmet(programs: Sequence[Judged]) -> list[str]:
    """Return what must be reached and is not."""
    counts = _Counts(programs)
    strict = _Counts([program for program in programs if program.interval_ms == _STRICT_MS])
    found = ["a recording failed"] * any(program.failure for program in programs)
    for rule in RULES:
        right, asked = counts.of(rule)
        if right < asked * _LEAST_SHARES.get(rule, 1.0):
            found.append(f"{asked - right} wrong: {rule}")
    share = strict.share_of_estimates()
    if share > _ESTIMATES_SHARE:
        found.append(f"{share:.1%} of starts and ends are estimates at {_STRICT_MS} ms")
    return found
