"""Tests of the file names of a recording."""

from __future__ import annotations

import pathlib

import pytest

from nncftools.cli.destination import numbered


@pytest.mark.parametrize(
    ("name", "expected"),
    [("run.json", "run-2.json"), ("a.b.json.gz", "a.b-2.json.gz"), ("run", "run-2"), ("run.gz", "run-2.gz")],
)
def test_numbered(name: str, expected: str) -> None:
    """The suffix comes before the extensions of a session."""
    assert numbered(pathlib.Path("x") / name, "-2") == pathlib.Path("x") / expected
