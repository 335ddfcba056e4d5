"""What differs between releases of typer: errors of wrong values, usage lines and arguments in the help."""

from __future__ import annotations

import pytest

from tests.conftest import Run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--interval", "x"), "'--interval' / '-i': 'x' is not a valid float"),
        (("--interval", ""), "'--interval' / '-i': '' is not a valid float"),
        (("--max-samples", "1.0"), "'--max-samples': '1.0' is not a valid int"),
        (("--max-samples", "99"), "'--max-samples': 99 is not in the range x>=100"),
        (("--pid", "0"), "'--pid': 0 is not in the range x>=1"),
        (("--unit", "tea"), "'--unit' / '-u': 'tea' is not one of B, KiB, MiB, GiB, KB, MB, GB"),
    ],
)
def test_wrong_values(in_process: Run, words: tuple[str, ...], message: str) -> None:
    """A wrong value is named with its option and with what is wrong."""
    result = in_process("monitor", *words, "true")

    assert result.returncode == 2
    assert result.stderr.startswith(f"nncf-tools monitor: error: Invalid value for {message}; see ")


def test_missing_argument(in_process: Run) -> None:
    """A missing argument is named."""
    result = in_process("mark")

    assert result.returncode == 2
    assert "error: Missing argument 'NAME'; see" in result.stderr


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
