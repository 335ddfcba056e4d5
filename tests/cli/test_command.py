from __future__ import annotations

import pathlib

import pytest

from nncftools.cli.planning import arguments, shell_only
from nncftools.errors import UsageError


@pytest.mark.parametrize(
    ("line", "special"),
    [
        ("python a.py > out.txt", ">"),
        ("python a.py >> out.txt", ">>"),
        ("cat < in.txt", "<"),
        ("a | b", "|"),
        ("a&&b", "&&"),
        ("a || b", "||"),
        ("a; b", ";"),
        ("a &", "&"),
        ("(a b)", "("),
        ("a $X", "$"),
        ('a "$X"', "$"),
        ("a `b`", "`"),
        ('a "x `b`"', "`"),
        ("ls *.py", "*"),
        ("ls a?.py", "?"),
        ("ls [ab].py", "["),
        ("ls ~/x", "~"),
        ("a # comment", "#"),
        ("a\nb", "\n"),
        ("a \\\n b", "\\\n"),
        ('a "\\$x"', "\\$"),
        ("X=1 a", "X="),
    ],
)
def test_shell_only(line: str, special: str) -> None:
    """The first characters that a shell would act on are found."""
    assert shell_only(line) == special


@pytest.mark.parametrize(
    "line", ["a 'x > $y'", 'a "x > y; *"', r"a \| b", "a b=c\n", "a b~c", "a b#c", "python -c 'print(1); print(2)'"]
)
def test_quoted(line: str) -> None:
    """What is quoted or stands inside a word is taken literally by a shell, too."""
    assert shell_only(line) == ""


@pytest.mark.parametrize("words", [["python a.py > out.txt"], ["a|b"]])
def test_line_for_a_shell_is_refused(words: list[str]) -> None:
    """One string with such characters is refused, and the message names the way."""
    with pytest.raises(UsageError, match=r"only a shell understands .* put --shell before it"):
        arguments(words, shell=False)


def test_words_are_never_refused() -> None:
    """Several words are passed on unchanged, whatever they hold."""
    assert arguments(["echo", "a > b", "$X"], shell=False) == ["echo", "a > b", "$X"]


def test_name_of_a_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's name is no line, whatever it holds."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a > b").touch()

    assert arguments(["a > b"], shell=False) == ["a > b"]


def test_program_with_a_special_name() -> None:
    """A program on PATH is no line."""
    assert arguments(["["], shell=False) == ["["]
