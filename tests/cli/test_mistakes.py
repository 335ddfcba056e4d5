from __future__ import annotations

import re

import pytest

from nncftools.analysis.figures import FIGURES
from nncftools.cli import app
from nncftools.metrics import MEMORY
from nncftools.units import guess
from tests.cli import mistakes
from tests.conftest import NEWEST_TYPER, Run
from tests.made_up import rows


@NEWEST_TYPER
def test_page_is_current() -> None:
    """docs/limits-and-mistakes.md lists natural mistakes, and what each of them prints today."""
    assert mistakes.PAGE.read_text(encoding="utf-8") == mistakes.page()


OPTIONS = """
profile --pid | `nncf-tools monitor --pid` records a running process
profile --json | `nncf-tools report --format json` writes that format
monitor --mark-call | this is an option of profile
monitor --mark-on | this is an option of profile
monitor --depth | this is an option of profile, report, compare
report --repeat | this is an option of profile, monitor
fit --repeat | this is an option of profile, monitor
list --order | see `nncf-tools list --help`
report --mark-call | this is an option of profile
report --no-stacks | this is an option of profile, monitor
report -y | this is an option of prune
viz-compression --y | see `nncf-tools viz-compression --help`
list --f | see `nncf-tools list --help`
monitor --no-stack | did you mean --no-stacks?
monitor --no-color | see `nncf-tools monitor --help`
monitor --reps | did you mean --repeat?
monitor --live-view | did you mean --live?
monitor --memory | did you mean --max-memory?
monitor --out | did you mean --output?
monitor --log | did you mean --log-dir?
monitor --inteval | did you mean --interval?
monitor --interval-ms | did you mean --interval?
monitor -z | see `nncf-tools monitor --help`
compare --baseline | did you mean --base?
compare --fail | did you mean --fail-if?
compare --gate | see `nncf-tools compare --help`
list --reverse | see `nncf-tools list --help`
report --output-dir | did you mean --output?
viz-compression --output | did you mean --output-dir?
--versio | did you mean --version?
"""


@pytest.mark.parametrize("words, answer", rows(OPTIONS))
def test_options(in_process: Run, words: str, answer: str) -> None:
    """For an unknown option, a near one of the command is proposed, or what does the same."""
    option = words.rsplit(maxsplit=1)[-1]
    result = in_process(words)

    assert (result.returncode, result.stdout) == (2, "")
    assert re.fullmatch(rf"nncf-tools: error: No such option\W+{option}'?; {re.escape(answer)}\n", result.stderr)


@pytest.mark.parametrize(
    "known, typed, expected",
    [
        (MEMORY, "sys", "system"),
        (MEMORY, "res", ""),
        (MEMORY, "swp", "swap"),
        (FIGURES, "peak_rs", "peak_rss"),
        (FIGURES, "write", "write_bytes"),
        (app.COMMANDS, "lsit", "list"),
        (app.COMMANDS, "rep", "report"),
        (app.COMMANDS, "viz", "viz-compression"),
        (["b_x", "a_x"], "x", ""),
        (["b_xyz", "a_xyz"], "xyz", "b_xyz"),
    ],
)
def test_guess(known: list[str], typed: str, expected: str) -> None:
    """A word that begins or ends one name means that; of several, the nearest and then the first; else a near one."""
    assert guess(typed, known) == expected
