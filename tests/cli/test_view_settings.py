from __future__ import annotations

import pytest
from rich.color import ColorSystem

from nncftools.cli.display import make_settings
from nncftools.render.view import View

TRUE, MANY, FEW = ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT, ColorSystem.STANDARD


@pytest.mark.parametrize(
    "surroundings, colours",
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, TRUE),
        ({"TERM": "xterm-256color"}, MANY),
        ({"TERM": "xterm"}, FEW),
        ({"TERM": "linux"}, FEW),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor", "NO_COLOR": "1"}, None),
    ],
)
def test_colours(monkeypatch: pytest.MonkeyPatch, surroundings: dict[str, str], colours: ColorSystem | None) -> None:
    """The view has the colours that the environment names, and none with NO_COLOR."""
    for name in ("TERM", "COLORTERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in surroundings.items():
        monkeypatch.setenv(name, value)

    assert make_settings(View(["rss"]), "utf-8").colours == colours


@pytest.mark.parametrize(
    "encoding, term, expected",
    [
        ("utf-8", "xterm", True),
        ("UTF8", "xterm", True),
        ("ascii", "xterm", False),
        (None, "xterm", False),
        ("utf-8", "linux", False),
    ],
)
def test_characters(monkeypatch: pytest.MonkeyPatch, encoding: str | None, term: str, *, expected: bool) -> None:
    """More than ASCII is shown where the encoding has it; the fonts of the kernel's console do not."""
    monkeypatch.setenv("TERM", term)

    assert make_settings(View(["rss"]), encoding).unicode is expected
