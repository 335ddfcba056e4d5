"""What differs between releases of typer and Click: errors, usage lines, arguments in the help, the order of names.

``docs/commands.md`` and ``docs/mistakes.md`` hold every help and many errors; their tests compare each byte.
"""

from __future__ import annotations

import re
import sys

import pytest

from nncftools.cli import app
from tests.conftest import Run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--interval", "x"), "--interval: a time expected, such as 0.5 (seconds), 100ms or 2min, found 'x'"),
        (("--interval", ""), "--interval: a time expected, such as 0.5 (seconds), 100ms or 2min, found ''"),
        (("--repeat", "1.0"), "--repeat: a whole number expected, found '1.0'"),
        (("--pid", "0"), "--pid: at least 1 expected, found 0"),
        (("--unit", "tea"), "--unit: 'tea' is not one of B, KiB, MiB, GiB, KB, MB, GB"),
        (("--unit", "mi"), "--unit: 'mi' is not one of B, KiB, MiB, GiB, KB, MB, GB; did you mean MiB?"),
    ],
)
def test_wrong_values(in_process: Run, words: tuple[str, ...], message: str) -> None:
    """A wrong value is named with its option and with what is wrong."""
    result = in_process("monitor", *words, "true")

    assert result.returncode == 2
    assert result.stderr == f"nncf-tools: error: option {message}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("mark",), "argument NAME: missing"),
        (("mark", "a", "b", "c"), "unexpected arguments 'b', 'c'"),
        (("sweep",), "option --model: missing"),
        (("monitor", "-i"), "option -i: a value expected"),
        (("monitor", "--no-plot=1"), "option --no-plot: no value expected"),
    ],
)
def test_too_little_and_too_much(in_process: Run, words: tuple[str, ...], message: str) -> None:
    """What is missing or too much is named, with the command whose help to read."""
    result = in_process(*words)

    assert result.returncode == 2
    assert result.stderr == f"nncf-tools: error: {message}; see `nncf-tools {words[0]} --help`\n"


@pytest.mark.parametrize(
    ("command", "usage", "argument"),
    [
        ("monitor", "[OPTIONS] [COMMAND [ARGUMENT]]", "COMMAND [ARGUMENT]"),
        ("mark", "[OPTIONS] {NAME}", "NAME"),
        ("from-lm-eval", "[OPTIONS] [RESULTS]...", "[RESULTS]..."),
    ],
)
def test_help_of_arguments(in_process: Run, command: str, usage: str, argument: str) -> None:
    """Usage line and help show an argument as we describe it, without its type."""
    lines = in_process(command, "--help").stdout.splitlines()

    assert lines[0].endswith(f" {command} {usage}")
    assert any(line.startswith(f"  {argument}  ") for line in lines)


@pytest.mark.parametrize("columns", ["40", "60"])
@pytest.mark.parametrize("command", app.COMMANDS)
def test_colour_takes_no_room(in_process: Run, monkeypatch: pytest.MonkeyPatch, command: str, columns: str) -> None:
    """Help on a terminal is the plain help with colours."""
    monkeypatch.setenv("COLUMNS", columns)
    plain = in_process(command, "--help").stdout
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    coloured = in_process(command, "--help").stdout

    assert coloured.startswith("\x1b[1mUsage:\x1b[0m nncf-tools ")
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain


@pytest.mark.parametrize("command", [[], ["profile"], ["forecast"], ["prune"]])
def test_narrow_help(in_process: Run, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    """At 40 columns, only examples, names of options and what is laid out by hand may be longer than the terminal."""
    monkeypatch.setenv("COLUMNS", "40")
    shown = in_process(*command, "--help").stdout
    prose = [line for line in shown.splitlines() if line.startswith("        ")]

    assert prose
    assert max(map(len, prose)) <= 40
