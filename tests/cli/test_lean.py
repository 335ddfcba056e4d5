from __future__ import annotations

import subprocess
import sys

import pytest

DRAW = """
import sys
from nncftools.cli import lean

how, ending = sys.argv[1:]
if how == "lean":
    lean.numpy_without_threads()
    lean.matplotlib_without_manual()
import matplotlib
from nncftools.render.panels import page
from nncftools.render.view import View
from tests.render.golden import run

matplotlib.rcParams["svg.hashsalt"] = "same"
page(run(), View(metrics=["rss"])).savefig(sys.stdout.buffer, format=ending)
"""


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_picture_is_the_same(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left out of the libraries is nothing that a picture shows, and no warning tells of it."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    full, lean = (
        subprocess.run([sys.executable, "-W", "error", "-c", DRAW, how, ending], check=True, capture_output=True)
        for how in ("full", "lean")
    )

    assert lean.stdout == full.stdout
    assert lean.stderr == b""
