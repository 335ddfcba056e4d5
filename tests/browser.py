"""The browser that pages are opened in."""

from __future__ import annotations

import os
import shutil

import pytest


def browser() -> str:
    """Return the path of Chromium; fail in CI without it, and leave the test out elsewhere."""
    found = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if found is None:
        if "CI" in os.environ:
            pytest.fail("in CI a browser must be there: apt-get install chromium")
        pytest.skip("no chromium on PATH")
    return found
