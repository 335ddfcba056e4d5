from __future__ import annotations

import pytest

from nncftools.marks.collecting import no_marks_reason
from nncftools.session.model import Process


def of(*command: str, apart: tuple[str, ...] = (), pid: int = 7) -> Process:
    """Return a process."""
    return Process(id=pid, pid=pid, name="python", command=list(command), apart=list(apart))


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["python", "-I", "a.py"], "-I"),
        (["/usr/bin/python3.11", "-sE", "a.py"], "-E"),
        (["python3", "-W", "error", "-S", "-c", "1"], "-S"),
        (["pypy3", "-X", "dev", "-BI", "a.py"], "-I"),
    ],
)
def test_isolated(command: list[str], option: str) -> None:
    """A Python with an option that keeps it from the hook is the reason that is named."""
    expected = (
        f"no Python program loaded the hook: process 7 (python) ran an isolated Python ({option}), which loads no hook"
    )

    assert no_marks_reason([of(*command)], 0, 0) == expected


@pytest.mark.parametrize(
    "command",
    [
        ["python", "a.py", "-I"],
        ["python", "-c", "-I"],
        ["python", "-m", "x", "-S"],
        ["bash", "-I"],
        ["python", "-"],
        [],
    ],
)
def test_not_isolated(command: list[str]) -> None:
    """Words of the program, and options of other programs, say nothing about the interpreter: no reason is known."""
    assert "why is not known" in no_marks_reason([of(*command)], 0, 0)


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("user", "ran as another user, who may not write"),
        ("root", "had another root"),
        ("clock", "had another clock (a time namespace)"),
    ],
)
def test_apart(way: str, words: str) -> None:
    """Another user, another root folder and another clock are named with the process."""
    found = no_marks_reason([of("python", "a.py", apart=(way,)), of("python", apart=(way,), pid=8)], 1, 0)

    assert found.startswith(f"1 Python program loaded the hook, and process 7 (python) and 1 more {words}")


def test_marks_at_other_times() -> None:
    """Marks that were made outside of the recording are counted."""
    assert no_marks_reason([], 2, 5) == (
        "2 Python programs loaded the hook, and the times of 5 marks are outside of the recording"
    )


def test_nothing_known() -> None:
    """A program that loaded the hook and marked nothing called no function that is marked; that is all we know."""
    assert no_marks_reason([of("python", "a.py")], 1, 0) == (
        "1 Python program loaded the hook and called no catalogued function that could be marked"
    )
