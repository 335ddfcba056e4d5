from __future__ import annotations

import pytest

from nncftools.render.view import command_text, label, printable, shortened
from tests.made_up import session


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain, ünï, 漢字, 🎉", "plain, ünï, 漢字, 🎉"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x00\x7f\x9b", "\\x00\\x7f\\x9b"),
        ("\u202e\u2028\ufeff", "\\u202e\\u2028\\ufeff"),
        ("\udcff", "\\udcff"),
        ("", ""),
    ],
)
def test_printable(text: str, expected: str) -> None:
    """What does not show, or would act on a terminal, is written out; everything else stays."""
    assert printable(text) == expected


@pytest.mark.parametrize(
    ("text", "length", "expected"),
    [
        ("abcdefghij", 10, "abcdefghij"),
        ("abcdefghijk", 10, "abcdef…ijk"),
        ("", 5, ""),
        ("abcdef", 2, "…f"),
    ],
)
def test_shortened(text: str, length: int, expected: str) -> None:
    """A long text is cut in its middle to exactly the length, a short one stays."""
    assert shortened(text, length) == expected


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
