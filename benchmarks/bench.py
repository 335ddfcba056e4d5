"""Run a measurement with all tools in turn, round after round, and keep what came of it."""

from __future__ import annotations

import pathlib
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.tools import HungError, Tool, ToolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.scale import Scale

Figures = dict[str, float | None]
"""Figures of one run of one tool, by key; None for a figure that the tool does not report."""


Measure = Callable[[Tool, pathlib.Path, int], Figures]
"""One run of one tool, in an empty folder, given the number of the round. Raises ToolError."""


@dataclass
class Results:
    """Results of the rounds of a measurement, by the tool's name; a round has the same index for all tools."""

    rounds: defaultdict[str, list[Figures | ToolError]] = field(default_factory=lambda: defaultdict(list))

    def values(self, tool: str, key: str) -> list[float | None]:
        """Return one figure of all rounds, None for those that failed."""
        return [None if isinstance(each, ToolError) else each.get(key) for each in self.rounds[tool]]

    def failures(self, tool: str) -> list[str]:
        """Return why rounds failed."""
        return [str(each) for each in self.rounds[tool] if isinstance(each, ToolError)]


@dataclass(frozen=True)
class Bench:
    """The tools, ours first, and how much is asked of them."""

    tools: Sequence[Tool]
    scale: Scale
    runs: int

    @property
    def wall_runs(self) -> int:
        """Rounds of a measurement of wall time, which varies more than CPU time."""
        return 3 * self.runs

    def paired(self, title: str, measure: Measure, rounds: int | None = None) -> Results:
        """Run ``measure`` with every tool in turn, in each round beginning with another one."""
        results = Results()
        hung: set[str] = set()
        rounds = rounds or self.runs
        for number in range(rounds):
            first = number % len(self.tools)
            for tool in (*self.tools[first:], *self.tools[:first]):
                if tool.name in hung:
                    continue
                outcome = _outcome(tool, measure, number)
                results.rounds[tool.name].append(outcome)
                if isinstance(outcome, HungError):
                    hung.add(tool.name)
                print(f"{title}: {tool.name}, {number + 1} of {rounds}: {_text(outcome)}", file=sys.stderr, flush=True)
        return results


def _outcome(tool: Tool, measure: Measure, number: int) -> Figures | ToolError:
    with tempfile.TemporaryDirectory(prefix="nncf-tools-bench-", ignore_cleanup_errors=True) as folder:
        try:
            return measure(tool, pathlib.Path(folder), number)
        except ToolError as error:
            return error


def _text(outcome: Figures | ToolError) -> str:
    if isinstance(outcome, ToolError):
        return str(outcome)
    return ", ".join(f"{key} {'–' if value is None else f'{value:.4g}'}" for key, value in outcome.items())
