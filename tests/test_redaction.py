from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from nncftools.intake import HIDDEN, Redaction

CASES = Path(__file__).parent / "data/redaction.txt"
LONGEST = 128 * 1024 - 1
"""The longest word that the kernel allows in a command line."""


def read_cases() -> list[tuple[str, str, str]]:
    """Return the kind of each text, the text, and what is shown of the text."""
    found = []
    kind = ""
    for block in CASES.read_text(encoding="utf-8").split("\n\n")[1:]:
        text, *shown = block.splitlines()
        if text.startswith("[") and text.endswith("]"):
            kind = text.strip("[]")
        else:
            found.append((kind, text, shown[0] if shown else text))
    return found


@pytest.mark.parametrize("kind, text, shown", read_cases())
def test_cases(kind: str, text: str, shown: str) -> None:
    """What looks like a secret is hidden, and nothing else: in commands, in lines for a shell and in code."""
    if kind == "command":
        assert Redaction().words(shlex.split(text)) == shlex.split(shown)
    elif kind == "shell":
        assert Redaction().words(["sh", "-c", text]) == ["sh", "-c", shown]
    else:
        assert Redaction().code(text) == shown


def test_option_without_a_value() -> None:
    """A following option is not a value."""
    words = ["login", "--use-auth-token", "--force"]
    assert Redaction().words(words) == words


def test_own_rules_in_code() -> None:
    """The user's expressions hide more of a line, and without redaction everything stays."""
    assert Redaction([r"/home/\w+"]).code("token = 'a'; open('/home/anna/x')") == "token = ***; open('***/x')"
    assert Redaction(None).code("token = 'a'") == "token = 'a'"


class TestOwn:
    def test_all_of_a_match(self) -> None:
        """Matches of the user's expression are hidden in addition."""
        hidden = Redaction([r"/home/\w+"]).words(["cat", "/home/anna/x", "--token=a"])
        assert hidden == ["cat", "***/x", "--token=***"]

    def test_its_group(self) -> None:
        """With a group in the expression, only the group is hidden."""
        assert Redaction(["id-([0-9]+)"]).words(["x", "--user", "id-4711"]) == ["x", "--user", "id-***"]

    def test_nothing(self) -> None:
        """An empty match hides nothing."""
        assert Redaction(["x*"]).words(["abc"]) == ["abc"]

    def test_off(self) -> None:
        """Without redaction, everything stays."""
        words = ["login", "--password", "hunter2", "hf_AbCdEfGhIjKl0123"]
        assert Redaction(None).words(words) == words


PIECES = (
    "a",
    "-",
    "_",
    ".",
    ".-",
    "A_",
    "a.",
    "key",
    "token ",
    "?-",
    "sk-",
    "hf_",
    "-eyJ",
    "://",
    "://:",
    "'",
    '"',
    "\\",
)


@pytest.mark.long
@pytest.mark.parametrize("piece", PIECES)
def test_longest_word(piece: str) -> None:
    """The longest word that the kernel allows takes linear time, for any content."""
    text = (piece * LONGEST)[:LONGEST]
    assert Redaction().words(["x", text, "--password", "hunter2"])[-1] == HIDDEN
    assert Redaction().code(text)
