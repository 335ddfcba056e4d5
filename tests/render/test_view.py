from __future__ import annotations

import pytest

from nncftools.render.view import command_text, label
from tests.made_up import session


@pytest.mark.parametrize(
    ("metric", "expected"),
    [("rss", "RSS"), ("system", "System"), ("foreign", "foreign"), ("a\x1bb", "a\\x1bb")],
)
def test_label(metric: str, expected: str) -> None:
    """A known metric has its label, a foreign one its own name."""
    assert label(metric) == expected


@pytest.mark.parametrize(
    ("command", "name", "expected"),
    [
        (["python", "a b.py"], "run", "python 'a b.py'"),
        (["echo", "\x1b[0m"], "run", "echo '\\x1b[0m'"),
        ([], "run", "run"),
        ([], "", "unknown command"),
    ],
)
def test_command_text(command: list[str], name: str, expected: str) -> None:
    """The command is shown as one could type it, else the name."""
    assert command_text(session(command=command, name=name)) == expected
