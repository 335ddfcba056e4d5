from __future__ import annotations

import pytest

from benchmarks.truth.random_programs.judging import RULES, SHARES, Answer
from benchmarks.truth.random_programs.table import Judged, markdown, unmet


def _program(
    interval_ms: int = 50, *, wrong: tuple[str, ...] = (), also: tuple[str, ...] = (), times: int = 1
) -> Judged:
    """Return a program with an answer to each rule, except estimates; those to ``wrong`` are wrong."""
    rules = [rule for rule in (*RULES, *SHARES) if not rule.endswith("≈")] * times
    return Judged(7, interval_ms, [Answer(rule, rule not in wrong, "Export 1", "1", "2") for rule in [*rules, *also]])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("interval_ms", [10, 500])
def test_one_wrong_answer(rule: str, interval_ms: int) -> None:
    """One wrong answer of two to any rule is too many at any interval; shares are no such rule."""
    program = _program(interval_ms, wrong=(rule,))

    assert [text for text in unmet([_program(), program]) if f"wrong: {rule}" in text] != []


@pytest.mark.parametrize("rule, times", [("start", 50), ("change", 50), ("peak", 50), ("headline", 100)])
def test_shares_of_wrong_answers(rule: str, times: int) -> None:
    """One of 50 figures may be wrong, and one of 100 headlines; more are not."""
    assert unmet([_program(times=times - 1), _program(wrong=(rule,))]) == []
    assert unmet([_program(times=times - 2), _program(wrong=(rule,))]) == [f"1 wrong: {rule}"]


def test_estimates_at_50_ms() -> None:
    """Eight of a hundred starts and ends may be estimates at 50 ms; other intervals are free."""
    estimates = ("start ≈", "end ≈")

    assert unmet([_program(times=10), _program(10, also=estimates)]) == []
    assert unmet([_program(times=12, also=estimates)]) == []
    assert unmet([_program(times=11, also=estimates)]) == ["8.3% of starts and ends are estimates at 50 ms"]


def test_a_failure() -> None:
    """A program that could not be recorded is a fault, and is listed."""
    programs = [_program(), Judged(8, 10, (), "exit status 1")]

    assert unmet(programs) == ["a recording failed"]
    assert "- seed 8, 10 ms: failed: exit status 1" in markdown(programs)


def test_the_table() -> None:
    """There is a line for each interval and one for all, then each fault with its seed."""
    heading, _, *lines = markdown([_program(), _program(10, wrong=("start",), also=("end ≈",))]).splitlines()

    assert [line.count("|") for line in lines[:3]] == [heading.count("|")] * 3
    assert lines[0].startswith("| 10 ms | 1 | 1 | 0 of 1 | 1 of 1 |")
    assert lines[2].startswith("| all | 2 | 2 | 1 of 2 | 2 of 2 | 2 of 2 | 1 of 1 | 20.0% |")
    assert lines[4:] == ["- seed 7, 10 ms, Export 1: start 1, truth 2"]
