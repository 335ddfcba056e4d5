"""What differs between releases of typer: errors of wrong values, usage lines and arguments in the help."""

from __future__ import annotations

import pytest

from tests.conftest import Run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--interval", "x"), "--interval: a time expected, such as 0.5 (seconds), 100ms or 2min, found 'x'"),
        (("--interval", ""), "--interval: a time expected, such as 0.5 (seconds), 100ms or 2min, found ''"),
        (("--max-samples", "1.0"), "--max-samples: a whole number expected, found '1.0'"),
        (("--max-samples", "99"), "--max-samples: at least 100 expected, found 99"),
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


def test_missing_argument(in_process: Run) -> None:
    """A missing argument is named."""
    result = in_process("mark")

    assert result.returncode == 2
    assert "error: missing argument 'NAME'; see" in result.stderr


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
