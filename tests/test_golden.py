"""What people and programs see stays as it is; ``python -m tests.golden_outputs`` writes it again."""

from __future__ import annotations

import importlib.metadata
import re

import pytest

from tests.conftest import NEWEST_TYPER
from tests.golden_outputs import FOLDER, OUTPUTS, STARTING, make_output, texts_of

_HAS_OLD_RICH = tuple(map(int, importlib.metadata.version("rich").split(".")[:2])) < (14, 3)
"""It gives columns of tables other widths."""


def _comparable(name: str, text: str, other: str) -> object:
    """Return what a text must have in common with another one: all, but for what depends on releases of libraries.

    Each release of Matplotlib, which the first line of a picture names, places texts elsewhere, and cuts long names so.
    """
    if name.endswith(".picture.txt") and text.partition("\n")[0] != other.partition("\n")[0]:
        return [re.sub(r"[^.:']*…\w*", "…", line) for line in texts_of(text)]
    return re.sub(" +", " ", text) if _HAS_OLD_RICH else text


def _marks(name: str) -> list[pytest.MarkDecorator]:
    if name.startswith("help."):
        return [NEWEST_TYPER]
    return [pytest.mark.process] if name in STARTING else []


@pytest.mark.parametrize("name", [pytest.param(name, marks=_marks(name)) for name in OUTPUTS])
def test_golden(name: str) -> None:
    """An output is as in ``tests/golden``, to the byte."""
    expected, found = (FOLDER / name).read_bytes().decode(), make_output(name)

    assert _comparable(name, found, expected) == _comparable(name, expected, found)


def test_no_other() -> None:
    """Each file in ``tests/golden`` is that of an output."""
    assert {path.name for path in FOLDER.iterdir() if path.is_file()} == set(OUTPUTS)
