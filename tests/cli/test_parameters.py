"""The help of each command, and errors in its words, with each release of typer that is allowed."""

from __future__ import annotations

import re

import pytest

from nncftools.cli import app
from tests.conftest import Run
from tests.made_up import rows

VALUES = """
--interval x | --interval: a time expected, such as 0.5 (seconds), 100ms or 2min, found 'x'
--interval '' | --interval: a time expected, such as 0.5 (seconds), 100ms or 2min, found ''
--repeat 1.0 | --repeat: a whole number expected, found '1.0'
--repeat 10001 | --repeat: at most 10000 expected, found 10001
--warmup 99999999999 | --warmup: at most 10000 expected, found 99999999999
--warmup -1 | --warmup: at least 0 expected, found -1
--prepare '' | --prepare: a shell command expected, found ''
--cleanup ' ' | --cleanup: a shell command expected, found ' '
--pid 0 | --pid: at least 1 expected, found 0
--unit tea | --unit: 'tea' is not one of B, KiB, MiB, GiB, KB, MB, GB
--unit mi | --unit: 'mi' is not one of B, KiB, MiB, GiB, KB, MB, GB; did you mean MiB?
"""


@pytest.mark.parametrize("words, message", rows(VALUES))
def test_wrong_values(in_process: Run, words: str, message: str) -> None:
    """A wrong value is named with its option and with what is wrong."""
    result = in_process(f"monitor {words} true")

    assert result.returncode == 2
    assert result.stderr == f"nncf-tools: error: option {message}\n"


WORDS = """
mark | argument NAME: missing; see `nncf-tools mark --help`
sweep | option --model: missing; see `nncf-tools sweep --help`
mark a b c | Got unexpected extra argument(s) (b c); see `nncf-tools mark --help`
monitor -i | Option '-i' requires an argument; see `nncf-tools COMMAND --help`
monitor --no-plot=1 | Option '--no-plot' does not take a value; see `nncf-tools COMMAND --help`
"""


@pytest.mark.parametrize("words, message", rows(WORDS))
def test_too_little_and_too_much(in_process: Run, words: str, message: str) -> None:
    """What is missing or too much is named in one line."""
    result = in_process(words)

    assert (result.returncode, result.stdout) == (2, "")
    assert _words(result.stderr) == _words(f"nncf-tools: error: {message}\n")


def _words(text: str) -> str:
    """Return a message of Click without what differs between its releases."""
    return re.sub(r"arguments?(\(s\))?|'", "", text)


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("command", app.COMMANDS)
def test_help(in_process: Run, monkeypatch: pytest.MonkeyPatch, command: str, columns: int) -> None:
    """Each help shows every option, examples, and no line of text that is longer than the terminal."""
    monkeypatch.setenv("COLUMNS", str(columns))
    result = in_process(command, "--help")
    _, options = re.split(r"\n(?=\w[\w ]+:\n)", result.stdout, maxsplit=1)
    texts = [line for line in options.splitlines() if line.startswith(" " * 8)]
    parameters = [
        parameter for parameter in app.load_command(command).params if not getattr(parameter, "hidden", False)
    ]
    names = [name for parameter in parameters for name in parameter.opts]

    assert result.returncode == 0
    assert [name for name in names if name.startswith("-") and name not in re.split(r"[\s,]+", result.stdout)] == []
    assert "\n  Example" in result.stdout
    assert max(map(len, result.stdout.splitlines() if columns >= 80 else texts)) <= columns
