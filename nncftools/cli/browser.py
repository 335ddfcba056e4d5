"""Shows a page in a browser."""

from __future__ import annotations

import webbrowser
from typing import TYPE_CHECKING

from nncftools.cli import screen

if TYPE_CHECKING:
    import pathlib


def show(page: pathlib.Path) -> None:
    """Open a page in the user's browser; without one, say where the page is."""
    if not webbrowser.open(page.absolute().as_uri()):
        screen.message(f"no browser could be opened; the page is {page}")
