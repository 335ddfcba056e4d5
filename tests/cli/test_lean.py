from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

DRAW = """
import sys
from nncftools.cli import lean

how, folder = sys.argv[1:]
if how == "lean":
    lean.numpy_without_threads()
    lean.matplotlib_without_manual()
import matplotlib
from nncftools.render.pictures.panels import page
from nncftools.render.view import View
from tests.render.golden import run

matplotlib.rcParams["svg.hashsalt"] = "same"
for ending in ("png", "svg"):
    page(run(), View(metrics=["rss"])).savefig(f"{folder}/{how}.{ending}")
"""


def test_the_picture_is_the_same(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left out of the libraries is nothing that a PNG or SVG picture shows, and no warning tells of it."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    for how in ("full", "lean"):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", DRAW, how, tmp_path], check=True, capture_output=True
        )
        assert done.stderr == b""

    assert (tmp_path / "lean.png").read_bytes() == (tmp_path / "full.png").read_bytes()
    assert (tmp_path / "lean.svg").read_bytes() == (tmp_path / "full.svg").read_bytes()
